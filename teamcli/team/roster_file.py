"""`config.json` as values: a teammate, the team, and how they are written to the file.

Reading never writes, and reports damage instead of failing. Fields that this version does not know are kept.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from teamcli.errors import StateError, TeamError
from teamcli.storage.files import VERSION, as_state_error, open_private, refuse_newer, write_atomic
from teamcli.team.config_fields import COUNT, FLAG, NO_FIELDS, NOTHING, OBJECT, SECONDS, TEXT, known_fields
from teamcli.team.message import check_name
from teamcli.team.requests import Request

TEAM_NAME = "default"
LARGEST_TEAM = 64_000_000

ANY_HOST = "any"
"""The host of a member that may start anywhere."""
NOT_ENFORCED = "not enforced"
"""Said of a checkout whose member no sandbox keeps in it."""


class Status(StrEnum):
    SPAWNING = "spawning"
    WORKING = "working"
    IDLE = "idle"
    SHUTDOWN = "shutdown"


TRANSITIONS: Mapping[Status, frozenset[Status]] = {
    # A spawn that fails, or that the user stops before its first model call, ends like any other work.
    Status.SPAWNING: frozenset({Status.WORKING, Status.IDLE, Status.SHUTDOWN}),
    Status.WORKING: frozenset({Status.IDLE, Status.SHUTDOWN}),
    Status.IDLE: frozenset({Status.WORKING, Status.SHUTDOWN}),
    Status.SHUTDOWN: frozenset({Status.SPAWNING}),
}


_NOTHING: Mapping[str, Any] = {}


class _Fields(NamedTuple):
    name: str
    role: str
    status: Status = Status.SPAWNING
    incarnation: int = 1
    """How often a teammate of this name was spawned with an empty conversation."""
    model: str = ""
    tools: tuple[str, ...] | None = None
    """The tools it was given; None for the default ones."""
    plan: bool = False
    """Whether changes need an approved plan."""
    plan_approved: bool = False
    worktree: bool = False
    """Whether it works in its own checkout of the repository."""
    unconfined: bool = False
    """No sandbox keeps it in its checkout."""
    claims: bool = False
    """Whether it takes free tasks from the board by itself."""
    cwd: str = ""
    """The directory of the workspace that it works in; empty for the root."""
    prompt: str = ""
    """Standing instructions, which are part of its system prompt."""
    host: str = ""
    """The host that it was asked to start on, or `any`; empty for that of the lead."""
    runs_on: str = ""
    """The host that runs it, if it was asked for one."""
    remote_branch: str = ""
    """Its branch at the remote that all hosts share, if it was asked for a host; empty until it has one."""
    merged_commit: str = ""
    """What the lead has merged of that branch last."""
    error: str = ""
    interrupted: bool = False
    paused: bool = False
    waiting_for: str = ""
    waiting_since: float = 0.0
    """When it began to wait for that; else 0."""
    stuck_since: float = 0.0
    """When it last made progress, if that is too long ago; else 0."""
    since: float = 0.0
    """When its status last changed."""
    turns: int = 0
    cost_usd: float | None = 0.0
    """None if the price of its model is not known."""
    limit: str = ""
    """The limit that it has reached, if it is paused because of that."""
    budget: Mapping[str, Any] = _NOTHING
    """The bounds that the user has set for it; null for no bound."""
    used: Mapping[str, Any] = _NOTHING
    """What this teammate and its sub-agents have used, over all incarnations."""
    unknown: Mapping[str, Any] = _NOTHING
    """Fields that this version does not know, kept as they are."""


class Member(_Fields):
    """One teammate as the roster knows it. A class of its own, because a named tuple cannot cache a property."""

    @property
    def branch(self) -> str:
        """What is to know about its branch; empty if it does not work on one."""
        if not self.worktree or not self.is_active:
            return ""
        return f"team/{self.name} ({NOT_ENFORCED})" if self.unconfined else f"team/{self.name}"

    @property
    def is_active(self) -> bool:
        return self.status is not Status.SHUTDOWN

    def changed_from(self, before: Member) -> set[str]:
        """The names of the fields that differ."""
        return {name for name in self._fields if getattr(before, name) != getattr(self, name)}

    def to_dict(self) -> dict[str, Any]:
        known = dict(zip(_ALWAYS_WRITTEN, _known_values(self), strict=True))
        if self.host:
            known |= {name: getattr(self, name) for name in _OF_HOSTS}
        return {**known, **self.unknown}

    @cached_property
    def encoded(self) -> str:
        """Its line in the file. Cached, since every write contains all lines and most have not changed."""
        return _json(self.to_dict())

    @classmethod
    def from_dict(cls, raw: object) -> Member:
        """Raises: ValueError; TeamError for a name that is not allowed."""
        fields = known_fields(raw, _MEMBER_TYPES)
        missing = [name for name in ("name", "role", "status") if name not in fields]
        if missing:
            raise ValueError(f"{missing[0]} is missing")
        tools = fields.get("tools")
        if tools is not None and not all(isinstance(tool, str) for tool in tools):
            raise ValueError("tools must be names")
        fields["tools"] = None if tools is None else tuple(tools)
        check_name(fields["name"])
        return cls(**{**fields, "status": Status(fields["status"])})


_ALWAYS_WRITTEN: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("name", "role", "status"), TEXT),
    "since": SECONDS,
    "incarnation": COUNT,
    "model": TEXT,
    "tools": (list, NOTHING),
    **dict.fromkeys(("plan", "plan_approved", "worktree", "unconfined", "claims"), FLAG),
    **dict.fromkeys(("cwd", "prompt"), TEXT),
    "error": TEXT,
    **dict.fromkeys(("interrupted", "paused"), FLAG),
    "waiting_for": TEXT,
    "waiting_since": SECONDS,
    "stuck_since": SECONDS,
    "turns": COUNT,
    "cost_usd": (*SECONDS, NOTHING),
    "limit": TEXT,
    **dict.fromkeys(("budget", "used"), OBJECT),
}
_OF_HOSTS = ("host", "runs_on", "remote_branch", "merged_commit")
"""Written only of members that were asked for a host."""
_MEMBER_TYPES = {**_ALWAYS_WRITTEN, **dict.fromkeys(_OF_HOSTS, TEXT)}
_known_values = attrgetter(*_ALWAYS_WRITTEN)
_json = json.JSONEncoder(ensure_ascii=False).encode


class TeamConfig(NamedTuple):
    """The content of `config.json`."""

    name: str = TEAM_NAME
    members: tuple[Member, ...] = ()
    requests: tuple[Request, ...] = ()
    unknown: Mapping[str, Any] = NO_FIELDS
    problems: tuple[str, ...] = ()
    """The parts of the file that could not be used, and why."""
    is_missing: bool = False

    def encode(self) -> bytes:
        """One teammate and one request per line, for `cat` and `grep`, and so that each line is encoded once."""
        unknown = {key: value for key, value in self.unknown.items() if key not in _TEAM_FIELDS}  # as nobody signs them
        rest = {"v": VERSION, "team_name": self.name, **unknown}
        lines = [f"  {_json(key)}: {_json(value)}" for key, value in rest.items()]
        lines.append(f'  "members": {_list([member.encoded for member in self.members])}')
        lines.append(f'  "requests": {_list([_json(request.to_dict()) for request in self.requests])}')
        return "{{\n{}\n}}\n".format(",\n".join(lines)).encode("utf-8", "replace")


def read_team(path: Path) -> TeamConfig:
    """The present content of the file. For any process: never writes, and reports damage instead of raising.

    Raises: StateError for a file that cannot be opened or that a newer version wrote
    """
    return parse_team(path, read_file(path))


def read_file(path: Path) -> bytes | None:
    """The content, or None without a file.

    Raises: StateError
    """
    try:
        fd = open_private(path, os.O_RDONLY)
    except StateError as e:
        if isinstance(e.__cause__, FileNotFoundError | NotADirectoryError):
            return None
        raise
    with as_state_error("read", path), os.fdopen(fd, "rb") as file:
        data = file.read(LARGEST_TEAM + 1)  # a file of any size may be there
    if len(data) > LARGEST_TEAM:
        raise StateError(f"{path} is larger than {LARGEST_TEAM // 1_000_000} MB; move it away, and the team is rebuilt")
    return data


def parse_team(path: Path, data: bytes | None) -> TeamConfig:
    """Raises: StateError for a file that a newer version wrote."""
    if data is None:
        return TeamConfig(is_missing=True)
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as e:
        return TeamConfig(problems=(f"it is not valid JSON: {e}",))
    if not isinstance(raw, dict):
        return TeamConfig(problems=(f"it holds a {type(raw).__name__} instead of an object",))
    refuse_newer(path, raw)
    members, member_problems = _parse_each(raw.get("members"), Member.from_dict, lambda member: member.name)
    requests, request_problems = _parse_each(raw.get("requests"), Request.from_dict, lambda request: request.id)
    problems = [f"members: {problem}" for problem in member_problems]
    problems += [f"requests: {problem}" for problem in request_problems]
    name = raw.get("team_name")
    unknown = {key: value for key, value in raw.items() if key not in _TEAM_FIELDS}
    return TeamConfig(name if isinstance(name, str) else TEAM_NAME, members, requests, unknown, tuple(problems))


_TEAM_FIELDS = ("v", "team_name", "members", "requests")
EntryT = TypeVar("EntryT", Member, Request)


def _parse_each(
    raw: object, parse: Callable[[object], EntryT], key: Callable[[EntryT], str]
) -> tuple[tuple[EntryT, ...], list[str]]:
    """The entries that can be used, and the problems of the others."""
    entries: dict[str, EntryT] = {}
    problems = []
    if not isinstance(raw, list | None):
        return (), [f"{raw!r:.80} is not a list"]
    for number, item in enumerate(raw or (), start=1):
        try:
            entry = parse(item)
        except (ValueError, TeamError) as e:
            problems.append(f"entry {number}: {e}")
            continue
        if entries.setdefault(key(entry).casefold(), entry) is not entry:
            problems.append(f"entry {number}: {key(entry)!r} occurs twice")
    return tuple(entries.values()), problems


def keep_aside(path: Path, data: bytes) -> Path:
    """Copy a damaged file, once. The file itself stays until a good one replaces it, even if we crash in between."""
    for number in itertools.count(1):
        aside = path.with_name(f"{path.name}.bad-{number}")
        kept = read_file(aside)
        if kept is None:
            write_atomic(aside, data)
        if kept in (None, data):  # an earlier start may have copied the same damage
            return aside
    raise AssertionError("numbers do not end")


def _list(lines: list[str]) -> str:
    return "[\n    {}\n  ]".format(",\n    ".join(lines)) if lines else "[]"
