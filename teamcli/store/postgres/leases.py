"""Which process runs which agent.

Each process is a host: a row that it renews. An agent's lease names its host and has an epoch, which every takeover
raises. The epoch is what protects an agent: a host that was cut off or frozen cannot write with an old one. That it
has not renewed in time only means that others may take its agents.
"""

from __future__ import annotations

import json
import logging
import math
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psycopg import Cursor

from teamcli.errors import ConfigError, StateError
from teamcli.storage.files import as_number
from teamcli.store.postgres.team_rows import Fence, Team
from teamcli.team.host_row import HostRow

LEASE_SECONDS = 30.0
_LARGEST_DOC = 10_000
logger = logging.getLogger(__name__)
_IS_HELD = """exists (
    select 1 from host h
    where h.team = l.team and h.name = l.host and h.epoch = l.host_epoch and h.expires_at > clock_timestamp()
)"""


class HostReplaced(StateError):
    """Another process has this host's name."""


class HostNameTaken(ConfigError):
    """Another process has this host's name, and is alive."""


class Host:
    """This process as a host of a team."""

    def __init__(self, team: Team, name: str, slots: int, fence: Fence, lease_seconds: float = LEASE_SECONDS) -> None:
        self._team = team
        self.name = name
        self.slots = slots
        self._fence = fence
        self._seconds = lease_seconds
        self._epoch = 0
        self._kept: dict[str, int] = {}
        """Agents that are given up and still have this host in the database, with their epochs."""
        self._session = secrets.token_hex(8)
        """Of this process, and of no other one ever."""

    def join(self, option: str = "--name") -> None:
        """Become a host of the team. One of the same name that died on this machine is replaced at once. `option`
        chooses another name.

        Raises: HostNameTaken, while another process has the name; StateError, also if the team was deleted meanwhile
        """
        doc = self._doc()
        if not self._try_join(doc, replaced=None):
            other = self._team.database.run(self._read)
            if other is None or not _is_dead_here(other[1]) or not self._try_join(doc, replaced=other[0]):
                raise HostNameTaken(
                    f"a host named '{self.name}' is running for this team; choose another name with {option}, or wait"
                    f" {self._seconds:g} seconds if it has just died"
                )

    def _doc(self, **more: object) -> str:
        known = {"slots": self.slots, "lease_seconds": self._seconds, "session": self._session}
        return json.dumps({**known, **_this_process(), **more})

    def _try_join(self, doc: str, replaced: int | None) -> bool:
        def act(cursor: Cursor[Any]) -> int | None:
            # To delete a team, it is locked first. Then it is checked that no host is alive.
            cursor.execute("select 1 from team where id = %(team)s for key share", self._values)
            if cursor.fetchone() is None:
                raise StateError("the team is no longer in the database: it was deleted; start teamcli again")
            cursor.execute(
                "insert into host as h (team, name, epoch, expires_at, doc)"
                " values (%(team)s, %(name)s, 1, clock_timestamp() + %(ttl)s * interval '1 second', %(doc)s)"
                " on conflict (team, name) do update"
                " set epoch = h.epoch + 1, expires_at = excluded.expires_at, doc = excluded.doc"
                # The last: this process has joined, and the answer to its commit was lost.
                " where h.expires_at <= clock_timestamp() or h.epoch = %(replaced)s or h.doc = excluded.doc"
                " returning epoch",
                {**self._values, "doc": doc, "replaced": replaced},
            )
            row = cursor.fetchone()
            return int(row[0]) if row else None

        epoch = self._team.database.run(act, self._team.topic("host"))
        self._epoch = epoch or 0
        return epoch is not None

    def _read(self, cursor: Cursor[Any]) -> tuple[int, str] | None:
        cursor.execute(
            f"select epoch, left(doc, {_LARGEST_DOC}) from host where team = %(team)s and name = %(name)s".encode(),
            self._values,
        )
        row = cursor.fetchone()
        return (int(row[0]), str(row[1])) if row else None

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def _values(self) -> dict[str, Any]:
        return {"team": self._team.id, "name": self.name, "ttl": self._seconds, "epoch": self._epoch}

    def renew(self) -> list[str]:
        """Stay a host. Returns the agents that others have taken over.

        Raises: StateError, if another process has this host's name now
        """
        held_before = self._fence.held()  # those taken while this runs are not lost
        # Also after the time is up: what nobody has taken meanwhile is still ours.
        found = self._team.database.fetch(
            "with renewed as ("
            " update host set expires_at = clock_timestamp() + %(ttl)s * interval '1 second'"
            " where team = %(team)s and name = %(name)s and epoch = %(epoch)s returning 1"
            ") select array(select name from lease"
            " where team = %(team)s and host = %(name)s and host_epoch = %(epoch)s) from renewed",
            self._values,
        )
        held = set(found[0][0]) if found else set()
        gone = [(agent, epoch) for agent, epoch in held_before.items() if agent not in held]
        lost = [agent for agent, epoch in gone if self._fence.lose(agent, epoch)]  # not if it was given up meanwhile
        if not found:
            raise HostReplaced(f"another process is the host '{self.name}' now")
        self._release_kept()
        return lost

    def _release_kept(self) -> None:
        """What could not be given up, because the database had refused that."""
        for agent, epoch in tuple(self._kept.items()):
            try:
                self._release(agent, epoch, is_announced=True)
            except StateError as e:  # the next renewal tries again
                logger.warning("%s could not be given up: %s", agent, e)

    def announce_leave(self) -> None:
        """Let others take at once what this process gives up, also members that were asked for here.

        Raises: StateError
        """
        self._team.database.fetch(
            "update host set doc = %(doc)s where team = %(team)s and name = %(name)s and epoch = %(epoch)s returning 1",
            {**self._values, "doc": self._doc(is_leaving=True)},
            self._team.topic("host"),
        )

    def leave(self) -> None:
        """Let others take over at once what this process ran."""

        def act(cursor: Cursor[Any]) -> None:
            cursor.execute(
                "update host set expires_at = '-infinity'"
                " where team = %(team)s and name = %(name)s and epoch = %(epoch)s",
                self._values,
            )

        self._fence.lose_all()
        self._team.database.run(act, self._team.topic("host"))

    def take(self, agent: str) -> bool:
        """Take an agent that no living host runs. Everything that is written for it from now on has the new epoch, so
        nothing may still be running here that began with an earlier one: see `forget`."""
        if self._fence.is_lost(agent):
            return False
        found = self._team.database.fetch(
            "insert into lease as l (team, name, epoch, host, host_epoch)"
            " values (%(team)s, %(agent)s, 1, %(name)s, %(epoch)s)"
            " on conflict (team, name) do update"
            " set epoch = l.epoch + 1, host = excluded.host, host_epoch = excluded.host_epoch"
            f" where not {_IS_HELD} or (l.host = excluded.host and l.host_epoch = excluded.host_epoch)"
            " returning epoch",
            {**self._values, "agent": agent},
        )
        if found:
            self._fence.hold(agent, int(found[0][0]))
        return bool(found)

    def give_up(self, agent: str, is_announced: bool = True) -> None:
        """Leave an agent to any other host, and to this one after `forget`. Unless it
        `is_announced`, they look for it after something else.

        Raises: StateError; then it is given up with a later renewal
        """
        epoch = self._fence.epoch(agent) or 0  # which no lease has, if it was lost meanwhile
        self._fence.lose(agent, epoch)
        self._kept[agent] = epoch
        self._release(agent, epoch, is_announced)

    def _release(self, agent: str, epoch: int, is_announced: bool) -> None:
        self._team.database.fetch(
            "update lease set host = '', host_epoch = 0 where team = %(team)s and name = %(agent)s"
            " and epoch = %(epoch)s returning 1",
            {**self._values, "agent": agent, "epoch": epoch},
            *([self._team.topic("host")] if is_announced else []),
        )
        if self._kept.get(agent) == epoch:
            del self._kept[agent]

    def forget(self, agent: str) -> None:
        """No thread of an agent that was lost or given up runs here anymore."""
        self._fence.forget(agent)

    def hold(self, agent: str) -> str:
        """Names this process while it runs an agent, since it took that; empty if it does not. No other process, and no
        later time, has the same name."""
        return f"{self._session}/{self._fence.epoch(agent)}" if self._fence.holds(agent) else ""

    def epoch_of(self, agent: str) -> int | None:
        """The epoch that a row which this process inserts for an agent must check; None if that never ran here."""
        return self._fence.epoch(agent)

    def hold_elsewhere(self, agent: str) -> str:
        """The same of the living host that runs an agent. Anyone could write that row: it says for whom an order is,
        and not who gives it."""

        def act(cursor: Cursor[Any]) -> str:
            cursor.execute(
                f"select left(h.doc, {_LARGEST_DOC}), l.epoch from lease l join host h"
                " on h.team = l.team and h.name = l.host and h.epoch = l.host_epoch"
                " where l.team = %s and l.name = %s and h.expires_at > clock_timestamp()".encode(),
                (self._team.id, agent),
            )
            row = cursor.fetchone()
            return f"{_fields(row[0]).get('session')}/{row[1]}" if row else ""

        return self._team.database.run(act)

    def holders(self) -> dict[str, str]:
        """The living host of each agent that has one."""
        query = f"select name, left(host, 100) from lease l where team = %(team)s and {_IS_HELD}"
        return dict(self._team.database.fetch(query, self._values))

    def free(self) -> set[str]:
        """The members that no living host runs."""
        query = (
            "select name from member m where team = %(team)s and doc <> '' and not exists ("
            f"select 1 from lease l where l.team = m.team and l.name = m.name and {_IS_HELD})"
        )
        return {str(name) for (name,) in self._team.database.fetch(query, self._values)}


def read_hosts(team: Team) -> list[HostRow]:
    """All hosts that the team has ever had, by name."""
    rows = team.database.fetch(
        "select left(h.name, 100),"
        " (extract(epoch from h.expires_at) - extract(epoch from clock_timestamp()))::float8,"
        f" left(h.doc, {_LARGEST_DOC}),"
        " count(l.name) filter (where l.name <> 'lead'), coalesce(bool_or(l.name = 'lead'), false)"
        " from host h left join lease l on l.team = h.team and l.host = h.name and l.host_epoch = h.epoch"
        " where h.team = %(team)s group by h.team, h.name order by h.name",
        {"team": team.id},
    )
    return [_host_row(*row) for row in rows]


def _this_process() -> dict[str, Any]:
    return {"machine": _machine(), "pid": os.getpid(), "started": _started(os.getpid())}


def _is_dead_here(doc: str) -> bool:
    """Whether the process that wrote this ran on this machine, and has ended."""
    try:
        known = json.loads(doc)
        is_here = bool(known["machine"]) and known["machine"] == _machine()
        return is_here and _started(known["pid"]) != known["started"]
    except (ValueError, KeyError, TypeError, RecursionError):  # anyone who can write to the database can write this
        return False


def _machine() -> str:
    """This machine since it was started, and what numbers its processes; empty if that cannot be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process was started; empty if there is none. Numbers of processes are used again."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _host_row(name: str, seconds_left: float, doc: str, members: int, has_lead: bool) -> HostRow:
    fields = _fields(doc)
    slots, lease_seconds = int(_number(fields, "slots")), _number(fields, "lease_seconds")
    silent = lease_seconds - seconds_left
    # It renews its lease after a sixth of that time.
    is_silent = seconds_left > 0 and lease_seconds / 3 < silent
    is_leaving = fields.get("is_leaving") is True
    return HostRow(name, seconds_left > 0, slots, members, silent if is_silent else 0.0, has_lead, is_leaving)


def _number(fields: Mapping[str, Any], key: str) -> float:
    found = as_number(fields.get(key))
    return found if math.isfinite(found) else 0.0


def _fields(doc: str) -> Mapping[str, Any]:
    """Anyone who can write to the database can write this."""
    try:
        fields = json.loads(doc)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}
