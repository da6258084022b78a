"""Transcripts as rows: an agent's conversation in one incarnation, numbered from 0.

A row is inserted only while this process holds the agent's lease. That it was read, acted on and consumed mail commits
with it, as the line of a file does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from psycopg import Cursor

from teamcli.errors import LeaseLost, StateError
from teamcli.store.postgres.free_numbers import free_numbers
from teamcli.store.postgres.mirrored_log import MirroredLog
from teamcli.store.postgres.newest import Newest
from teamcli.store.postgres.team_rows import HELD, Fence, Team
from teamcli.store.row_limits import LARGEST_NUMBER, LARGEST_ROW, LARGEST_SIGNATURE, PAGE_BYTES, bounded, page
from teamcli.team.inbox_state import Position
from teamcli.team.mailbox import POSITION

_PAGE_ROWS = 200
_NEAR = 10_000
"""A forged row that is not farther away is passed. One that is does not matter before the conversation gets there."""
_AFTER_LAST = (1 << 31) - 1, (1 << 63) - 1
_KEY = "team = %(team)s and agent = %(agent)s and incarnation = %(incarnation)s"
_INSERT = f"""
    with {HELD}
    insert into transcript (team, agent, incarnation, seq, epoch, entry, sig)
    select %(team)s, %(agent)s, %(incarnation)s, line.seq, %(epoch)s, line.entry, line.sig
    from held, unnest(%(seqs)s::bigint[], %(entries)s::text[], %(sigs)s::text[]) as line (seq, entry, sig)
    where not exists (select 1 from transcript where {_KEY} and seq = any(%(seqs)s))
    order by line.seq on conflict do nothing returning seq
"""
_PAGE = f"""
    select seq, epoch, case when bytes <= {PAGE_BYTES} then entry end, {bounded("sig", LARGEST_SIGNATURE)},
        octet_length(entry)
    from (
        select *, row_number() over (order by seq) as place,
            sum(least(octet_length(entry), {LARGEST_ROW})) over (order by seq) as bytes
        from (select * from transcript where {_KEY} and seq >= %(start)s order by seq limit {_PAGE_ROWS}) as rows
    ) as page where place = 1 or bytes <= {PAGE_BYTES} order by seq
"""
_PART_CHARACTERS = 500_000
_PART = f"""
    select substr(entry, %(first)s, {_PART_CHARACTERS}) from transcript
    where {_KEY} and seq = %(seq)s and octet_length(entry) < {LARGEST_ROW}
"""
_TAKEN = page(
    f"seq, epoch, {bounded('entry')}, {bounded('sig', LARGEST_SIGNATURE)}",
    f"select seq, epoch, entry, sig from transcript where {_KEY} and seq >= %(first)s order by seq limit %(most)s",
    "entry",
    "seq",
)
_POSITIONS = page(
    f"incarnation, seq, epoch, entry, {bounded('sig', LARGEST_SIGNATURE)}",
    f"""
        select incarnation, seq, epoch, entry, sig from transcript
        where team = %(team)s and agent = %(agent)s and entry like '%%"marks":{{"inbox":{{%%'
        and octet_length(entry) < {LARGEST_ROW} and (incarnation, seq) < (%(incarnation)s, %(seq)s)
        order by incarnation desc, seq desc limit 20
    """,
    "entry",
    "incarnation desc, seq desc",
)

_BY_INCARNATION = f"""
    select incarnation, seq, epoch, {bounded("entry")}, {bounded("sig", LARGEST_SIGNATURE)} from transcript
    where team = %(team)s and agent = %(agent)s
    and (incarnation < %(incarnation)s or (incarnation = %(incarnation)s and seq > %(seq)s))
    order by incarnation desc, seq limit 4
"""


class TranscriptRows(MirroredLog):
    """A `Log`: the conversation of one incarnation of an agent; of the lead, 0 for ever."""

    def __init__(
        self,
        team: Team,
        fence: Fence,
        newest: Newest,
        agent: str,
        incarnation: int,
        path: Path,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """The file at `path` becomes a copy. `warn` gets a sentence if there are rows that do not count.

        Raises: StateError
        """
        self._team = team
        self._fence = fence
        self._agent = agent
        self._incarnation = incarnation
        self._newest = newest
        self._name = f"transcript/{agent}/{incarnation}"
        entries, self._next, end = read_transcript(team, agent, incarnation, warn)
        if not self._newest.admits(self._name, end):
            raise StateError(
                f"the end of the conversation of '{agent}' is missing in the database; {self._newest.remedy}"
            )
        super().__init__(path, "".join(f"{entry}\n" for entry in entries).encode())

    def _insert(self, entries: Sequence[str]) -> None:
        epoch = self._fence.own(self._agent)
        lines = self._signed(range(self._next, self._next + len(entries)), entries, epoch)
        inserted = self._team.database.fetch(_INSERT, self._values(lines, epoch))
        if len(inserted) < len(lines):
            lines = self._team.database.run(lambda cursor: self._settle(cursor, entries, lines, epoch))
        self._next = max(lines) + 1
        self._newest.admits(self._name, self._next)

    def _signed(self, seqs: Iterable[int], entries: Sequence[str], epoch: int) -> dict[int, tuple[str, str]]:
        return {
            seq: (entry, self._team.sign("transcript", self._agent, self._incarnation, seq, epoch, entry))
            for seq, entry in zip(seqs, entries, strict=True)
        }

    def _values(self, lines: Mapping[int, tuple[str, str]], epoch: int) -> dict[str, Any]:
        key = {"team": self._team.id, "agent": self._agent, "incarnation": self._incarnation}
        key |= {"holder": self._agent, "epoch": epoch}
        texts = {"entries": [entry for entry, _ in lines.values()], "sigs": [sig for _, sig in lines.values()]}
        return {**key, **texts, "seqs": list(lines), "first": self._next}

    def _settle(
        self, cursor: Cursor[Any], entries: Sequence[str], lines: dict[int, tuple[str, str]], epoch: int
    ) -> dict[int, tuple[str, str]]:
        """If the lease is held, a number is taken: by this process, if the answer to a commit was lost, or by a forged
        row, which does not count. Returns the lines as they are stored.

        Raises: LeaseLost, StateError
        """
        self._fence.check(cursor, self._agent)
        values = self._values(lines, epoch)
        there = self._taken(cursor, values, len(lines) + _PAGE_ROWS)
        if there:
            if [entry for entry, _ in there.values()] == list(entries):
                return there
            raise LeaseLost(f"the conversation of '{self._agent}' was continued elsewhere")
        free = free_numbers(cursor, "transcript", _KEY, values, len(lines))
        lines = self._signed(free, entries, epoch)
        cursor.execute(_INSERT.encode(), self._values(lines, epoch))
        if cursor.rowcount < len(lines):
            raise StateError(f"someone keeps adding rows to the conversation of '{self._agent}' in the database")
        return lines

    def _taken(self, cursor: Cursor[Any], values: Mapping[str, Any], most: int) -> dict[int, tuple[str, str]]:
        """The lines from the next number on that count, among that many rows."""
        found: dict[int, tuple[str, str]] = {}
        first = self._next
        while most > 0 and first < LARGEST_NUMBER:
            rows = cursor.execute(_TAKEN.encode(), {**values, "first": first, "most": most}).fetchall()
            if not rows:
                break
            for seq, epoch, entry, sig in rows:
                if _is_signed(self._team, self._agent, self._incarnation, seq, epoch, entry, sig):
                    found[seq] = entry, sig
            first, most = rows[-1][0] + 1, most - len(rows)
        return found


def read_transcript(
    team: Team, agent: str, incarnation: int, warn: Callable[[str], None]
) -> tuple[list[str], int, int]:
    """The lines that count, the number of the next one, and the number after the last one that counts.

    Raises: StateError
    """
    values = {"team": team.id, "agent": agent, "incarnation": incarnation}
    good: list[str] = []
    start = following = there = end = 0
    while start < LARGEST_NUMBER and (rows := team.database.fetch(_PAGE, {**values, "start": start})):
        for seq, epoch, entry, sig, size in rows:
            if entry is None and size < LARGEST_ROW:
                entry = _in_parts(team, {**values, "seq": seq})
            if is_good := _is_signed(team, agent, incarnation, seq, epoch, entry, sig):
                good.append(entry)
                end = seq + 1
            if is_good or seq < following + _NEAR:
                following = seq + 1
            there += 1
        start = rows[-1][0] + 1
    if len(good) < there:
        warn(f"rows of the conversation of '{agent}' are left out, since they are not signed with the team's key")
    elif there < end:
        warn(f"rows of the conversation of '{agent}' were deleted by someone without the team's key")
    return good, following, end


def _in_parts(team: Team, values: Mapping[str, Any]) -> str:
    """A line that is larger than a page. If someone changes it meanwhile, its signature is not right.

    Raises: StateError
    """
    parts: list[str] = []
    while not parts or len(parts[-1]) == _PART_CHARACTERS:
        found = team.database.fetch(_PART, {**values, "first": len(parts) * _PART_CHARACTERS + 1})
        parts.append(str(found[0][0]) if found else "")
    return "".join(parts)


def _is_signed(
    team: Team, agent: str, incarnation: int, seq: int, epoch: int, entry: str | None, sig: str | None
) -> bool:
    return entry is not None and team.is_signed(sig or "", "transcript", agent, incarnation, seq, epoch, entry)


def last_incarnation(team: Team, agent: str, newest: Newest) -> int:
    """The last incarnation that has a conversation, as far as the rows are signed or this host has seen them; 0 if
    there is none.

    Raises: StateError
    """
    seen = max(map(int, newest.known(f"transcript/{agent}/")), default=0)
    incarnation, seq = _AFTER_LAST
    while rows := team.database.fetch(
        _BY_INCARNATION, {"team": team.id, "agent": agent, "incarnation": incarnation, "seq": seq}
    ):
        for incarnation, seq, epoch, entry, sig in rows:
            if _is_signed(team, agent, incarnation, seq, epoch, entry, sig):
                return max(seen, int(incarnation))
    return seen


def read_position(team: Team, agent: str) -> int:
    """How far an agent has read its inbox, as its conversation records it.

    Raises: StateError
    """
    incarnation, seq = _AFTER_LAST
    while rows := team.database.fetch(
        _POSITIONS, {"team": team.id, "agent": agent, "incarnation": incarnation, "seq": seq}
    ):
        for incarnation, seq, epoch, entry, sig in rows:
            if _is_signed(team, agent, incarnation, seq, epoch, entry, sig):
                marks = json.loads(entry).get("marks")
                return Position.from_mark(marks.get(POSITION)).offset if isinstance(marks, dict) else 0
    return 0
