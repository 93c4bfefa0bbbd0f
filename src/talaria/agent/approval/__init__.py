"""Whether what a model wants to do may happen, is asked about, or is refused."""
