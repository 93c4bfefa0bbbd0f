"""Contracts that adapters implement and callers rely on: protocols and the data they exchange."""
