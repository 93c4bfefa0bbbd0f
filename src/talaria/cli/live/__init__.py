"""The chat on a terminal: finished text above, what is going on and the input line below it."""
