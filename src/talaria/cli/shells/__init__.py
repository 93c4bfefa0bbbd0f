"""Completion scripts, one module for each shell: pure functions from the command line's tree to a script."""
