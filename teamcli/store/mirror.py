"""Brings a team from a database into a directory with the files of `.team/`, so that everything that reads those works.

Each call brings only what is new since the last one. Nothing in the database is trusted: a row that is not signed by
the team's key is left out, and no name leads out of the directory.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from teamcli.agent.transcript import read_marks
from teamcli.errors import TeamError
from teamcli.storage.files import (
    PRIVATE_DIR,
    VERSION,
    Json,
    as_number,
    as_state_error,
    decode_line,
    encode_json,
    open_private,
    write_atomic,
    write_whole,
)
from teamcli.storage.team_dir import TeamDir
from teamcli.store.documents import ARCHIVES, ORIGINAL, STATE, TRANSCRIPTS, Documents, is_team_file, original
from teamcli.store.line_text import Oddities, decode_object, join
from teamcli.tasks.task_file import LARGEST_ID
from teamcli.team.inbox_file import is_valid_in
from teamcli.team.inbox_state import Position
from teamcli.team.mailbox import POSITION
from teamcli.team.message import LEAD, is_address, is_subagent
from teamcli.team.requests import Request
from teamcli.team.roster_file import TEAM_NAME, Member, TeamConfig

if TYPE_CHECKING:
    from psycopg import Cursor

    from teamcli.store.postgres.team_rows import Team

SUBAGENTS = "subagents/"
_BATCH = 500
_LARGEST_GAP = 100_000_000
_NO_STATE: Json = {"v": VERSION, "generation": 0, "incarnation": 0, "archived": {}, "moved": None, "begun": 0.0}
Resign = Callable[[bytes], bytes]


class _Written(NamedTuple):
    """What a file already has of its rows."""

    next: int = 0
    """Where the next row is: a position in an inbox, else a number."""
    lines: int = 0
    is_torn: bool = False
    """Whether its last line has no end yet."""


class Mirror:
    def __init__(
        self,
        team: Team,
        directory: TeamDir,
        has_key: bool = True,
        sign_again: Resign = lambda line: line,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Without the team's key, nothing can be verified, and everything is shown. `sign_again` makes a line of an
        inbox one of the directory. `warn` gets a sentence about rows that are left out, once per table."""
        self._team = team
        self._dir = directory
        self._has_key = has_key
        self._sign_again = sign_again
        self._warn = warn
        self._documents = Documents(team, has_key)
        self._known_oddities: dict[str, Oddities] | None = None
        self._known_originals: dict[str, Any] = {}
        self._written: dict[Path, _Written] = {}
        self._places: dict[tuple[str, int], Path] = {}
        self._timeline: dict[str, int] = {}
        self._versions: dict[int, int] = {}
        self._whole: dict[Path, bytes | None] = {}
        self._warned: set[str] = set()
        self.roster = TeamConfig()
        """As it was brought last."""

    def bring_all(self, progress: Callable[[str], None] = lambda text: None) -> None:
        """Everything. Conversations come before inboxes: how far mail is read must not be ahead of the mail.

        Raises: StateError
        """
        for part, bring in (
            ("other files", self._bring_files),  # first: what is empty among them may have rows now
            ("roster", self.bring_roster),
            ("conversations", partial(self.bring_transcripts, is_whole=True)),
            ("inboxes", partial(self.bring_inboxes, is_whole=True)),
            ("tasks", self.bring_tasks),
            ("timeline", self.bring_timeline),
        ):
            progress(part)
            bring()

    def bring_roster(self) -> None:
        """Raises: StateError"""
        self.roster = self._run(self.read_roster)
        self._put_whole("config.json", config_file(self.roster))

    def bring_tasks(self) -> None:
        """Raises: StateError"""
        rows, last = self._run(self._read_tasks)
        for id, version, doc in rows:
            if self._versions.get(id) != version:
                self._put_whole(f"tasks/{id}.json", task_file(doc))
        for id in self._versions.keys() - {id for id, *_ in rows}:
            self._put_whole(f"tasks/{id}.json", None)
        self._versions = {id: version for id, version, _ in rows}
        self._put_whole("tasks/.lock", lock_file(last) if last else None)

    def bring_inboxes(self, names: Collection[str] | None = None, is_whole: bool = False) -> None:
        """Those of everyone, or of these. Bring the conversations first: they say how far mail is read. With
        `is_whole`, also what was archived, and in the form of the imported files.

        Raises: StateError
        """
        rows, states, archives = self._run(self._read_inboxes)
        for name, incarnation in rows:
            if (names is None or name in names) and (name == LEAD or is_address(name)):
                places = archives.get(name, {})
                for number in filter(str.isdigit, places if is_whole else ()):
                    path = self._dir.inbox / "archive" / f"{name}.{number}.jsonl"
                    self._bring_mail(name, path, f"inbox/{name}/{number}", *places[number])
                self._bring_inbox(name, incarnation, states.get(name), places, is_whole)

    def _bring_inbox(self, name: str, incarnation: int, state: Json | None, places: Json, is_whole: bool) -> None:
        path = self._dir.inbox / f"{name}.jsonl"
        position = read_position(self._dir.transcripts / f"{name}.jsonl")
        is_imported = is_whole and places.get("position") == position.to_mark()
        base = int(places.get("base", 0))
        # If somebody has read mail since the import, all offsets must be true: blank lines take the place of what is
        # not there.
        if path not in self._written and base and not is_imported:
            self._append(path, b"\n" * min(base, _LARGEST_GAP))
        self._bring_mail(name, path, f"inbox/{name}", base, None)
        if is_imported and (base or not position.check or is_valid_in(path, position)):
            self._put_whole(f"inbox/{name}.state.json", state_file(state, incarnation))
        else:
            self._put_whole(f"inbox/{name}.state.json", state_at(state, incarnation, position))

    def bring_transcripts(self, names: Iterable[str] | None = None, is_whole: bool = False) -> None:
        """The present conversations of everyone, or of these. Call `bring_roster` first. With `is_whole`, also
        earlier ones, and those of sub-agents.

        Raises: StateError
        """
        archived = self._run(lambda cursor: self._documents.objects(cursor, TRANSCRIPTS))
        current = {LEAD: 0, **{member.name: member.incarnation for member in self.roster.members}}
        if is_whole:
            found = self._run(self._read_conversations)
            for agent, incarnation in found:  # in the order of their incarnations
                if agent not in current and str(incarnation) not in archived.get(agent, {}):
                    current = {**current, agent: incarnation}
        else:
            found = [(name, current[name]) for name in (current if names is None else names) if name in current]
        for agent, incarnation in found:
            if path := self._place(agent, incarnation, current.get(agent), archived.get(agent, {})):
                self._bring_conversation(agent, incarnation, path)

    def bring_timeline(self) -> None:
        """The events of all hosts, by time. Of one host, they keep their order.

        Raises: StateError
        """
        hosts = self._run(self._read_hosts)
        merged = heapq.merge(*map(self._events, hosts), key=lambda event: event[0])
        lines: list[tuple[int, bytes]] = []
        oddities = self._oddities.get("event", Oddities({}))
        for _, host, seq, entry in merged:
            # Only an imported timeline, which has no host, can hold what is not text.
            lines.append((seq if not host else -1, entry.encode()))
            if len(lines) == _BATCH:
                self._write_lines(self._dir.events, lines[:-1], 0, oddities, is_end=False)
                del lines[:-1]  # one is left, since only the last one can be torn
        self._write_lines(self._dir.events, lines, 0, oddities, is_end=True)

    def _bring_files(self) -> None:
        for path, data in self._run(lambda cursor: list(self._documents.files(cursor))):
            write_atomic(self._dir.root / path, data)

    def _bring_conversation(self, agent: str, incarnation: int, path: Path) -> None:
        oddities = self._oddities.get(f"transcript/{agent}/{incarnation}", Oddities({}))
        while rows := self._run(partial(self._read_conversation, agent, incarnation, self._known(path).next)):
            good = [row for row in rows if self._is_signed("transcript", row[3], agent, incarnation, *row[:3])]
            lines = [(seq, entry.encode()) for seq, _, entry, _ in good]
            self._write_lines(path, lines, rows[-1][0] + 1, oddities, len(rows) < _BATCH)

    def _bring_mail(self, name: str, path: Path, key: str, start: int, end: int | None) -> None:
        """The lines of an inbox between two positions, each at its own offset of the file."""
        oddities = self._oddities.get(key, Oddities({}))
        known = self._written.setdefault(path, _Written(start))
        while rows := self._run(partial(self._read_mail, name, known.next, end)):
            lines: list[tuple[int, bytes]] = []
            next, count = known.next, known.lines
            for pos, body in rows:
                line = body.encode()
                if not next <= pos <= next + _LARGEST_GAP:  # nobody who sends leaves a gap
                    self._note("message")
                    continue
                lines += [(-1, b"")] * (pos - next)  # blank lines, so that all offsets stay true
                lines.append((count, line))
                next, count = pos + len(line) + 1, count + 1
            next = max(next, rows[-1][0] + 1)  # the same bad row must not come again
            self._write_lines(path, lines, next, oddities, len(rows) < _BATCH, self._sign_again)
            known = self._written[path] = self._written[path]._replace(lines=count)

    def _write_lines(
        self,
        path: Path,
        lines: Iterable[tuple[int, bytes]],
        next: int,
        oddities: Oddities,
        is_end: bool,
        sign_again: Resign = lambda line: line,
    ) -> None:
        data = b"\n".join(map(sign_again, join(lines, oddities, is_end).split(b"\n")))
        known = self._known(path)
        if data:
            self._append(path, b"\n" * known.is_torn + data)
            known = known._replace(is_torn=not data.endswith(b"\n"))
        self._written[path] = known._replace(next=next)

    def _known(self, path: Path) -> _Written:
        return self._written.get(path, _Written())

    def _place(self, agent: str, incarnation: int, current: int | None, archived: Json) -> Path | None:
        """The file of a conversation. One that another has followed moves to the archive."""
        agent = SUBAGENTS + agent if is_subagent(agent) else agent
        name = agent.removeprefix(SUBAGENTS)
        if not (name == LEAD or is_address(name) or is_team_file(f"transcripts/subagents/{name}.jsonl")):
            self._note("transcript")
            return None
        if incarnation == current:
            path = self._dir.transcripts / f"{agent}.jsonl"
        else:
            number = archived.get(str(incarnation), incarnation)
            path = self._dir.transcripts / "archive" / f"{name}.{int(number)}.jsonl"
        before = self._places.get((name, incarnation), path)
        if before != path and before in self._written:
            _make_directory(path)
            with as_state_error("rename", before):
                before.rename(path)
            self._written[path] = self._written.pop(before)
        self._places[name, incarnation] = path
        return path

    def _events(self, host: str) -> Iterator[tuple[float, str, int, str]]:
        """The new ones of a host, with a time that never goes back."""
        latest = 0.0
        while rows := self._run(partial(self._read_events, host)):
            self._timeline[host] = rows[-1][0] + 1
            for seq, entry in rows:
                latest = max(latest, as_number((decode_line(entry.encode()) or {}).get("ts")))
                yield latest, host, seq, entry

    @property
    def _oddities(self) -> dict[str, Oddities]:
        if self._known_oddities is None:
            self._known_oddities = self._run(self._documents.oddities)
            self._known_originals = self._run(lambda cursor: self._documents.objects(cursor, ORIGINAL))
        return self._known_oddities

    def _put_whole(self, name: str, rebuilt: bytes | None) -> None:
        """A file that is replaced as a whole, if it has changed; None for no file."""
        path = self._dir.root / name
        if path in self._whole and self._whole[path] == rebuilt:
            return
        self._whole[path] = rebuilt
        assert self._oddities is not None  # also loads the originals
        data = original(self._known_originals, name, rebuilt)
        if data is None:
            path.unlink(missing_ok=True)
        else:
            write_atomic(path, data)

    def _append(self, path: Path, data: bytes) -> None:
        if data:
            _make_directory(path)
            fd = open_private(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                with as_state_error("write", path):
                    write_whole(fd, data, durable=False)
            finally:
                os.close(fd)

    def _run(self, read: Callable[[Cursor[Any]], Any]) -> Any:
        return self._team.database.run(read)

    def _is_signed(self, table: str, signature: str, *parts: str | int) -> bool:
        is_signed = not self._has_key or self._team.is_signed(signature, table, *parts)
        if not is_signed:
            self._note(table)
        return is_signed

    def _note(self, table: str) -> None:
        if table not in self._warned:
            self._warned.add(table)
            self._warn(f"rows of the table '{table}' are left out: they are damaged, or not signed with the team's key")

    # What each part reads.

    def read_roster(self, cursor: Cursor[Any]) -> TeamConfig:
        """As the rows have it."""
        cursor.execute("select doc from team where id = %s", (self._team.id,))
        row = cursor.fetchone()
        rest = decode_object(row[0]) if row else {}
        members = self._parsed(cursor, "member", "name", Member.from_dict)
        requests = self._parsed(cursor, "request", "id", Request.from_dict)
        name = rest.pop("team_name", TEAM_NAME)
        return TeamConfig(name, members, requests, rest)

    def _parsed(self, cursor: Cursor[Any], table: str, key: str, parse: Callable[[object], Any]) -> tuple[Any, ...]:
        cursor.execute(f"select {key}, version, doc, sig from {table} where team = %s order by {key}", (self._team.id,))
        found = []
        for name, version, doc, sig in cursor.fetchall():
            try:
                entry = parse(decode_object(doc)) if self._is_signed(table, sig, name, version, doc) else None
            except (ValueError, TeamError):
                self._note(table)
                continue
            found += [entry] if entry is not None else []
        return tuple(found)

    def _read_tasks(self, cursor: Cursor[Any]) -> tuple[list[tuple[int, int, str]], int]:
        cursor.execute("select id, version, doc, sig from task where team = %s order by id", (self._team.id,))
        rows = [
            (id, version, doc)
            for id, version, doc, sig in cursor.fetchall()
            if 0 < id <= LARGEST_ID and self._is_signed("task", sig, id, version, doc)
        ]
        cursor.execute("select last_task from team where id = %s", (self._team.id,))
        last = cursor.fetchone()
        return rows, last[0] if last else 0

    def _read_inboxes(self, cursor: Cursor[Any]) -> tuple[list[tuple[Any, ...]], Json, Json]:
        cursor.execute("select name, incarnation from inbox where team = %s order by name", (self._team.id,))
        rows = cursor.fetchall()
        return rows, self._documents.objects(cursor, STATE), self._documents.objects(cursor, ARCHIVES)

    def _read_mail(self, name: str, start: int, end: int | None, cursor: Cursor[Any]) -> list[Any]:
        cursor.execute(
            "select pos, body from message where team = %s and inbox = %s and pos >= %s and (%s::bigint is null or"
            " pos < %s) order by pos limit %s",
            (self._team.id, name, start, end, end, _BATCH),
        )
        return cursor.fetchall()

    def _read_conversations(self, cursor: Cursor[Any]) -> list[tuple[str, int]]:
        cursor.execute(
            "select distinct agent, incarnation from transcript where team = %s order by agent, incarnation",
            (self._team.id,),
        )
        return [(agent, incarnation) for agent, incarnation in cursor.fetchall()]

    def _read_conversation(self, agent: str, incarnation: int, start: int, cursor: Cursor[Any]) -> list[Any]:
        cursor.execute(
            "select seq, epoch, entry, sig from transcript where team = %s and agent = %s and incarnation = %s"
            " and seq >= %s order by seq limit %s",
            (self._team.id, agent, incarnation, start, _BATCH),
        )
        return cursor.fetchall()

    def _read_hosts(self, cursor: Cursor[Any]) -> list[str]:
        cursor.execute("select distinct host from event where team = %s order by host", (self._team.id,))
        return [host for (host,) in cursor.fetchall()]

    def _read_events(self, host: str, cursor: Cursor[Any]) -> list[Any]:
        cursor.execute(
            "select seq, entry from event where team = %s and host = %s and seq >= %s order by seq limit %s",
            (self._team.id, host, self._timeline.get(host, 0), _BATCH),
        )
        return cursor.fetchall()


def config_file(roster: TeamConfig) -> bytes | None:
    """None if there is nothing to say."""
    has_any = roster.members or roster.requests or roster.unknown or roster.name != TEAM_NAME
    return roster.encode() if has_any else None


def task_file(doc: str) -> bytes:
    return encode_json(decode_object(doc))


def lock_file(last_task: int) -> bytes:
    """The counters of the board's files."""
    return f"{last_task} 0 0".ljust(63).encode() + b"\n"


def state_file(kept: Json | None, incarnation: int) -> bytes | None:
    """What is known about an inbox besides its lines, as it was imported; None if there is nothing to know."""
    if not (kept or incarnation):
        return None
    return encode_json({**(kept or _NO_STATE), "incarnation": incarnation})


def state_at(kept: Json | None, incarnation: int, position: Position) -> bytes | None:
    """The same for a file whose reader continues at that position, whatever its digest says: signatures differ."""
    if not (incarnation or position.check or position.generation):
        return None
    moved = {"from": position.to_mark(), "to": Position(position.offset, "", 0, position.generation).to_mark()}
    archived = (kept or _NO_STATE).get("archived", {})
    state = {**_NO_STATE, "generation": position.generation, "incarnation": incarnation, "archived": archived}
    return encode_json({**state, "moved": moved if position.check else None})


def read_position(transcript: Path) -> Position:
    """How far the owner of a conversation has read its mail.

    Raises: StateError
    """
    return Position.from_mark(read_marks(transcript).get(POSITION))


def _make_directory(path: Path) -> None:
    with as_state_error("create", path.parent):
        path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIR)
