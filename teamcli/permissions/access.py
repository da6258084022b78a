"""What a call would touch. Each tool declares it, and `decide` judges it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Reads(NamedTuple):
    """Looks at a file, or at everything below a directory."""

    path: Path


class Writes(NamedTuple):
    """Creates or changes one file."""

    path: Path


class Executes(NamedTuple):
    """Runs a shell command, which may touch anything."""

    command: str
    directory: Path | None = None
    """Where it starts, if not in the workspace root."""


class Calls(NamedTuple):
    """Calls a function of the program that has teamcli built in, which may touch anything."""

    function: str


class Harmless(NamedTuple):
    """Touches nothing outside teamcli itself. `ordered` calls of one answer run one after the other, in call order."""

    ordered: bool = False


Access = Reads | Writes | Executes | Calls | Harmless
