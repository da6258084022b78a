"""Rebuilds teammates that the roster has lost from what they left in other files."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from teamcli.errors import TeamError
from teamcli.storage.files import as_state_error
from teamcli.team.message import check_name
from teamcli.team.roster_file import Member, Status

UNKNOWN_ROLE = "unknown"
"""The role of a teammate that was rebuilt from its files."""


def missing_members(known: Collection[str], transcripts: Path, inboxes: Path) -> list[Member]:
    """Those that have an inbox or a transcript, but are not among `known`, which are names without regard to case.

    Raises: StateError
    """
    found = {name.casefold(): name for directory in (inboxes, transcripts) for name in _names_in(directory)}
    return [_rebuilt(name, transcripts) for key, name in sorted(found.items()) if key not in known]


def _rebuilt(name: str, transcripts: Path) -> Member:
    # A spawn after a shutdown archives the transcript of the incarnation before it.
    earlier = sum(path.name.casefold().startswith(f"{name.casefold()}.") for path in _files(transcripts / "archive"))
    # One that had its own checkout must not come back in the shared directory.
    has_checkout = (transcripts.parent / "worktrees" / f"{name}.json").exists()
    return Member(name, UNKNOWN_ROLE, Status.IDLE, incarnation=1 + earlier, worktree=has_checkout, interrupted=True)


def _names_in(directory: Path) -> Iterator[str]:
    """The names of the teammates that have a file in `directory`."""
    for path in _files(directory):
        if path.name.endswith(".jsonl"):
            with suppress(TeamError):
                check_name(path.name.removesuffix(".jsonl"))
                yield path.name.removesuffix(".jsonl")


def _files(directory: Path) -> list[Path]:
    with as_state_error("read", directory):
        try:
            return sorted(path for path in directory.iterdir() if path.is_file() and not path.is_symlink())
        except FileNotFoundError:
            return []
