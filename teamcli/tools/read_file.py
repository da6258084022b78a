"""`read_file`: a page of a text file, with line numbers, however large the file is."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, BinaryIO, NamedTuple

from teamcli.agent.tool import Display, Reads, ToolOutput
from teamcli.errors import ToolError
from teamcli.text.counting import counted
from teamcli.text.redaction import redact
from teamcli.tools.base.context import AgentContext, CallContext
from teamcli.tools.base.tool import Tool
from teamcli.tools.base.tool_input import Between
from teamcli.workspace.file_access import open_file
from teamcli.workspace.known_files import new_digest
from teamcli.workspace.text_files import HEAD_BYTES, UTF8, WINDOWS_1252, Encoding, marked_encoding, refuse_binary

MAX_CHARACTERS = 50_000
MAX_LINE_LENGTH = 2000
_CHUNK_BYTES = 1024 * 1024
# A character has up to 4 bytes. The rest leaves room for a key at the cut, which is redacted before cutting.
_KEPT_LINE_BYTES = 4 * MAX_LINE_LENGTH + 4096
_KEPT_BYTES = 8 * MAX_CHARACTERS


class ReadFileInput(NamedTuple):
    """Read a text file. Lines come as number, tab, text. Read before you overwrite; prefer this to cat."""

    path: str
    offset: Annotated[int, Between(1), "First line"] = 1
    limit: Annotated[int, Between(1), "Most lines"] = 2000


def run(args: ReadFileInput, context: AgentContext, call: CallContext) -> ToolOutput:
    path = context.workspace.resolve(args.path)
    shown = context.workspace.relative(path)
    page = _FilePage(args.offset, args.limit)
    content_digest = new_digest()
    with open_file(path, context.workspace) as file:
        utf8 = _Utf8Stream(_head(file, shown), shown)
        for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""):
            call.cancel.check()
            content_digest.update(chunk)
            page.feed(utf8.feed(chunk))
        page.feed(utf8.end())
    # The digest covers the whole file, even if only a page is shown: write_file compares all of it.
    seen = context.known_files.remember(path, content_digest.hexdigest())
    text = _render(page, utf8.encoding, shown)
    return ToolOutput("\n".join(filter(None, (text, context.instructions_for(path)))), seen_files=seen)


def _head(file: BinaryIO, shown: str) -> bytes:
    head = file.read(HEAD_BYTES)
    refuse_binary(head, os.fstat(file.fileno()).st_size, shown)
    file.seek(0)
    return head


class _Utf8Stream:
    """A file's chunks as UTF-8, without a byte order mark. Bytes that are not UTF-8 pass through and set `encoding`."""

    def __init__(self, head: bytes, shown: str) -> None:
        self.encoding = marked_encoding(head) or UTF8
        self._shown = shown
        self._bom_left = self.encoding.bom
        self._decoder = codecs.getincrementaldecoder(self.encoding.codec)()

    def feed(self, chunk: bytes, final: bool = False) -> bytes:
        chunk, self._bom_left = chunk.removeprefix(self._bom_left), b""
        if self.encoding is WINDOWS_1252:
            return chunk
        try:
            text = self._decoder.decode(chunk, final)
        except UnicodeDecodeError as e:
            if self.encoding.bom:
                raise ToolError(f"{self._shown} begins like {self.encoding.name} but is not valid: {e.reason}") from e
            self.encoding = WINDOWS_1252
            return chunk
        return text.encode() if self.encoding.bom else chunk

    def end(self) -> bytes:
        return self.feed(b"", final=True)


@dataclass
class _PageLine:
    kept: bytes = b""
    length: int = 0

    def add(self, piece: bytes) -> None:
        self.kept += piece[: _KEPT_LINE_BYTES - len(self.kept)]
        self.length += len(piece)


class _FilePage:
    """Some lines of a file that arrives in chunks, and its total number of lines."""

    def __init__(self, first: int, limit: int) -> None:
        self.first = first
        self._last = first + limit - 1
        self._lines: dict[int, _PageLine] = {}
        self._kept_bytes = 0
        self._number = 1
        self._in_line = False

    @property
    def total(self) -> int:
        return self._number if self._in_line else self._number - 1

    def feed(self, chunk: bytes) -> None:
        if not chunk:
            return
        following = chunk.count(b"\n")
        # Most chunks of a large file are outside the page, and splitting one is slow.
        if self._number <= self._last and self._number + following >= self.first:
            self._collect(chunk)
        self._number += following
        self._in_line = not chunk.endswith(b"\n")

    def _collect(self, chunk: bytes) -> None:
        for number, piece in enumerate(chunk.split(b"\n"), self._number):
            if self.first <= number <= self._last:
                self._lines.setdefault(number, _PageLine()).add(piece)
                self._kept_bytes += min(len(piece), _KEPT_LINE_BYTES)
                if self._kept_bytes > _KEPT_BYTES:  # more than will ever be shown
                    self._last = number

    def lines(self, encoding: Encoding) -> Iterator[tuple[int, str]]:
        for number, line in self._lines.items():
            if number <= self.total:
                yield number, _cut(line, encoding)


def _cut(line: _PageLine, encoding: Encoding) -> str:
    kept = line.kept.removesuffix(b"\r") if line.length == len(line.kept) else line.kept
    text = encoding.decode(kept) if encoding is WINDOWS_1252 else kept.decode("utf-8", "ignore")
    text = redact(text)  # before it is cut, because half a key cannot be recognized
    if line.length == len(line.kept) and len(text) <= MAX_LINE_LENGTH:
        return text
    return f"{text[:MAX_LINE_LENGTH]}... (line cut, {line.length:,} bytes in all)"


def _render(page: _FilePage, encoding: Encoding, shown: str) -> str:
    if page.first > max(page.total, 1):
        raise ToolError(f"offset: {shown} has {counted(page.total, 'line')}, so none from {page.first} on")
    if not page.total:
        return f"({shown} is empty)"
    numbered, last = _numbered(page, encoding)
    if last < page.total:
        numbered.append(f"... ({page.total - last} more) continue with offset={last + 1}")
    if encoding is not UTF8:
        numbered.append(f"({shown} is {encoding.name}; edit_file keeps that)")
    return "\n".join(numbered)


def _numbered(page: _FilePage, encoding: Encoding) -> tuple[list[str], int]:
    """The lines that fit, numbered, and the number of the last of them."""
    numbered: list[str] = []
    room, last = MAX_CHARACTERS, page.first - 1
    for number, text in page.lines(encoding):
        line = f"{number}\t{text}"
        room -= len(line) + 1
        if room < 0:
            break
        numbered.append(line)
        last = number
    return numbered, last


def access(args: ReadFileInput, context: AgentContext) -> Reads:
    return Reads(context.workspace.resolve(args.path))


def show(args: ReadFileInput, context: AgentContext) -> Display:
    return Display(f"read {context.workspace.relative(context.workspace.resolve(args.path))}")


READ_FILE = Tool("read_file", ReadFileInput, run, show, access)
