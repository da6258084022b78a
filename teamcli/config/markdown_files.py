"""Finds Markdown files in a folder with subfolders, such as those of roles and commands."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path

MAX_DIRECTORIES = 1000


def markdown_files(directory: Path, report: Callable[[OSError], None] = lambda e: None) -> Iterator[os.DirEntry[str]]:
    """The files directly in the folder, then those of each subfolder, by name; also links that lead nowhere.

    A link to a folder is followed only at the top, so that links cannot form a loop.
    """
    pending, count = [str(directory)], 0
    while pending and count < MAX_DIRECTORIES:
        here, count = pending.pop(), count + 1
        try:
            with os.scandir(here) as found:
                entries = sorted(found, key=attrgetter("name"))
        except OSError as e:
            report(e)
            continue
        folders = [entry for entry in entries if _is_folder(entry, count == 1)]
        yield from (entry for entry in entries if entry.name.endswith(".md") and entry not in folders)
        pending += [entry.path for entry in reversed(folders)]


def _is_folder(entry: os.DirEntry[str], may_be_link: bool) -> bool:
    is_link = may_be_link and entry.is_symlink()
    return os.path.isdir(entry.path) if is_link else entry.is_dir(follow_symlinks=False)  # noqa: PTH112 - never raises


def is_existing_file(entry: os.DirEntry[str]) -> bool:
    return os.path.isfile(entry.path) if entry.is_symlink() else entry.is_file()  # noqa: PTH113 - never raises
