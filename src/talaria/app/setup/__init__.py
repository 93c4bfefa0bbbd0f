"""Probes of the interactive setup: discovery, and checks of keys and tokens."""
