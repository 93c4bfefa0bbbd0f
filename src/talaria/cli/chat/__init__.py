"""Terminal chat: interactive, plain and one-shot."""
