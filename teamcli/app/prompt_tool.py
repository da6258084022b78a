"""Who answers permission questions without a terminal: the program that drives teamcli, or the tool of an MCP server
that `--permission-prompt-tool` names."""

from __future__ import annotations

from collections.abc import Callable

from teamcli.cancel import CancelScope
from teamcli.config.options import Options
from teamcli.errors import UsageError
from teamcli.session.session import Session
from teamcli.storage.files import Json
from teamcli.ui.control.approval import Approval, ask_server

STDIO = "stdio"


class OpenedLater:
    """A session that is built with something that needs it."""

    def __init__(self) -> None:
        self._session: Session | None = None

    def set(self, session: Session) -> Session:
        self._session = session
        return session

    def get(self) -> Session:
        assert self._session is not None, "no call is made before the session is open"
        return self._session


def approval_of(
    options: Options, opened: OpenedLater, ask_program: Callable[[Json, CancelScope], Json] | None = None
) -> Approval | None:
    """None if nobody is asked. `ask_program` asks the program that drives this one.

    Raises: UsageError
    """
    tool = options.permission_prompt_tool
    if tool == STDIO and ask_program is not None:
        return Approval(ask_program, opened.get)
    if not tool or tool == STDIO:
        return None
    if tool.count("__") < 2 or not tool.startswith("mcp__"):
        raise UsageError(f"--permission-prompt-tool: {tool} is not of the form mcp__SERVER__TOOL")
    return Approval(lambda fields, cancel: ask_server(opened.get(), tool, fields, cancel), opened.get)
