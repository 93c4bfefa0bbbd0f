"""Decide whether a tool call may run: shell parsing, paths, grants, policy."""
