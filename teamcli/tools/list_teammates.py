"""`list_teammates`: who is on the team, and what each one does."""

from __future__ import annotations

from typing import NamedTuple

from teamcli.agent.tool import Display, ToolOutput
from teamcli.tools.base.context import CallContext, TeamPort
from teamcli.tools.base.tool import team_tool


class ListTeammatesInput(NamedTuple):
    """Name, role and status of each teammate."""


def run(_args: ListTeammatesInput, team: TeamPort, _agent: str, _call: CallContext) -> ToolOutput:
    return ToolOutput(team.describe())


LIST_TEAMMATES = team_tool("list_teammates", ListTeammatesInput, run, show=lambda args: Display("list teammates"))
