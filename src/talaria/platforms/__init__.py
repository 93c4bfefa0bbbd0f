"""One folder per chat network."""
