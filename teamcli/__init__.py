"""teamcli: a coding agent in the terminal that is a team."""

__version__ = "0.1.0"
