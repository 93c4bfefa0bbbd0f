"""Speech to text and text to speech, over audio routes or by local commands."""
