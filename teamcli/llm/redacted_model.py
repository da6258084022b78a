"""A model whose answers contain none of the user's keys, even if a key arrives in pieces."""

from __future__ import annotations

from teamcli.cancel import CancelScope
from teamcli.errors import StreamInterrupted
from teamcli.llm.types import (
    LLM,
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
    """Wraps another `LLM`."""

    def __init__(self, model: LLM) -> None:
        self._model = model

    def stream(self, request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        seen = _MaskedEvents(on_event)
        try:
            reply = self._model.stream(request, seen, cancel)
        except StreamInterrupted as e:
            raise StreamInterrupted(str(e), e.partial and masked_reply(e.partial)) from e
        finally:  # however it ends, report what was held back
            seen.finish()
        return masked_reply(reply)

    def warm_up(self) -> None:
        self._model.warm_up()

    def close(self) -> None:
        self._model.close()


def masked_reply(reply: Reply) -> Reply:
    pairs = [(block, redact_value(block)) for block in reply.content]
    # Thinking that contains a key is dropped: it is signed, so it must go back unchanged or not at all.
    content = tuple(masked for block, masked in pairs if block.get("type") not in _SIGNED or masked == block)
    return reply._replace(content=content)


class _MaskedEvents:
    """Text and thinking may be split anywhere, even inside a key."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._stream = RedactedStream()
        self._kind: type[TextDelta] | type[ThinkingDelta] = TextDelta

    def __call__(self, event: StreamEvent) -> None:
        if isinstance(event, Retrying):
            self._stream.end()  # what has streamed is void
        elif not isinstance(event, self._kind | Heartbeat):
            self.finish()
        if isinstance(event, TextDelta | ThinkingDelta):
            self._kind = type(event)
            self._report(self._stream.feed(event.text))
        else:
            self._on_event(event)

    def finish(self) -> None:
        self._report(self._stream.end())

    def _report(self, text: str) -> None:
        if text:
            self._on_event(self._kind(text))
