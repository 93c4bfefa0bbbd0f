"""ntfy: push notifications to phones and browsers, and messages that people publish to the same topic."""
