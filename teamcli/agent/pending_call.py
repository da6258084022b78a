"""One tool call on its way through the pipeline, and what becomes of the calls of one answer."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from teamcli.agent.conversation import NOT_RUN_CALL, Marks, joined_marks
from teamcli.agent.events import Refusal
from teamcli.agent.tool import (
    Access,
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
from teamcli.llm.types import Block

RESULT_LIMIT = 100_000
"""Characters of one result. The last guard, above the limits that tools apply themselves."""
NOT_RUN = ToolOutput(NOT_RUN_CALL, is_error=True)


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
    """One tool call on its way through the pipeline."""

    block: Block
    key: str = ""
    output: ToolOutput = NOT_RUN
    prepared: PreparedCall | None = field(default=None, init=False)
    changed_input: Mapping[str, Any] | None = field(default=None, init=False)
    """The input that a hook has given it instead."""
    context: str = field(default="", init=False)
    """What hooks want the model to know about it, whatever its outcome."""
    after: list[PendingCall] = field(default_factory=list, init=False)
    finished: threading.Event = field(default_factory=threading.Event, init=False)
    began: bool = field(default=False, init=False)
    seconds: float = field(default=0.0, init=False)
    refusal: Refusal | None = field(default=None, init=False)
    stop: str | None = field(default=None, init=False)
    """Why a hook wants the agent to end its turn."""

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

    def result(self) -> Block:
        block: Block = {"type": "tool_result", "tool_use_id": self.id, "content": cut_middle(self.output.content)}
        if self.output.is_error:
            block["is_error"] = True
        return block


def must_wait(later: Access, earlier: Access) -> bool:
    """Whether a call has to wait for an earlier one of the same answer."""
    match later, earlier:
        case Writes() | Reads(), Executes() | Calls():
            return True
        case Executes() | Calls(), Writes():
            return True
        case (Writes(path), Reads(other) | Writes(other)) | (Reads(path), Writes(other)):
            return path.is_relative_to(other) or other.is_relative_to(path)
        case Harmless(ordered=True), Harmless(ordered=True):
            return True
        case (Merges(), _) | (_, Merges()):
            return True
        case _:
            return False


def cut_middle(text: str, limit: int = RESULT_LIMIT) -> str:
    if len(text) <= limit:
        return text or "(no output)"
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"
