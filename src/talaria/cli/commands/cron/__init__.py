"""`talaria cron`: scheduled jobs."""
