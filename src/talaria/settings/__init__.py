"""Typed configuration: the only reader of config files and of the environment."""
