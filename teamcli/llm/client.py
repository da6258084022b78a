"""A language model behind an endpoint: opens, reads, retries, and stops at once when cancelled.

A name lookup and a connect cannot be interrupted, so they run in a thread that can be abandoned. On an open connection
everything happens in the calling thread, and a cancel shuts its socket down.
"""

from __future__ import annotations

import time
from contextlib import closing

from teamcli.cancel import CancelScope, NoThreadLeft, run_abandonable
from teamcli.errors import (
    Cancelled,
    ConnectionLost,
    ModelError,
    Overloaded,
    RateLimited,
    StreamInterrupted,
    TransientError,
)
from teamcli.llm.accumulator import Accumulator
from teamcli.llm.anthropic_client import SdkTransport
from teamcli.llm.backoff import BackedOffCall, Backoff, Pause
from teamcli.llm.connection import Timeouts
from teamcli.llm.credentials import Endpoint
from teamcli.llm.direct_client import DirectTransport
from teamcli.llm.estimate import counted
from teamcli.llm.transport import EventStream, Transport
from teamcli.llm.types import Heartbeat, OnEvent, Reply, Request, RequestSent, Retrying

BROKEN_ANSWERS = 5
"""How often an answer that broke off is requested again: unlike a call that was turned away, each one costs money."""
NATURAL_ENDS = ("end_turn", "stop_sequence", "tool_use")
COUNTED_TOO_MUCH = 2
"""By how many tokens the counts of endpoints differ."""
PATIENT_READ_SECONDS = 600.0
"""For endpoints without pings: a model on a laptop can take minutes to read a long prompt."""


class Client:
    """An `LLM` for one agent. All agents of a program share one `Backoff`."""

    def __init__(
        self, transport: Transport, backoff: Backoff, retries: int | None = None, text_in_results: bool = False
    ) -> None:
        """
        Args:
            retries: How often a call is tried again; None leaves it to the patience of `backoff`.
            text_in_results: The endpoint may not support text after tool results; see `user_turn.py`.
        """
        self._transport = transport
        self._backoff = backoff
        self._retries = retries
        self._text_in_results = text_in_results

    def stream(self, request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        request = request.text_in_results if self._text_in_results else request
        broken = 0  # answers that began and broke off
        with self._backoff.call(lambda pause: on_event(_scheduled(pause, 0))) as call:
            while True:
                accumulator = Accumulator()
                try:
                    with call.turn(cancel):
                        return self._read(call, accumulator, request, on_event, cancel)
                except Cancelled as e:
                    partial = counted(accumulator.partial(), request, accumulator.received, is_whole=False)
                    # A call that the endpoint has not accepted has used nothing that could be counted.
                    raise StreamInterrupted(cancel.reason, partial if call.is_through else None) from e
                except TransientError as e:
                    broken += accumulator.has_begun
                    pause = self._pause(e, call, accumulator.has_begun, broken)
                    on_event(_scheduled(pause, call.failures))

    def warm_up(self) -> None:
        """Load what the first call needs, in a background thread while the user types.

        Raises: ModelError, ConfigError
        """
        self._transport.warm_up()

    def close(self) -> None:
        self._transport.close()

    def _read(
        self,
        call: BackedOffCall,
        accumulator: Accumulator,
        request: Request,
        on_event: OnEvent,
        cancel: CancelScope,
    ) -> Reply:
        try:
            with closing(self._open(request, on_event, cancel)) as stream, cancel.on_cancel(stream.interrupt):
                call.got_through()
                reported = time.monotonic()
                for event in stream.events:
                    cancel.check()
                    seen = accumulator.feed(event)
                    if seen is not None or time.monotonic() > reported + 1:
                        on_event(seen or Heartbeat())
                        reported = time.monotonic()
                    if accumulator.is_complete:
                        # Read to the very end, so that the connection serves the next call; but not for long.
                        with self._backoff.linger.guard(stream.interrupt):
                            for _ in stream.events:
                                pass
        except ModelError:
            cancel.check()  # the cancel itself interrupted the stream
            if not accumulator.is_complete:
                raise
        cancel.check()
        if not accumulator.is_complete:
            raise ConnectionLost("The endpoint broke off in the middle of its answer")
        return _as_it_ended(counted(accumulator.reply(), request, accumulator.received, is_whole=True), request)

    def _open(self, request: Request, on_event: OnEvent, cancel: CancelScope) -> EventStream:
        def report_sent() -> None:
            on_event(RequestSent())

        if stream := self._transport.reopen(request, cancel, report_sent):
            return stream
        try:
            return run_abandonable(
                lambda: self._transport.open(request, cancel),
                cancel,
                "model call",
                meanwhile=report_sent,
                discard=lambda stream: stream.close(),
            )
        except NoThreadLeft as e:  # a command may have used them all; when it ends there are some again
            raise TransientError("The system has no thread left for this call") from e

    def _pause(self, error: TransientError, call: BackedOffCall, has_begun: bool, broken: int) -> Pause:
        """Raises: TransientError, if the call is not tried again."""
        # A limit concerns all agents. A stream that broke off after its beginning concerns only this call.
        is_limit = isinstance(error, RateLimited | Overloaded)
        pause = call.failed(error, is_shared=is_limit or not has_begun)
        retries = self._retries
        is_last = broken > BROKEN_ANSWERS and not is_limit if retries is None else call.failures > retries
        if is_last or pause is None:
            raise _given_up(error, call.failures, pause) from error
        return pause


def connect(
    endpoint: Endpoint, backoff: Backoff, retries: int | None = None, timeouts: Timeouts | None = None
) -> Client:
    """The client for `endpoint`. Nothing heavy is loaded, and nothing is sent, before the first request."""
    transport = DirectTransport if endpoint.client == "direct" else SdkTransport
    chosen = timeouts or (Timeouts() if endpoint.sends_pings else Timeouts(read_seconds=PATIENT_READ_SECONDS))
    return Client(transport(endpoint, chosen), backoff, retries, text_in_results=not endpoint.is_official)


def _as_it_ended(reply: Reply, request: Request) -> Reply:
    """An answer with exactly as many tokens as were allowed was cut off, whatever stop reason the endpoint gives."""
    over = reply.usage.output_tokens - request.preamble.max_tokens
    if not 0 <= over <= COUNTED_TOO_MUCH or reply.usage.is_estimated or reply.stop_reason not in NATURAL_ENDS:
        return reply
    last = reply.content[-1:]
    cut = {block["id"] for block in last if block["type"] == "tool_use"}
    return reply._replace(stop_reason="max_tokens", cut_calls=reply.cut_calls | cut)


def _scheduled(pause: Pause, attempt: int) -> Retrying:
    return Retrying(pause.seconds, attempt, pause.seconds_left, pause.reason.removesuffix("."), pause.is_news)


def _given_up(error: TransientError, tries: int, pause: Pause | None) -> TransientError:
    seconds = error.retry_after_seconds
    said = str(error).removesuffix(".")
    if pause is None and seconds is not None:
        wait = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
        return type(error)(f"{said}; it asks to wait {wait}: try again then", seconds)
    return type(error)(f"{said}; gave up after {tries} tries" if tries > 1 else str(error))
