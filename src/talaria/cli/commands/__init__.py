"""Subcommands of `talaria`."""
