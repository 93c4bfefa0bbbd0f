"""Input items of clients, shared by responses and runs."""
