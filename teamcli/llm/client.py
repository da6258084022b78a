"""A language model behind an endpoint: opens, reads, retries, and stops at once when told to.

Looking a name up and connecting cannot be broken off, so that runs in a thread that can be left behind. On a connection
that stands, all happens in the calling thread, and a cancel breaks its socket off.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import closing, suppress

from teamcli.cancel import CancelScope
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
from teamcli.llm.backoff import BackedOffCall, Backoff, Pause
from teamcli.llm.connection import Timeouts
from teamcli.llm.credentials import Endpoint
from teamcli.llm.direct import DirectTransport
from teamcli.llm.estimate import counted
from teamcli.llm.sdk import SdkTransport
from teamcli.llm.transport import EventStream, Transport
from teamcli.llm.types import OnEvent, Reply, Request, RequestSent, RetryScheduled, StillArriving

BROKEN_ANSWERS = 5
"""How often an answer that broke off is asked for again: unlike a call that was turned away, each has its price."""
NATURAL_ENDS = ("end_turn", "stop_sequence", "tool_use")
COUNTED_TOO_MUCH = 2
"""By so many tokens endpoints may differ in what they count."""
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
            text_in_results: The endpoint may have no place for text behind tool results.
        """
        self._transport = transport
        self._backoff = backoff
        self._retries = retries
        self._text_in_results = text_in_results

    def stream(self, request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        request = request.text_in_results if self._text_in_results else request
        broken = 0
        with self._backoff.call(lambda pause: on_event(_scheduled(pause, 0))) as call:
            while True:
                accumulator = Accumulator()
                try:
                    with call.turn(cancel):
                        return self._read(call, accumulator, request, on_event, cancel)
                except Cancelled as e:
                    partial = _partial(accumulator, request) if call.is_through else None
                    raise StreamInterrupted(cancel.reason, partial) from e
                except TransientError as e:
                    broken += accumulator.has_begun
                    pause = self._pause(e, call, accumulator.has_begun, broken)
                    on_event(_scheduled(pause, call.failures))

    def warm_up(self) -> None:
        """Load what the first call needs; meant for a thread of its own while the user still types.

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
                told = time.monotonic()
                for event in stream.events:
                    cancel.check()
                    seen = accumulator.feed(event)
                    if seen is not None or time.monotonic() > told + 1:
                        on_event(seen or StillArriving())
                        told = time.monotonic()
                    if accumulator.is_complete:
                        self._read_out(stream)
        except ModelError:
            cancel.check()  # the cancel itself broke it off
            if not accumulator.is_complete:
                raise
        cancel.check()
        if not accumulator.is_complete:
            raise ConnectionLost("The endpoint broke off in the middle of its answer")
        return _as_it_ended(counted(accumulator.reply(), request, accumulator.received, is_whole=True), request)

    def _read_out(self, stream: EventStream) -> None:
        """Read to the end of a whole answer, so that its connection serves the next call; but not for long."""
        with self._backoff.linger.guard(stream.interrupt):
            for _ in stream.events:
                pass

    def _open(self, request: Request, on_event: OnEvent, cancel: CancelScope) -> EventStream:
        def tell_sent() -> None:
            on_event(RequestSent())

        return self._transport.reopen(request, cancel, tell_sent) or self._open_in_thread(request, tell_sent, cancel)

    def _open_in_thread(self, request: Request, tell_sent: Callable[[], None], cancel: CancelScope) -> EventStream:
        opening: Future[EventStream] = Future()
        # Daemon: a name lookup or connect that nobody waits for any more must not hold up the program's end.
        opener = threading.Thread(target=_open_into, args=(opening, self._transport, request, cancel), daemon=True)
        try:
            opener.start()
        except RuntimeError as e:  # used up, by a command maybe: it ends, and there are some again
            raise TransientError("The system has no thread left for this call") from e
        with cancel.on_cancel(opening.cancel):
            try:
                tell_sent()
                return opening.result()
            except CancelledError as e:
                raise Cancelled(cancel.reason) from e
            except BaseException:  # of `tell_sent`, or Ctrl-C: nobody takes the stream, which may be open already
                if not opening.cancel() and opening.exception() is None:
                    opening.result().close()
                raise

    def _pause(self, error: TransientError, call: BackedOffCall, has_begun: bool, broken: int) -> Pause:
        """Raises: TransientError, if the call is not tried again."""
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
    """The client that `endpoint` asks for. Nothing heavy is loaded, and nothing sent, before the first request."""
    transport = DirectTransport if endpoint.client == "direct" else SdkTransport
    chosen = timeouts or (Timeouts() if endpoint.sends_pings else Timeouts(read_seconds=PATIENT_READ_SECONDS))
    return Client(transport(endpoint, chosen), backoff, retries, text_in_results=not endpoint.is_official)


def _open_into(opening: Future[EventStream], transport: Transport, request: Request, cancel: CancelScope) -> None:
    try:
        stream = transport.open(request, cancel)
    except BaseException as e:  # noqa: BLE001 - handed over to the thread that waits, which raises it
        with suppress(InvalidStateError):  # nobody waits for it any more
            opening.set_exception(e)
        return
    try:
        opening.set_result(stream)
    except InvalidStateError:
        stream.close()


def _partial(accumulator: Accumulator, request: Request) -> Reply:
    return counted(accumulator.partial(), request, accumulator.received, is_whole=False)


def _as_it_ended(reply: Reply, request: Request) -> Reply:
    """An answer that has exactly as many tokens as were allowed was cut, whatever the endpoint says of its end."""
    over = reply.usage.output_tokens - request.preamble.max_tokens
    if not 0 <= over <= COUNTED_TOO_MUCH or reply.usage.is_estimated or reply.stop_reason not in NATURAL_ENDS:
        return reply
    last = reply.content[-1:]
    cut = {block["id"] for block in last if block["type"] == "tool_use"}
    return reply._replace(stop_reason="max_tokens", cut_calls=reply.cut_calls | cut)


def _scheduled(pause: Pause, attempt: int) -> RetryScheduled:
    return RetryScheduled(pause.seconds, attempt, pause.seconds_left, pause.reason.removesuffix("."), pause.is_news)


def _given_up(error: TransientError, tries: int, pause: Pause | None) -> TransientError:
    seconds = error.retry_after_seconds
    said = str(error).removesuffix(".")
    if pause is None and seconds is not None:
        wait = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
        return type(error)(f"{said}; it asks to wait {wait}: try again then", seconds)
    return type(error)(f"{said}; gave up after {tries} tries" if tries > 1 else str(error))
