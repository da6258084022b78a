"""What the team tools share: calls of one answer run in call order, and what the team refuses is an error result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from teamcli.agent.tool import Display, Harmless, ToolOutput
from teamcli.errors import TeamError, ToolError
from teamcli.text.escaping import one_line
from teamcli.tools.base import Tool
from teamcli.tools.context import AgentContext, CallContext, TeamPort

NO_TEAM = "There is no team here: work alone."
_TITLE_LENGTH = 100

InputT = TypeVar("InputT")
RunInTeam = Callable[[InputT, TeamPort, str, CallContext], ToolOutput]
"""Takes the input, the team, and the name of the agent that calls."""


def team_tool(
    name: str, input: type[InputT], run: RunInTeam[InputT], show: Callable[[InputT], Display]
) -> Tool[InputT]:
    def run_or_explain(args: InputT, context: AgentContext, call: CallContext) -> ToolOutput:
        if context.team is None:
            raise ToolError(NO_TEAM)
        try:
            return run(args, context.team, context.agent, call)
        except TeamError as e:
            raise ToolError(str(e)) from e

    return Tool(
        name,
        input,
        access=lambda args, context: Harmless(ordered=True),
        run=run_or_explain,
        show=lambda args, context: show(args),
    )


def show_words(what: str, words: str, headline: str = "") -> Display:
    """`what: first words…`; a person who is asked sees all of them."""
    whole = f"{what}: {words}" if words else what
    title = one_line(f"{what}: {headline}" if headline else whole, _TITLE_LENGTH)
    return Display(title, text="" if title == whole else whole)
