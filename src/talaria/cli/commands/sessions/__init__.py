"""`talaria sessions`: stored sessions."""
