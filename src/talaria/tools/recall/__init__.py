"""Search earlier sessions by words and by meaning."""
