"""What was said in earlier conversations, found again by words and by meaning."""
