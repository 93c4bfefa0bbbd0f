"""Outbound messages: delivery, rate limits, previews, splitting and voice replies."""
