"""`shutdown_request`: ask a teammate to leave the team."""

from __future__ import annotations

from typing import NamedTuple

from teamcli.agent.tool import Display, ToolOutput
from teamcli.tools.base.context import CallContext, TeamPort
from teamcli.tools.base.tool import show_words, team_tool


class ShutdownRequestInput(NamedTuple):
    """End a teammate and its memory: an idle one at once, a working one if it agrees, as a message will tell."""

    teammate: str
    reason: str = ""


def run(args: ShutdownRequestInput, team: TeamPort, agent: str, _call: CallContext) -> ToolOutput:
    return ToolOutput(team.protocols.request_shutdown(agent, args.teammate, args.reason))


def show(args: ShutdownRequestInput) -> Display:
    return show_words(f"ask {args.teammate} to shut down", args.reason)


SHUTDOWN_REQUEST = team_tool("shutdown_request", ShutdownRequestInput, run, show)
