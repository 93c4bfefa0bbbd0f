"""`talaria doctor`: checks and repairs."""
