"""What the pipeline needs to know of a tool: its name, what it would touch, how to run it, what to show.

Concrete tools live above this layer, in `teamcli.tools`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from teamcli.cancel import CancelScope
from teamcli.llm.types import ToolSpec
from teamcli.permissions.access import Access, Calls, Executes, Harmless, Reads, Writes

__all__ = [
    "Access",
    "AnyTool",
    "Calls",
    "Display",
    "Executes",
    "Harmless",
    "PreparedCall",
    "Progress",
    "Reads",
    "RunCall",
    "ToolOutput",
    "Writes",
]


class Display(NamedTuple):
    """What a person sees of a call, independent of any terminal: a title, and a diff or text where it helps."""

    title: str
    diff: str = ""
    text: str = ""
    """The whole of it, where the title is shortened. A person who is asked must see everything."""


class ToolOutput(NamedTuple):
    content: str
    """What the model reads."""
    is_error: bool = False
    """A result that says it failed (a command with a non-zero exit code is not one: the code is the result)."""
    display: Display | None = None
    """What became of the call, where that says more than the call itself (a diff of what was changed)."""
    seen_files: Mapping[str, str] = MappingProxyType({})
    """Digests by path of the files whose present content the agent now knows; kept in the transcript."""
    marks: Mapping[str, Any] = MappingProxyType({})
    """What the transcript line with this result must note beside it: how far mail is read, say."""


Progress = Callable[[str], None]
"""Takes output of a running tool as it comes."""


class RunCall(Protocol):
    def __call__(self, cancel: CancelScope, progress: Progress, call_id: str = "", key: str = "") -> ToolOutput:
        """`call_id` is the model's, `key` names the call for good.

        Raises: ToolError for what the model can mend, Cancelled when its scope is cancelled."""
        ...


class PreparedCall(NamedTuple):
    """A validated call: ready to be judged, shown and run."""

    display: Display
    access: Access
    run: RunCall


class AnyTool(Protocol):
    """A tool as the pipeline sees it."""

    @property
    def spec(self) -> ToolSpec: ...

    def prepare(self, raw: object) -> PreparedCall:
        """Validate the model's input.

        Raises: ToolError, naming the field at fault.
        """
        ...
