"""Sections of the settings, one module per subject."""
