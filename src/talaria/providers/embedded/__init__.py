"""The small model inside Talaria: it answers where there is neither a key nor a local server."""
