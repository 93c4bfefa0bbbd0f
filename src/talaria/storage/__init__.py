"""Implementations of the store contracts for SQLite and PostgreSQL."""
