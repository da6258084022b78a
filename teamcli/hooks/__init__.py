"""Running hooks: commands from settings, and functions of a host program."""
