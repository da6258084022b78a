"""Which tools there are, and who has them. The order is part of the request's stable prefix."""

from __future__ import annotations

from typing import Protocol

from teamcli.agent.tool import AnyTool
from teamcli.tools.base import Toolbox
from teamcli.tools.bash import BASH
from teamcli.tools.bash_output import BASH_OUTPUT
from teamcli.tools.bash_stop import BASH_STOP
from teamcli.tools.broadcast import BROADCAST
from teamcli.tools.edit_file import EDIT_FILE
from teamcli.tools.glob import GLOB
from teamcli.tools.grep import GREP
from teamcli.tools.list_teammates import LIST_TEAMMATES
from teamcli.tools.plan_review import PLAN_REVIEW
from teamcli.tools.read_file import READ_FILE
from teamcli.tools.read_inbox import READ_INBOX
from teamcli.tools.send_message import SEND_MESSAGE
from teamcli.tools.shutdown_request import SHUTDOWN_REQUEST
from teamcli.tools.shutdown_response import SHUTDOWN_RESPONSE
from teamcli.tools.spawn_teammate import SPAWN_TEAMMATE
from teamcli.tools.submit_plan import SUBMIT_PLAN
from teamcli.tools.wait_for_message import WAIT_FOR_MESSAGE
from teamcli.tools.write_file import WRITE_FILE


class Bindable(Protocol):
    """A tool whatever its input: what a tuple of them has in common."""

    @property
    def name(self) -> str: ...

    def bind(self, toolbox: Toolbox) -> AnyTool: ...


BASE_TOOLS: tuple[Bindable, ...] = (BASH, READ_FILE, WRITE_FILE, EDIT_FILE, GLOB, GREP, BASH_OUTPUT, BASH_STOP)
"""Of an agent without a team."""

LEAD_TOOLS: tuple[Bindable, ...] = (
    BASH,
    READ_FILE,
    WRITE_FILE,
    EDIT_FILE,
    SPAWN_TEAMMATE,
    LIST_TEAMMATES,
    SEND_MESSAGE,
    READ_INBOX,
    BROADCAST,
    GLOB,
    GREP,
    WAIT_FOR_MESSAGE,
    SHUTDOWN_REQUEST,
    PLAN_REVIEW,
    BASH_OUTPUT,
    BASH_STOP,
)

TEAMMATE_TOOLS: tuple[Bindable, ...] = (
    BASH,
    READ_FILE,
    WRITE_FILE,
    EDIT_FILE,
    SEND_MESSAGE,
    READ_INBOX,
    GLOB,
    GREP,
    WAIT_FOR_MESSAGE,
    SUBMIT_PLAN,
    SHUTDOWN_RESPONSE,
    BASH_OUTPUT,
    BASH_STOP,
)

ALL_TOOLS: tuple[Bindable, ...] = (*LEAD_TOOLS, *(tool for tool in TEAMMATE_TOOLS if tool not in LEAD_TOOLS))
"""Whoever has them: what a permission rule may name."""


def bind_tools(tools: tuple[Bindable, ...], toolbox: Toolbox) -> dict[str, AnyTool]:
    return {tool.name: tool.bind(toolbox) for tool in tools}
