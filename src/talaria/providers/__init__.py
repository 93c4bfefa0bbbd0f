"""Wire protocols of model providers, one folder each."""
