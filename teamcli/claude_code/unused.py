"""What of a project made for Claude Code is not used: gathered while its files are read, reported in one line."""

from __future__ import annotations

from teamcli.text.escaping import one_line

NAMED_IN_A_LINE = 3
_LONGEST_NAME = 80


class Unused:
    """One for all readers of a start. Not for several threads at once."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, str]] = {}

    def add(self, kind: str, name: str, reason: str = "") -> None:
        """`kind` in the singular, such as `hook`. The same thing counts once."""
        self._found.setdefault(kind, {}).setdefault(name, reason)

    def take(self, other: Unused) -> None:
        """Add all that another has gathered."""
        for kind, names in other._found.items():
            for name, reason in names.items():
                self.add(kind, name, reason)

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def line(self) -> str:
        """All of it in one line, with counts and the first names; empty if there is nothing. Safe to print."""
        groups = [_counted(kind, list(names)) for kind, names in self._found.items()]
        return f"Not used of what Claude Code would use: {'; '.join(groups)}." if groups else ""

    @property
    def details(self) -> list[str]:
        """A line for each, with its reason. Safe to print."""
        return [
            f"{kind} {one_line(name, _LONGEST_NAME)}" + (f": {one_line(reason)}" if reason else "")
            for kind, names in self._found.items()
            for name, reason in names.items()
        ]


def _counted(kind: str, names: list[str]) -> str:
    shown = ", ".join(one_line(name, _LONGEST_NAME) for name in names[:NAMED_IN_A_LINE])
    more = ", …" if len(names) > NAMED_IN_A_LINE else ""
    return f"{len(names)} {kind}{'s' * (len(names) != 1)} ({shown}{more})"
