"""`talaria update`: versions next to each other, and the switch between them."""
