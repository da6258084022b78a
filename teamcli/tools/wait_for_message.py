"""`wait_for_message`: do nothing, at no cost, until a message arrives.

It runs in order with the other team tools of an answer, so that messages from before it are sent. Commands and file
tools of the same answer do not wait for it.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from teamcli.agent.tool import Display, ToolOutput
from teamcli.tools.base.context import CallContext, TeamPort
from teamcli.tools.base.tool import team_tool
from teamcli.tools.base.tool_input import Between

DEFAULT_TIMEOUT_SECONDS = 60
MAX_TIMEOUT_SECONDS = 600


class WaitForMessageInput(NamedTuple):
    """Wait until a message comes, and read it. Only when you can do nothing without it; when your work is done, end
    your turn: mail wakes you."""

    timeout_seconds: Annotated[int, Between(1, MAX_TIMEOUT_SECONDS)] = DEFAULT_TIMEOUT_SECONDS


def run(args: WaitForMessageInput, team: TeamPort, agent: str, call: CallContext) -> ToolOutput:
    return team.quiescence.wait_for_message(agent, args.timeout_seconds, call.cancel)


def show(args: WaitForMessageInput) -> Display:
    return Display(f"wait for messages (up to {args.timeout_seconds} s)")


WAIT_FOR_MESSAGE = team_tool("wait_for_message", WaitForMessageInput, run, show)
