"""Protocol requests: who asked whom for a shutdown or a plan's approval, and how it ended.

The protocols act only on these records, which only teamcli itself writes; a line in an inbox is never a command. A
request is answered once, by its addressee, in the incarnation it was made for, before its deadline.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, NamedTuple

from teamcli.errors import TeamError
from teamcli.team.config_fields import COUNT, NO_FIELDS, NOTHING, SECONDS, TEXT, known_fields
from teamcli.team.message import LEAD, USER

SHUTDOWN_SECONDS = 60.0
"""After this time, a shutdown request without an answer lapses."""
CLOSED_KEPT = 32
"""How many closed requests are kept, so that a late or repeated answer gets a precise error."""
IN_CHARGE = (LEAD, USER)
"""Who may ask for a shutdown and answer a plan."""


class Kind(StrEnum):
    SHUTDOWN = "shutdown"
    PLAN = "plan"


class State(StrEnum):
    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    LAPSED = "lapsed"
    VOID = "void"
    """The teammate was shut down, spawned again or has submitted another plan."""


class Request(NamedTuple):
    id: str
    kind: Kind
    teammate: str
    incarnation: int
    asker: str
    """`lead` or `user` for a shutdown, the teammate for a plan."""
    created: float
    deadline: float | None = None
    """When it lapses, in wall-clock time, for people. The program itself measures with a clock that cannot jump."""
    text: str = ""
    """The plan, or the reason for the shutdown."""
    state: State = State.OPEN
    answered_by: str = ""
    feedback: str = ""
    unknown: Mapping[str, Any] = NO_FIELDS
    """Fields that this version does not know, kept as they are."""

    @property
    def is_open(self) -> bool:
        return self.state is State.OPEN

    def concerns(self, teammate: str) -> bool:
        return self.teammate.casefold() == teammate.casefold()

    def to_dict(self) -> dict[str, Any]:
        known = self._asdict()
        return {**known.pop("unknown"), **known}

    @classmethod
    def from_dict(cls, raw: object) -> Request:
        """Raises: ValueError."""
        fields = known_fields(raw, _TYPES)
        missing = [name for name in _REQUIRED if name not in fields]
        if missing:
            raise ValueError(f"{missing[0]} is missing")
        return cls(**{**fields, "kind": Kind(fields["kind"]), "state": State(fields.get("state", State.OPEN))})


_REQUIRED = ("id", "kind", "teammate", "incarnation", "asker", "created")
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("id", "kind", "teammate", "asker", "text", "state", "answered_by", "feedback"), TEXT),
    "incarnation": COUNT,
    "created": SECONDS,
    "deadline": (*SECONDS, NOTHING),
}


class Requests:
    """All requests of a team. Reading waits for nobody.

    `change` is given by what keeps them on disk: a context in which one change is made. It keeps others out, writes the
    change on leaving, and if it cannot, calls `load` with what was there before.
    """

    def __init__(
        self,
        change: Callable[[], AbstractContextManager[object]] | None = None,
        clock: Callable[[], float] = time.time,
        shutdown_seconds: float = SHUTDOWN_SECONDS,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` stamps requests for people; `ticks` measures how long they stay open."""
        lock = threading.RLock()
        self._change = change or (lambda: lock)
        self._clock = clock
        self._ticks = ticks
        self._shutdown_seconds = shutdown_seconds
        self._all: dict[str, Request] = {}
        self._due: dict[str, float] = {}
        """When each open request lapses, in ticks."""

    def all(self) -> tuple[Request, ...]:
        """Every open request and the last closed ones, oldest first."""
        return tuple(self._all.values())

    def all_open(self, teammate: str = "", kind: Kind | None = None) -> tuple[Request, ...]:
        """The open ones; of one teammate, or of one kind."""
        return tuple(
            request
            for request in self._all.values()
            if request.is_open and (not teammate or request.concerns(teammate)) and kind in (None, request.kind)
        )

    def get(self, request_id: str) -> Request:
        """Raises: TeamError."""
        try:
            return self._all[request_id]
        except KeyError:
            raise TeamError(f"there is no request {request_id!r:.80}; {self._list_open()}") from None

    def load(self, requests: Iterable[Request]) -> None:
        """Replace all requests. For the roster, inside its lock."""
        self._all = {request.id: request for request in requests}
        # This also undoes a change and takes over those of other processes: the time that has passed still counts.
        self._due = {request.id: self._due.get(request.id, self._due_at(request)) for request in self.all_open()}

    def _due_at(self, request: Request) -> float:
        """From what an earlier run wrote. Its clock may have been wrong, so no request waits longer than usual."""
        if request.deadline is None:
            return math.inf
        return self._ticks() + min(max(0.0, request.deadline - self._clock()), self._shutdown_seconds)

    def open_shutdown(self, teammate: str, incarnation: int, asker: str, reason: str = "") -> Request:
        """Raises: TeamError for an asker who may not, or while another such request is open; StateError."""
        if asker not in IN_CHARGE:
            raise TeamError(f"only the lead or the user may ask for a shutdown, not '{asker}'")
        with self._change():
            for other in self.all_open(teammate, Kind.SHUTDOWN):
                raise TeamError(f"'{teammate}' has already been asked to shut down ({other.id}); wait for the answer")
            return self._open_shutdown(teammate, incarnation, asker, reason)

    def insist(self, teammate: str, incarnation: int, reason: str = "") -> Request | None:
        """The user asks, whatever the lead has asked before: that request is void. None if the user has asked this
        incarnation already, and it has not left.

        Raises: StateError
        """
        with self._change():
            earlier = [each for each in self.all() if each.concerns(teammate) and each.kind is Kind.SHUTDOWN]
            # Also a request that was refused: asked twice by the user, a teammate is stopped.
            if any(each.asker == USER and each.incarnation == incarnation for each in earlier):
                return None
            self._close(self.all_open(teammate, Kind.SHUTDOWN), State.VOID)
            return self._open_shutdown(teammate, incarnation, USER, reason)

    def _open_shutdown(self, teammate: str, incarnation: int, asker: str, reason: str) -> Request:
        now = self._clock()
        opened = Request(
            _new_id(), Kind.SHUTDOWN, teammate, incarnation, asker, now, now + self._shutdown_seconds, text=reason
        )
        self._due[opened.id] = self._ticks() + self._shutdown_seconds
        return self._put(opened)

    def open_plan(self, teammate: str, incarnation: int, plan: str) -> Request:
        """Open the review of a plan. An earlier plan that still waits becomes void.

        Raises: StateError
        """
        with self._change():
            self._close(self.all_open(teammate, Kind.PLAN), State.VOID)
            return self._put(Request(_new_id(), Kind.PLAN, teammate, incarnation, teammate, self._clock(), text=plan))

    def answer(
        self, request_id: str, by: str, approve: bool, feedback: str = "", incarnation: int | None = None
    ) -> Request:
        """Close a request, as `by` (for a teammate: in its `incarnation`) may; the first answer counts.

        Raises: TeamError, StateError
        """
        with self._change():
            request = self.get(request_id)
            _check_who(request, by)
            check_open(request, self._has_lapsed(request))  # `expire` may come a moment after the deadline
            if request.kind is Kind.SHUTDOWN and incarnation != request.incarnation:  # its successor was not asked
                raise TeamError(f"{request.id} is addressed to another incarnation of '{request.teammate}'")
            state = State.APPROVED if approve else State.REJECTED
            return self._put(request._replace(state=state, answered_by=by, feedback=feedback))

    def expire(self, is_ours: Callable[[Request], bool] = lambda request: True) -> list[Request]:
        """Close what was not answered in time, if it is for this process to do so. Each is returned once, so that it is
        reported once.

        Raises: StateError
        """

        def is_due(request: Request) -> bool:
            return self._has_lapsed(request) and is_ours(request)

        if not any(map(is_due, self.all())):  # before a change, which is written even if it changes nothing
            return []
        with self._change():
            lapsed = self._close(filter(is_due, self.all()), State.LAPSED)
        return [request for request in lapsed if self._all.get(request.id) is request]  # else another host was faster

    def seconds_left(self, request: Request) -> float:
        return max(0.0, self._due.get(request.id, math.inf) - self._ticks())  # a plan has no deadline

    def _has_lapsed(self, request: Request) -> bool:
        return request.is_open and not self.seconds_left(request)

    def void(self, teammate: str) -> list[Request]:
        """Close all open requests about a teammate that is shut down or spawned again.

        Raises: StateError
        """
        with self._change():
            return self.void_here(teammate)

    def void_here(self, teammate: str, kind: Kind | None = None) -> list[Request]:
        """The same inside a change that the roster makes; for all requests, or those of one kind."""
        return self._close(self.all_open(teammate, kind), State.VOID)

    def drop_here(self, teammate: str) -> None:
        """For the roster: forget all requests about a name that may be used again for another teammate."""
        self._all = {id: request for id, request in self._all.items() if not request.concerns(teammate)}

    def _close(self, requests: Iterable[Request], state: State) -> list[Request]:
        return [self._put(request._replace(state=state)) for request in requests]

    def _put(self, request: Request) -> Request:
        """Replaces the table instead of changing it: readers hold no lock."""
        table = {**self._all, request.id: request}
        closed = [known.id for known in table.values() if not known.is_open]
        for forgotten in closed[: max(0, len(closed) - CLOSED_KEPT)]:
            del table[forgotten]
        self._all = table
        return request

    def _list_open(self) -> str:
        requests = [f"{request.id} ({request.kind}, {request.teammate})" for request in self.all_open()]
        return f"open requests: {', '.join(requests)}" if requests else "none is open"


def _new_id() -> str:
    return f"req-{secrets.token_hex(4)}"


def _check_who(request: Request, by: str) -> None:
    if request.kind is Kind.PLAN and by not in IN_CHARGE:
        raise TeamError(f"only the lead or the user may review a plan, not '{by}'")
    if request.kind is Kind.SHUTDOWN and not request.concerns(by):
        raise TeamError(f"{request.id} is addressed to '{request.teammate}'; only it may answer, not '{by}'")


def check_open(request: Request, has_lapsed: bool = False) -> None:
    """Raises: TeamError, if it has been answered or is void."""
    if request.state is State.VOID:
        raise TeamError(f"{request.id} is void: '{request.teammate}' was shut down, spawned again or sent a newer plan")
    if request.state is State.LAPSED or has_lapsed:
        raise TeamError(f"{request.id} has lapsed: the answer came after its deadline")
    if not request.is_open:
        raise TeamError(f"{request.id} was already {request.state} by {request.answered_by}; the first answer counts")
