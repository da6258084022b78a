"""Finds the files in a folder and its subfolders, such as those of roles, commands and skills."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path

MAX_DIRECTORIES = 1000


def files_below(
    directory: Path | str,
    suffix: str = "",
    follows_links: bool = False,
    report: Callable[[OSError], None] = lambda e: None,
) -> Iterator[os.DirEntry[str]]:
    """The files directly in the folder, then those of each subfolder, by name; also links that lead nowhere.

    `follows_links` applies to links to folders at the top: further down they could form a loop.
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
        follows = follows_links and count == 1
        folders = [entry for entry in entries if _is_folder(entry, follows)]
        yield from (entry for entry in entries if entry.name.endswith(suffix) and entry not in folders)
        pending += [entry.path for entry in reversed(folders)]


def _is_folder(entry: os.DirEntry[str], follows: bool) -> bool:
    is_followed = follows and entry.is_symlink()
    return os.path.isdir(entry.path) if is_followed else entry.is_dir(follow_symlinks=False)  # noqa: PTH112 - never raises


def is_existing_file(entry: os.DirEntry[str]) -> bool:
    return os.path.isfile(entry.path) if entry.is_symlink() else entry.is_file()  # noqa: PTH113 - never raises
