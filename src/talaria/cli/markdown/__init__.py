"""Markdown rendering for the terminal."""
