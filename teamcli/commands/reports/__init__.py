"""Reports that slash commands and the command line share: the team, an inbox, the timeline, sessions."""
