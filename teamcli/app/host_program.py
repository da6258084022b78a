"""What a host program adds to a session (`teamcli.sdk`): its model, its tools, its hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from teamcli.llm.types import LLM
from teamcli.tools.catalog import ToolDefinition

if TYPE_CHECKING:
    from teamcli.hooks.functions import Hook
    from teamcli.hooks.runner import RegisteredHook


class Embedding(NamedTuple):
    llm: Callable[[], LLM] | None = None
    """Creates the model for one agent; None for the configured one."""
    tools: tuple[ToolDefinition, ...] = ()
    """In the order of requests, after the built-in ones."""
    hooks: tuple[Hook, ...] = ()
    settings: Mapping[str, Any] = MappingProxyType({})
    """As in a settings file. They override those on disk."""
    registered_hooks: tuple[RegisteredHook, ...] = ()
    """Hooks of a program that drives this one."""
    lead_tools: tuple[ToolDefinition, ...] = ()
    """Tools that only the lead has."""
    owns_process: bool = False
    """The process is ours: the other program drives it from outside."""


NOTHING_EMBEDDED = Embedding()
