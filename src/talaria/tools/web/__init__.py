"""The web: pages as readable text, and search."""
