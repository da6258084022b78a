"""The command line: options, exit codes, and the subcommands."""
