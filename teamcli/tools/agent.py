"""`agent`: have a sub-agent do one job. Several in one answer run at the same time."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from teamcli.agent.tool import Display, ToolOutput
from teamcli.text.escaping import one_line
from teamcli.tools.base.context import AgentContext, CallContext, SubAgentTask, subagents_of
from teamcli.tools.base.tool import Tool
from teamcli.tools.base.tool_input import Words

_TITLE_LENGTH = 80


class AgentInput(NamedTuple):
    """Have a sub-agent do one job; you get only its final text. Without subagent_type it is a copy of you that knows
    this conversation; with it, a fresh specialist that knows only the prompt. Several in one answer run at once."""

    prompt: Words
    description: Annotated[str, "The job in 3-5 words"] = ""
    subagent_type: Annotated[str, "A role, or general"] = ""
    background: Annotated[bool, "Returns an id at once; a message reports its end"] = False
    model: str = ""


def run(args: AgentInput, context: AgentContext, call: CallContext) -> ToolOutput:
    task = SubAgentTask(args.prompt, args.description, args.subagent_type, args.model)
    subagents = subagents_of(context)
    if args.background:
        return ToolOutput(subagents.start(context.agent, task))
    return ToolOutput(subagents.run(context.agent, task, call))


def show(args: AgentInput, context: AgentContext) -> Display:
    kind = args.subagent_type or "fork"
    title = one_line(f"agent ({kind}): {args.description or args.prompt}", _TITLE_LENGTH)
    conditions = [f"model {args.model}"] if args.model else []
    conditions += ["in the background"] if args.background else []
    return Display(title, text=f"{', '.join([f'agent ({kind})', *conditions])}: {args.prompt}")


AGENT = Tool("agent", AgentInput, run, show)
