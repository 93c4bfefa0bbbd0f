"""A session as data: its key, title, branches, transcript, preferences, prompt prefix."""
