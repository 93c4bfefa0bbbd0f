"""The vocabulary: messages, addresses, ids, errors. Imports nothing of ours."""
