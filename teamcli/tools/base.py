"""The shape of a tool: an input model, what it would access, how it runs, how it is shown. One module, one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from teamcli.agent.tool import Access, Display, PreparedCall, Progress, ToolOutput
from teamcli.cancel import CancelScope
from teamcli.errors import ToolError
from teamcli.llm.types import ToolSpec
from teamcli.tools.toolbox import Running, Toolbox


class ToolInput(BaseModel):
    """The docstring of a subclass is the description that the model reads."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_means_absent(cls, raw: Any) -> Any:
        """Models write null for what they leave out."""
        return {name: value for name, value in raw.items() if value is not None} if isinstance(raw, dict) else raw


InputT = TypeVar("InputT", bound=ToolInput)


@dataclass(frozen=True)
class Tool(Generic[InputT]):
    name: str
    input: type[InputT]
    access: Callable[[InputT, Toolbox], Access]
    run: Callable[[InputT, Toolbox, Running], ToolOutput]
    show: Callable[[InputT, Toolbox], Display]

    @cached_property
    def spec(self) -> ToolSpec:
        """What the model reads of it."""
        schema = _without_titles(self.input.model_json_schema())
        description = schema.pop("description", "")
        return ToolSpec(self.name, description, schema)

    def bind(self, toolbox: Toolbox) -> BoundTool[InputT]:
        return BoundTool(self, toolbox)


@dataclass(frozen=True)
class BoundTool(Generic[InputT]):
    """A tool in the hands of one agent; what the pipeline calls."""

    tool: Tool[InputT]
    toolbox: Toolbox

    @property
    def spec(self) -> ToolSpec:
        return self.tool.spec

    def prepare(self, raw: object) -> PreparedCall:
        try:
            args = self.tool.input.model_validate(raw)
        except ValidationError as e:
            raise ToolError(f"Invalid input for {self.tool.name}: {explain(e)}") from e

        def run(cancel: CancelScope, progress: Progress, call_id: str = "", key: str = "") -> ToolOutput:
            return self.tool.run(args, self.toolbox, Running(cancel, progress, call_id, key))

        return PreparedCall(self.tool.show(args, self.toolbox), self.tool.access(args, self.toolbox), run)


def explain(error: ValidationError) -> str:
    """Name each field at fault: `timeout_seconds: Input should be less than or equal to 600`."""
    problems = []
    for problem in error.errors(include_url=False, include_context=False):
        where = ".".join(str(part) for part in problem["loc"])
        problems.append(f"{where}: {problem['msg']}" if where else problem["msg"])
    return "; ".join(problems)


def _without_titles(schema: Any) -> Any:
    """Drop the `title` that pydantic adds to each field: tokens that tell the model nothing."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _without_titles(value) for name, value in item.items()}
        if key == "properties"
        else _without_titles(item)
        for key, item in schema.items()
        if not (key == "title" and isinstance(item, str))
    }
