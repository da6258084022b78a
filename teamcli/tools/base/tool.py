"""The shape of a tool: its input, what it would access, how it runs, how it is shown. One module, one value."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from pydantic_core import SchemaValidator, ValidationError

from teamcli.agent.tool import Access, Display, Harmless, PreparedCall, Progress, ToolOutput
from teamcli.cancel import CancelScope
from teamcli.errors import StateError, TeamError, ToolError
from teamcli.llm.types import ToolSpec
from teamcli.text.escaping import one_line
from teamcli.tools.base.context import AgentContext, CallContext, TaskPort, TeamPort
from teamcli.tools.base.tool_input import Field, checker, explain, fields_of, input_schema, read_input

NO_TEAM = "There is no team here: work alone."
_TITLE_LENGTH = 100

InputT = TypeVar("InputT")


@dataclass(frozen=True, eq=False)
class Tool(Generic[InputT]):
    name: str
    input: type[InputT]
    """A named tuple (see `tool_input`). Its docstring is the description that the model reads."""
    run: Callable[[InputT, AgentContext, CallContext], ToolOutput]
    show: Callable[[InputT, AgentContext], Display]
    access: Callable[[InputT, AgentContext], Access] = lambda args, context: Harmless()
    """What the permission rules decide about. By default, something that needs no permission."""
    show_past: Callable[[InputT, AgentContext], Display] | None = None
    """How an old call is shown, if `show` looks at files: they have changed since."""

    @cached_property
    def spec(self) -> ToolSpec:
        """What the model reads about it."""
        return ToolSpec(self.name, inspect.cleandoc(self.input.__doc__ or ""), input_schema(self._fields))

    def read(self, raw: object) -> InputT:
        """Check what the model wrote.

        Raises: ValidationError
        """
        return read_input(self.input, self._check, raw)

    def recall(self, raw: object, context: AgentContext) -> Display:
        """How a call is shown that has run long ago.

        Raises: ValidationError, ToolError
        """
        return (self.show_past or self.show)(self.read(raw), context)

    def bind(self, context: AgentContext) -> BoundTool[InputT]:
        return BoundTool(self, context)

    @cached_property
    def _fields(self) -> list[Field]:
        return fields_of(self.input)

    @cached_property
    def _check(self) -> SchemaValidator:
        return checker(self._fields)


class BoundTool(NamedTuple, Generic[InputT]):
    """A tool that belongs to one agent; what the pipeline calls."""

    tool: Tool[InputT]
    context: AgentContext

    @property
    def spec(self) -> ToolSpec:
        return self.tool.spec

    def prepare(self, raw: object) -> PreparedCall:
        try:
            args = self.tool.read(raw)
        except ValidationError as e:
            raise ToolError(f"Invalid input for {self.tool.name}: {explain(e)}") from e

        def run(cancel: CancelScope, progress: Progress, call_id: str = "", key: str = "") -> ToolOutput:
            return self.tool.run(args, self.context, CallContext(cancel, progress, call_id, key))

        given = raw if isinstance(raw, Mapping) else {}
        return PreparedCall(self.tool.show(args, self.context), self.tool.access(args, self.context), run, given)


RunInTeam = Callable[[InputT, TeamPort, str, CallContext], ToolOutput]
"""Takes the input, the team, and the name of the agent that calls."""


def team_tool(
    name: str, input: type[InputT], run: RunInTeam[InputT], show: Callable[[InputT], Display]
) -> Tool[InputT]:
    """A tool that works with the team. Calls of one answer run in order; what the team refuses is an error result."""

    def run_or_explain(args: InputT, context: AgentContext, call: CallContext) -> ToolOutput:
        if context.team is None:
            raise ToolError(NO_TEAM)
        try:
            return run(args, context.team, context.agent, call)
        except TeamError as e:
            raise ToolError(str(e)) from e

    # Ordered: what an agent sends must arrive in the order in which it was written.
    return Tool(name, input, run_or_explain, lambda args, context: show(args), lambda *_: Harmless(ordered=True))


def task_tool(
    name: str, input: type[InputT], run: Callable[[InputT, TaskPort, str], str], show: Callable[[InputT], Display]
) -> Tool[InputT]:
    """A tool that works with the task board; otherwise as `team_tool`."""

    def run_or_explain(args: InputT, context: AgentContext, _call: CallContext) -> ToolOutput:
        if context.tasks is None:
            raise ToolError(NO_TEAM)
        try:
            return ToolOutput(run(args, context.tasks(), context.agent))
        except (TeamError, StateError) as e:
            raise ToolError(str(e)) from e

    return Tool(name, input, run_or_explain, lambda args, context: show(args), lambda *_: Harmless(ordered=True))


def show_words(what: str, words: str, headline: str = "") -> Display:
    """`what: first words…`; a person who is asked sees all of them."""
    whole = f"{what}: {words}" if words else what
    title = one_line(f"{what}: {headline}" if headline else whole, _TITLE_LENGTH)
    return Display(title, text="" if title == whole else whole)
