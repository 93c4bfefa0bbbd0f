"""`talaria gateway`: chat gateway and its service."""
