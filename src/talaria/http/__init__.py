"""HTTP server shared by front ends: routes, requests and replies, limits, idempotency, errors, metrics."""
