"""A model whose answers hold none of the user's keys, however its endpoint cuts them into pieces."""

from __future__ import annotations

from teamcli.cancel import CancelScope
from teamcli.errors import StreamInterrupted
from teamcli.llm.types import (
    LLM,
    Block,
    Heartbeat,
    OnEvent,
    Reply,
    Request,
    Retrying,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
)
from teamcli.text.redaction import RedactedStream, redact_value

_SIGNED = ("thinking", "redacted_thinking")


class RedactedModel:
    """An `LLM` around another one."""

    def __init__(self, model: LLM) -> None:
        self._model = model

    def stream(self, request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        seen = _MaskedEvents(on_event)
        try:
            reply = self._model.stream(request, seen, cancel)
        except StreamInterrupted as e:
            raise StreamInterrupted(str(e), e.partial and masked_reply(e.partial)) from e
        finally:  # whatever ends it, what was held back is told
            seen.finish()
        return masked_reply(reply)

    def warm_up(self) -> None:
        self._model.warm_up()

    def close(self) -> None:
        self._model.close()


def masked_reply(reply: Reply) -> Reply:
    return reply._replace(content=tuple(kept for block in reply.content if (kept := _masked(block)) is not None))


def _masked(block: Block) -> Block | None:
    """None for thinking that holds a key: it is signed, so it goes back unchanged or not at all."""
    masked = redact_value(block)
    return None if block.get("type") in _SIGNED and masked != block else masked


class _MaskedEvents:
    """Text and thinking may be cut anywhere, also inside a key."""

    def __init__(self, tell: OnEvent) -> None:
        self._tell = tell
        self._stream = RedactedStream()
        self._kind: type[TextDelta] | type[ThinkingDelta] = TextDelta

    def __call__(self, event: StreamEvent) -> None:
        if isinstance(event, Retrying):
            self._stream.end()  # what had streamed is void
        elif not isinstance(event, self._kind | Heartbeat):
            self.finish()
        if isinstance(event, TextDelta | ThinkingDelta):
            self._kind = type(event)
            self._say(self._stream.feed(event.text))
        else:
            self._tell(event)

    def finish(self) -> None:
        self._say(self._stream.end())

    def _say(self, text: str) -> None:
        if text:
            self._tell(self._kind(text))
