"""teamcli as a library: `from teamcli import Session`."""
