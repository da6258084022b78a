"""The key that signs lines of an inbox: the user's key, combined with a token that is stored in the directory.

The token belongs to the directory and not to its path, so a project that is renamed or moved keeps its mail. It is not
secret: signing needs the user's key, which never leaves the home directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import secrets
from pathlib import Path

from teamcli.errors import StateError
from teamcli.storage.files import (
    PRIVATE_DIR,
    PRIVATE_FILE,
    as_state_error,
    make_private_dir,
    make_temporary,
    open_private,
    sync_directory,
    write_whole,
)

KEY_BYTES = 32
_TOKEN = re.compile(rb"[0-9a-f]{32}")
logger = logging.getLogger(__name__)


def key_of(token: bytes, key: bytes) -> bytes:
    """The key for the inboxes of the directory with this token. In another directory the same lines are foreign."""
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


def ensure_token(directory: Path, wanted: bytes | None = None) -> bytes:
    """The token of a directory, created if needed (as `wanted`, if given). Concurrent callers get the same one.

    Raises: StateError
    """
    if token := read_token(directory):
        return token
    path = _token_path(directory)
    with as_state_error("create", path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIR)
        _put_token(path, directory, wanted or secrets.token_hex(16).encode())
    token = read_token(directory)
    if token is None:
        raise StateError(f"{path} is not a valid token; delete it")
    return token


def _token_path(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}-token")


def _put_token(path: Path, directory: Path, token: bytes) -> None:
    fd, temporary = make_temporary(path)
    try:
        try:
            write_whole(fd, token + b"\n", durable=True)
        finally:
            os.close(fd)
        try:
            path.hardlink_to(temporary)  # never replaces a file: the first writer wins
        except OSError:  # another process was first, the token is damaged, or the file system has no hard links
            if read_token(directory) is None:
                temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def load_key(home: Path) -> bytes:
    """The user's signing key, `key` in the directory `home`, created at first use. If it cannot be stored, it is for
    this run only, and mail that is unread at the end counts as foreign the next time."""
    path = home / "key"
    try:
        make_private_dir(home)
        return read_key(path) or _make_key(path)
    except StateError as e:
        logger.warning("messages are signed with a key for this run only: %s", e)
        return secrets.token_bytes(KEY_BYTES)


def read_key(path: Path) -> bytes | None:
    """A key in a file that only the user can read; None without one, or if the file holds something else.

    Raises: StateError
    """
    if not path.exists():
        return None
    fd = open_private(path, os.O_RDONLY)
    try:
        _make_own(fd, path)
        key = os.pread(fd, KEY_BYTES + 1, 0)
    finally:
        os.close(fd)
    return key if len(key) == KEY_BYTES else None


def _make_own(fd: int, path: Path) -> None:
    """Raises: StateError, if the file belongs to another user, who may know the key."""
    found = os.fstat(fd)
    if found.st_uid != os.geteuid():
        raise StateError(f"{path} belongs to another user; remove it")
    if found.st_mode & 0o077:
        os.fchmod(fd, PRIVATE_FILE)


def _make_key(path: Path) -> bytes:
    """Under a lock: if several programs start at once, one creates the key and all get the same."""
    fd = open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        with as_state_error("create", path):
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
