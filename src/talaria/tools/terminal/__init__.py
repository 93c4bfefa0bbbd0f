"""Shell commands run by a model."""
