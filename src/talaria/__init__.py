"""A personal AI agent that lives wherever its person is."""

__version__ = "0.1.0"
