"""What a host program adds to a session (`teamcli.sdk`): its model, its tools, its hooks."""

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
    """Creates the model for one agent; None for the configured one."""
    tools: tuple[ToolDefinition, ...] = ()
    """In the order of requests, after the built-in ones."""
    hooks: tuple[Hook, ...] = ()
    settings: Mapping[str, Any] = MappingProxyType({})
    """As in a settings file. They override those on disk."""


NOTHING_EMBEDDED = Embedding()
