"""What a program that has teamcli built in adds to a session (`teamcli.library`): its model, its tools, its hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from teamcli.llm.types import LLM
from teamcli.tools.catalog import ToolDefinition

if TYPE_CHECKING:
    from teamcli.hooks.functions import Hook


class Embedding(NamedTuple):
    llm: Callable[[], LLM] | None = None
    """Makes the model of one agent; None for the one that is configured."""
    tools: tuple[ToolDefinition, ...] = ()
    """In the order in which requests name them, behind ours."""
    hooks: tuple[Hook, ...] = ()
    settings: Mapping[str, Any] = MappingProxyType({})
    """As they would stand in a settings file; they count more than those on disk."""


NOTHING_EMBEDDED = Embedding()
