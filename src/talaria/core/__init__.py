"""The vocabulary every part shares: ids, addresses, messages, turn events, errors."""
