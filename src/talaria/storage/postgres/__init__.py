"""The store for several machines: one PostgreSQL, any number of workers."""
