"""Sandboxes for programs that a model runs."""
