"""The embedded store: one SQLite file in the profile's folder."""
