"""Hand tasks on to conversations of their own."""
