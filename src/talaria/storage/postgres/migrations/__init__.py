"""Append-only schema migrations in numbered SQL files."""
