"""Embedded SQLite store: one file in the profile's folder."""
