"""Watching and controlling running turns from other processes."""
