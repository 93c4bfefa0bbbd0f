"""Gateway assembly: networks, media models and webhooks of a profile."""
