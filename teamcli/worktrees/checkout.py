"""The checkout of an isolated member: where it is, and what teamcli has noted about it.

The notes are next to the checkout, where its member cannot write. A branch or a directory without notes is not ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from teamcli.errors import StateError
from teamcli.storage.files import VERSION, Json, read_json, write_json


class Checkout(NamedTuple):
    """The checkout of one member: a repository of its own, which shares the objects of the main one."""

    member: str
    path: Path
    """`.team/worktrees/NAME` of the main directory."""

    @property
    def branch(self) -> str:
        return f"team/{self.member}"

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.branch}"

    @property
    def notes(self) -> Path:
        return self.path.with_name(f"{self.member}.json")

    @property
    def shown(self) -> str:
        """Its path as a user of the main directory would write it."""
        return "/".join(self.path.parts[-3:])

    @property
    def exists(self) -> bool:
        return (self.path / ".git").exists()


class Notes(NamedTuple):
    """What is known about a checkout."""

    base: str
    """The commit that it was made from."""
    slot: int
    """Counts the members; makes their ports differ."""
    tip: str = ""
    """The commit that the program has brought into the main repository last."""
    is_ready: bool = False
    """False until it is complete: the program may be killed while it makes one."""

    def write(self, checkout: Checkout) -> None:
        """Raises: StateError"""
        write_json(checkout.notes, {"v": VERSION, "member": checkout.member, **self._asdict()})

    @classmethod
    def read(cls, checkout: Checkout) -> Notes | None:
        """None for a checkout that is not ours, and for notes that cannot be used."""
        try:
            raw: Json = read_json(checkout.notes) or {}
            return cls(str(raw["base"]), int(raw["slot"]), str(raw["tip"]), raw["is_ready"] is True)
        except (StateError, KeyError, TypeError, ValueError):
            return None


def checkouts_in(directory: Path) -> list[Checkout]:
    """All in `.team/worktrees`, also those of which only the notes or only the files are left."""
    names = {path.stem for path in directory.glob("*.json")} | {path.name for path in directory.glob("*/")}
    return [Checkout(name, directory / name) for name in sorted(names) if name.replace("-", "_").isidentifier()]
