"""Conversations in the format of Claude Code, for hooks that were written for it.

Such hooks read or even grep the transcript. It is written only while one of them is configured, one line for each block
of a message, and it is never read here: teamcli's own transcript is what counts.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from teamcli import __version__
from teamcli.agent.events import Answered, Compacted, Recorded
from teamcli.agent.hooks import SUBAGENT_STOP, HookEvent
from teamcli.claude_code.tool_inputs import TheirCall, to_theirs
from teamcli.claude_code.tool_responses import CallResult, has_failed, tool_response
from teamcli.errors import StateError
from teamcli.llm.types import Block, Message, Usage
from teamcli.storage.append_log import AppendLog
from teamcli.storage.files import Json, make_private_dir
from teamcli.text.redaction import redact_value

LEAD = "lead"
_MOST_OPEN = 64
"""Files at once. There can be any number of sub-agents."""


class SessionInfo(NamedTuple):
    """What the transcripts have to know about a running session."""

    id: Callable[[], str]
    """Empty while the session is being opened."""
    root_of: Callable[[str], Path]
    """Where an agent works."""
    is_subagent: Callable[[str], bool]
    messages_of: Callable[[str], Sequence[Message]]
    """What an agent's conversation contains already."""


@dataclass
class _Transcript:
    log: AppendLog
    last: str | None = None
    """The id of the last line."""
    calls: dict[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Tools and inputs of calls without a result, in our words."""
    answer: Message | None = None
    """An answer whose usage is not known yet."""


class ClaudeTranscripts:
    """A consumer of events. Safe for threads."""

    KINDS = (Recorded, Answered, Compacted)

    def __init__(self, directory: Path, session: SessionInfo) -> None:
        self._directory = directory
        self._session = session
        self._lock = threading.Lock()
        self._open: dict[Path, _Transcript] = {}
        self._branch: str | None = None
        self._is_closed = False

    def __call__(self, event: Recorded | Answered | Compacted) -> None:
        """Raises: StateError."""
        with self._lock:
            # Calls that a crash left open are answered before there is a session; the next event writes them, too.
            if self._is_closed or not self._session.id():
                return
            path = self._path(event.agent)
            was_open = path in self._open
            transcript = self._transcript(event.agent, path)
            # A new file begins with what there is, this message included.
            if was_open or transcript.last is None:
                self._note(event, transcript)

    def paths_for(self, event: HookEvent) -> tuple[str, str]:
        """The transcript that a hook reads, and that of the sub-agent that the event is about."""
        is_subagent = self._session.is_subagent(event.agent)
        main = self._path(LEAD if is_subagent else event.agent)
        own = self._path(event.agent) if is_subagent and event.name == SUBAGENT_STOP else None
        try:
            with self._lock:
                self._transcript(LEAD if is_subagent else event.agent, main)
        except (StateError, OSError):  # a hook can do without; the consumer has reported it
            pass
        return str(main), str(own or "")

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for transcript in self._open.values():
                transcript.log.close()
            self._open = {}

    def _path(self, agent: str) -> Path:
        id = self._session.id()
        return self._directory / (f"{id}.jsonl" if agent == LEAD else f"{id}-agent-{agent}.jsonl")

    def _transcript(self, agent: str, path: Path) -> _Transcript:
        if path in self._open:
            return self._open[path]
        while len(self._open) >= _MOST_OPEN:  # of the agents that have written, the oldest
            self._open.pop(next(iter(self._open))).log.close()
        make_private_dir(self._directory)
        log = AppendLog(path, durable=False, is_shared=False)
        transcript = self._open[path] = _Transcript(log)
        if not log.end:
            for message in self._session.messages_of(agent):
                self._write(agent, transcript, message, None)
        return transcript

    def _note(self, event: Recorded | Answered | Compacted, transcript: _Transcript) -> None:
        match event:
            case Recorded(message=Message(role="assistant")):
                transcript.answer = event.message
            case Recorded():
                self._write(event.agent, transcript, event.message, None)
            case Answered() if transcript.answer is not None:
                answer, transcript.answer = transcript.answer, None
                self._write(event.agent, transcript, answer, event)
            case Compacted(is_summarised=True):
                self._note_summary(event.agent, transcript)

    def _note_summary(self, agent: str, transcript: _Transcript) -> None:
        boundary = {"subtype": "compact_boundary", "content": "Conversation compacted"}
        lines = [self._line(agent, transcript, "system", boundary)]
        if messages := self._session.messages_of(agent):
            summary = {"role": "user", "content": str(messages[0].content[0].get("text", ""))}
            lines.append(self._line(agent, transcript, "user", {"message": summary, "isCompactSummary": True}))
        transcript.log.append(*redact_value(lines))

    def _write(self, agent: str, transcript: _Transcript, message: Message, answered: Answered | None) -> None:
        if message.role == "assistant":
            parts = list(self._answer_parts(agent, transcript, message, answered))
        else:
            parts = [self._user_part(agent, transcript, block) for block in message.content]
        lines = [self._line(agent, transcript, message.role, part) for part in parts]
        if lines:
            transcript.log.append(*redact_value(lines))

    def _line(self, agent: str, transcript: _Transcript, kind: str, part: Json) -> Json:
        id, parent = str(uuid.uuid4()), transcript.last
        transcript.last = id
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {
            "type": kind,
            "uuid": id,
            "parentUuid": parent,
            "sessionId": self._session.id(),
            "timestamp": now,
            "cwd": str(self._session.root_of(agent)),
            "version": __version__,
            "gitBranch": self._git_branch(),
            "isSidechain": self._session.is_subagent(agent),
            "userType": "external",
            **part,
        }

    def _answer_parts(
        self, agent: str, transcript: _Transcript, message: Message, answered: Answered | None
    ) -> Iterator[Json]:
        """A line for each block; they share the id of the message."""
        id = f"msg_{uuid.uuid4().hex[:24]}"
        usage = _usage(answered.usage if answered else Usage())
        for block in message.content:
            if block["type"] == "tool_use":
                transcript.calls[block["id"]] = (block["name"], block["input"])
            whole = {
                "id": id,
                "type": "message",
                "role": "assistant",
                "model": answered.model if answered else "",
                "content": [self._in_their_words(agent, block)],
                "stop_reason": answered.stop_reason if answered else None,
                "usage": usage,
            }
            yield {"message": whole, "requestId": id.replace("msg_", "req_")}

    def _in_their_words(self, agent: str, block: Block) -> Block:
        if block["type"] != "tool_use":
            return block
        call: TheirCall = to_theirs(block["name"], block["input"], self._session.root_of(agent))
        return {"type": "tool_use", "id": block["id"], "name": call.tool, "input": call.input}

    def _user_part(self, agent: str, transcript: _Transcript, block: Block) -> Json:
        if block["type"] == "tool_result":
            message = {"role": "user", "content": [block]}
            tool, given = transcript.calls.pop(block["tool_use_id"], ("", {}))
            return {"message": message, "toolUseResult": self._response(agent, tool, given, block)}
        if block["type"] != "text":
            return {"message": {"role": "user", "content": [block]}}
        text = str(block["text"])
        # Facts and notes that teamcli adds to a line are in tags; what a person typed seldom is.
        added = {"isMeta": True} if text.startswith("<") else {}
        return {"message": {"role": "user", "content": text}, **added}

    def _response(self, agent: str, tool: str, given: Mapping[str, Any], block: Block) -> Json | str:
        content, is_error = str(block.get("content", "")), bool(block.get("is_error"))
        fields = {"tool_input": given, "tool_response": {"content": content, "is_error": is_error}}
        if has_failed(tool, fields):
            return f"Error: {content.removeprefix('Error: ')}"
        return tool_response(CallResult(tool, given, content, self._session.root_of(agent)))

    def _git_branch(self) -> str:
        if self._branch is None:
            try:
                head = (self._session.root_of(LEAD) / ".git/HEAD").read_text(encoding="utf-8", errors="replace")
            except OSError:
                head = ""
            self._branch = head.strip().removeprefix("ref: refs/heads/")[:200]
        return self._branch


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
    }
