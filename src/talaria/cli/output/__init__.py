"""Terminal output and argument formats shared by subcommands."""
