"""Python that a model writes, in a process of its own, with the tools as functions."""
