"""What a call would access. Each tool declares it, and `decide` judges it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Reads(NamedTuple):
    """Reads a file, or everything below a directory."""

    path: Path


class Writes(NamedTuple):
    """Creates or changes one file."""

    path: Path


class Executes(NamedTuple):
    """Runs a shell command, which may do anything."""

    command: str
    directory: Path | None = None
    """Where it starts, if not in the workspace root."""


class Calls(NamedTuple):
    """Calls a function of the host program, which may do anything."""

    function: str


class Merges(NamedTuple):
    """Brings the branch of a teammate into the main checkout: changes many files at once."""

    member: str


class Harmless(NamedTuple):
    """Affects nothing outside teamcli itself. `ordered` calls of one answer run one after the other, in call order."""

    ordered: bool = False


Access = Reads | Writes | Executes | Calls | Merges | Harmless
