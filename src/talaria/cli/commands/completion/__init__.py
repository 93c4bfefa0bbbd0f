"""`talaria completion`: completion scripts for shells."""
