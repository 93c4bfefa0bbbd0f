"""Markdown that arrives in pieces, as lines for a terminal; loaded by name, behind the prompt."""
