"""Command line: one module per subcommand, loaded on demand."""
