"""The timeline (`events.jsonl`) for people: one readable line for each event, and a reader that can go on for ever."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from teamcli.errors import StateError
from teamcli.storage.files import Json, as_number, decode_line, open_private
from teamcli.team.message import LEAD
from teamcli.text.escaping import one_line
from teamcli.text.table import Cell, Column, Style, Table

TEXT_LIMIT = 160
NAME_WIDTH = 8
_TAIL_BYTES = 256 * 1024
_LONGEST_PIECE = 1_000_000
_COLUMNS = (Column("WHEN", "dim"), Column("WHO", "name"), Column("WHAT", shrinks=True))
_HOUSEKEEPING = ("answer", "turn_started", "turn_ended")


class Line(NamedTuple):
    """An event as people read it; nothing in it can drive a terminal."""

    time: str
    agent: str
    text: str
    is_bad: bool
    """Something went wrong or was refused."""

    def __str__(self) -> str:
        return f"{self.time}  {self.agent:<{NAME_WIDTH}}  {self.text}"


def describe(row: Json) -> Line:
    """Any object makes a line, also one that a later version or somebody else wrote."""
    event = str(row.get("event", ""))
    tell = _DESCRIPTIONS.get(event, _tell_unknown)
    return Line(format_time(row.get("ts")), one_line(_text(row, "agent"), 32), tell(row), _is_bad(row, event))


def concerns(row: Json, name: str) -> bool:
    """Whether an event is of `name`, or a message to it."""
    return name.casefold() in (_text(row, "agent").casefold(), _text(row, "to").casefold())


def format_time(timestamp: object) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(str(timestamp))))
    except (ValueError, OverflowError, OSError):  # anybody may have written it
        return "-" * 19


def short_time(timestamp: object, now: float) -> str:
    """Without the day where that is today, else without the seconds."""
    full = format_time(timestamp)
    return full[11:] if full[:10] == format_time(now)[:10] else full[:16]


def timeline_table(rows: Iterable[Json], last: int, now: float) -> Table:
    """The last events as a table; a tool call is one row, from its start to its outcome."""
    shown = tuple(_table_row(row, now) for row in _joined_calls(rows, last))
    return Table("" if shown else "Nothing has happened yet.", _COLUMNS, shown)


def _table_row(row: Json, now: float) -> tuple[str | Cell, ...]:
    line = describe(row)
    style: Style = "bad" if line.is_bad else "dim" if row.get("event") in _HOUSEKEEPING else ""
    return short_time(row.get("ts"), now), f"{line.agent:<{NAME_WIDTH}}", Cell(line.text, style)


def _joined_calls(rows: Iterable[Json], last: int) -> Iterable[Json]:
    """The last rows; what ended a call is written into the row that began it, while that is among them."""
    kept: deque[Json] = deque(maxlen=last)
    under_way: dict[str, tuple[int, Json]] = {}
    count = 0
    for row in rows:
        began: Json = {}
        if row.get("event") == "tool_finished":
            began_at, began = under_way.pop(_text(row, "id"), (0, {}))
            if began and began_at > count - last:
                began.update({**row, "ts": began.get("ts")})
                continue
        count += 1
        kept.append({**began, **row})
        if row.get("event") == "tool_started":
            under_way[_text(row, "id")] = (count, kept[-1])
    return kept


class TimelineReader:
    """The finished lines of a log. Each `read` goes on where the last one ended, also when the file was replaced or cut
    short in between; it never makes, changes or waits for anything."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._unfinished = b""

    def read(self) -> Iterator[Json]:
        """What has come since the last time.

        Raises: StateError
        """
        yield from self._read_on()
        if self._is_replaced():
            yield from self._read_on()  # what came in before the other file took its place
            self.close()
            self._file = _open(self._path)
            yield from self._read_on()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._unfinished = None, b""

    def _read_on(self) -> Iterator[Json]:
        if self._file is None:
            return
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)
            self._unfinished = b""
        while piece := self._file.readline(_LONGEST_PIECE):
            line = self._unfinished + piece
            self._unfinished = b"" if line.endswith(b"\n") else line[-_LONGEST_PIECE:]  # more is no event of ours
            if not self._unfinished and (row := decode_line(line)) is not None:
                yield row

    def _is_replaced(self) -> bool:
        try:
            found = self._path.lstat()
        except OSError:  # not there, or not for the moment
            return False
        return self._file is None or found.st_ino != os.fstat(self._file.fileno()).st_ino


class LeadTurn(NamedTuple):
    """What the lead did last."""

    is_under_way: bool
    at: float


def last_lead_turn(path: Path) -> LeadTurn | None:
    """When the lead's last turn began or ended, as far as the end of the timeline tells."""
    file = _open(path)
    if file is None:
        return None
    with file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        rows = map(decode_line, reversed(file.read().splitlines()))
        for row in rows:
            if row and row.get("agent") == LEAD and row.get("event") in ("turn_started", "turn_ended"):
                return LeadTurn(row["event"] == "turn_started", _number(row, "ts"))
    return None


def _open(path: Path) -> BinaryIO | None:
    try:
        return os.fdopen(open_private(path, os.O_RDONLY), "rb")
    except StateError as e:
        if isinstance(e.__cause__, FileNotFoundError | NotADirectoryError):
            return None
        raise


def _tell_status(row: Json) -> str:
    status = _text(row, "status")
    told = {"spawning": f"spawned as {_text(row, 'role')}", "shutdown": "shut down"}.get(status, status)
    marks = [mark for mark in ("interrupted", "paused") if row.get(mark)]
    marks += [f"waiting for {_text(row, 'waiting_for')}"] if row.get("waiting_for") else []
    marks += ["stuck"] if row.get("stuck_since") else []
    marks += [f"error: {_text(row, 'error')}"] if row.get("error") else []
    return one_line(", ".join([told, *marks]), TEXT_LIMIT)


def _tell_message(row: Json) -> str:
    kind = "" if row.get("type") == "message" else f" ({_text(row, 'type')})"
    return one_line(f"→ {_text(row, 'to')}{kind}: {_text(row, 'content')}", TEXT_LIMIT)


def _tell_answer(row: Json) -> str:
    usage = row.get("usage")
    used = usage if isinstance(usage, dict) else {}
    tokens_in = sum(_number(used, name) for name in used if name.endswith("input_tokens"))
    cost = f"${_number(row, 'cost_usd'):.4f}" if row.get("cost_usd") is not None else "price unknown"
    return f"model call: {tokens_in:,.0f} tokens in, {_number(used, 'output_tokens'):,.0f} out, {cost}"


def _tell_tool_finished(row: Json) -> str:
    mark = "✗" if row.get("is_error") else "✓"
    what = ": ".join(filter(None, (_text(row, "tool"), _text(row, "title"))))
    return f"{mark} {one_line(what, TEXT_LIMIT)} ({_number(row, 'seconds'):.1f} s)"


def _tell_denied(row: Json) -> str:
    return one_line(f"refused {_text(row, 'tool')}: {_text(row, 'title')} ({_text(row, 'reason')})", TEXT_LIMIT)


def _tell_retry(row: Json) -> str:
    return one_line(f"tries again in {_number(row, 'delay_seconds'):.1f} s: {_text(row, 'reason')}", TEXT_LIMIT)


def _tell_compacted(row: Json) -> str:
    return f"context compacted: {_number(row, 'tokens_before'):,.0f} → {_number(row, 'tokens_after'):,.0f} tokens"


def _tell_unknown(row: Json) -> str:
    rest = " ".join(f"{name}={value}" for name, value in row.items() if name not in ("ts", "agent", "event"))
    return one_line(f"{_text(row, 'event')} {rest}", TEXT_LIMIT)


_DESCRIPTIONS: Mapping[str, Callable[[Json], str]] = {
    "turn_started": lambda row: "begins a turn",
    "turn_ended": lambda row: one_line(f"ends the turn: {_text(row, 'outcome')} ({_number(row, 'seconds'):.1f} s)"),
    "answer": _tell_answer,
    "tool_started": lambda row: one_line(f"▸ {_text(row, 'tool')}: {_text(row, 'title')}", TEXT_LIMIT),
    "tool_finished": _tell_tool_finished,
    "permission_asked": lambda row: one_line(f"? asks for {_text(row, 'tool')}: {_text(row, 'title')}", TEXT_LIMIT),
    "permission_denied": _tell_denied,
    "retry": _tell_retry,
    "message": _tell_message,
    "status": _tell_status,
    "compacted": _tell_compacted,
    "limit": lambda row: one_line(_text(row, "text"), TEXT_LIMIT),
    "notice": lambda row: one_line(_text(row, "text"), TEXT_LIMIT),
}


def _is_bad(row: Json, event: str) -> bool:
    return bool(
        row.get("is_error")
        or row.get("error")
        or event in ("permission_denied", "limit", "retry")
        or row.get("severity") in ("warning", "error")
        or (event == "message" and row.get("type") == "error")
        or (event == "turn_ended" and row.get("outcome") != "done")
    )


def _text(row: Json, name: str) -> str:
    return str(row.get(name, ""))


def _number(row: Json, name: str) -> float:
    return as_number(row.get(name))
