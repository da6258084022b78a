"""How far the user trusts a directory, kept in the user's home: no file of a project can vouch for itself.

An entry counts only while the token in the directory's `.team/` matches it, so a cloned, copied or moved directory
starts as a stranger. What loosens or instructs is trusted by its content: a digest of each file, or of each setting,
that the user has agreed to. An endpoint in `.env` is trusted by its address.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from teamcli.errors import ConfigError, StateError
from teamcli.files import cannot, have_private_directory, open_private, read_json, write_json
from teamcli.front_matter import NOT_AGREED, NotAgreed
from teamcli.project_files import content_digest
from teamcli.project_settings import RESTRICTING, Rules, setting_digest
from teamcli.state import TeamDir

VERSIONS_KEPT = 8
"""Of a file: who goes back and forth between branches is not asked again each time."""


def home_dir() -> Path:
    """Raises: ConfigError."""
    try:
        return Path.home() / ".teamcli"
    except RuntimeError as e:
        raise ConfigError("there is no home directory: set HOME") from e


Digests = Mapping[str, tuple[str, ...]]
"""By the file's name in the project."""


class Trusted(NamedTuple):
    """What of a directory may be used. A stranger's: nothing."""

    config: bool = False
    """Whether the user has said yes to the directory, or it was empty at the first start."""
    state: bool = False
    """Conversations and mail under `.team/`."""
    endpoint: str = ""
    """The endpoint in `.env`."""
    hooks: str = ""
    """The digest of the hooks in the directory's settings."""
    token: str = ""
    refused: tuple[str, ...] = ()
    """What the user was asked about and said no to."""
    agreed: Digests = MappingProxyType({})
    """The contents that the user has agreed to."""
    restrictions: Mapping[str, Rules] = MappingProxyType({})
    """The `ask` and `deny` rules that applied, by file: they stay until the user agrees to lose them."""

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Trusted:
        return cls(
            raw.get("config") is True,
            raw.get("state") is True,
            str(raw.get("endpoint", "")),
            str(raw.get("hooks", "")),
            str(raw.get("token", "")),
            _texts(raw.get("refused")),
            {name: _texts(digests) for name, digests in _object(raw.get("agreed")).items()},
            {
                name: {kind: _texts(_object(rules).get(kind)) for kind in RESTRICTING}
                for name, rules in _object(raw.get("restrictions")).items()
            },
        )

    def to_dict(self) -> dict[str, Any]:
        restrictions = {name: dict(rules) for name, rules in self.restrictions.items()}
        return {**self._asdict(), "agreed": dict(self.agreed), "restrictions": restrictions}

    def agreeing_to_file(self, name: str, digest: str) -> Trusted:
        """The same, with one more content of a file agreed to."""
        known = [each for each in self.agreed.get(name, ()) if each != digest]
        return self._replace(agreed={**self.agreed, name: (*known[1 - VERSIONS_KEPT :], digest)})

    def agreeing_to_setting(self, name: str, digest: str) -> Trusted:
        """The same, with one more setting of a file agreed to."""
        known = self.agreed.get(name, ())
        return self if digest in known else self._replace(agreed={**self.agreed, name: (*known, digest)})


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


Change = Callable[[Trusted], Trusted]


class TrustStore:
    """`~/.teamcli/trust.json`."""

    def __init__(self, home: Path) -> None:
        self._path = home / "trust.json"

    def of(self, directory: Path, team: TeamDir) -> Trusted:
        """Raises: StateError."""
        raw = self._directories().get(str(directory))
        trusted = Trusted.from_dict(raw) if isinstance(raw, dict) else Trusted()
        return trusted if trusted.token and trusted.token == team.read_owner_token() else Trusted()

    def change(self, directory: Path, team: TeamDir, change: Change) -> Trusted:
        """Change what is remembered of a directory, and mark it as the one that is meant.

        Raises: StateError
        """
        with self._locked():
            before = self.of(directory, team)
            trusted = change(before)
            if not trusted.token:
                trusted = trusted._replace(token=secrets.token_hex(16))
                team.write_owner_token(trusted.token)
            if trusted != before:
                directories = {**self._directories(), str(directory): trusted.to_dict()}
                write_json(self._path, {"v": 1, "directories": directories})
        return trusted

    def change_known(self, directory: Path, team: TeamDir, change: Change) -> None:
        """The same, if the directory is known.

        Raises: StateError
        """
        if self.of(directory, team).token:
            self.change(directory, team, change)

    def _directories(self) -> dict[str, Any]:
        _refuse_open_to_others(self._path)
        return _object((read_json(self._path, may_be_link=True) or {}).get("directories"))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keeps other processes and threads out: all directories share the file."""
        have_private_directory(self._path.parent)
        lock = self._path.with_suffix(".lock")
        fd = open_private(lock, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        except OSError as e:
            raise StateError(cannot("lock", lock, e)) from e
        finally:
            os.close(fd)


def _refuse_open_to_others(path: Path) -> None:
    """Raises: StateError, where other users could have trusted a directory in this one's name."""
    try:
        mode = path.stat().st_mode
    except OSError:  # not there; or the reading says it
        return
    if mode & 0o022:
        raise StateError(f"{path} can be changed by other users: look at it, then close it with chmod 600")


class Agreement:
    """What of a project's files the user has agreed to, during one session; safe for threads."""

    def __init__(self, directory: Path, trusted: Trusted, found: Mapping[str, str], store: TrustStore) -> None:
        """`found` are the digests of the files at the start."""
        self._lock = threading.Lock()
        self._directory = directory
        self._trusted = trusted
        self._found = found
        self._store = store

    def covers(self, path: Path, content: bytes) -> bool:
        """Whether the user has agreed to this content of a file of the project."""
        name = self._name(path)
        return content_digest(name, content) in self._trusted.agreed.get(name, ())

    def check_folder(self, folder: Path) -> None:
        """Raises: NotAgreed, unless the user has agreed to every file in it as it was at the start; ValueError, if that
        cannot be."""
        above = f"{self._name(folder)}/"
        inside = [(name, digest) for name, digest in self._found.items() if name.startswith(above)]
        if not all(digest for _, digest in inside):
            raise ValueError("it is too large to be checked")
        if not all(digest in self._trusted.agreed.get(name, ()) for name, digest in inside):
            raise NotAgreed(NOT_AGREED)

    def file_written(self, path: Path, before: bytes | None, content: bytes) -> None:
        """A file tool has written what it was allowed to write. A change of what the user has not agreed to (`before`)
        does not make the rest of it agreed.

        Raises: StateError
        """
        if before is None or self.covers(path, before):
            name = self._name(path)
            self._change(lambda trusted: trusted.agreeing_to_file(name, content_digest(name, content)))

    def rule_allowed(self, path: Path, rule: str) -> None:
        """The user has answered *always*, which has written this rule there.

        Raises: StateError
        """
        name, digest = self._name(path), setting_digest(("permissions", "allow"), rule)
        self._change(lambda trusted: trusted.agreeing_to_setting(name, digest))

    def _change(self, change: Change) -> None:
        with self._lock:
            self._trusted = change(self._trusted)
        self._store.change_known(self._directory, TeamDir.of(self._directory), change)

    def _name(self, path: Path) -> str:
        return path.relative_to(self._directory).as_posix()
