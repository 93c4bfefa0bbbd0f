"""Saying something in a chat other than by answering."""
