"""Lines of an inbox that are no messages: each is set aside once, with its reason, and the user is told."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from pathlib import Path

from teamcli.errors import StateError
from teamcli.files import AppendLog, Json, read_lines
from teamcli.team.line import BadLine


class Quarantine:
    """`NAME.bad.jsonl` beside an inbox. It remembers over restarts what it holds."""

    def __init__(self, path: Path, durable: bool, on_quarantine: Callable[[str], None]) -> None:
        self._path = path
        self._durable = durable
        self._tell = on_quarantine
        self._known: set[tuple[int, int]] | None = None

    def add(self, name: str, file: int, bad: Sequence[BadLine]) -> None:
        if self._known is None:
            self._known = self._read()
        new = [line for line in bad if (file, line.offset) not in self._known]
        if not new:
            return
        self._known.update((file, line.offset) for line in new)
        count = "a line" if len(new) == 1 else f"{len(new)} lines"
        what = f"{count} in the inbox of '{name}' cannot be delivered ({new[0].reason})"
        try:
            self._write(file, new)
        except StateError as e:  # they still stand in the inbox, and the mail behind them must not wait
            self._tell(f"{what}, nor set aside: {e}")
        else:
            self._tell(f"{what}: set aside in {self._path}")

    def _read(self) -> set[tuple[int, int]]:
        try:
            places = [(row.get("file"), row.get("offset")) for _, row in read_lines(self._path) if row is not None]
        except StateError:  # then writing to it fails as well, and says so
            return set()
        return {(file, offset) for file, offset in places if isinstance(file, int) and isinstance(offset, int)}

    def _write(self, file: int, bad: Sequence[BadLine]) -> None:
        log = AppendLog(self._path, self._durable)
        try:
            log.append(*(_row(file, line) for line in bad))
        finally:
            log.close()


def _row(file: int, bad: BadLine) -> Json:
    row: Json = {"reason": bad.reason, "offset": bad.offset, "file": file}
    try:
        return {**row, "line": bad.line.decode()}
    except UnicodeDecodeError:
        return {**row, "base64": base64.b64encode(bad.line).decode()}
