"""`shutdown_response`: a teammate's answer to the request to leave the team."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from teamcli.agent.tool import Display, ToolOutput
from teamcli.tools.base.context import CallContext, TeamPort
from teamcli.tools.base.tool import show_words, team_tool


class ShutdownResponseInput(NamedTuple):
    """Answer a shutdown_request soon. Approving ends you: first leave your files in order."""

    request_id: str
    approve: bool
    reason: Annotated[str, "If not: what is left to do"] = ""


def run(args: ShutdownResponseInput, team: TeamPort, agent: str, _call: CallContext) -> ToolOutput:
    return ToolOutput(team.protocols.answer_shutdown(agent, args.request_id, args.approve, args.reason))


def show(args: ShutdownResponseInput) -> Display:
    return show_words(f"{'agree' if args.approve else 'refuse'} to shut down", args.reason)


SHUTDOWN_RESPONSE = team_tool("shutdown_response", ShutdownResponseInput, run, show)
