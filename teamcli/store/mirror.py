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

from teamcli.agent.conversation import Marks, add_marks
from teamcli.agent.transcript_sessions import read_marks
from teamcli.storage.files import (
    PRIVATE_DIR,
    Json,
    as_number,
    as_state_error,
    decode_line,
    open_private,
    write_atomic,
    write_whole,
)
from teamcli.storage.team_dir import TeamDir
from teamcli.store.documents import ARCHIVES, ORIGINAL, STATE, TRANSCRIPTS, is_team_file, original
from teamcli.store.file_forms import config_file, lock_file, state_at, state_file, task_file
from teamcli.store.line_text import Oddities, decode_object, join
from teamcli.store.team_reader import BATCH, InboxRow, TeamReader
from teamcli.team.inbox_reading import is_valid_in
from teamcli.team.inbox_state import Position
from teamcli.team.mailbox import POSITION
from teamcli.team.message import LEAD, is_address, is_subagent
from teamcli.team.roster_file import TeamConfig

if TYPE_CHECKING:
    from teamcli.store.postgres.team_rows import Team

SUBAGENTS = "subagents/"
_LARGEST_GAP = 10_000_000
_NOTHING = Oddities({})
SignAgain = Callable[[bytes], bytes]


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
        sign_again: SignAgain = lambda line: line,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Without the team's key, nothing can be verified, and everything is shown. `sign_again` makes a line of an
        inbox one of the directory. `warn` gets a sentence about rows that are left out, once per table."""
        self._dir = directory
        self._sign_again = sign_again
        self._rows = TeamReader(team, has_key, warn)
        self._known_oddities: dict[str, Oddities] | None = None
        self._known_originals: dict[str, Any] = {}
        self._written: dict[Path, _Written] = {}
        self._places: dict[tuple[str, int], Path] = {}
        self._timeline: dict[str, int] = {}
        self._versions: dict[int, int] = {}
        self._whole: dict[Path, bytes | None] = {}
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
        self.roster = self._rows.roster()
        self._put_whole("config.json", config_file(self.roster))

    def bring_tasks(self) -> None:
        """Raises: StateError"""
        rows, last = self._rows.tasks()
        for id, version, doc in rows:
            if self._versions.get(id) != version:
                self._put_whole(f"tasks/{id}.json", task_file(doc))
        for id in self._versions.keys() - {id for id, *_ in rows}:
            self._put_whole(f"tasks/{id}.json", None)
        self._versions = {id: version for id, version, _ in rows}
        self._put_whole("tasks/.lock", lock_file(last) if last else None)

    def bring_inboxes(self, names: Collection[str] | None = None, is_whole: bool = False) -> None:
        """Those of everyone, or of these. With `is_whole`, also what was archived, and in the form of the imported
        files; bring the conversations first.

        Raises: StateError
        """
        states, places = self._rows.objects(STATE), self._rows.objects(ARCHIVES)
        for row in self._rows.inboxes():
            name = row.name
            if (names is None or name in names) and (name == LEAD or is_address(name)):
                for number in filter(str.isdigit, places.get(name, {}) if is_whole else ()):
                    path = self._dir.inbox / "archive" / f"{name}.{number}.jsonl"
                    self._bring_mail(name, path, f"inbox/{name}/{number}", *places[name][number])
                self._bring_inbox(row, states.get(name), places.get(name, {}), is_whole)

    def bring_transcripts(self, names: Iterable[str] | None = None, is_whole: bool = False) -> None:
        """The present conversations of everyone, or of these. Call `bring_roster` first. With `is_whole`, also
        earlier ones, and those of sub-agents.

        Raises: StateError
        """
        archived, current = self._rows.objects(TRANSCRIPTS), self._incarnations()
        if is_whole:
            found = self._rows.conversations()
            for agent, incarnation in found:  # in the order of their incarnations
                if agent not in self._incarnations() and str(incarnation) not in archived.get(agent, {}):
                    current[agent] = incarnation
        else:
            found = [(name, current[name]) for name in (current if names is None else names) if name in current]
        places = {
            (agent, incarnation): path
            for agent, incarnation in found
            if (path := self._place(agent, incarnation, current.get(agent), archived.get(agent, {})))
        }
        while self._bring_lines(places):
            pass

    def bring_timeline(self) -> None:
        """The events of all hosts, by time. Of one host, they keep their order.

        Raises: StateError
        """
        merged = heapq.merge(*map(self._events, self._rows.event_hosts()), key=lambda event: event[0])
        lines: list[tuple[int, bytes]] = []
        oddities = self._oddities.get("event", _NOTHING)
        for _, host, seq, entry in merged:
            # Only an imported timeline, which has no host, can hold what is not text.
            lines.append((seq if not host else -1, entry.encode()))
            if len(lines) == BATCH:
                self._write_lines(self._dir.events, lines[:-1], oddities, is_end=False)
                del lines[:-1]  # one is left, since only the last one can be torn
        self._write_lines(self._dir.events, lines, oddities)

    def last_events(self, host: str) -> Iterator[Json | None]:
        """The newest events of a host, the last one first.

        Raises: StateError
        """
        return (decode_line(entry.encode()) for entry in self._rows.last_events(host))

    def marks_of(self, name: str) -> Marks:
        """The marks of a conversation, also if only its rows are there.

        Raises: StateError
        """
        path = self._dir.transcripts / f"{name}.jsonl"
        if path in self._written:
            return read_marks(path)
        current = self._incarnations().get(name)
        marks: Marks = {}
        for entry in [] if current is None else self._rows.marked_lines(name, current):
            noted = decode_object(entry).get("marks")
            add_marks(marks, noted if isinstance(noted, dict) else {})
        return marks

    def _incarnations(self) -> dict[str, int]:
        return {LEAD: 0, **{member.name: member.incarnation for member in self.roster.members}}

    def _bring_files(self) -> None:
        for path, data in self._rows.files():
            write_atomic(self._dir.root / path, data)

    def _bring_inbox(self, row: InboxRow, state: Json | None, places: Json, is_whole: bool) -> None:
        path = self._dir.inbox / f"{row.name}.jsonl"
        position = Position.from_mark(self.marks_of(row.name).get(POSITION))
        is_imported = is_whole and places.get("position") == position.to_mark()
        base = int(places.get("base", 0))
        # If somebody has read mail since the import, all offsets must be true: blank lines take the place of what is
        # not there.
        if path not in self._written and base and not is_imported:
            self._append(path, b"\n" * min(base, _LARGEST_GAP))
        self._bring_mail(row.name, path, f"inbox/{row.name}", base, row.tail)
        if is_imported and (base or not position.check or is_valid_in(path, position)):
            self._put_whole(f"inbox/{row.name}.state.json", state_file(state, row.incarnation))
        else:
            self._put_whole(f"inbox/{row.name}.state.json", state_at(state, row.incarnation, position))

    def _bring_mail(self, name: str, path: Path, key: str, start: int, end: int) -> None:
        """The lines of an inbox between two positions, each at its own offset of the file."""
        known = self._written.setdefault(path, _Written(start))
        while rows := self._rows.mail(name, known.next, end):
            lines: list[tuple[int, bytes]] = []
            next, count = known.next, known.lines
            for pos, body in rows:
                line = body.encode()
                if pos < next:  # inside another row: nobody who sends does that
                    self._rows.note_bad("message")
                    continue
                # Blank lines, so that all offsets stay true. A forged row may leave a gap of any size.
                lines += [(-1, b"")] * (pos - next if pos - next < _LARGEST_GAP else 0)
                lines.append((count, line))
                next, count = pos + len(line) + 1, count + 1
            oddities = self._oddities.get(key, _NOTHING)
            self._write_lines(path, lines, oddities, sign_again=self._sign_again)
            # The same bad row must not come again.
            known = self._written[path]._replace(next=max(next, rows[-1][0] + 1), lines=count)
            self._written[path] = known

    def _bring_lines(self, places: dict[tuple[str, int], Path]) -> bool:
        """The next lines of these conversations. False if there were none."""
        after = [(*key, self._known(path).next) for key, path in places.items()]
        found: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
        last: dict[tuple[str, int], int] = {}
        for agent, incarnation, seq, entry, is_signed in self._rows.lines(after):
            last[agent, incarnation] = seq
            if is_signed:
                found.setdefault((agent, incarnation), []).append((seq, entry.encode()))
        for key, seq in last.items():
            oddities = self._oddities.get("transcript/{}/{}".format(*key), _NOTHING)
            self._write_lines(places[key], found.get(key, ()), oddities)
            self._written[places[key]] = self._written[places[key]]._replace(next=seq + 1)
        return bool(last)

    def _write_lines(
        self,
        path: Path,
        lines: Iterable[tuple[int, bytes]],
        oddities: Oddities,
        is_end: bool = True,
        sign_again: SignAgain = lambda line: line,
    ) -> None:
        data = b"\n".join(map(sign_again, join(lines, oddities, is_end).split(b"\n")))
        known = self._known(path)
        if data:
            self._append(path, b"\n" * known.is_torn + data)
            known = known._replace(is_torn=not data.endswith(b"\n"))
        self._written[path] = known

    def _known(self, path: Path) -> _Written:
        return self._written.get(path, _Written())

    def _place(self, agent: str, incarnation: int, current: int | None, archived: Json) -> Path | None:
        """The file of a conversation. One that another has followed moves to the archive."""
        agent = SUBAGENTS + agent if is_subagent(agent) else agent
        name = agent.removeprefix(SUBAGENTS)
        if not (name == LEAD or is_address(name) or is_team_file(f"transcripts/subagents/{name}.jsonl")):
            self._rows.note_bad("transcript")
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
        while rows := self._rows.events(host, self._timeline.get(host, 0)):
            self._timeline[host] = rows[-1].seq + 1
            for seq, entry, is_signed in rows:
                if is_signed:  # else its time could move all that follow
                    latest = max(latest, as_number((decode_line(entry.encode()) or {}).get("ts")))
                yield latest, host, seq, entry

    @property
    def _oddities(self) -> dict[str, Oddities]:
        if self._known_oddities is None:
            self._known_oddities = self._rows.oddities()
            self._known_originals = self._rows.objects(ORIGINAL)
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
        _make_directory(path)
        fd = open_private(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            with as_state_error("write", path):
                write_whole(fd, data, durable=False)
        finally:
            os.close(fd)


def _make_directory(path: Path) -> None:
    with as_state_error("create", path.parent):
        path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIR)
