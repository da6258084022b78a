"""Confirms what ripgrep found: a line is shown only if it is in the file, opened without following any link.

ripgrep opens files by their paths. A command that runs at the same time could replace a directory with a link at the
right moment, and make it read what the file tools must not.
"""

from __future__ import annotations

import codecs
import io
import os
from pathlib import Path
from typing import BinaryIO

from teamcli.errors import ToolError
from teamcli.workspace.bounds import Workspace
from teamcli.workspace.file_access import MAX_HELD_BYTES, open_file, read_content
from teamcli.workspace.search.engine import MAX_LINE_BYTES, SearchHit
from teamcli.workspace.text_files import HEAD_BYTES, marked_encoding


class Confirmer:
    """Reads the files along with the hits, which come file by file, line by line. `with` closes what is open."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._path = ""
        self._file: BinaryIO | None = None
        self._number = 0
        self._line = b""

    def __enter__(self) -> Confirmer:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def holds(self, hit: SearchHit) -> bool:
        """Whether the line (of a count: the file) is there."""
        if hit.path != self._path:
            self._open(hit.path)
        if self._file is None:
            return False
        if hit.column is None and not hit.text:
            return True
        while self._number < hit.number and self._next_line():
            pass
        return self._number == hit.number and self._line.startswith(hit.text)

    def _open(self, path: str) -> None:
        self._close()
        self._path = path
        try:
            self._file = _text_of(Path(path), self._workspace)
        except ToolError:  # gone or replaced: do not show it
            self._file = None

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._number, self._line = None, 0, b""

    def _next_line(self) -> bool:
        """False at the end. Keeps as much of a line as the engine reports."""
        assert self._file is not None
        self._line = piece = self._file.readline(MAX_LINE_BYTES)
        while piece and not piece.endswith(b"\n"):
            piece = self._file.readline(MAX_LINE_BYTES)
        self._number += 1
        return bool(self._line)


def _text_of(path: Path, workspace: Workspace) -> BinaryIO:
    """The file as ripgrep reads it: in UTF-8, without a byte order mark.

    Raises: ToolError
    """
    with open_file(path, workspace) as file:
        head = file.read(HEAD_BYTES)
        encoding = marked_encoding(head)
        if encoding is None or encoding.bom == codecs.BOM_UTF8:
            file.seek(len(encoding.bom) if encoding else 0)
            return io.BufferedReader(io.FileIO(os.dup(file.fileno())))
    data = read_content(path, workspace, MAX_HELD_BYTES).data
    return io.BytesIO(encoding.decode(data).encode("utf-8", "replace") if data else b"")
