"""Another program drives teamcli, with messages on standard input and output, as the SDK of Claude Code does."""
