"""What `talaria cron` does, a module for each kind of action."""
