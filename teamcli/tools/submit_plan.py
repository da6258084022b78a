"""`submit_plan`: a teammate describes what it is going to do before it does it."""

from __future__ import annotations

from typing import NamedTuple

from teamcli.agent.tool import ToolOutput
from teamcli.tools.base.context import CallContext, TeamPort
from teamcli.tools.base.tool import show_words, team_tool
from teamcli.tools.base.tool_input import Words


class SubmitPlanInput(NamedTuple):
    """Send the lead your plan, then end your turn: the answer wakes you. Needed only if bash, write_file and edit_file
    are refused to you until a plan is approved."""

    plan: Words


def run(args: SubmitPlanInput, team: TeamPort, agent: str, _call: CallContext) -> ToolOutput:
    return ToolOutput(team.protocols.submit_plan(agent, args.plan))


SUBMIT_PLAN = team_tool("submit_plan", SubmitPlanInput, run, show=lambda args: show_words("submit plan", args.plan))
