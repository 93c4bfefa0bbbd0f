"""Slash commands, shared by all surfaces."""
