"""One folder per model protocol; base/ and http/ are shared."""
