"""Sets aside lines of an inbox that are not messages, each once and with its reason, and notifies the user."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from teamcli.errors import StateError
from teamcli.storage.append_log import AppendLog
from teamcli.storage.files import Json, read_lines
from teamcli.team.message_line import BadLine


class Quarantine:
    """`NAME.bad.jsonl` next to an inbox."""

    def __init__(self, path: Path, durable: bool, on_quarantine: Callable[[str], None]) -> None:
        self._path = path
        self._durable = durable
        self._notify = on_quarantine
        self._known: set[str] | None = None

    def add(self, name: str, bad: Sequence[BadLine]) -> None:
        if not bad:
            return
        if self._known is None:
            try:
                self._known = {str(row.get("id")) for _, row in read_lines(self._path) if row is not None}
            except StateError:  # then writing to it fails too, and is reported
                self._known = set()
        new = [line for line in bad if line.id not in self._known]
        if not new:
            return
        self._known.update(line.id for line in new)
        count = "a line" if len(new) == 1 else f"{len(new)} lines"
        what = f"{count} in the inbox of '{name}' cannot be delivered ({new[0].reason})"
        try:
            with closing(AppendLog(self._path, self._durable)) as log:
                log.append(*map(_row, new))
        except StateError as e:  # they are still in the inbox, and the mail after them must not wait
            self._notify(f"{what} and cannot be set aside: {e}")
        else:
            self._notify(f"{what}: set aside in {self._path}")


def _row(bad: BadLine) -> Json:
    row: Json = {"reason": bad.reason, "offset": bad.offset, "id": bad.id}
    try:
        return {**row, "line": bad.line.decode()}
    except UnicodeDecodeError:
        return {**row, "base64": base64.b64encode(bad.line).decode()}
