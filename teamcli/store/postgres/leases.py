"""Which process runs which agent.

Each process is a host: a row that it renews. An agent's lease names its host and has an epoch, which every takeover
raises. The epoch is what protects an agent: a host that was cut off or frozen cannot write with an old one. That it
has not renewed in time only means that others may take its agents.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from psycopg import Cursor

from teamcli.cancel import CancelScope
from teamcli.errors import ConfigError, StateError
from teamcli.store.postgres.team_rows import Fence, Team

LEASE_SECONDS = 30.0
logger = logging.getLogger(__name__)
_IS_HELD = """exists (
    select 1 from host h
    where h.team = l.team and h.name = l.host and h.epoch = l.host_epoch and h.expires_at > clock_timestamp()
)"""


class HostReplaced(StateError):
    """Another process has this host's name."""


class HostRow(NamedTuple):
    """A host as the others see it."""

    name: str
    is_alive: bool
    slots: int
    """How many members it runs at most."""
    members: int
    """How many it runs."""


class Host:
    """This process as a host of a team."""

    def __init__(self, team: Team, name: str, slots: int, fence: Fence, lease_seconds: float = LEASE_SECONDS) -> None:
        self._team = team
        self.name = name
        self.slots = slots
        self._fence = fence
        self._seconds = lease_seconds
        self._epoch = 0

    def join(self) -> None:
        """Become a host of the team. One of the same name that died on this machine is replaced at once.

        Raises: ConfigError, while another process has the name; StateError
        """
        doc = json.dumps({"slots": self.slots, **_this_process()})
        if not self._try_join(doc, replaced=None):
            known = self._team.database.run(self._read)
            if known is None or not _is_dead_here(known[1]) or not self._try_join(doc, replaced=known[0]):
                raise ConfigError(
                    f"a host named '{self.name}' is running for this team; choose another name with --name, or wait"
                    f" {self._seconds:g} seconds if it has just died"
                )

    def _try_join(self, doc: str, replaced: int | None) -> bool:
        def act(cursor: Cursor[Any]) -> int | None:
            cursor.execute(
                "insert into host as h (team, name, epoch, expires_at, doc)"
                " values (%(team)s, %(name)s, 1, clock_timestamp() + %(ttl)s * interval '1 second', %(doc)s)"
                " on conflict (team, name) do update"
                " set epoch = h.epoch + 1, expires_at = excluded.expires_at, doc = excluded.doc"
                " where h.expires_at <= clock_timestamp() or h.epoch = %(replaced)s"
                " returning epoch",
                {**self._values, "doc": doc, "replaced": replaced},
            )
            row = cursor.fetchone()
            return int(row[0]) if row else None

        epoch = self._team.database.run(act, self._team.topic("host"))
        self._epoch = epoch or 0
        return epoch is not None

    def _read(self, cursor: Cursor[Any]) -> tuple[int, str] | None:
        cursor.execute("select epoch, doc from host where team = %(team)s and name = %(name)s", self._values)
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

        def act(cursor: Cursor[Any]) -> set[str] | None:
            # Also after the time is up: what nobody has taken meanwhile is still ours.
            cursor.execute(
                "update host set expires_at = clock_timestamp() + %(ttl)s * interval '1 second'"
                " where team = %(team)s and name = %(name)s and epoch = %(epoch)s",
                self._values,
            )
            if not cursor.rowcount:
                return None
            cursor.execute(
                "select name from lease where team = %(team)s and host = %(name)s and host_epoch = %(epoch)s",
                self._values,
            )
            return {str(row[0]) for row in cursor}

        held_before = self._fence.agents  # those taken while this runs are not lost
        held = self._team.database.run(act)
        lost = [agent for agent in held_before if held is None or agent not in held]
        for agent in lost:
            self._fence.lose(agent)
        if held is None:
            raise HostReplaced(f"another process is the host '{self.name}' now")
        return lost

    def forget(self, agents: Iterable[str]) -> None:
        """Nothing here runs these any more, which others have taken over."""
        for agent in agents:
            self._fence.drop(agent)

    def leave(self) -> None:
        """Let others take over at once what this process ran."""

        def act(cursor: Cursor[Any]) -> None:
            cursor.execute(
                "update host set expires_at = '-infinity'"
                " where team = %(team)s and name = %(name)s and epoch = %(epoch)s",
                self._values,
            )

        for agent in self._fence.agents:
            self._fence.drop(agent)
        self._team.database.run(act, self._team.topic("host"))

    def take(self, agent: str) -> bool:
        """Take an agent that no living host runs. Everything that is written for it from now on has the new epoch."""

        def act(cursor: Cursor[Any]) -> int | None:
            cursor.execute(
                "insert into lease as l (team, name, epoch, host, host_epoch)"
                " values (%(team)s, %(agent)s, 1, %(name)s, %(epoch)s)"
                " on conflict (team, name) do update"
                " set epoch = l.epoch + 1, host = excluded.host, host_epoch = excluded.host_epoch"
                f" where not {_IS_HELD} or (l.host = excluded.host and l.host_epoch = excluded.host_epoch)"
                " returning epoch",
                {**self._values, "agent": agent},
            )
            row = cursor.fetchone()
            return int(row[0]) if row else None

        epoch = self._team.database.run(act)
        if epoch is not None:
            self._fence.hold(agent, epoch)
            if epoch > 1:
                self._team.database.notify(self._team.topic("host"))
        return epoch is not None

    def give_up(self, agent: str) -> None:
        """Leave an agent to any other host."""
        epoch = self._fence.epoch(agent)
        self._fence.drop(agent)

        def act(cursor: Cursor[Any]) -> None:
            cursor.execute(
                "update lease set host = '', host_epoch = 0 where team = %s and name = %s and epoch = %s",
                (self._team.id, agent, epoch),
            )

        self._team.database.run(act, self._team.topic("host"))

    def holders(self) -> dict[str, str]:
        """The living host of each agent that has one."""

        def act(cursor: Cursor[Any]) -> dict[str, str]:
            cursor.execute(f"select name, host from lease l where team = %s and {_IS_HELD}", (self._team.id,))
            return {str(name): str(host) for name, host in cursor}

        return self._team.database.run(act)


def read_hosts(team: Team) -> list[HostRow]:
    """All hosts that the team has ever had, by name."""

    def act(cursor: Cursor[Any]) -> list[HostRow]:
        cursor.execute(
            "select h.name, h.expires_at > clock_timestamp(), h.doc, count(l.name) filter (where l.name <> 'lead')"
            " from host h left join lease l on l.team = h.team and l.host = h.name and l.host_epoch = h.epoch"
            " where h.team = %s group by h.team, h.name order by h.name",
            (team.id,),
        )
        return [HostRow(str(name), bool(alive), _slots(doc), int(members)) for name, alive, doc, members in cursor]

    return team.database.run(act)


class Renewal:
    """A thread that keeps a host alive, and looks whether others have died."""

    def __init__(
        self,
        host: Host,
        cancel: CancelScope,
        on_lost: Callable[[list[str]], None],
        on_look: Callable[[], None],
        on_replaced: Callable[[str], None],
        every_seconds: float = LEASE_SECONDS / 6,
    ) -> None:
        """`on_lost` gets the agents that others have taken over; `on_look` is called after each renewal; `on_replaced`
        once, with the reason, if this process is no host any more. All in this thread."""
        self._host = host
        self._cancel = cancel
        self._on_lost = on_lost
        self._on_look = on_look
        self._on_replaced = on_replaced
        self._every_seconds = every_seconds
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_seconds: float) -> None:
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._cancel.wait(self._every_seconds):
            try:
                lost = self._host.renew()
            except HostReplaced as e:
                self._on_replaced(str(e))
                return
            except StateError as e:  # a full disk, say: others take over if it lasts
                logger.warning("the lease was not renewed: %s", e)
                continue
            if lost:  # ending a member may take long, and the lease must not wait for it
                threading.Thread(target=self._end, args=(lost,), name="lost members", daemon=True).start()
            self._on_look()

    def _end(self, lost: list[str]) -> None:
        try:
            self._on_lost(lost)
        except Exception:  # boundary: these members run elsewhere now, whatever is left of them here
            logger.exception("members that were lost could not be ended")
            return
        self._host.forget(lost)


def _this_process() -> dict[str, Any]:
    return {"machine": _machine(), "pid": os.getpid(), "started": _started(os.getpid())}


def _is_dead_here(doc: str) -> bool:
    """Whether the process that wrote this ran on this machine, and has ended."""
    try:
        known = json.loads(doc)
        is_here = bool(known["machine"]) and known["machine"] == _machine()
        return is_here and _started(known["pid"]) != known["started"]
    except (ValueError, KeyError, TypeError):  # anyone who can write to the database can write this
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


def _slots(doc: str) -> int:
    try:
        slots = json.loads(doc).get("slots")
    except (ValueError, AttributeError):
        return 0
    return slots if isinstance(slots, int) else 0
