"""Scheduled jobs: when to start a turn nobody asked for, and what becomes of it."""
