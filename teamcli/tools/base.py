"""The shape of a tool: an input model, what it would access, how it runs, how it is shown. One module, one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from teamcli.agent.tool import Access, Display, PreparedCall, Progress, ToolOutput
from teamcli.cancel import CancelScope
from teamcli.errors import ToolError
from teamcli.llm.types import ToolSpec
from teamcli.tools.commands import Commands
from teamcli.tools.known_files import KnownFiles
from teamcli.workspace import Workspace


class ToolInput(BaseModel):
    """The docstring of a subclass is the description that the model reads."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_means_absent(cls, raw: Any) -> Any:
        """Models write null for what they leave out."""
        return {name: value for name, value in raw.items() if value is not None} if isinstance(raw, dict) else raw


class TeamPort(Protocol):
    """What the team tools need of the team. `agent` is who calls, stamped by the harness, and so is `call_id`.

    All raise ToolError or TeamError, which become error results that name what is wrong; they return the result's text.
    """

    def spawn(
        self, name: str, role: str, prompt: str, model: str, tools: tuple[str, ...] | None, plan: bool
    ) -> str: ...

    def describe(self) -> str: ...

    def send(self, agent: str, to: str | tuple[str, ...], content: str, summary: str, call_id: str) -> str: ...

    def broadcast(self, agent: str, content: str, call_id: str) -> str: ...

    def read_inbox(self, agent: str) -> ToolOutput: ...

    def wait_for_message(self, agent: str, timeout_seconds: float, cancel: CancelScope) -> ToolOutput: ...

    def request_shutdown(self, asker: str, name: str, reason: str) -> str: ...

    def answer_shutdown(self, agent: str, request_id: str, approve: bool, reason: str) -> str: ...

    def submit_plan(self, agent: str, plan: str) -> str: ...

    def review_plan(self, reviewer: str, request_id: str, approve: bool, feedback: str) -> str: ...


class Toolbox(NamedTuple):
    """What the tools of one agent work with, for as long as the agent lives."""

    workspace: Workspace
    commands: Commands
    known_files: KnownFiles
    agent: str = "lead"
    team: TeamPort | None = None
    """None for an agent without team tools."""
    may_see: Callable[[Path], bool] = lambda path: True
    """Whether a search through a directory may show this file of it; the pipeline has judged only the directory."""


class Running(NamedTuple):
    """What one call has while it runs."""

    cancel: CancelScope
    progress: Progress
    call_id: str
    """The model's id for the call; what is derived from it (a message's id) is the same when the call is repeated."""


InputT = TypeVar("InputT", bound=ToolInput)


@dataclass(frozen=True)
class Tool(Generic[InputT]):
    name: str
    input: type[InputT]
    access: Callable[[InputT, Toolbox], Access]
    run: Callable[[InputT, Toolbox, Running], ToolOutput]
    show: Callable[[InputT, Toolbox], Display]

    def bind(self, toolbox: Toolbox) -> BoundTool[InputT]:
        return BoundTool(self, toolbox)


@dataclass(frozen=True)
class BoundTool(Generic[InputT]):
    """A tool in the hands of one agent; what the pipeline calls."""

    tool: Tool[InputT]
    toolbox: Toolbox

    @cached_property
    def spec(self) -> ToolSpec:
        schema = _without_titles(self.tool.input.model_json_schema())
        description = schema.pop("description", "")
        return ToolSpec(self.tool.name, description, schema)

    def prepare(self, raw: object) -> PreparedCall:
        try:
            args = self.tool.input.model_validate(raw)
        except ValidationError as e:
            raise ToolError(f"Invalid input for {self.tool.name}: {explain(e)}") from e

        def run(cancel: CancelScope, progress: Progress, call_id: str = "") -> ToolOutput:
            return self.tool.run(args, self.toolbox, Running(cancel, progress, call_id))

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
