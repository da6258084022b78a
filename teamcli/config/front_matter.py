"""Reads Markdown files that users write, and their front matter: the part of YAML that people use there.

`key: value` with plain, "quoted" or 'quoted' text that may continue in further lines, `[a, b]`, lists of `- a` lines,
`|` and `>` texts, comments. What is not valid YAML is read as the text that it most likely is, such as `[file] [line]`
or a description with a colon. A field that the reader does not ask for is skipped, together with everything below it.
"""

from __future__ import annotations

import json
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from teamcli.storage.files import cannot, leads_out, read_regular

Value = str | tuple[str, ...]
Covers = Callable[[Path, bytes], bool]
"""Whether the user has agreed to this content of this file."""
NOT_AGREED = "it is new or changed since you agreed to it; teamcli asks at its next start"

MAX_BYTES = 256 * 1024
FENCE = "---"
_KEY = re.compile(r"""(["']?)([A-Za-z_][\w.-]*)\1\s*:(?:\s+(.*))?""")
# Patterns for what few files contain are strings, which `re` compiles at first use.
_DOUBLE = r'"(?:[^"\\]|\\.)*"'
_SINGLE = r"'(?:[^']|'')*'"
_QUOTED = rf"(?s)({_DOUBLE}|{_SINGLE})\s*(?:\s#.*)?"
_COMMENT = re.compile(r"(?:^|\s)#.*")
_INLINE_LIST = rf"\[((?:{_DOUBLE}|{_SINGLE}|[^\]\"'])*)\]\s*(?:\s#.*)?"
_ITEM = rf"\s*({_DOUBLE}|{_SINGLE}|[^,\"']*?)\s*(?:,|$)"
_BLOCK_TEXT = r"([|>])[-+0-9]{0,2}\s*(?:#.*)?"
_BLOCK_MARKS = ("|", ">")
_NOTHING = ("null", "~")
_END = re.compile(r"\n---[ \t\r\f\v]*(?=\n|\Z)")
_ESCAPE = r"(?s)\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))"
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "_": "\xa0", " ": " ", '"': '"', "/": "/", "\\": "\\"}
_NOT_STRAY = " \t#-]}"
_FIELDS = (
    " agent allowed-tools argument-hint arguments author background category color context cwd description "
    "disable-model-invocation disallowed-tools disallowedTools effort hooks initialPrompt isolation license maxTurns "
    "mcpServers memory metadata model name paths permissionMode shell skills tags tools user-invocable version "
    "when_to_use "
)
"""What a field is called after a text that is not valid YAML."""
_WORD = re.compile(r"(?:[^\s,()]|\((?:[^()]|\([^()]*\))*\))+")


class Nested(str):
    """Fields below a field, as written. Nothing here reads them."""

    __slots__ = ()


class NotAgreed(ValueError):
    """The user has not agreed to the present content of the file."""


class Folder(NamedTuple):
    """A directory with documents. Files of a project must not be links out of it, and need the user's consent."""

    path: Path
    root: Path | None = None
    """The project; None for the user's own directories."""
    covers: Covers | None = None
    """Asked about the bytes that were read."""
    is_claudes: bool = False
    """Made for Claude Code: a file that it would not use either is not a mistake."""
    plugin: str = ""
    """The plugin that it belongs to: its names begin with `plugin:`."""
    plugin_root: Path | None = None
    only: tuple[str, ...] = ()
    """The names of the files that count; empty for all."""


class RawField(NamedTuple):
    """One field as written in the file."""

    line: int
    key: str
    rest: str
    below: list[str]
    """The lines that belong to it: those up to the next field."""


class FrontMatter(NamedTuple):
    fields: dict[str, Value]
    body: str
    line_of: dict[str, int]


def read_document(path: Path | str, folder: Folder | None = None, known: bytes | None = None) -> str:
    """A file's text, without a byte order mark and with `\\n` line ends.

    Args:
        known: Its content, if it was read and checked a moment ago.

    Raises: ValueError, with the reason why the file cannot be used
    """
    data = _content(path, folder) if known is None or len(known) > MAX_BYTES else known
    data = data.removeprefix(BOM_UTF8)
    try:
        return data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as e:
        if folder is not None and folder.is_claudes and b"\0" not in data:  # it reads these, too
            return data.decode("cp1252", "replace").replace("\r\n", "\n")
        line = data[: e.start].count(b"\n") + 1
        raise ValueError(f"line {line}: it is not UTF-8") from e


def _content(given: Path | str, folder: Folder | None) -> bytes:
    path = Path(given)
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
    return data


def parse_if_there(text: str, keys: Collection[str], is_claudes: bool = False) -> FrontMatter:
    """The same as `parse`, but a text without front matter is all body. For Claude Code, so is one whose front matter
    has no end.

    Raises: ValueError, with a message that names the line
    """
    try:
        return parse(text, keys)
    except ValueError:
        if has_front_matter(text) and not is_claudes:
            raise
        return FrontMatter({}, text, {})


def has_front_matter(text: str) -> bool:
    return text.split("\n", 1)[0].rstrip() == FENCE


def parse(text: str, keys: Collection[str]) -> FrontMatter:
    """Read the fields `keys` and the text below the front matter. If a field occurs twice, the last counts.

    Raises: ValueError, with a message that names the line
    """
    if not has_front_matter(text):
        raise ValueError(f"line 1: the file must begin with {FENCE}")
    end = _END.search(text, text.index("\n") if "\n" in text else len(text))
    if end is None:
        raise ValueError(f"line {text.count(chr(10)) + 1}: the front matter has no closing {FENCE}")
    fields: dict[str, Value] = {}
    line_of: dict[str, int] = {}
    for entry in _entries(text[: end.start()].split("\n")[1:]):
        line_of[entry.key] = entry.line
        if entry.key in keys:
            fields[entry.key] = _value(entry)
    return FrontMatter(fields, text[end.end() :].strip("\n"), line_of)


def words_of(value: Value) -> tuple[str, ...]:
    """The elements of a list, or of a text that separates them with commas or spaces, but not inside parentheses."""
    texts = (value,) if isinstance(value, str) else value
    return tuple(word for text in texts for word in _WORD.findall("" if isinstance(text, Nested) else text))


def is_true(matter: FrontMatter, field: str) -> bool:
    return str(matter.fields.get(field, "")).casefold() == "true"


def is_false(matter: FrontMatter, field: str) -> bool:
    return str(matter.fields.get(field, "")).casefold() == "false"


def _entries(lines: list[str]) -> Iterator[RawField]:
    """All fields. A line that is none belongs to the field above it.

    People write examples with `user: …` lines into a description and do not indent them. After a line that cannot be
    YAML, only a field that we know begins a new one.
    """
    first = next((line for line in lines if not _is_void(line)), "")
    width = len(first) - len(first.lstrip())
    entry: RawField | None = None
    has_strayed = False
    for number, line in enumerate(lines, start=2):
        text = line[width:] if width and not line[:width].strip() else line
        match = _KEY.fullmatch(text.rstrip())
        if match is None or (has_strayed and f" {match[2]} " not in _FIELDS):
            if entry is not None and not (text.startswith("#") and _is_void(text)):
                entry.below.append(text)
                has_strayed = has_strayed or bool(text.strip() and text[0] not in _NOT_STRAY)
            continue
        if entry is not None:
            yield entry
        entry, has_strayed = RawField(number, match[2], (match[3] or "").strip(), []), False
    if entry is not None:
        yield entry


def _value(entry: RawField) -> Value:
    if not entry.below and _is_plain(entry.rest):
        return entry.rest
    if entry.rest[:1] in _BLOCK_MARKS and (block := re.fullmatch(_BLOCK_TEXT, entry.rest)):
        return _block_text(block[1], entry.below)
    below = [text for text in entry.below if not _is_void(text)]
    if _COMMENT.sub("", entry.rest):
        return _value_of([entry.rest, *(text.strip() for text in entry.below)])
    if not below:
        return ""
    if below[0].lstrip()[:1] in _BLOCK_MARKS and (block := re.fullmatch(_BLOCK_TEXT, below[0].strip())):
        return _block_text(block[1], below[1:])
    if below[0].lstrip().startswith("- ") or below[0].strip() == "-":
        return tuple(_scalar(item) for item in _items(below))
    if _KEY.fullmatch(below[0].strip()):
        return Nested("\n".join(below))
    return _value_of([text.strip() for text in below])


def _is_plain(text: str) -> bool:
    """Whether a value in one line is just its text."""
    return text not in _NOTHING and "#" not in text and not text.startswith(("[", "{", '"', "'", *_BLOCK_MARKS))


def _value_of(lines: list[str]) -> Value:
    """A value that begins on the first line, and may continue on the others."""
    text = _folded(lines)
    if text.startswith("[") and (items := _inline_list(text)) is not None:
        return items
    return Nested(text) if text.startswith("{") and text.endswith("}") else _scalar(text, lines)


def _folded(lines: Iterable[str]) -> str:
    """Lines as one; an empty line stays a line break."""
    lines = list(lines)
    if len(lines) == 1:
        return lines[0].strip()
    return re.sub(r" ?\n ?", "\n", " ".join(line or "\n" for line in lines)).strip()


def _block_text(kind: str, below: list[str]) -> str:
    width = min((len(text) - len(text.lstrip()) for text in below if text.strip()), default=0)
    text = "\n".join(text[width:].rstrip() for text in below)
    if kind == ">":
        text = re.sub(r"(?<!\n)\n(?!\n)", " ", text)
    return text.strip("\n ")


def _items(below: list[str]) -> list[str]:
    """The items of a list, each with the lines in which it continues."""
    items: list[str] = []
    for line in (text.strip() for text in below):
        if line == "-" or line.startswith("- "):
            items.append(line[1:].strip())
        else:
            items[-1] += f" {line}"
    return items


def _inline_list(text: str) -> tuple[str, ...] | None:
    """None if the text is not a list, but only begins with a bracket."""
    match = re.fullmatch(_INLINE_LIST, text)
    if match is None:
        return None
    items: list[str] = []
    position, inside = 0, match[1].rstrip().removesuffix(",")
    next_item = re.compile(_ITEM)
    while position < len(inside):
        item = next_item.match(inside, position)
        if item is None:
            return None
        items.append(_scalar(item[1]))
        position = item.end()
    return tuple(items)


def _scalar(text: str, lines: Iterable[str] = ()) -> str:
    if text[:1] in ("'", '"') and (quoted := re.fullmatch(_QUOTED, text)):
        return unquoted(quoted[1])
    plain = _folded(_COMMENT.sub("", line) for line in (lines or (text,))).strip()
    # With a colon it is not valid YAML, so a `#` after it does not begin a comment either.
    return "" if plain in _NOTHING else text if re.search(r":\s", plain) else plain


def unquoted(text: str) -> str:
    """A text without the quotes around it."""
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    try:
        return str(json.loads(text, strict=False))
    except ValueError:  # an escape that JSON does not have
        return re.sub(_ESCAPE, _unescaped, text[1:-1])


def _unescaped(found: re.Match[str]) -> str:
    code = found[1] or found[2] or found[3]
    if code and int(code, 16) <= sys.maxunicode:
        return chr(int(code, 16))
    return found[0] if code else _ESCAPED.get(found[4], found[0])


def _is_void(text: str) -> bool:
    return not text.strip() or text.lstrip().startswith("#")
