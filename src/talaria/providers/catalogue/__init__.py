"""What is known of well-known models."""
