"""Routes of the web app."""
