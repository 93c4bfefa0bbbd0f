"""Commands that a model runs on this machine."""
