"""A chat of lines over TCP: the example of how to add a network, and what `talaria dev new-platform` copies."""
