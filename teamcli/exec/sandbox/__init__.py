"""The sandbox that commands run in, drawn with bubblewrap (`bwrap`)."""

from teamcli.errors import ToolError


class NoSandbox(ToolError):
    """Raised if no sandbox can be made on this machine, whatever the workspace."""
