"""The web: read pages as text, and search."""
