"""Webhooks: signed events of other programs become turns, and replies are posted back, signed."""
