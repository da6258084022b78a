"""Transcripts as rows: an agent's conversation in one incarnation, numbered from 0.

A row is inserted only while this process holds the agent's lease. That it was read, acted on and consumed mail commits
with it, as the line of a file does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from psycopg import Cursor

from teamcli.errors import LeaseLost
from teamcli.store.postgres.mirrored_log import MirroredLog
from teamcli.store.postgres.team_rows import Fence, Team
from teamcli.team.inbox_state import Position
from teamcli.team.mailbox import POSITION

_MOST_FORGED = 20
"""How many rows that are not signed may come before one that is."""
_INSERT = """
    with held as (
        select 1 from lease where team = %(team)s and name = %(agent)s and epoch = %(epoch)s for share
    )
    insert into transcript (team, agent, incarnation, seq, epoch, entry, sig)
    select %(team)s, %(agent)s, %(incarnation)s, line.seq, %(epoch)s, line.entry, line.sig
    from held, unnest(%(seqs)s::bigint[], %(entries)s::text[], %(sigs)s::text[]) as line (seq, entry, sig)
    on conflict do nothing returning seq
"""


class TranscriptRows(MirroredLog):
    """A `Log`: the conversation of one incarnation of an agent; of the lead, 0 for ever."""

    def __init__(
        self,
        team: Team,
        fence: Fence,
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
        entries, self._next = read_transcript(team, agent, incarnation, warn)
        super().__init__(path, "".join(f"{entry}\n" for entry in entries).encode())

    def _insert(self, entries: Sequence[str]) -> None:
        epoch = self._fence.own(self._agent)
        seqs = list(range(self._next, self._next + len(entries)))
        key = {"team": self._team.id, "agent": self._agent, "incarnation": self._incarnation, "seqs": seqs}
        lines = [
            (entry, self._team.sign("transcript", self._agent, self._incarnation, seq, epoch, entry))
            for seq, entry in zip(seqs, entries, strict=True)
        ]
        texts = {"entries": [entry for entry, _ in lines], "sigs": [sig for _, sig in lines]}
        inserted = self._team.database.fetch(_INSERT, {**key, **texts, "epoch": epoch})
        if len(inserted) < len(lines):
            self._team.database.run(lambda cursor: self._settle(cursor, key, lines))
        self._next += len(entries)

    def _settle(self, cursor: Cursor[Any], key: Mapping[str, Any], lines: list[tuple[str, str]]) -> None:
        """If the lease is held, the numbers are taken: by this process, if the answer to a commit was lost.

        Raises: LeaseLost
        """
        self._fence.check(cursor, self._agent)
        cursor.execute(
            "select entry, sig from transcript where team = %(team)s and agent = %(agent)s"
            " and incarnation = %(incarnation)s and seq = any(%(seqs)s) order by seq",
            key,
        )
        if cursor.fetchall() != lines:
            raise LeaseLost(f"the conversation of '{self._agent}' was continued elsewhere")


def read_transcript(
    team: Team, agent: str, incarnation: int, warn: Callable[[str], None] = lambda text: None
) -> tuple[list[str], int]:
    """The lines that count, and the number of the next one.

    Raises: StateError
    """

    def read(cursor: Cursor[Any]) -> list[tuple[int, int, str, str]]:
        cursor.execute(
            "select seq, epoch, entry, sig from transcript where team = %s and agent = %s and incarnation = %s"
            " order by seq",
            (team.id, agent, incarnation),
        )
        return cursor.fetchall()

    rows = team.database.run(read)
    good = [
        entry
        for seq, epoch, entry, sig in rows
        if team.is_signed(sig, "transcript", agent, incarnation, seq, epoch, entry)
    ]
    if len(good) < len(rows):
        warn(f"rows of the conversation of '{agent}' are left out, since they are not signed with the team's key")
    return good, rows[-1][0] + 1 if rows else 0


def read_position(team: Team, agent: str) -> int:
    """How far an agent has read its inbox, as its conversation records it.

    Raises: StateError
    """

    def read(cursor: Cursor[Any]) -> list[tuple[int, int, int, str, str]]:
        cursor.execute(
            "select incarnation, seq, epoch, entry, sig from transcript where team = %s and agent = %s"
            ' and entry like \'%%"marks":{%%"inbox":{%%\' order by incarnation desc, seq desc limit %s',
            (team.id, agent, _MOST_FORGED),
        )
        return cursor.fetchall()

    for incarnation, seq, epoch, entry, sig in team.database.run(read):
        if team.is_signed(sig, "transcript", agent, incarnation, seq, epoch, entry):
            marks = json.loads(entry).get("marks")
            return Position.from_mark(marks.get(POSITION)).offset if isinstance(marks, dict) else 0
    return 0
