"""What a team has besides its rows, as documents: what a row does not show of a file, and files that are not rows."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from teamcli.store.line_text import Oddities, decode_object, text_of
from teamcli.store.row_limits import LARGEST_ROW, LARGEST_SIGNATURE, bounded

if TYPE_CHECKING:
    from psycopg import Cursor

    from teamcli.store.postgres.team_rows import Team

# What the names of documents begin with.
FILE, FILE64 = "file:", "file64:"
ORIGINAL = "original:"
"""A file that differs from what its rows give; see `put_original`."""
LINES = "lines:"
"""What the rows of a file's lines do not show of them: `Oddities`."""
STATE = "state:"
"""What is known about an inbox besides its lines."""
ARCHIVES = "archives:"
"""Where the files of an imported inbox begin and end."""
TRANSCRIPTS = "transcripts:"
"""The number in the file's name for each archived conversation of an agent, by incarnation."""
TOKEN = "token"
"""The whole name of one: the token of the directory that was imported."""
_LARGEST = 300_000_000
"""The largest file that is imported, in base64. Only an export reads them."""
_NAME = r"[A-Za-z0-9_.][A-Za-z0-9_.:-]{0,150}"
_PATH = re.compile(
    rf"(events\.jsonl|config\.json\.bad-\d+|subagents\.json|(inbox|inbox/archive|tasks|transcripts|transcripts/(archive|subagents))/{_NAME})"
)
"""The files of a team. A database that others write to must not name any other file of this machine."""


def is_team_file(path: str) -> bool:
    return bool(_PATH.fullmatch(path)) and ".." not in PurePosixPath(path).parts


class Documents:
    """The documents of a team. Without its key, all count; with it, only those that are signed."""

    def __init__(self, team: Team, has_key: bool = True) -> None:
        self._team = team
        self._has_key = has_key

    def read(self, cursor: Cursor[Any], kind: str) -> dict[str, str]:
        """All of a kind, by the rest of their names."""
        cursor.execute(
            f"select name, body, {bounded('sig', LARGEST_SIGNATURE)} from document"
            " where team = %s and starts_with(name, %s) and octet_length(body) < %s order by name".encode(),
            (self._team.id, kind, _LARGEST),
        )
        return {name[len(kind) :]: body for name, body, sig in cursor.fetchall() if self._counts(name, body, sig or "")}

    def read_one(self, cursor: Cursor[Any], name: str) -> str:
        """Of a name, and empty if there is none. One that is larger than a row of a team is not fetched."""
        cursor.execute(
            f"select body, {bounded('sig', LARGEST_SIGNATURE)} from document"
            f" where team = %s and name = %s and octet_length(body) < {LARGEST_ROW}".encode(),
            (self._team.id, name),
        )
        body, sig = cursor.fetchone() or ("", "")
        return body if self._counts(name, body, sig or "") else ""

    def _counts(self, name: str, body: str, sig: str) -> bool:
        return not self._has_key or self._team.is_signed(sig, "document", name, body)

    def put(self, cursor: Cursor[Any], name: str, body: str) -> None:
        cursor.execute(
            "insert into document (team, name, body, sig) values (%s, %s, %s, %s)"
            " on conflict (team, name) do update set body = excluded.body, sig = excluded.sig",
            (self._team.id, name, body, self._team.sign("document", name, body)),
        )

    def lock(self, cursor: Cursor[Any], name: str) -> None:
        """Let nobody else change this document before the end of the transaction."""
        cursor.execute("select 1 from document where team = %s and name = %s for update", (self._team.id, name))

    def put_file(self, cursor: Cursor[Any], path: str, data: bytes) -> None:
        text = text_of(data)
        if text.encode() == data:
            self.put(cursor, FILE + path, text)
        else:
            self.put(cursor, FILE64 + path, base64.b64encode(data).decode())

    def files(self, cursor: Cursor[Any]) -> Iterator[tuple[str, bytes]]:
        found = {path: body.encode() for path, body in self.read(cursor, FILE).items()}
        found |= {path: base64.b64decode(body) for path, body in self.read(cursor, FILE64).items()}
        return ((path, data) for path, data in found.items() if is_team_file(path))

    def oddities(self, cursor: Cursor[Any]) -> dict[str, Oddities]:
        return {name: Oddities.from_json(body) for name, body in self.read(cursor, LINES).items()}

    def objects(self, cursor: Cursor[Any], kind: str) -> dict[str, Any]:
        return {name: decode_object(body) for name, body in self.read(cursor, kind).items()}

    def put_original(self, cursor: Cursor[Any], path: str, rebuilt: bytes | None, original: bytes | None) -> None:
        """Keep a file that differs from what its rows give. It counts as long as they give the same."""
        if rebuilt != original:
            kept = None if original is None else base64.b64encode(original).decode()
            self.put(cursor, ORIGINAL + path, json.dumps({"instead_of": _digest(rebuilt), "base64": kept}))


def original(originals: dict[str, Any], path: str, rebuilt: bytes | None) -> bytes | None:
    """The file as it was imported, if its rows have not changed since; else as they give it. None for no file."""
    kept = originals.get(path)
    if kept is None or kept.get("instead_of") != _digest(rebuilt):
        return rebuilt
    return None if kept.get("base64") is None else base64.b64decode(kept["base64"])


def _digest(data: bytes | None) -> str:
    return "" if data is None else hashlib.blake2b(data, digest_size=16).hexdigest()
