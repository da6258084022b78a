"""The files of a team in a directory: finding, reading and moving them.

The directory may have come with a cloned repository, so what is listed here may not be a symbolic link.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from teamcli.errors import StateError
from teamcli.storage.files import PRIVATE_DIR, as_state_error, read_regular, sync_directory
from teamcli.team.message import LEAD, is_address

MOVED = ("config.json", "inbox", "transcripts", "events.jsonl", "tasks", "subagents.json", ".inbox-token")
"""What an import takes, and an export writes. All else stays where it is."""
_ARCHIVED = re.compile(r"(?P<name>.+)\.(?P<number>[0-9]{1,20})\.jsonl")
_LAST_INCARNATION = 1_000_000
"""A higher number in the name of an archived conversation is a time."""
_LARGEST_FILE = 200_000_000


def logs_in(directory: Path) -> list[Path]:
    """The logs in a directory, without lines that were set aside."""
    return [path for path in files_in(directory, ".jsonl") if not path.name.endswith(".bad.jsonl")]


def files_in(directory: Path, ending: str) -> list[Path]:
    """Raises: StateError"""
    with as_state_error("read", directory):
        if not directory.is_dir():
            return []
        found = sorted(path for path in directory.iterdir() if path.name.endswith(ending))
    refuse_links([directory, *found])
    return [path for path in found if path.is_file()]


def refuse_links(paths: Iterable[Path]) -> None:
    """A cloned repository could point them anywhere."""
    if links := [path for path in paths if path.is_symlink()]:
        raise StateError(f"{links[0]} is a symbolic link; remove it")


def archives_in(directory: Path) -> dict[str, dict[int, Path]]:
    """By the name of the agent, then by number."""
    found: dict[str, dict[int, Path]] = {}
    for path in files_in(directory, ".jsonl"):
        match = _ARCHIVED.fullmatch(path.name)
        if match and is_agent(match["name"]) and match["number"] == str(int(match["number"])):
            found.setdefault(match["name"], {})[int(match["number"])] = path
    return found


def with_incarnations(paths: dict[int, Path], current: int) -> Iterator[tuple[int, int, Path]]:
    """The number, incarnation and file of each archived conversation. An export names a file by its incarnation."""
    for place, (number, path) in enumerate(sorted(paths.items())):
        is_incarnation = number < _LAST_INCARNATION and number != current and max(paths) < _LAST_INCARNATION
        yield number, number if is_incarnation else current - len(paths) + place, path


def is_addressed(path: Path) -> bool:
    return is_agent(path.stem)


def is_agent(name: str) -> bool:
    return name == LEAD or is_address(name)


def read_content(path: Path) -> bytes:
    """Raises: StateError"""
    with as_state_error("read", path):
        try:
            return read_regular(path, _LARGEST_FILE)
        except ValueError as e:
            raise StateError(f"{path} is {e}; move it away") from e


def move_aside(root: Path, paths: Iterable[Path], name: str) -> Path:
    """Move files and directories into a new directory. Returns that.

    Raises: StateError
    """
    number = 1
    while (aside := root / f"{name}-{number}").exists():
        number += 1
    with as_state_error("move", root):
        aside.mkdir(mode=PRIVATE_DIR)
        for path in paths:
            if path.exists():
                path.rename(aside / path.name)
    sync_directory(aside)
    sync_directory(root)
    return aside
