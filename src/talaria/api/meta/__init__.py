"""Routes about the API itself: health, metrics, models, OpenAPI, documentation page."""
