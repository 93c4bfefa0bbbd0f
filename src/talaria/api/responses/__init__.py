"""`/v1/responses`: what clients ask, what they get at once, piece by piece, or later."""
