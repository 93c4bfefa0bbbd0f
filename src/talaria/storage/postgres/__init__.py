"""PostgreSQL store, shared by any number of workers on several machines."""
