"""The `talaria` command line: subcommands, dispatch, services, help and error reports."""
