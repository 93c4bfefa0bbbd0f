"""Slack, over Socket Mode and the Web API."""
