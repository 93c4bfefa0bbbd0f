"""The embedded model, used without a key or a local server."""
