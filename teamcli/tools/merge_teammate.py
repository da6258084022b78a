"""`merge_teammate`: bring the work of a teammate that has its own checkout into the main one."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from teamcli.agent.tool import Display, Merges, ToolOutput
from teamcli.errors import TeamError, ToolError
from teamcli.tools.base.context import AgentContext, CallContext
from teamcli.tools.base.tool import NO_TEAM, Tool


class MergeTeammateInput(NamedTuple):
    """Merge the branch of an idle teammate with a worktree, if the project's gate passes. A conflict or a failed gate
    changes nothing: the teammate is asked to fix it."""

    name: str
    message: Annotated[str, "For its uncommitted work"] = ""


def run(args: MergeTeammateInput, context: AgentContext, call: CallContext) -> ToolOutput:
    if context.team is None:
        raise ToolError(NO_TEAM)
    try:
        merged = context.team.merging.merge(context.agent, args.name, args.message, call.cancel, call.progress)
    except TeamError as e:
        raise ToolError(str(e)) from e
    return ToolOutput(merged)


def access(args: MergeTeammateInput, context: AgentContext) -> Merges:
    return Merges(args.name)


def show(args: MergeTeammateInput, context: AgentContext) -> Display:
    """Branch and files, for the person who is asked."""
    title = f"merge {args.name}"
    preview = context.team.merging.preview(args.name) if context.team else ""
    return Display(title, text="\n".join(filter(None, (title, preview))) if preview else "")


MERGE_TEAMMATE = Tool("merge_teammate", MergeTeammateInput, run, show, access)
