"""The shape of a tool: its input, what it would access, how it runs, how it is shown. One module, one value."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from pydantic_core import SchemaValidator, ValidationError

from teamcli.agent.tool import Access, Display, PreparedCall, Progress, ToolOutput
from teamcli.cancel import CancelScope
from teamcli.errors import ToolError
from teamcli.llm.types import ToolSpec
from teamcli.tools.context import AgentContext, CallContext
from teamcli.tools.tool_input import Field, checker, explain, fields_of, input_schema, read_input

InputT = TypeVar("InputT")


@dataclass(frozen=True, eq=False)
class Tool(Generic[InputT]):
    name: str
    input: type[InputT]
    """A named tuple (see `tool_input`), whose docstring is the description that the model reads."""
    access: Callable[[InputT, AgentContext], Access]
    run: Callable[[InputT, AgentContext, CallContext], ToolOutput]
    show: Callable[[InputT, AgentContext], Display]

    @cached_property
    def spec(self) -> ToolSpec:
        """What the model reads of it."""
        return ToolSpec(self.name, inspect.cleandoc(self.input.__doc__ or ""), input_schema(self._fields))

    def read(self, raw: object) -> InputT:
        """What the model wrote, checked.

        Raises: ValidationError
        """
        return read_input(self.input, self._check, raw)

    def bind(self, context: AgentContext) -> BoundTool[InputT]:
        return BoundTool(self, context)

    @cached_property
    def _fields(self) -> list[Field]:
        return fields_of(self.input)

    @cached_property
    def _check(self) -> SchemaValidator:
        return checker(self._fields)


class BoundTool(NamedTuple, Generic[InputT]):
    """A tool in the hands of one agent; what the pipeline calls."""

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

        return PreparedCall(self.tool.show(args, self.context), self.tool.access(args, self.context), run)
