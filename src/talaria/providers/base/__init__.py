"""Parts shared by all protocols: HTTP provider, errors, transcript repair, encoding."""
