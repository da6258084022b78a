"""`.team/`: where everything of a directory's team lies, who may use it, and the lock that keeps two leads apart."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from teamcli.errors import StateError
from teamcli.files import PRIVATE_DIR, PRIVATE_FILE, cannot, write_atomic
from teamcli.workspace import TEAM_DIR

GITIGNORE = """\
# Run-time state stays on this machine; what a team shares is let in.
*
!.gitignore
!settings.json
!agents/
!agents/**
!commands/
!commands/**
!skills/
!skills/**
!memory/
!memory/**
"""
_STATE = ("config.json", "inbox", "transcripts", "events.jsonl")


class TeamDir:
    """The paths under one `.team/`."""

    def __init__(self, root: Path, is_private: bool = False) -> None:
        self.root = root
        self.is_private = is_private
        """A temporary one that nobody else sees and that goes with the program."""
        self.transcripts = root / "transcripts"
        self.lead_transcript = self.transcripts / "lead.jsonl"
        self.events = root / "events.jsonl"
        self.settings = root / "settings.json"
        self.local_settings = root / "settings.local.json"
        self.logs = root / "logs"
        self.lock = root / "lead.lock"
        self.owner_token = root / ".owner"

    @classmethod
    def of(cls, directory: Path) -> TeamDir:
        return cls(directory / TEAM_DIR)

    @classmethod
    def temporary(cls) -> TeamDir:
        return cls(Path(tempfile.mkdtemp(prefix="teamcli-")), is_private=True)

    @property
    def has_state(self) -> bool:
        return any((self.root / name).exists() for name in _STATE)

    def prepare(self) -> None:
        """Make the directory, readable by its owner only.

        Raises: StateError
        """
        try:
            self.root.mkdir(mode=PRIVATE_DIR, exist_ok=True)
            if self.root.stat().st_mode & 0o077:
                self.root.chmod(PRIVATE_DIR)
            ignore = self.root / ".gitignore"
            if not ignore.exists():
                ignore.write_text(GITIGNORE, encoding="utf-8")
        except OSError as e:
            raise StateError(f"{cannot('prepare', self.root, e)}; --no-team works without it") from e

    def discard(self) -> None:
        """Remove a temporary one."""
        if self.is_private:
            shutil.rmtree(self.root, ignore_errors=True)

    def write_owner_token(self, token: str) -> None:
        """Mark the directory as known to this user; the counterpart is kept in the user's home.

        Raises: StateError
        """
        write_atomic(self.owner_token, token.encode())

    def read_owner_token(self) -> str:
        try:
            return self.owner_token.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


class LeadLock:
    """Held by the one lead of a directory. The kernel lets go of it when the process dies, however it dies."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, path: Path) -> LeadLock | None:
        """The lock, or None while another process holds it.

        Raises: StateError
        """
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        except OSError as e:
            raise StateError(f"{cannot('open', path, e)}; --no-team works without it") from e
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return cls(fd)

    def release(self) -> None:
        os.close(self._fd)


def lock_holder(path: Path) -> int | None:
    """The process id of the lead that runs here, or None where nobody holds the lock."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(fd, 32, 0).strip()
        return int(text) if text.isdigit() else 0
    finally:
        os.close(fd)
    return None
