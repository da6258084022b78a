"""What lines of an inbox are signed with: the user's key, bound to a token that the directory itself carries.

The token is part of the directory, not its path: a project that is renamed or moved keeps its mail. It is not secret.
Without the user's key, which never leaves the home directory, nobody can sign anything with it.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import secrets
import tempfile
from pathlib import Path

from teamcli.errors import StateError
from teamcli.storage.files import (
    PRIVATE_DIR,
    PRIVATE_FILE,
    cannot,
    make_private_dir,
    open_private,
    sync_directory,
    write_whole,
)

KEY_BYTES = 32
_TOKEN = re.compile(rb"[0-9a-f]{32}")
logger = logging.getLogger(__name__)


def key_of(token: bytes, key: bytes) -> bytes:
    """The key for the inboxes of the directory with this token: in another one these lines are foreign."""
    return hashlib.blake2b(token, key=key, digest_size=KEY_BYTES).digest()


def read_token(directory: Path) -> bytes | None:
    """The token of a directory of inboxes, or None if nothing was ever signed there.

    Raises: StateError
    """
    path = _token_path(directory)
    if not os.path.lexists(path):
        return None
    fd = open_private(path, os.O_RDONLY)
    try:
        token = os.pread(fd, 100, 0).strip()
    finally:
        os.close(fd)
    return token if _TOKEN.fullmatch(token) else None


def have_token(directory: Path, wanted: bytes | None = None) -> bytes:
    """The token of a directory; made (from `wanted`, if given) where there is none. All who ask at once get the same.

    Raises: StateError
    """
    if token := read_token(directory):
        return token
    path = _token_path(directory)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIR)
        _put_token(path, directory, wanted or secrets.token_hex(16).encode())
    except OSError as e:
        raise StateError(cannot("make", path, e)) from e
    token = read_token(directory)
    if token is None:
        raise StateError(f"{path} is not a token; delete it")
    return token


def _token_path(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}-token")


def _put_token(path: Path, directory: Path, token: bytes) -> None:
    fd, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        try:
            write_whole(fd, token + b"\n", durable=True)
        finally:
            os.close(fd)
        try:
            path.hardlink_to(temporary)  # never replaces: the first one wins
        except OSError:  # somebody was first, the token is damaged, or this file system has no links
            if read_token(directory) is None:
                temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def load_key(home: Path) -> bytes:
    """The user's signing key, `key` in the directory `home`; made at first use. If it cannot be kept it is for this run
    only, and mail that is unread at the end counts as foreign the next time."""
    path = home / "key"
    try:
        make_private_dir(home)
        return _read_key(path) or _make_key(path)
    except StateError as e:
        logger.warning("messages are signed with a key for this run only: %s", e)
        return secrets.token_bytes(KEY_BYTES)


def _read_key(path: Path) -> bytes | None:
    if not path.exists():
        return None
    fd = open_private(path, os.O_RDONLY)
    try:
        _make_own(fd, path)
        key = os.pread(fd, KEY_BYTES, 0)
    finally:
        os.close(fd)
    return key if len(key) == KEY_BYTES else None


def _make_own(fd: int, path: Path) -> None:
    """Raises: StateError, if somebody else has put it there and may know it."""
    found = os.fstat(fd)
    if found.st_uid != os.geteuid():
        raise StateError(f"{path} belongs to another user; remove it")
    if found.st_mode & 0o077:
        os.fchmod(fd, PRIVATE_FILE)


def _make_key(path: Path) -> bytes:
    """Under a lock: of several programs that start at once, one makes the key and all get the same."""
    try:
        fd = open_private(path, os.O_RDWR | os.O_CREAT)
        try:
            _make_own(fd, path)
            fcntl.flock(fd, fcntl.LOCK_EX)
            key = os.pread(fd, KEY_BYTES, 0)
            if len(key) < KEY_BYTES:
                key = secrets.token_bytes(KEY_BYTES)
                os.pwrite(fd, key, 0)
                os.fsync(fd)
            return key
        finally:
            os.close(fd)
    except OSError as e:
        raise StateError(cannot("make", path, e)) from e
