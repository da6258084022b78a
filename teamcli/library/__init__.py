"""teamcli inside another program: `from teamcli import Session`."""
