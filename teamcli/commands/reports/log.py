"""The timeline (`events.jsonl`): each event as a readable line, and a reader that can follow the file."""

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
from teamcli.text.counting import counted
from teamcli.text.escaping import one_line
from teamcli.text.table import Cell, Column, Style, Table

TEXT_LIMIT, TITLE_LIMIT = 200, 160
NAME_WIDTH = 8
_TAIL_BYTES = 256 * 1024
_LONGEST_PIECE = 1_000_000
_COLUMNS = (Column("WHEN", "dim"), Column("WHO", "name"), Column("WHAT", shrinks=True))
_HOUSEKEEPING = ("answer", "turn_started", "turn_ended")


class TimelineLine(NamedTuple):
    """An event in words, with control characters escaped."""

    time: str
    agent: str
    text: str
    is_bad: bool
    """Something failed or was refused."""

    def __str__(self) -> str:
        return f"{self.time}  {self.agent:<{NAME_WIDTH}}  {self.text}"


def describe(row: Json) -> TimelineLine:
    """Any object becomes a line, also one that a later version or another program wrote."""
    event = _text(row, "event")
    text = _DESCRIPTIONS.get(event, _describe_unknown)(row)
    text = one_line(f"unverified: {text}" if row.get("unverified") else text, TEXT_LIMIT)
    is_bad = bool(
        row.get("is_error")
        or row.get("unverified")
        or row.get("error")
        or event in ("permission_denied", "limit", "retry")
        or row.get("severity") in ("warning", "error")
        or (event == "message" and row.get("type") == "error")
        or (event == "turn_ended" and row.get("outcome") != "done")
        or (event == "merge" and row.get("outcome") != "merged")
    )
    return TimelineLine(format_timestamp(row.get("ts")), one_line(_text(row, "agent"), 32), text, is_bad)


def concerns(row: Json, name: str) -> bool:
    """Whether the event is from `name`, a message to it, or a change of its task."""
    return name.casefold() in (_text(row, field).casefold() for field in ("agent", "to", "owner"))


def format_timestamp(timestamp: object) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(str(timestamp))))
    except (ValueError, OverflowError, OSError):  # any program may have written it
        return "-" * 19


def short_timestamp(timestamp: object, now: float) -> str:
    """Without the date if it is today, otherwise without the seconds."""
    full = format_timestamp(timestamp)
    return full[11:] if full[:10] == format_timestamp(now)[:10] else full[:16]


def timeline_table(rows: Iterable[Json], last: int, now: float) -> Table:
    """The last events. A tool call is one row, with its start and its outcome."""
    shown = tuple(_table_row(row, now) for row in _joined_calls(rows, last))
    return Table("" if shown else "Nothing has happened yet.", _COLUMNS, shown)


def _table_row(row: Json, now: float) -> tuple[str | Cell, ...]:
    line = describe(row)
    style: Style = "bad" if line.is_bad else "dim" if row.get("event") in _HOUSEKEEPING else ""
    return short_timestamp(row.get("ts"), now), f"{line.agent:<{NAME_WIDTH}}", Cell(line.text, style)


def _joined_calls(rows: Iterable[Json], last: int) -> Iterable[Json]:
    """The last rows. The end of a call is merged into the row of its start, if that is one of them."""
    kept: deque[Json] = deque(maxlen=last)
    under_way: dict[str, tuple[int, Json]] = {}
    count = 0
    for row in rows:
        began: Json = {}
        if row.get("event") == "tool_finished":
            began_at, began = under_way.pop(_text(row, "id"), (0, {}))
            # Only if the row of its start has not been pushed out of `kept` since.
            if began and began_at > count - last:
                began.update({**row, "ts": began.get("ts")})
                continue
        count += 1
        kept.append({**began, **row})
        if row.get("event") == "tool_started":
            under_way[_text(row, "id")] = (count, kept[-1])
    return kept


class TimelineReader:
    """Reads the complete lines of a timeline. Each `read` continues where the last one ended, also if the file was
    replaced or truncated in between. It never creates, changes or waits for anything."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._unfinished = b""

    def read(self) -> Iterator[Json]:
        """The events added since the last call.

        Raises: StateError
        """
        yield from self._read_more()
        try:
            found = self._path.lstat().st_ino
        except OSError:  # missing, perhaps only for a moment
            return
        if self._file is None or found != os.fstat(self._file.fileno()).st_ino:
            yield from self._read_more()  # what was added just before the file was replaced
            self.close()
            self._file = _open(self._path)
            yield from self._read_more()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._unfinished = None, b""

    def _read_more(self) -> Iterator[Json]:
        if self._file is None:
            return
        if os.fstat(self._file.fileno()).st_size < self._file.tell():  # truncated: start over
            self._file.seek(0)
            self._unfinished = b""
        while piece := self._file.readline(_LONGEST_PIECE):
            line = self._unfinished + piece
            # Bounded, whatever is in the file.
            self._unfinished = b"" if line.endswith(b"\n") else line[-_LONGEST_PIECE:]
            if not self._unfinished and (row := decode_line(line)) is not None:
                yield row


class LeadTurn(NamedTuple):
    """The lead's last turn."""

    is_under_way: bool
    at: float
    """When it began or ended."""


def last_lead_turn(path: Path) -> LeadTurn | None:
    """The lead's last turn, if the end of the timeline still has it."""
    file = _open(path)
    if file is None:
        return None
    with file:
        # The timeline may be huge, and the last turn is near its end.
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        return lead_turn_in(map(decode_line, reversed(file.read().splitlines())))


def lead_turn_in(newest_first: Iterable[Json | None]) -> LeadTurn | None:
    """The lead's last turn, if these lines have it."""
    for row in newest_first:
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


def _describe_status(row: Json) -> str:
    status = _text(row, "status")
    words = [{"spawning": f"spawned as {_text(row, 'role')}", "shutdown": "shut down"}.get(status, status)]
    words += [mark for mark in ("interrupted", "paused") if row.get(mark)]
    words += [f"waiting for {_text(row, 'waiting_for')}"] if row.get("waiting_for") else []
    words += ["stuck"] if row.get("stuck_since") else []
    words += [f"error: {_text(row, 'error')}"] if row.get("error") else []
    return ", ".join(words)


def _describe_task(row: Json) -> str:
    owner = _text(row, "owner") if row.get("owner") and row.get("change") in ("created", "assigned") else ""
    to = f" → {owner}" if owner else ""
    return f"task {_text(row, 'task')} {_text(row, 'change')}{to}: {_text(row, 'subject')}"


def _describe_message(row: Json) -> str:
    kind = "" if row.get("type") == "message" else f" ({_text(row, 'type')})"
    return f"→ {_text(row, 'to')}{kind}: {_text(row, 'content')}"


def _describe_answer(row: Json) -> str:
    usage = row.get("usage")
    used = usage if isinstance(usage, dict) else {}  # any program may have written it
    # Tokens that are read from the cache or written to it are counted in fields with this ending, too.
    tokens_in = sum(_number(used, name) for name in used if name.endswith("input_tokens"))
    cost = f"${_number(row, 'cost_usd'):.4f}" if row.get("cost_usd") is not None else "price unknown"
    return f"model call: {counted(round(tokens_in), 'token')} in, {_number(used, 'output_tokens'):,.0f} out, {cost}"


def _describe_tool_finished(row: Json) -> str:
    what = ": ".join(filter(None, (_text(row, "tool"), _text(row, "title"))))
    refused = one_line(_text(row, "refused"))
    took = f"{_number(row, 'seconds'):.1f} s"
    mark = "⊘" if refused else "✗" if row.get("is_error") else "✓"
    return f"{mark} {one_line(what, TITLE_LIMIT)} ({refused or took})"


def _describe_unknown(row: Json) -> str:
    rest = " ".join(f"{name}={value}" for name, value in row.items() if name not in ("ts", "agent", "event"))
    return f"{_text(row, 'event')} {rest}"


_DESCRIPTIONS: Mapping[str, Callable[[Json], str]] = {
    "turn_started": lambda row: "begins a turn",
    "turn_ended": lambda row: f"ends the turn: {_text(row, 'outcome')} ({_number(row, 'seconds'):.1f} s)",
    "answer": _describe_answer,
    "tool_started": lambda row: f"▸ {_text(row, 'tool')}: {_text(row, 'title')}",
    "tool_finished": _describe_tool_finished,
    "permission_asked": lambda row: f"? asks for {_text(row, 'tool')}: {_text(row, 'title')}",
    "permission_given": lambda row: f"allowed {_text(row, 'tool')} after {_number(row, 'waited_seconds'):.1f} s",
    "permission_denied": lambda row: f"refused {_text(row, 'tool')}: {_text(row, 'title')} ({_text(row, 'reason')})",
    "retry": lambda row: f"retries in {_number(row, 'delay_seconds'):.1f} s: {_text(row, 'reason')}",
    "message": _describe_message,
    "status": _describe_status,
    "task": _describe_task,
    "merge": lambda row: _text(row, "text"),
    "compacted": lambda row: (
        f"context compacted: {_number(row, 'tokens_before'):,.0f} → {_number(row, 'tokens_after'):,.0f} tokens"
    ),
    "limit": lambda row: _text(row, "text"),
    "notice": lambda row: _text(row, "text"),
}


def _text(row: Json, name: str) -> str:
    return str(row.get(name, ""))


def _number(row: Json, name: str) -> float:
    return as_number(row.get(name))
