"""`broadcast`: one message to every teammate."""

from __future__ import annotations

from typing import NamedTuple

from teamcli.agent.tool import ToolOutput
from teamcli.tools.base.context import CallContext, TeamPort
from teamcli.tools.base.tool import show_words, team_tool
from teamcli.tools.base.tool_input import Words


class BroadcastInput(NamedTuple):
    """Write to all teammates, and wake all. For a few use send_message."""

    content: Words


def run(args: BroadcastInput, team: TeamPort, agent: str, call: CallContext) -> ToolOutput:
    return ToolOutput(team.mail.broadcast(agent, args.content, call.key))


BROADCAST = team_tool("broadcast", BroadcastInput, run, show=lambda args: show_words("broadcast", args.content))
