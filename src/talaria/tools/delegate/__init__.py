"""Delegate tasks to child sessions."""
