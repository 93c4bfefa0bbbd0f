"""Scheduled jobs: recurrence, due runs, executing them, the heartbeat."""
