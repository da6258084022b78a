"""What the user trusts in a directory, stored in the user's home: no file of a project can vouch for itself.

An entry is valid only while the token in the directory's `.team/` matches it, so a cloned, copied or moved directory
starts untrusted. Settings that loosen and files that instruct are trusted by their content: the store holds a digest of
each file or setting that the user has agreed to. An endpoint in `.env` is trusted by its address.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice, takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from teamcli.config.front_matter import NOT_AGREED, NotAgreed
from teamcli.config.project_files import LARGEST_KEPT, content_digest, kept_part
from teamcli.config.project_settings import RESTRICTING, Rules, setting_digest
from teamcli.errors import ConfigError, StateError
from teamcli.storage.files import cannot, make_private_dir, open_private, read_json, read_regular, write_json
from teamcli.storage.team_dir import TeamDir

AGREED = "agreed.json"
VERSIONS_KEPT = 8
"""Of each file, so that switching between branches does not ask again each time."""


def home_dir() -> Path:
    """Raises: ConfigError."""
    try:
        return Path.home() / ".teamcli"
    except RuntimeError as e:
        raise ConfigError("there is no home directory: set HOME") from e


Digests = Mapping[str, tuple[str, ...]]
"""By the file's name in the project."""


class Trusted(NamedTuple):
    """What may be used in a directory. By default, nothing."""

    config: bool = False
    """Whether the user has agreed to the directory, or there was nothing to agree to at the first start."""
    state: bool = False
    """Conversations and mail under `.team/`."""
    endpoint: str = ""
    """The endpoint in `.env`."""
    hooks: str = ""
    """The digest of the hooks in the directory's settings."""
    token: str = ""
    refused: tuple[str, ...] = ()
    """The ids of what the user has refused."""
    agreed: Digests = MappingProxyType({})
    """The content that the user has agreed to."""
    restrictions: Mapping[str, Rules] = MappingProxyType({})
    """The `ask` and `deny` rules that applied, by file. They stay until the user agrees to remove them."""

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

    def split(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The part for the file about all directories, and the part for the file about this one."""
        known = self._asdict()
        del known["agreed"], known["restrictions"]
        restrictions = {name: dict(rules) for name, rules in self.restrictions.items()}
        return known, {"token": self.token, "agreed": dict(self.agreed), "restrictions": restrictions}

    def agreeing_to_file(self, name: str, digest: str) -> Trusted:
        """The same, with one more version of a file agreed to."""
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
    """`~/.teamcli/trust.json` lists the known directories. `~/.teamcli/agreed/` has a folder for each, with what was
    agreed to there, so that a large one does not slow down the others."""

    def __init__(self, home: Path) -> None:
        self._path = home / "trust.json"
        self._agreed = home / "agreed"

    def of(self, directory: Path, team: TeamDir) -> Trusted:
        """Raises: StateError."""
        raw = self._directories().get(str(directory))
        if not isinstance(raw, dict) or not raw.get("token") or raw["token"] != team.read_owner_token():
            return Trusted()
        path = self._folder(directory) / AGREED
        _refuse_open_to_others(path)
        agreed = read_json(path) or {}
        # With another token it is about an earlier directory at this path.
        return Trusted.from_dict({**raw, **agreed} if agreed.get("token") == raw["token"] else raw)

    def content_of(self, directory: Path, name: str, digest: str) -> bytes | None:
        """The content of a file that was agreed to, for comparison; None if it was not kept."""
        try:
            content = read_regular(self._folder(directory) / digest, LARGEST_KEPT)
        except (OSError, ValueError):
            return None
        # It is not written in one step, so a crash may have cut it.
        return content if content_digest(name, content) == digest else None

    def change(
        self, directory: Path, team: TeamDir, change: Change, contents: Mapping[str, bytes] = MappingProxyType({})
    ) -> Trusted:
        """Change the entry of a directory, and mark the directory with its token. `contents` are the contents of agreed
        files by digest.

        Raises: StateError
        """
        with self._locked():
            before = self.of(directory, team)  # under the lock: another process may have changed it
            trusted = change(before)
            if not trusted.token:  # the token ties the entry to this copy of the directory
                trusted = trusted._replace(token=secrets.token_hex(16))
                team.write_owner_token(trusted.token)
            if trusted != before:
                self._write(directory, before, trusted)
                self._keep(self._folder(directory), trusted, contents)
        return trusted

    def _write(self, directory: Path, before: Trusted, trusted: Trusted) -> None:
        """A crash between the two writes leaves less agreed to, never more."""
        known, agreed = trusted.split()
        if known != before.split()[0]:
            write_json(self._path, {"v": 1, "directories": {**self._directories(), str(directory): known}})
        if agreed != before.split()[1] and (trusted.agreed or trusted.restrictions):
            folder = self._folder(directory)
            make_private_dir(self._agreed)
            make_private_dir(folder)
            write_json(folder / AGREED, {"v": 1, "directory": str(directory), **agreed})

    def _keep(self, folder: Path, trusted: Trusted, contents: Mapping[str, bytes]) -> None:
        """Keep the latest content of each file, if possible. It only serves to show what changed."""
        wanted = {digests[-1] for digests in trusted.agreed.values() if digests}
        with suppress(OSError, StateError):
            for path in folder.iterdir():
                if path.name != AGREED and path.name not in wanted:
                    path.unlink()
            for digest in contents.keys() & wanted:
                with os.fdopen(open_private(folder / digest, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
                    file.write(contents[digest])

    def _folder(self, directory: Path) -> Path:
        return self._agreed / hashlib.sha256(os.fsencode(directory)).hexdigest()[:32]

    def _directories(self) -> dict[str, Any]:
        _refuse_open_to_others(self._path)
        return _object((read_json(self._path, may_be_link=True) or {}).get("directories"))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Excludes other processes and threads, since all directories share the file."""
        make_private_dir(self._path.parent)
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
    """Raises: StateError, if other users could have trusted a directory in this user's name."""
    try:
        mode = path.stat().st_mode
    except OSError:  # it does not exist, or reading it will report the problem
        return
    if mode & 0o022:
        raise StateError(f"{path} can be changed by other users: check its content, then run chmod 600 on it")


class Agreement:
    """Which of a project's files the user has agreed to, during one session. Safe for threads."""

    def __init__(
        self,
        directory: Path,
        trusted: Trusted,
        found: Mapping[str, str],
        store: TrustStore,
        contents: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """`found` holds the digests of the files at the start, `contents` what was in them, except in large ones."""
        self._lock = threading.Lock()
        self._directory = directory
        self._trusted = trusted
        self._found = found
        self._names = sorted(found)
        self._contents = contents
        self._store = store

    def covers(self, path: Path, content: bytes) -> bool:
        """Whether the user has agreed to this content of the file."""
        name = self._name(path)
        return content_digest(name, content) in self._trusted.agreed.get(name, ())

    def content_at_start(self, path: Path | str) -> bytes | None:
        """What was in a file when it was found, so that it is not read again; None if the user has not agreed to that,
        or it was too large to be kept."""
        name = self._name(path)
        is_agreed = self._found.get(name) in self._trusted.agreed.get(name, ())
        return self._contents.get(name) or None if is_agreed else None

    def check_folder(self, folder: Path) -> None:
        """Raises: NotAgreed, unless the user has agreed to every file in it as it was at the start; ValueError, if it
        is too large for that."""
        above = f"{self._name(folder)}/"
        inside = islice(self._names, bisect_left(self._names, above), None)
        digests = {name: self._found[name] for name in takewhile(lambda name: name.startswith(above), inside)}
        if not all(digests.values()):
            raise ValueError("it is too large to be checked")
        if not all(digest in self._trusted.agreed.get(name, ()) for name, digest in digests.items()):
            raise NotAgreed(NOT_AGREED)

    def file_written(self, path: Path, before: bytes | None, content: bytes) -> None:
        """A file tool has written a file with permission. If the user had not agreed to the content `before`, changing
        a part of it does not make the rest agreed.

        Raises: StateError
        """
        if before is None or self.covers(path, before):
            name = self._name(path)
            digest = content_digest(name, content)
            self._change(lambda trusted: trusted.agreeing_to_file(name, digest), {digest: kept_part(content)})

    def rule_allowed(self, path: Path, rule: str) -> None:
        """The user answered *always*, which added this rule to the file.

        Raises: StateError
        """
        self.setting_written(path, ("permissions", "allow"), rule)

    def setting_written(self, path: Path, setting: tuple[str, ...], value: Any) -> None:
        """The user has had this setting written to the file.

        Raises: StateError
        """
        name, digest = self._name(path), setting_digest(setting, value)
        self._change(lambda trusted: trusted.agreeing_to_setting(name, digest))

    def _change(self, change: Change, contents: Mapping[str, bytes] = MappingProxyType({})) -> None:
        with self._lock:
            self._trusted = change(self._trusted)
        team = TeamDir.of(self._directory)
        if self._store.of(self._directory, team).token:  # nothing is saved about an unknown directory
            self._store.change(self._directory, team, change, contents)

    def _name(self, path: Path | str) -> str:
        inside = str(path).removeprefix(f"{self._directory}/")
        return inside if inside != str(path) else os.path.relpath(path, self._directory)
