"""Handoff: move a session to another chat on request, through a durable state machine and one worker."""
