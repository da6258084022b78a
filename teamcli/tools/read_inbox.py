"""`read_inbox`: the messages that the agent has not read yet. The team marks in the output how far it has read."""

from __future__ import annotations

from typing import NamedTuple

from teamcli.agent.tool import Display, ToolOutput
from teamcli.tools.base.context import CallContext, TeamPort
from teamcli.tools.base.tool import team_tool


class ReadInboxInput(NamedTuple):
    """Read your new messages now. Seldom needed: they come by themselves between your calls."""


def run(_args: ReadInboxInput, team: TeamPort, agent: str, _call: CallContext) -> ToolOutput:
    return team.mail.read_inbox(agent)


READ_INBOX = team_tool("read_inbox", ReadInboxInput, run, show=lambda args: Display("read inbox"))
