"""The processes between teamcli and its commands.

The *host*, one per program, forks *supervisors*. A supervisor runs one command at a time and is the child subreaper of
everything the command starts, so nothing escapes: not by setsid, nor by a double fork. End of file on a socket means
that teamcli is gone, however it died, and the supervisor ends what runs. Without a subreaper (macOS), processes that
left both the command's process group and its chain of parents are not found; everything else holds.

This package runs on its own under `python -I -S` (see `host_process`), so it imports itself by relative names only and
nothing else of teamcli.
"""
