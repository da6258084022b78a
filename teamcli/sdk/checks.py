"""Checks what a program asks of the team, just like a tool call of a model, and raises what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic_core import ValidationError

from teamcli.errors import TeamError, ToolError, UsageError
from teamcli.tools.base.tool import Tool
from teamcli.tools.base.tool_input import explain

InputT = TypeVar("InputT")


@contextmanager
def tool_errors_raised() -> Iterator[None]:
    """Raises: TeamError, for what would be an error result for a model."""
    try:
        yield
    except ToolError as e:
        raise TeamError(str(e)) from e


def checked_input(tool: Tool[InputT], given: Mapping[str, Any]) -> InputT:
    """Raises: UsageError, naming the argument."""
    try:
        return tool.read(dict(given))
    except ValidationError as e:
        raise UsageError(explain(e)) from e
