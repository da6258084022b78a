"""`spawn_teammate`: start a teammate, or give an idle one its next task."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from teamcli.agent.tool import Display, ToolOutput
from teamcli.tools.base.context import CallContext, SpawnRequest, TeamPort
from teamcli.tools.base.tool import team_tool
from teamcli.tools.base.tool_input import Words


class SpawnTeammateInput(NamedTuple):
    """Start a teammate that works alongside you in this workspace, or give an idle one its next task. Teammates stay
    and remember. Their last text of a task reaches you by itself as a result: do not poll."""

    name: str
    role: Words
    prompt: Annotated[Words, "The task and all it must know: it cannot see your conversation"]
    model: str = ""
    tools: Annotated[tuple[str, ...], "Only these; else all"] = ()
    plan: Annotated[bool, "It cannot write before you approve its plan"] = False
    worktree: Annotated[bool, "It works in its own checkout, on the branch team/NAME"] = False
    claims: Annotated[bool, "When idle, it takes free tasks from the board"] = False
    host: str = ""


def run(args: SpawnTeammateInput, team: TeamPort, _agent: str, call: CallContext) -> ToolOutput:
    tools = tuple(args.tools) or None  # models write an empty list for "all"
    terms = (args.model, tools, args.plan, args.worktree, args.claims, args.host)
    return ToolOutput(team.spawn(SpawnRequest(args.name, args.role, args.prompt, *terms), call.cancel))


def show(args: SpawnTeammateInput) -> Display:
    title = f"spawn {args.name} ({args.role})"
    conditions = [f"model {args.model}"] if args.model else []
    conditions += [f"only {', '.join(args.tools)}"] if args.tools else []
    conditions += ["plan first"] if args.plan else []
    conditions += ["in a worktree"] if args.worktree else []
    conditions += ["claims tasks"] if args.claims else []
    conditions += [f"on {args.host}"] if args.host else []
    return Display(title, text=f"{', '.join([title, *conditions])}: {args.prompt}")


SPAWN_TEAMMATE = team_tool("spawn_teammate", SpawnTeammateInput, run, show)
