"""Delegated tasks: storage, child sessions and background execution."""
