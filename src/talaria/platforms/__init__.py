"""Chat networks: one folder for each, all alike."""
