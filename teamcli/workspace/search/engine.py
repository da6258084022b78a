"""Running a search in a separate process, with ripgrep or without.

It ends on cancel, when its time is up, or when the reader has seen enough.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from teamcli.cancel import CancelScope
from teamcli.workspace.bounds import TEAM_DIR
from teamcli.workspace.file_walk import look_around
from teamcli.workspace.search.fallback import INVALID_PATTERN, LARGEST_FILE_BYTES, Search

TIME_LIMIT_SECONDS = 60.0
MAX_LINE_BYTES = 64 * 1024
_PACKAGE_ROOT = Path(__file__).parents[3]
_CHILD = (
    "import sys; sys.path[:0] = sys.argv[2:]; from teamcli.workspace.search.fallback import main; main(sys.argv[1])"
)
_LINE = re.compile(rb"(\d+)(?::(\d+):|-)(.*)", re.DOTALL)

_RIPGREP_OPTIONS = (
    *("--no-config", "--no-messages", "--no-heading", "--color=never", "--sort=path", "--crlf", "--null"),
    *("--with-filename", "--no-ignore-dot", "--no-ignore-global", "--no-ignore-exclude"),
    *("--glob=!.git", f"--iglob=!{TEAM_DIR}", f"--max-filesize={LARGEST_FILE_BYTES}"),
)


class EngineFailed(Exception):
    """Raised when an engine cannot do the search; the text is what it said."""


class InvalidPattern(EngineFailed):
    """Raised when that is because of the pattern."""


class SearchHit(NamedTuple):
    """A line, or (with `counts`) a file."""

    path: str
    number: int
    """The number of the line; with `counts`, how many lines of the file match."""
    column: int | None = None
    """Where the match begins, in bytes, counted from 1; None for a line of context and for a file."""
    text: bytes = b""


def ripgrep_command(program: str | None, search: Search) -> list[str | bytes] | None:
    """The search as a command line for ripgrep, or None if it is not installed or would see other files."""
    start, top = Path(search.start), Path(search.top)
    around = look_around(start, top)
    # Outside a repository ripgrep obeys .gitignore files all the way up, including those outside this project.
    is_misled = around.repository is None and any((above / ".gitignore").is_file() for above in top.parents)
    if program is None or is_misled:
        return None
    options = [*_RIPGREP_OPTIONS, *_output_options(search), *_name_options(search)]
    if around.is_ignored:
        options.append("--no-ignore-parent")
    if around.is_ignored or around.repository is None:
        options.append("--no-require-git")
    return [program, *options, b"--regexp=" + search.pattern.encode("utf-8"), "--", os.fsencode(start)]


def _output_options(search: Search) -> Iterator[str]:
    if search.counts:
        yield "--count"
    else:
        yield from ("--line-number", "--column", "--no-context-separator", f"--context={search.context}")
    if search.most_in_file is not None:
        yield f"--max-count={search.most_in_file}"
    if search.ignore_case:
        yield "--ignore-case"
    if search.hidden:
        yield "--hidden"


def _name_options(search: Search) -> list[str | bytes]:
    """A rough choice by file name; the reader filters exactly. Not `--glob`, which would include ignored files."""
    name = search.glob.rsplit("/", 1)[-1]
    is_usable = not search.glob.startswith("!") and name.strip("*") and not set(name) & set(":{}\\")
    return [b"--type-add=wanted:" + name.encode("utf-8"), "--type=wanted"] if is_usable else []


def python_command(search: Search) -> list[str | bytes]:
    """The same search for the fallback. It imports nothing from the directory it runs in (-P)."""
    pathspec = importlib.util.find_spec("pathspec")
    roots = [str(_PACKAGE_ROOT)] + ([str(Path(pathspec.origin).parents[1])] if pathspec and pathspec.origin else [])
    return [sys.executable, "-P", "-X", "utf8", "-c", _CHILD, json.dumps(search._asdict()), *roots]


class SearchProcess:
    """A running search. `with` ends it, finished or not."""

    def __init__(
        self, command: list[str | bytes], cancel: CancelScope, time_limit_seconds: float = TIME_LIMIT_SECONDS
    ) -> None:
        """Raises: EngineFailed"""
        self.is_out_of_time = False
        self._cancel = cancel
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={"PATH": os.environ.get("PATH", "")},  # in particular, without the API key
                start_new_session=True,  # a Ctrl-C in the terminal is for teamcli to handle
            )
        except (OSError, ValueError) as e:
            raise EngineFailed(str(e)) from e
        self._timer = threading.Timer(time_limit_seconds, self._run_out_of_time)
        self._timer.daemon = True

    def __enter__(self) -> SearchProcess:
        self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.__exit__(None, None, None)

    def hits(self) -> Iterator[SearchHit]:
        """Hits, as the engine finds them.

        Raises: EngineFailed, Cancelled
        """
        assert self._process.stdout and self._process.stderr
        with self._cancel.on_cancel(self._process.kill):
            for line in _lines(self._process.stdout):
                if hit := _parse(line):
                    yield hit
            said = self._process.stderr.read().decode("utf-8", "replace").strip()
        self._cancel.check()
        code = self._process.wait()
        if said and code:
            raise (InvalidPattern if code == INVALID_PATTERN else EngineFailed)(said.splitlines()[-1])

    def _run_out_of_time(self) -> None:
        self.is_out_of_time = True
        self._process.kill()


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Whole lines. Very long ones are cut off."""
    while line := stream.readline(MAX_LINE_BYTES):
        yield line
        while line and not line.endswith(b"\n"):
            line = stream.readline(MAX_LINE_BYTES)


def _parse(line: bytes) -> SearchHit | None:
    """None for ripgrep's messages about binary files."""
    path, _, rest = line.rstrip(b"\r\n").partition(b"\0")
    if rest.isdigit():
        return SearchHit(os.fsdecode(path), int(rest))
    parts = _LINE.fullmatch(rest)
    if parts is None:
        return None
    return SearchHit(os.fsdecode(path), int(parts[1]), int(parts[2]) if parts[2] else None, parts[3])
