"""Around every route: routing, auth, limits, origins, idempotency, errors, metrics, server."""
