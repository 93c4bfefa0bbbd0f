"""Interactive terminal chat, built on prompt_toolkit."""
