"""Borders around what a model runs."""
