"""Standing goals: whether a finished turn calls for another."""
