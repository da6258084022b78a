"""Lines of a file as texts that a database can hold, and back, byte for byte.

A database holds no NUL and only valid UTF-8. Other bytes become question marks, so that a line keeps its length and all
offsets stay true; the line itself is kept next to the texts.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from teamcli.errors import StateError
from teamcli.storage.files import LARGEST_LINE, Json, as_state_error

_UNFIT = re.compile("[\0\udc80-\udcff]")


class Oddities(NamedTuple):
    """What the texts do not show of a file's lines."""

    lines: dict[int, bytes]
    """Those that are not text, by number."""
    torn: int | None = None
    """The number of a last line without an end."""

    def __bool__(self) -> bool:
        return bool(self.lines) or self.torn is not None

    def to_json(self) -> str:
        lines = {str(number): base64.b64encode(line).decode() for number, line in self.lines.items()}
        return json.dumps({"lines": lines, "torn": self.torn})

    @classmethod
    def from_json(cls, text: str) -> Oddities:
        """Raises: ValueError"""
        raw = json.loads(text)
        lines, torn = raw["lines"], raw["torn"]
        if not isinstance(torn, int | None):
            raise ValueError("torn must be a number")
        return cls({int(number): base64.b64decode(line) for number, line in lines.items()}, torn)


class NumberedLine(NamedTuple):
    number: int
    offset: int
    line: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.line) + 1


def text_of(line: bytes) -> str:
    """The line, with a question mark for each byte that a database cannot hold."""
    return _UNFIT.sub("?", line.decode("utf-8", "surrogateescape"))


def lines_of(path: Path, oddities: Oddities) -> Iterator[NumberedLine]:
    """The lines of a file without their ends. What a text does not show of them is added to `oddities.lines`; a line
    without an end comes last.

    Raises: StateError
    """
    offset = 0
    with as_state_error("read", path), path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LARGEST_LINE), b"")):
            if len(line) >= LARGEST_LINE:
                raise StateError(f"{path} has a line of more than {LARGEST_LINE // 1_000_000} MB; move the file away")
            text = line.removesuffix(b"\n")
            if text_of(text).encode() != text:
                oddities.lines[number] = text
            yield NumberedLine(number, offset, text)
            offset += len(line)


def is_torn(path: Path) -> bool:
    """Whether the last line of a file has no end.

    Raises: StateError
    """
    with as_state_error("read", path), path.open("rb") as file:
        if not file.seek(0, 2):
            return False
        file.seek(-1, 2)
        return file.read(1) != b"\n"


def join(lines: Iterable[tuple[int, bytes]], oddities: Oddities, is_end: bool = True) -> bytes:
    """The content of a file with these numbered lines. With `is_end`, these are its last ones."""
    numbered: Sequence[tuple[int, bytes]] = list(lines)
    whole = [_original(line, oddities.lines.get(number)) for number, line in numbered]
    is_whole = not (is_end and numbered and numbered[-1][0] == oddities.torn)
    return b"\n".join(whole) + (b"\n" if whole and is_whole else b"")


def _original(line: bytes, kept: bytes | None) -> bytes:
    return kept if kept is not None and text_of(kept).encode() == line else line


def decode_object(text: str) -> Json:
    """An object from a row; empty if it is not one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
