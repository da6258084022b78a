"""One tool call on its way through the pipeline, and what becomes of the calls of one answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from teamcli.agent.conversation import INTERRUPTED_CALL, NOT_RUN_CALL, Marks, joined_marks
from teamcli.agent.events import Refusal
from teamcli.agent.hooks import PRE_TOOL_USE, hook_note
from teamcli.agent.tool import (
    Access,
    AnyTool,
    Calls,
    Display,
    Executes,
    Harmless,
    Merges,
    PreparedCall,
    Reads,
    ToolOutput,
    Writes,
)
from teamcli.cancel import CancelScope
from teamcli.llm.types import Block
from teamcli.text.redaction import redact

RESULT_LIMIT = 100_000
"""Characters of one result. The last guard, above the limits that tools apply themselves."""
NOT_RUN = ToolOutput(NOT_RUN_CALL, is_error=True)
FindTool = Callable[[str], AnyTool]
"""Raises: ToolError, if there is no tool of that name"""


class Results(NamedTuple):
    """The results of one answer's calls, in call order, and what the transcript line must record with them."""

    blocks: list[Block]
    seen_files: dict[str, str]
    marks: Marks
    stop: str | None = None
    """Why a hook wants the agent to end its turn."""

    @classmethod
    def of(cls, calls: Sequence[PendingCall]) -> Results:
        seen: dict[str, str] = {}
        marks: Marks = {}
        for call in calls:
            seen.update(call.output.seen_files)
            marks = joined_marks(marks, call.output.marks)
        reasons = dict.fromkeys(call.stop for call in calls if call.stop is not None)
        return cls([call.result() for call in calls], seen, marks, "\n".join(reasons) if reasons else None)


@dataclass(eq=False)
class PendingCall:
    """One tool call on its way through the pipeline: prepared, perhaps changed by a hook, run, ended, finished."""

    block: Block
    key: str = ""
    output: ToolOutput = NOT_RUN
    prepared: PreparedCall | None = field(default=None, init=False)
    changed_input: Mapping[str, Any] | None = field(default=None, init=False)
    """The input that a hook has given it instead."""
    context: str = field(default="", init=False)
    """What hooks want the model to know about it, whatever its outcome."""
    began: bool = field(default=False, init=False)
    seconds: float = field(default=0.0, init=False)
    refusal: Refusal | None = field(default=None, init=False)
    stop: str | None = field(default=None, init=False)
    """Why a hook wants the agent to end its turn."""
    _earlier: Sequence[PendingCall] = field(default=(), init=False)
    _finished: threading.Event = field(default_factory=threading.Event, init=False)

    @property
    def id(self) -> str:
        return str(self.block["id"])

    @property
    def name(self) -> str:
        return str(self.block["name"])

    @property
    def input(self) -> object:
        return self.block["input"] if self.changed_input is None else self.changed_input

    @property
    def display(self) -> Display:
        return self.prepared.display if self.prepared else Display(self.name)

    def prepare(self, find: FindTool) -> None:
        """Check the input; a second time if what it refers to may have changed.

        Raises: ToolError
        """
        self.prepared = None
        self.prepared = find(self.name).prepare(self.input)

    def change_input(self, changed: Mapping[str, Any], find: FindTool) -> PreparedCall:
        """Raises: ToolError, if the new input is not valid"""
        self.changed_input = dict(changed)
        self.prepared = find(self.name).prepare(self.changed_input)
        return self.prepared

    def come_after(self, earlier: Sequence[PendingCall]) -> None:
        self._earlier = earlier

    def wait_for_earlier(self) -> bool:
        """Return whether there was any call to wait for."""
        for call in self._earlier:
            call._finished.wait()
        return bool(self._earlier)

    def add_context(self, context: str) -> None:
        self.context = context

    def stop_turn(self, reason: str | None) -> None:
        """End the turn of the agent after this call. The first reason counts."""
        self.stop = reason if self.stop is None else self.stop

    def run(self, prepared: PreparedCall, cancel: CancelScope, on_progress: Callable[[str], None]) -> ToolOutput:
        """Raises: ToolError, Cancelled"""
        self.began = True  # from here on it may have had an effect
        started = time.monotonic()
        try:
            return prepared.run(cancel, on_progress, self.id, self.key)
        finally:
            self.seconds = time.monotonic() - started

    def end(self, output: ToolOutput, refusal: Refusal | None = None) -> None:
        self.output, self.refusal = output, refusal

    def fail(self, error: Exception, refusal: Refusal | None = None) -> None:
        text = str(error) or type(error).__name__
        self.end(ToolOutput(text if text.startswith("Error") else f"Error: {text}", is_error=True), refusal)

    def interrupt(self, output: str) -> None:
        """`output` is what it said until then."""
        text = INTERRUPTED_CALL if self.began else NOT_RUN_CALL
        self.end(ToolOutput("\n".join(filter(None, (text, output))), is_error=True))

    def finish(self) -> None:
        """Nothing changes its output anymore, and the calls that wait for it may begin."""
        output = with_note(self.output, PRE_TOOL_USE, self.context)
        self.output = output._replace(content=redact(output.content))
        self._finished.set()

    def result(self) -> Block:
        block: Block = {"type": "tool_result", "tool_use_id": self.id, "content": cut_middle(self.output.content)}
        if self.output.is_error:
            block["is_error"] = True
        return block


def with_note(output: ToolOutput, event: str, text: str) -> ToolOutput:
    """The output, followed by what the hooks of an event say; unchanged if they say nothing."""
    return output._replace(content=f"{output.content}\n{hook_note(event, text)}") if text else output


def must_wait(later: Access, earlier: Access) -> bool:
    """Whether a call has to wait for an earlier one of the same answer."""
    match later, earlier:
        # Nobody knows which files a command touches.
        case Writes() | Reads(), Executes() | Calls():
            return True
        case Executes() | Calls(), Writes():
            return True
        case (Writes(path), Reads(other) | Writes(other)) | (Reads(path), Writes(other)):
            return path.is_relative_to(other) or other.is_relative_to(path)
        case Harmless(ordered=True), Harmless(ordered=True):
            return True
        # A merge changes many files at once.
        case (Merges(), _) | (_, Merges()):
            return True
        case _:
            return False


def cut_middle(text: str, limit: int = RESULT_LIMIT) -> str:
    if len(text) <= limit:
        return text or "(no output)"
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"
