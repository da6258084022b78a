"""What two processes have made of one roster, as one: field by field, with the changes of this process on top."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import is_
from typing import TypeVar

from teamcli.team.requests import Request
from teamcli.team.roster_file import TRANSITIONS, Member, TeamConfig

_WITH_STATUS = frozenset(
    {"status", "since", "waiting_for", "waiting_since", "stuck_since", "error", "interrupted", "paused", "limit"}
)
"""What changes together with a status."""
T = TypeVar("T")


def merged(base: TeamConfig, ours: TeamConfig, theirs: TeamConfig) -> TeamConfig:
    """`theirs` with what has changed from `base` to `ours`."""
    members = _merged_each(base.members, ours.members, theirs.members, member_key, merged_member)
    requests = _merged_each(base.requests, ours.requests, theirs.requests, request_key, merged_request)
    return theirs._replace(
        name=_chosen(base.name, ours.name, theirs.name),
        unknown=_chosen(base.unknown, ours.unknown, theirs.unknown),
        members=members,
        requests=requests,
    )


def merged_member(base: Member, ours: Member, theirs: Member) -> Member:
    """Our changes on top, unless they are of an earlier incarnation, or the status cannot follow theirs."""
    if ours == base or (base.incarnation == ours.incarnation != theirs.incarnation):
        return theirs
    changed = ours.changed_from(base)
    if ours.status is not theirs.status and ours.status not in TRANSITIONS[theirs.status]:
        changed -= _WITH_STATUS
    return theirs._replace(**{name: getattr(ours, name) for name in changed})


def merged_request(base: Request, ours: Request, theirs: Request) -> Request:
    """The first answer counts."""
    return ours if theirs.is_open and ours != base else theirs


def member_key(member: Member) -> str:
    return member.name.casefold()


def request_key(request: Request) -> str:
    return request.id


def _merged_each(
    base: Iterable[T],
    ours: Iterable[T],
    theirs: Iterable[T],
    key: Callable[[T], str],
    merge: Callable[[T, T, T], T],
) -> tuple[T, ...]:
    """An entry that either side has removed is gone. New ones of this process come last."""
    base, ours, theirs = tuple(base), tuple(ours), tuple(theirs)
    if is_same(base, ours):  # usually only one side has changed anything
        return theirs
    if is_same(base, theirs):
        return ours
    known, mine = {key(entry): entry for entry in base}, {key(entry): entry for entry in ours}
    result: list[T] = []
    for entry in theirs:
        was, is_now = known.get(key(entry)), mine.get(key(entry))
        if was is None:  # new on their side
            result.append(entry)
        elif is_now is not None:
            result.append(is_now if entry is was else merge(was, is_now, entry))
    there = set(map(key, result))
    return (*result, *(entry for name, entry in mine.items() if name not in known and name not in there))


def is_same(one: tuple[T, ...], other: tuple[T, ...]) -> bool:
    """Whether these are the very same objects."""
    return len(one) == len(other) and all(map(is_, one, other))


def _chosen(base: T, ours: T, theirs: T) -> T:
    return theirs if ours == base else ours
