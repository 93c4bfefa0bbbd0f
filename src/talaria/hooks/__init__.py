"""Hooks: programs and functions of the owner that run on events, without blocking turns."""
