"""Catalogue of well-known models."""
