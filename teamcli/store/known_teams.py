"""Which team of a database this machine knows by a name.

The id of a team says which key signs its rows, and nobody signs the id: someone who can write to the database could
replace it by that of another team, or of an earlier one. So a machine remembers the ids that it has used, in the user's
home.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from teamcli.errors import StateError
from teamcli.storage.files import VERSION, Json, make_private_dir, read_json, write_json

_ADDRESS = ("host", "hostaddr", "port", "dbname", "service")
"""Parameters of a URL that say which database it is."""
logger = logging.getLogger(__name__)


class TeamPlace(NamedTuple):
    """Where a team is found."""

    database: str
    """Its address, without user and password."""
    root: str
    name: str


def database_of(url: str) -> str:
    parts = urlsplit(url)
    given = [f"{name}={value}" for name, value in sorted(parse_qsl(parts.query)) if name in _ADDRESS]
    return " ".join([parts.netloc.rpartition("@")[2] + parts.path, *given])


class KnownTeams:
    """One file for each id, with the places where that team was found."""

    def __init__(self, home: Path) -> None:
        self._directory = home / "known-teams"

    def check(self, uid: str, place: TeamPlace) -> None:
        """Raises: StateError, if the team at a place is not the one that was there, or if it is one of another name."""
        found = list(self._all())
        others = [other for known, _, places in found for other in places if known == uid and other[1:] != place[1:]]
        if others:
            raise StateError(
                f"in the database, the team '{place.name}' has the id of the team '{others[0].name}'"
                f" ({others[0].root[:12]}): see who writes to the database"
            )
        if before := [path for known, path, places in found if known != uid and place in places]:
            raise StateError(
                f"the team '{place.name}' in the database is not the one that this machine knows by that name: if it"
                f" was deleted and created again, delete {before[0]}; if not, see who writes to the database"
            )

    def remember(self, uid: str, place: TeamPlace) -> None:
        """After `check`. A home that cannot be written only means that less is remembered."""
        path = self._directory / f"{uid}.json"
        try:
            places = _places(read_json(path))
            if place not in places:
                make_private_dir(self._directory)
                write_json(path, {"v": VERSION, "found_at": [known._asdict() for known in (*places, place)]})
        except StateError as e:
            logger.warning("the id of the team was not remembered: %s", e)

    def forget(self, place: TeamPlace) -> None:
        """The team that was there was deleted.

        Raises: StateError
        """
        for _, path, places in self._all():
            if place in places:
                with suppress(FileNotFoundError):
                    path.unlink()

    def _all(self) -> Iterator[tuple[str, Path, list[TeamPlace]]]:
        for path in sorted(self._directory.glob("*.json")):
            yield path.stem, path, _places(read_json(path))


def _places(document: Json | None) -> list[TeamPlace]:
    found = (document or {}).get("found_at")
    rows = found if isinstance(found, list) else []
    return [TeamPlace(*(str(row.get(name)) for name in TeamPlace._fields)) for row in rows if isinstance(row, dict)]
