"""Brings the files of a directory's team into a database, in one transaction, so that an export gives the same bytes.

Lines that the directory's key has signed are signed with the team's key instead. Foreign lines stay as they are.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg import DataError

from teamcli.errors import StateError
from teamcli.storage.files import read_json, write_atomic
from teamcli.storage.team_dir import LeadLock, TeamDir
from teamcli.store.documents import ARCHIVES, LINES, STATE, TOKEN, TRANSCRIPTS, Documents, is_team_file
from teamcli.store.file_forms import config_file, lock_file, read_position, state_file, task_file
from teamcli.store.line_text import NumberedLine, Oddities, is_torn, lines_of, text_of
from teamcli.store.mirror import SUBAGENTS
from teamcli.store.row_limits import LARGEST_REST
from teamcli.store.team_files import (
    MOVED,
    archives_in,
    files_in,
    is_addressed,
    is_agent,
    logs_in,
    move_aside,
    read_content,
    refuse_links,
    with_incarnations,
)
from teamcli.store.team_reader import TeamReader
from teamcli.tasks.task_file import Damaged, StoredTask, number_of, read_task
from teamcli.team.archive import Archives
from teamcli.team.inbox_file import Inbox
from teamcli.team.inbox_state import InboxState, Position
from teamcli.team.message import LEAD, is_subagent
from teamcli.team.message_line import LineCodec
from teamcli.team.roster_file import TeamConfig, read_file, read_team
from teamcli.team.signing import KEY_BYTES, key_of, read_token

if TYPE_CHECKING:
    from psycopg import Cursor

    from teamcli.store.postgres.team_rows import Team

MARKER = "importing"
"""Names an import, in the directory while it runs, and in the database for ever."""
IMPORTED_HOST = ""
"""The host of events that were imported. No real host has such a name."""
_TABLES = ("member", "request", "inbox", "transcript", "task", "event")
_BATCH, _BATCH_CHARACTERS = 200, 4_000_000
_MOST_INCARNATION = (1 << 31) - 1
"""In a row."""
_MOST_NAMED = 5


class _Conversation(NamedTuple):
    agent: str
    incarnation: int
    path: Path


class Import:
    def __init__(
        self,
        team: Team,
        source: TeamDir,
        user_key: bytes,
        progress: Callable[[str], None] = lambda text: None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`user_key` is the key of the user's home, which has signed lines of the directory. `warn` gets a sentence
        about files that stay behind."""
        self._warn = warn
        self._team = team
        self._source = source
        self._progress = progress
        self._documents = Documents(team)
        self._codec = LineCodec(key_of(team.uid.encode(), team.key))
        self._token = read_token(source.inbox)
        # Without a token, nothing in the directory is signed: with a key that nobody has, no line seems to be.
        self._files_codec = LineCodec(key_of(self._token, user_key) if self._token else secrets.token_bytes(KEY_BYTES))
        self._taken: set[Path] = set()

    def run(self) -> Path:
        """Returns where the directory's own files are now.

        Raises: StateError
        """
        source = self._source
        refuse_links([source.root, *(source.root / name for name in MOVED)])
        lock = LeadLock.take(source.lock)
        if lock is None:
            raise StateError(f"teamcli is running in {source.root.parent}: stop it, then import")
        try:
            if any(path.exists() for path in source.merge_journals):
                raise StateError(
                    f"a merge is unfinished in {source.root.parent}: start teamcli there once, then import"
                )
            marker = source.root / MARKER
            token = read_content(marker).decode("ascii", "replace") if marker.exists() else secrets.token_hex(16)
            # Before the transaction: if this process is killed after the commit, the next import finds the token there
            # and only moves the files.
            write_atomic(marker, token.encode())
            self._deliver_late_lines()
            self._team.database.run(lambda cursor: self._import(cursor, token))
            left = self._other_names()
            aside = self._move_aside()
            marker.unlink()
            if left:
                shown = ", ".join([*left[:_MOST_NAMED], *(["…"] if len(left) > _MOST_NAMED else [])])
                self._warn(f"not imported, since teamcli gives no file such a name: {shown}; look in {aside}")
            return aside
        finally:
            lock.release()

    def _other_names(self) -> list[str]:
        """The files that are no part of a team, which an export would not write either."""
        root = self._source.root
        paths = (path for name in MOVED for path in sorted((root / name).rglob("*")) if path.is_file())
        return [name for path in paths if not is_team_file(name := str(path.relative_to(root)))]

    def _deliver_late_lines(self) -> None:
        """What a program has appended to an archived inbox, as the next start would."""
        for path in logs_in(self._source.inbox):
            inbox = Inbox(path, durable=True)
            Archives(inbox, InboxState(path.with_suffix(".state.json"))).carry_over(self._files_codec.with_id)
            inbox.close()

    def _import(self, cursor: Cursor[Any], token: str) -> None:
        """Harmless to repeat: the second time, it finds that the first one has succeeded."""
        # Of two imports at once, the second one must see what the first one has put there.
        cursor.execute("select 1 from team where id = %s for update", (self._team.id,))
        if self._documents.read_one(cursor, MARKER) == token:
            return
        for table in _TABLES:
            cursor.execute(f"select 1 from {table} where team = %s limit 1", (self._team.id,))
            if cursor.fetchone():
                (self._source.root / MARKER).unlink(missing_ok=True)
                raise StateError(
                    "the team in the database is not empty: import into another one with --team NAME, or delete it "
                    "with teamcli store delete"
                )
        self._taken = set()  # an earlier attempt may have been rolled back
        with _storing(self._source.config):
            roster = self._put_roster(cursor)
        self._put_conversations(cursor, roster)
        self._put_inboxes(cursor)
        self._put_tasks(cursor)
        self._put_timeline(cursor)
        self._put_other_files(cursor)
        self._documents.put(cursor, MARKER, token)
        if self._token:
            self._documents.put(cursor, TOKEN, self._token.decode())

    def _put_roster(self, cursor: Cursor[Any]) -> TeamConfig:
        self._progress("roster")
        path = self._source.config
        data, roster = read_file(path), read_team(path)
        rest = json.dumps({"team_name": roster.name, **roster.unknown})
        if len(rest) >= LARGEST_REST:
            raise StateError(f"{path} has {len(rest):,} bytes besides members and requests; {LARGEST_REST:,} fit")
        for member in roster.members:
            if member.incarnation > _MOST_INCARNATION:
                raise StateError(f"{path}: '{member.name}' has the incarnation {member.incarnation}; correct it")
        cursor.execute("update team set doc = %s where id = %s", (rest, self._team.id))
        members = [(member.name, _clean(member.encoded)) for member in roster.members]
        requests = [(request.id, json.dumps(request.to_dict())) for request in roster.requests]
        for table, key, rows in (("member", "name", members), ("request", "id", requests)):
            cursor.executemany(
                f"insert into {table} (team, {key}, version, doc, sig) values (%s, %s, 1, %s, %s)",
                [(self._team.id, name, doc, self._team.sign(table, name, 1, doc)) for name, doc in rows],
            )
        # From the rows, as an export will do it: what it would not give back is kept as an original.
        rebuilt = config_file(TeamReader(self._team).read_roster(cursor))
        self._documents.put_original(cursor, "config.json", rebuilt, data)
        self._taken.add(path)
        return roster

    def _put_conversations(self, cursor: Cursor[Any], roster: TeamConfig) -> None:
        current = {LEAD: 0, **{member.name: member.incarnation for member in roster.members}}
        archive = archives_in(self._source.transcripts / "archive")
        found, numbers = [], dict[str, dict[str, int]]()
        for path in filter(is_addressed, logs_in(self._source.transcripts)):
            # The roster may have lost a member. Its conversation is newer than those that were archived.
            current.setdefault(path.stem, len(archive.get(path.stem, ())) + 1)
            found.append(_Conversation(path.stem, current[path.stem], path))
        for name, paths in archive.items():
            for number, incarnation, path in with_incarnations(paths, current.get(name, len(paths) + 1)):
                numbers.setdefault(name, {})[str(incarnation)] = number
                found.append(_Conversation(name, incarnation, path))
        for path in logs_in(self._source.subagent_transcripts):
            if is_team_file(f"transcripts/subagents/{path.name}"):
                name = path.stem if is_subagent(path.stem) else SUBAGENTS + path.stem
                found.append(_Conversation(name, 0, path))
        for each in found:
            with _storing(each.path):
                self._put_conversation(cursor, each)
        for name, archived in numbers.items():
            self._documents.put(cursor, TRANSCRIPTS + name, json.dumps(archived))

    def _put_conversation(self, cursor: Cursor[Any], found: _Conversation) -> None:
        self._progress(f"conversation of {found.agent}")
        team, (agent, incarnation, path) = self._team, found

        def row(line: NumberedLine) -> tuple[Any, ...]:
            entry = text_of(line.line)
            signature = team.sign("transcript", agent, incarnation, line.number, 0, entry)
            return team.id, agent, incarnation, line.number, entry, signature

        oddities = Oddities({})
        columns = "(team, agent, incarnation, seq, epoch, entry, sig) values (%s, %s, %s, %s, 0, %s, %s)"
        _insert(cursor, f"transcript {columns}", map(row, lines_of(path, oddities)))
        self._put_oddities(cursor, path, f"transcript/{agent}/{incarnation}", oddities)

    def _put_inboxes(self, cursor: Cursor[Any]) -> None:
        archive = archives_in(self._source.inbox / "archive")
        present = {path.stem: path for path in logs_in(self._source.inbox) if is_addressed(path)}
        states = {path.name.removesuffix(".state.json") for path in files_in(self._source.inbox, ".state.json")}
        for name in sorted({*present, *archive, *filter(is_agent, states)}):
            self._progress(f"inbox of {name}")
            self._put_inbox(cursor, name, present.get(name), archive.get(name, {}))

    def _put_inbox(self, cursor: Cursor[Any], name: str, path: Path | None, archive: dict[int, Path]) -> None:
        state_path = self._source.inbox / f"{name}.state.json"
        state = InboxState(state_path)
        position = read_position(self._source.transcripts / f"{name}.jsonl")
        base = _base(path, position, state)
        places: dict[str, Any] = {"base": base, "position": position.to_mark()}
        with _storing(state_path):
            cursor.execute(
                "insert into inbox (team, name, tail, incarnation, sig) values (%s, %s, 0, %s, %s)",
                (self._team.id, name, state.incarnation, self._team.sign("inbox", name, state.incarnation)),
            )
        ids: set[str] = set()
        # Archives come before 0, so that positions in the file stay as its reader knows them.
        start = -sum(each.stat().st_size + 1 for each in archive.values())
        for number, each in sorted(archive.items()):
            end = self._put_mail(cursor, name, each, f"inbox/{name}/{number}", start, ids)
            places[str(number)] = [start, end]
            start = end
        tail = self._put_mail(cursor, name, path, f"inbox/{name}", base, ids) if path else base
        cursor.execute("update inbox set tail = %s where team = %s and name = %s", (tail, self._team.id, name))
        self._documents.put(cursor, ARCHIVES + name, json.dumps(places))
        self._put_state(cursor, name, state_path, state.incarnation)

    def _put_mail(self, cursor: Cursor[Any], name: str, path: Path, key: str, start: int, ids: set[str]) -> int:
        """Returns the position after the last line."""
        end = start

        def row(line: NumberedLine) -> tuple[Any, ...]:
            nonlocal end
            signed = self._codec.sign_again(line.line, self._files_codec)
            end = start + line.end
            id = self._codec.signed_id(signed)
            if not id or id in ids:  # a foreign line must not take the id of a message that is still to come
                id = f"line-{start + line.offset}"
            ids.add(id)
            return self._team.id, name, start + line.offset, _clean(id), text_of(signed)

        oddities = Oddities({})
        columns = "(team, inbox, pos, id, body) values (%s, %s, %s, %s, %s)"
        with _storing(path):
            _insert(cursor, f"message {columns}", map(row, lines_of(path, oddities)))
        self._put_oddities(cursor, path, key, oddities)
        return end

    def _put_state(self, cursor: Cursor[Any], name: str, path: Path, incarnation: int) -> None:
        kept = read_json(path)
        if kept:
            self._documents.put(cursor, STATE + name, json.dumps(kept))
        data = read_content(path) if path.exists() else None
        self._documents.put_original(cursor, f"inbox/{path.name}", state_file(kept, incarnation), data)
        self._taken.add(path)

    def _put_tasks(self, cursor: Cursor[Any]) -> None:
        self._progress("tasks")
        last = 0
        for path in files_in(self._source.tasks, ".json"):
            id, is_task = number_of(path.name)
            last = max(last, id)
            try:
                stored = read_task(path, id, (0, 0, 0, 0)) if is_task else None
            except Damaged:
                continue  # it has no row, and is kept with the other files
            if stored:
                with _storing(path):
                    self._put_task(cursor, path, stored)
        lock = self._source.tasks / ".lock"
        data = read_content(lock) if lock.exists() else None
        # The lock has the highest number ever used. That of a task whose file is gone must not be used again.
        numbers = (data or b"").split()
        last = max(last, int(numbers[0]) if numbers and numbers[0].isdigit() and len(numbers[0]) < 19 else 0)
        cursor.execute("update team set last_task = %s, task_changes = 1 where id = %s", (last, self._team.id))
        self._documents.put_original(cursor, "tasks/.lock", lock_file(last) if last else None, data)
        self._taken.add(lock)

    def _put_task(self, cursor: Cursor[Any], path: Path, stored: StoredTask) -> None:
        task, doc = stored.task, json.dumps(stored.to_json())
        cursor.execute(
            "insert into task (team, id, version, change, status, owner, doc, sig)"
            " values (%s, %s, 1, 1, %s, %s, %s, %s)",
            (self._team.id, task.id, task.status.value, task.owner, doc, self._team.sign("task", task.id, 1, doc)),
        )
        self._documents.put_original(cursor, f"tasks/{path.name}", task_file(doc), read_content(path))
        self._taken.add(path)

    def _put_timeline(self, cursor: Cursor[Any]) -> None:
        self._progress("timeline")
        path, oddities = self._source.events, Oddities({})
        if path.exists():

            def row(line: NumberedLine) -> tuple[Any, ...]:
                entry = text_of(line.line)
                signature = self._team.sign("event", IMPORTED_HOST, line.number, entry)
                return self._team.id, IMPORTED_HOST, line.number, entry, signature

            columns = "(team, host, seq, entry, sig) values (%s, %s, %s, %s, %s)"
            _insert(cursor, f"event {columns}", map(row, lines_of(path, oddities)))
            self._put_oddities(cursor, path, "event", oddities)

    def _put_oddities(self, cursor: Cursor[Any], path: Path, key: str, oddities: Oddities) -> None:
        """What the rows of a file do not show of it. The file itself is done."""
        if is_torn(path):
            oddities = oddities._replace(torn=sum(1 for _ in lines_of(path, Oddities({}))) - 1)
        if oddities:
            self._documents.put(cursor, LINES + key, oddities.to_json())
        if path.stat().st_size:  # an empty file has no rows that could bring it back
            self._taken.add(path)

    def _put_other_files(self, cursor: Cursor[Any]) -> None:
        self._progress("other files")
        root = self._source.root
        for path in sorted(path for name in MOVED for path in [root / name, *(root / name).rglob("*")]):
            if path not in self._taken and path.is_file() and is_team_file(str(path.relative_to(root))):
                refuse_links([path])
                self._documents.put_file(cursor, str(path.relative_to(root)), read_content(path))
        for path in root.glob("config.json.bad-*"):
            refuse_links([path])
            self._documents.put_file(cursor, path.name, read_content(path))

    def _move_aside(self) -> Path:
        """Only one copy counts from now on: that in the database."""
        root = self._source.root
        return move_aside(root, [*(root / name for name in MOVED), *root.glob("config.json.bad-*")], "before-import")


@contextmanager
def _storing(path: Path) -> Iterator[None]:
    """Raises: StateError, which names the file, if it holds what no row can: a NUL, half a surrogate pair, or a number
    that is too high"""
    try:
        yield
    except (DataError, UnicodeEncodeError) as e:
        why = " ".join(str(e).split())
        raise StateError(f"{path} holds something that the database cannot ({why:.200}); correct it") from e


def _insert(cursor: Cursor[Any], into: str, rows: Iterable[tuple[Any, ...]]) -> None:
    """In pieces: a statement has ten seconds, and a file may be larger than the memory."""
    some: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        some.append(row)
        size += sum(len(value) for value in row if isinstance(value, str))
        if len(some) == _BATCH or size > _BATCH_CHARACTERS:
            cursor.executemany(f"insert into {into}", some)
            some, size = [], 0
    if some:
        cursor.executemany(f"insert into {into}", some)


def _base(path: Path | None, position: Position, state: InboxState) -> int:
    """Where the file begins in the database. Its reader continues at its position, which may not be one of this file,
    because that was archived, deleted or changed since."""
    if path is None:
        return position.offset if position.generation < state.generation else 0
    inbox = Inbox(path, durable=False)
    try:
        start = inbox.locate(position, state)
    finally:
        inbox.close()
    return max(0, position.offset - start.offset) if start else 0


def _clean(text: str) -> str:
    """Half a surrogate pair cannot be stored."""
    return text.encode("utf-8", "replace").decode()
