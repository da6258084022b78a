"""Reads Markdown files that users write, and their front matter: the small part of YAML that people use there.

`key: value` with plain, "quoted" or 'quoted' text, `[a, b]`, block lists of `- a` lines, `|` and `>` texts, comments.
A field that the reader does not ask for is skipped, together with everything indented under it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from teamcli.storage.files import cannot, leads_out, read_regular

Value = str | tuple[str, ...]
Covers = Callable[[Path, bytes], bool]
"""Whether the user has agreed to this content of this file."""
NOT_AGREED = "it is new or changed since you agreed to it; teamcli asks at its next start"

MAX_BYTES = 256 * 1024
FENCE = "---"
_KEY = re.compile(r"([A-Za-z_][\w-]*)\s*:(?:\s+(.*))?")
_DOUBLE = r'"(?:[^"\\]|\\.)*"'
_SINGLE = r"'(?:[^']|'')*'"
_QUOTED = re.compile(rf"({_DOUBLE}|{_SINGLE})\s*(?:\s#.*)?")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_INLINE_LIST = re.compile(rf"\[((?:{_DOUBLE}|{_SINGLE}|[^\]\"'])*)\]\s*(?:\s#.*)?")
_ITEM = re.compile(rf"\s*({_DOUBLE}|{_SINGLE}|[^,\"']*?)\s*(?:,|$)")
_BLOCK_TEXTS: dict[str, Callable[[list[str]], str]] = {
    "|": "\n".join,
    ">": lambda lines: re.sub(r"(?<!\n)\n(?!\n)", " ", "\n".join(lines)),
}
_RESERVED = "{}]&*!|>%@`,?"
"""A plain text must not begin with one of these, which have a meaning in YAML."""


class NotAgreed(ValueError):
    """The user has not agreed to the present content of the file."""


class Folder(NamedTuple):
    """A directory with documents. Files of a project must not be links out of it, and need the user's consent."""

    path: Path
    root: Path | None = None
    """The project; None for the user's own directories."""
    covers: Covers | None = None
    """Asked about the bytes that were read."""


class NumberedLine(NamedTuple):
    number: int
    text: str


class RawField(NamedTuple):
    """One field as written in the file."""

    line: int
    key: str
    rest: str
    below: list[NumberedLine]
    """The lines that belong to it: indented lines, list items, and blank lines between them."""


class FrontMatter(NamedTuple):
    fields: dict[str, Value]
    body: str
    line_of: dict[str, int]


def read_document(path: Path, folder: Folder | None = None) -> str:
    """A file's text, without a byte order mark and with `\\n` line ends.

    Raises: ValueError, with the reason why the file cannot be used
    """
    try:
        if folder is not None and folder.root is not None and leads_out(path, folder.root):
            raise ValueError("a link that leads out of the workspace")
        data = read_regular(path, MAX_BYTES)
    except OSError as e:
        raise ValueError(cannot("read", path, e)) from e
    except ValueError as e:
        raise ValueError(f"it is {e}") from e
    if folder is not None and folder.covers is not None and not folder.covers(path, data):
        raise NotAgreed(NOT_AGREED)
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as e:
        line = data[: e.start].count(b"\n") + 1
        raise ValueError(f"line {line}: it is not UTF-8") from e


def parse_if_there(text: str, keys: Collection[str]) -> FrontMatter:
    """The same as `parse`, but a text without front matter is all body.

    Raises: ValueError, with a message that names the line
    """
    return parse(text, keys) if text.startswith(FENCE) else FrontMatter({}, text, {})


def parse(text: str, keys: Collection[str]) -> FrontMatter:
    """Read the fields `keys` and the text below the front matter.

    Raises: ValueError, with a message that names the line
    """
    lines = text.split("\n")
    if lines[0].rstrip() != FENCE:
        raise ValueError(f"line 1: the file must begin with {FENCE}")
    end = next((number for number, line in enumerate(lines) if number and line.rstrip() == FENCE), None)
    if end is None:
        raise ValueError(f"line {len(lines)}: the front matter has no closing {FENCE}")
    fields: dict[str, Value] = {}
    line_of: dict[str, int] = {}
    for entry in _entries([NumberedLine(number, line) for number, line in enumerate(lines[1:end], start=2)]):
        if entry.key in line_of:
            raise ValueError(f"line {entry.line}: {entry.key} occurs twice")
        line_of[entry.key] = entry.line
        if entry.key in keys:
            fields[entry.key] = _value(entry)
    return FrontMatter(fields, "\n".join(lines[end + 1 :]).strip("\n"), line_of)


def _entries(lines: list[NumberedLine]) -> Iterator[RawField]:
    entry: RawField | None = None
    for number, text in lines:
        if not text.strip() or text[0] in " \t-":
            if entry is not None:
                entry.below.append(NumberedLine(number, text))
            elif not _is_void(text):
                raise ValueError(f"line {number}: {text.strip()!r:.80} belongs to no field")
            continue
        if text[0] == "#":
            continue
        if entry is not None:
            yield entry
        match = _KEY.fullmatch(text)
        if match is None:
            raise ValueError(f"line {number}: {text.strip()!r:.80} is not `key: value`")
        entry = RawField(number, match[1], (match[2] or "").strip(), [])
    if entry is not None:
        yield entry


def _value(entry: RawField) -> Value:
    if entry.rest[:1] in _BLOCK_TEXTS and entry.rest[1:] in ("", "-", "+"):
        return _block_text(entry)
    below = [line for line in entry.below if not _is_void(line.text)]
    if not _COMMENT.sub("", entry.rest):
        return tuple(_list_item(line) for line in below) if below else ""
    if below:
        where = f"line {below[0].number}: {entry.key} has its value in line {entry.line}"
        raise ValueError(f"{where}; write `{entry.key}: |` and the text below it, indented")
    if entry.rest.startswith("["):
        return _inline_list(entry.rest, entry.line)
    return _scalar(entry.rest, entry.line)


def _block_text(entry: RawField) -> str:
    texts = [line.text for line in entry.below]
    width = min((len(text) - len(text.lstrip()) for text in texts if text.strip()), default=0)
    if texts and not width and any(text.strip() for text in texts):
        raise ValueError(f"line {entry.line}: the text of {entry.key} must be indented")
    return _BLOCK_TEXTS[entry.rest[0]]([text[width:].rstrip() for text in texts]).strip("\n")


def _list_item(line: NumberedLine) -> str:
    text = line.text.strip()
    if not text.startswith("- "):
        raise ValueError(f"line {line.number}: {text!r:.80} is not `- item`; nested fields are not supported")
    return _scalar(text[2:].strip(), line.number)


def _inline_list(text: str, line: int) -> tuple[str, ...]:
    match = _INLINE_LIST.fullmatch(text)
    if match is None:
        raise ValueError(f"line {line}: the list must end with ] on the same line")
    items: list[str] = []
    position, inside = 0, match[1].rstrip().removesuffix(",")
    while position < len(inside):
        item = _ITEM.match(inside, position)
        if item is None:
            raise ValueError(f"line {line}: {inside[position:].strip()!r:.80} is not a list item; check the quotes")
        items.append(_scalar(item[1], line))
        position = item.end()
    return tuple(items)


def _scalar(text: str, line: int) -> str:
    if text[:1] in ("'", '"'):
        return _quoted(text, line)
    if text[:1] in _RESERVED and text:
        raise ValueError(f"line {line}: a text that begins with {text[0]} must be in quotes")
    return _COMMENT.sub("", text).strip()


def _quoted(text: str, line: int) -> str:
    match = _QUOTED.fullmatch(text)
    if match is None:
        raise ValueError(f"line {line}: the quotes of {text!r:.80} do not match")
    if text[0] == "'":
        return match[1][1:-1].replace("''", "'")
    try:
        return str(json.loads(match[1], strict=False))
    except ValueError as e:
        raise ValueError(f"line {line}: {match[1]:.80} has an unknown escape") from e


def _is_void(text: str) -> bool:
    return not text.strip() or text.lstrip().startswith("#")
