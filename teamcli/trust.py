"""Which directories the user trusts, kept in the user's home: no file of a project can vouch for itself.

An entry counts only while the token in the directory's `.team/` matches it, so a cloned or copied directory starts as a
stranger. What was not there when teamcli first ran in a directory was put there by its user and needs no question; but
an endpoint from `.env` is trusted by its address and hooks by their text, so that others are asked about again: a pull
can change both.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from teamcli.errors import ConfigError, StateError
from teamcli.files import have_private_directory, read_json, write_json
from teamcli.state import TeamDir


def home_dir() -> Path:
    """Raises: ConfigError."""
    try:
        return Path.home() / ".teamcli"
    except RuntimeError as e:
        raise ConfigError("there is no home directory: set HOME") from e


class Trusted(NamedTuple):
    """What of a directory may be used. A stranger's: nothing."""

    config: bool = False
    """Settings that loosen, roles, hooks, commands, skills and memory."""
    state: bool = False
    """Conversations and mail under `.team/`."""
    endpoint: str = ""
    """The endpoint in `.env`."""
    hooks: str = ""
    """The digest of the hooks in the directory's settings; others are asked about again."""
    token: str = ""
    refused: tuple[str, ...] = ()
    """What the user was asked about and said no to."""

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Trusted:
        refused = raw.get("refused")
        return cls(
            raw.get("config") is True,
            raw.get("state") is True,
            str(raw.get("endpoint", "")),
            str(raw.get("hooks", "")),
            str(raw.get("token", "")),
            tuple(map(str, refused)) if isinstance(refused, list) else (),
        )


class TrustStore:
    """`~/.teamcli/trust.json`."""

    def __init__(self, home: Path) -> None:
        self._path = home / "trust.json"

    def of(self, directory: Path, team: TeamDir) -> Trusted:
        """Raises: StateError."""
        raw = self._directories().get(str(directory))
        trusted = Trusted.from_dict(raw) if isinstance(raw, dict) else Trusted()
        return trusted if trusted.token and trusted.token == team.read_owner_token() else Trusted()

    def keep(self, directory: Path, team: TeamDir, trusted: Trusted) -> Trusted:
        """Remember it, and mark the directory as the one that is meant.

        Raises: StateError
        """
        trusted = trusted._replace(token=trusted.token or secrets.token_hex(16))
        team.write_owner_token(trusted.token)
        directories = {**self._directories(), str(directory): trusted._asdict()}
        have_private_directory(self._path.parent)
        write_json(self._path, {"v": 1, "directories": directories})
        return trusted

    def _directories(self) -> dict[str, Any]:
        _refuse_open_to_others(self._path)
        raw = (read_json(self._path, may_be_link=True) or {}).get("directories")
        return raw if isinstance(raw, dict) else {}


def _refuse_open_to_others(path: Path) -> None:
    """Raises: StateError, where other users could have trusted a directory in this one's name."""
    try:
        mode = path.stat().st_mode
    except OSError:  # not there; or the reading says it
        return
    if mode & 0o022:
        raise StateError(f"{path} can be changed by other users: look at it, then close it with chmod 600")


def claim(
    store: TrustStore, directory: Path, team: TeamDir, brings_config: bool, note: Callable[[str], None]
) -> Trusted:
    """What is trusted when an agent starts to work here; at the first start, all that is not there yet."""
    trusted = store.of(directory, team)
    if trusted.token:
        return trusted
    try:
        return store.keep(directory, team, Trusted(config=not brings_config, state=not team.has_state))
    except StateError as e:  # a home that cannot be written (a container, say) must not stop the work
        note(f"This directory cannot be remembered as yours: {e}.")
        return Trusted(state=not team.has_state)
