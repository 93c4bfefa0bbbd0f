"""One folder per tool family."""
