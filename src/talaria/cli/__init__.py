"""The terminal: one module for each subcommand, loaded when it is asked for."""
