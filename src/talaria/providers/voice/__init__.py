"""Hearing and speaking: over the audio routes that many servers have, or by a command of this machine."""
