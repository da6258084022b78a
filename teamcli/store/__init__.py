"""A team's state in an engine other than files. What the team needs of an engine are the protocols of its parts."""
