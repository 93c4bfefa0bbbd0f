"""Homes of other agents, one module each: read, and never written."""
