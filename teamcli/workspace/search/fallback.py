"""A small grep for machines without ripgrep. It runs as a separate process, because a regular expression that takes
forever can be killed there, while in a thread it would block the whole program.

It writes what ripgrep writes: `PATH NUL LINE:COLUMN:TEXT` for a match, `PATH NUL LINE-TEXT` for context around it,
`PATH NUL COUNT` if only the number of matching lines is wanted.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import stat
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from teamcli.workspace.file_walk import look_around, walk
from teamcli.workspace.globs import compile_glob
from teamcli.workspace.open_file import open_beneath
from teamcli.workspace.text_files import UTF8, marked_encoding

INVALID_PATTERN = 2
"""The exit code, the same as ripgrep's."""
_LIFETIME_SECONDS = 90
"""It ends after this long, even if no one is left to kill it earlier."""
LARGEST_FILE_BYTES = 256 * 1024 * 1024
"""Larger files are left out: a single line could fill the memory."""
_BINARY_CHECK_BYTES = 64 * 1024
_HEAD_BYTES = 16 * 1024 * 1024
"""How much of a file is searched at once for a text that every match must contain."""
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_NOT_LITERAL = re.compile(
    r"""\\.                # an escape
    | \[\^?\]?[^]]*\]     # a set
    | .(?=[*?{])         # what may occur zero times
    | \{[^}]*\}? | [.^$*+?\]}]""",
    re.VERBOSE | re.DOTALL,
)


class Search(NamedTuple):
    """What to look for, and where."""

    pattern: str
    start: str
    """A file or a directory, absolute and resolved."""
    top: str
    """The directory of the workspace that `start` is in."""
    glob: str
    """Files to look at: by name, or by path from `start` or `top` if it has a slash; `!` in front excludes them."""
    hidden: bool
    ignore_case: bool
    context: int
    counts: bool
    """Only how many lines match in each file."""
    most_in_file: int | None
    """Matching lines after which a file is left."""


def path_filter(search: Search) -> Callable[[str], bool]:
    """Whether `search.glob` includes a file.

    Raises: ToolError
    """
    if not search.glob:
        return lambda path: True
    wanted = not search.glob.startswith("!")
    glob = search.glob.removeprefix("!").removeprefix("/")
    matches = compile_glob(glob if "/" in glob else f"**/{glob}")
    directory = search.start if Path(search.start).is_dir() else str(Path(search.start).parent)
    prefixes = [len(base.rstrip("/")) + 1 for base in (directory, search.top)]
    return lambda path: any(matches(path[prefix:]) for prefix in prefixes) == wanted


def main(job: str) -> None:
    """Run the search that `job` (the JSON of a `Search`) describes."""
    search = Search(**json.loads(job))
    signal.alarm(_LIFETIME_SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about patterns that a later Python may read differently
            pattern = re.compile(search.pattern, re.IGNORECASE if search.ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as e:
        sys.stderr.write(str(e))
        sys.exit(INVALID_PATTERN)
    literal = b"" if search.ignore_case else required_literal(search.pattern)
    out = sys.stdout.buffer
    for path in _files(search):
        for line in _search_file(path, search, pattern, literal):
            out.write(b"%s\0%s\n" % (os.fsencode(path), line.encode("utf-8", "replace")))
        out.flush()


def _files(search: Search) -> Iterator[str]:
    start, is_meant = Path(search.start), path_filter(search)
    if not start.is_dir():
        if is_meant(search.start):
            yield search.start
        return
    for entry in walk(start, look_around(start, Path(search.top)).ignores, search.hidden):
        if entry.is_regular() and is_meant(entry.path):
            yield entry.path


def required_literal(pattern: str) -> bytes:
    """The longest text that every match contains, as far as that is easy to tell. It rules out most files quickly."""
    if set("(|") & set(_ESCAPE.sub("", pattern)):
        return b""
    return max(_NOT_LITERAL.split(pattern), key=len).encode("utf-8")


def _search_file(path: str, search: Search, pattern: re.Pattern[str], literal: bytes) -> Iterator[str]:
    try:
        parent = Path(path).parent
        raw = io.FileIO(path, opener=lambda _, flags: open_beneath(Path(path), parent, flags | os.O_NONBLOCK))
        file = io.BufferedReader(raw)
    except OSError:  # gone, or not readable for this user; ripgrep skips it too
        return
    with file:
        lines = _text_lines(file, literal)
        if search.counts:
            count = sum(1 for _ in islice(filter(pattern.search, lines), search.most_in_file))
            if count:
                yield str(count)
        else:
            yield from _with_context(lines, pattern, search.context)


def _text_lines(file: BinaryIO, literal: bytes) -> Iterator[str]:
    """The lines of a text file without their ends. A binary file has none, or none after the first NUL."""
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_FILE_BYTES:
        return
    head = file.read(min(_HEAD_BYTES, status.st_size + 1))
    encoding = marked_encoding(head) or UTF8
    is_ruled_out = len(head) < _HEAD_BYTES and literal not in head
    if not encoding.bom and (is_ruled_out or b"\0" in head[:_BINARY_CHECK_BYTES]):
        return
    file.seek(len(encoding.bom))
    for line in io.TextIOWrapper(file, encoding.codec, "replace", newline="\n"):
        if "\0" in line:
            return
        yield line.removesuffix("\n").removesuffix("\r")


def _with_context(lines: Iterator[str], pattern: re.Pattern[str], context: int) -> Iterator[str]:
    before: deque[tuple[int, str]] = deque(maxlen=context)
    still_to_show = 0
    for number, line in enumerate(lines, 1):
        if match := pattern.search(line):
            yield from (f"{earlier}-{text}" for earlier, text in before)
            before.clear()
            yield f"{number}:{len(line[: match.start()].encode('utf-8', 'replace')) + 1}:{line}"
            still_to_show = context
        elif still_to_show:
            yield f"{number}-{line}"
            still_to_show -= 1
        else:
            before.append((number, line))
