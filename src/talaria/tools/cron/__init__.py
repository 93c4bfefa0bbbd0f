"""Scheduled jobs for the model."""
