"""Slash commands, one file each, the same behind every front door."""
