"""What passes between an agent and a model: requests, replies, and what is reported while a reply streams in.

Content blocks stay plain dictionaries, exactly as they travel on the wire: a block from the model (such as a signed
thinking block) must go back unchanged, whether or not this version knows its kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

from teamcli.cancel import CancelScope
from teamcli.llm.user_turn import EXPLANATION, inside_results

Block = dict[str, Any]
"""One content block on the wire: `{"type": "text", "text": …}`, `{"type": "tool_use", …}`, …"""


_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode(value: object) -> bytes:
    return _as_json(value).encode("utf-8", "replace")


@dataclass(frozen=True)
class Message:
    """What one side has said."""

    role: Literal["user", "assistant"]
    content: tuple[Block, ...]

    @cached_property
    def encoded(self) -> bytes:
        """Its bytes on the wire. Cached, so that sending a long conversation costs no more than its new part."""
        return encode(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        return {"role": self.role, "content": list(self.content)}

    @property
    def text_in_results(self) -> Message:
        """The same message with no text after its tool results; see `llm/user_turn.py`."""
        return self._text_in_results or self

    @cached_property
    def _text_in_results(self) -> Message | None:  # not itself, which would be a reference cycle
        content = inside_results(self.content) if self.role == "user" else None
        return None if content is None else Message(self.role, content)


NOT_UNDERSTOOD = "not_understood"
"""The stop reason of the embedded model for a task that it does not understand."""


class ToolSpec(NamedTuple):
    """A tool as the model sees it."""

    name: str
    description: str
    input_schema: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "input_schema": self.input_schema}


@dataclass(frozen=True)
class Preamble:
    """The part of a request that is the same in every call of an agent: model, limits, tools, system prompt.

    Its bytes must never change between calls: the model's prompt cache depends on it.
    """

    model: str
    system: str
    tools: tuple[ToolSpec, ...]
    max_tokens: int
    caching: bool = True
    """Ask for prompt caching: a mark at the end of the system prompt, and an automatic one at the request's end."""
    extra: dict[str, Any] = field(default_factory=dict)
    """More top-level fields, such as `thinking`, sent as they are."""
    addendum: str = ""
    """A second block of the system prompt."""

    @cached_property
    def body(self) -> dict[str, Any]:
        """The request body without its messages."""
        mark: dict[str, Any] = {"cache_control": {"type": "ephemeral"}} if self.caching else {}
        body: dict[str, Any] = {"model": self.model, "max_tokens": self.max_tokens, **self.extra, **mark}
        if system := [{"type": "text", "text": part} for part in (self.system, self.addendum) if part]:
            body["system"] = [*system[:-1], {**system[-1], **mark}]
        if self.tools:
            body["tools"] = [tool.to_dict() for tool in self.tools]
        return body

    @cached_property
    def encoded(self) -> bytes:
        return encode({**self.body, "stream": True})

    @cached_property
    def explaining_user_turns(self) -> Preamble | None:
        """The same preamble with an explanation of the frames around text in tool results; None without tools."""
        return replace(self, addendum=EXPLANATION) if self.tools else None


class Request(NamedTuple):
    preamble: Preamble
    messages: tuple[Message, ...]

    @property
    def encoded(self) -> bytes:
        """The whole streaming request as it goes over the wire."""
        messages = b",".join([message.encoded for message in self.messages])
        return b'%s,"messages":[%s]}' % (self.preamble.encoded[:-1], messages)

    @property
    def text_in_results(self) -> Request:
        """The same request for endpoints that do not support text after tool results."""
        preamble = self.preamble.explaining_user_turns or self.preamble
        return Request(preamble, tuple([message.text_in_results for message in self.messages]))

    def to_dict(self) -> dict[str, Any]:
        """The request body, for models that a program brings along."""
        return {**self.preamble.body, "messages": [message.to_dict() for message in self.messages]}


@dataclass(frozen=True)
class Usage:
    """The tokens that a call has used, or several together."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    is_estimated: bool = False
    """Some counts are estimates from bytes: the endpoint did not count, or the call was interrupted before it did."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            self.cache_read_input_tokens + other.cache_read_input_tokens,
            self.is_estimated or other.is_estimated,
        )

    def __sub__(self, earlier: Usage) -> Usage:
        counts = {name: getattr(self, name) - getattr(earlier, name) for name in _COUNTS}
        return replace(self, **counts)

    @property
    def prompt_tokens(self) -> int:
        """All input tokens, cached or not."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens

    @property
    def context_tokens(self) -> int:
        """How much of the context window this call filled."""
        return self.prompt_tokens + self.output_tokens

    def to_dict(self) -> dict[str, int]:
        """The counts, and `estimated` if some of them are."""
        counts = {name: getattr(self, name) for name in _COUNTS}
        return {**counts, "estimated": True} if self.is_estimated else counts

    def at_least(self, raw: dict[str, Any]) -> Usage:
        """This usage with the counts of `raw` that are higher. Absent, null and unknown fields are ignored."""
        higher: dict[str, Any] = {
            name: new for name in _COUNTS if isinstance(new := raw.get(name), int) and new > getattr(self, name)
        }
        return replace(self, **higher) if higher else self


_COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class Reply(NamedTuple):
    """A model's answer, complete or as far as it arrived."""

    content: tuple[Block, ...]
    stop_reason: str
    usage: Usage
    model: str = ""
    cut_calls: frozenset[str] = frozenset()
    """Ids of tool calls that did not arrive whole, or whose input is not a JSON object (`{}` in `content`)."""
    asked: str = ""
    """The model that was asked, if it is not the one that the request names: its price counts."""

    @property
    def text(self) -> str:
        return "\n".join(block["text"] for block in self.content if block.get("type") == "text")

    @property
    def tool_calls(self) -> tuple[Block, ...]:
        return tuple(block for block in self.content if block.get("type") == "tool_use")


class TextDelta(NamedTuple):
    text: str


class ThinkingDelta(NamedTuple):
    text: str


class RequestSent(NamedTuple):
    """The request is on its way. Work done now costs no time, because the answer has to travel too."""


class CallOpened(NamedTuple):
    """The model has started to write a tool call."""

    tool: str


class Heartbeat(NamedTuple):
    """More has arrived that is not shown, such as the input of a call. At most one per second."""


class Retrying(NamedTuple):
    """The call failed and will be tried again from its start. The part of the answer that has streamed is void.

    `attempt` 0: this call has not failed, but its first try waits because another agent was turned away.
    """

    delay_seconds: float
    attempt: int
    seconds_left: float
    """How much longer it will be tried."""
    reason: str
    is_news: bool = True
    """False if another agent has reported the same wait."""


AnswerEvent = TextDelta | ThinkingDelta | CallOpened | Heartbeat | Retrying
StreamEvent = RequestSent | AnswerEvent
OnEvent = Callable[[StreamEvent], None]

# The old names, for one release. They collided with the events of agents.
TextArrived, ThinkingArrived, CallStarted, StillArriving = TextDelta, ThinkingDelta, CallOpened, Heartbeat
RetryScheduled = Retrying


class LLM(Protocol):
    """A language model as one agent uses it: one call at a time, over its own connections."""

    def stream(self, request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        """Answer `request`, reporting what arrives to `on_event` (in the calling thread).

        Raises:
            StreamInterrupted: `cancel` was cancelled. Takes effect within 100 ms in any state of the call.
            ModelError: the call failed for good, or all retries are used up.
            ConfigError: a proxy or certificate variable cannot be used.
        """
        ...

    def warm_up(self) -> None:
        """Load what the first call needs. Raises as `stream` does."""
        ...

    def close(self) -> None:
        """Close the connections. A running call fails."""
        ...
