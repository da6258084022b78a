"""`plan_review`: the lead's answer to a plan."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from teamcli.agent.tool import Display, ToolOutput
from teamcli.tools.base.context import CallContext, TeamPort
from teamcli.tools.base.tool import show_words, team_tool


class PlanReviewInput(NamedTuple):
    """Answer a teammate's plan, by the request_id in its message. Only approval lets it write."""

    request_id: str
    approve: bool
    feedback: Annotated[str, "What to change"] = ""


def run(args: PlanReviewInput, team: TeamPort, agent: str, _call: CallContext) -> ToolOutput:
    return ToolOutput(team.protocols.review_plan(agent, args.request_id, args.approve, args.feedback))


def show(args: PlanReviewInput) -> Display:
    return show_words(f"{'approve' if args.approve else 'reject'} plan {args.request_id}", args.feedback)


PLAN_REVIEW = team_tool("plan_review", PlanReviewInput, run, show)
