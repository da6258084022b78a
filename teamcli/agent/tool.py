"""What the pipeline needs to know about a tool: its name, what it touches, how to run it, what to show.

Concrete tools live above this layer, in `teamcli.tools`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from teamcli.cancel import CancelScope
from teamcli.llm.types import ToolSpec
from teamcli.permissions.access import Access, Calls, Executes, Harmless, Merges, Reads, Writes

__all__ = [
    "Access",
    "AnyTool",
    "Calls",
    "Display",
    "Executes",
    "Harmless",
    "Merges",
    "PreparedCall",
    "Progress",
    "Reads",
    "RunCall",
    "ToolOutput",
    "Writes",
]


class Display(NamedTuple):
    """What a person sees of a call, independent of any terminal: a title, and a diff or text if that helps."""

    title: str
    diff: str = ""
    text: str = ""
    """The full text, if the title is shortened. A person who is asked must see everything."""
    path: str = ""
    """The file that the call changes, if it is about one."""


class ToolOutput(NamedTuple):
    content: str
    """What the model reads."""
    is_error: bool = False
    """The call failed. A command with a non-zero exit code did not: the code is its result."""
    display: Display | None = None
    """The outcome, if it says more than the call itself, such as a diff of the changes."""
    seen_files: Mapping[str, str] = MappingProxyType({})
    """Digests by path of the files whose current content the agent knows now; kept in the transcript."""
    marks: Mapping[str, Any] = MappingProxyType({})
    """What the transcript line of this result must record with it, such as how far mail is read."""


Progress = Callable[[str], None]
"""Receives the output of a running tool as it arrives."""


class RunCall(Protocol):
    def __call__(self, cancel: CancelScope, progress: Progress, call_id: str = "", key: str = "") -> ToolOutput:
        """`call_id` is the model's; `key` is the durable name of the call.

        Raises: ToolError for what the model can fix, Cancelled when its scope is cancelled."""
        ...


class PreparedCall(NamedTuple):
    """A validated call: ready to be judged, shown and run."""

    display: Display
    access: Access
    run: RunCall
    given: Mapping[str, Any] = MappingProxyType({})
    """The input as the model wrote it."""


class AnyTool(Protocol):
    """A tool as the pipeline sees it."""

    @property
    def spec(self) -> ToolSpec: ...

    def prepare(self, raw: object) -> PreparedCall:
        """Validate the model's input.

        Raises: ToolError, naming the invalid field
        """
        ...
