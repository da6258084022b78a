"""`.team/`: the paths of everything that belongs to a directory's team, and the lock that allows only one lead."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from teamcli.errors import StateError
from teamcli.storage.files import PRIVATE_DIR, cannot, open_private, write_atomic
from teamcli.workspace.bounds import OWNER_TOKEN, TEAM_DIR

GITIGNORE = """\
# State stays on this machine. What a team shares goes into git.
*
!.gitignore
!README.md
!settings.json
!team.toml
!agents/
!agents/**
!commands/
!commands/**
!skills/
!skills/**
!memory/
!memory/**
"""
LOCK_TRIES, LOCK_SECONDS = 10, 0.02
_TOKEN_LENGTH = 100
_SHARED = (
    "worktrees",
    "merge_lock",
    "merge_journals",
    "team_toml",
    "settings",
    "local_settings",
    "logs",
    "hooks",
    "owner_token",
)
"""What all hosts that work in one directory share."""
_TEAM = ("config.json", "inbox", "transcripts", "tasks")
_STATE = (*_TEAM, "events.jsonl", "worktrees")


class TeamDir:
    """The paths under one `.team/`."""

    def __init__(self, root: Path, is_private: bool = False) -> None:
        self.root = root
        self.is_private = is_private
        """A temporary directory that no other program sees, deleted at the end."""
        self.config = root / "config.json"
        self.inbox = root / "inbox"
        self.transcripts = root / "transcripts"
        self.lead_transcript = self.transcripts / "lead.jsonl"
        self.subagent_transcripts = self.transcripts / "subagents"
        self.events = root / "events.jsonl"
        self.subagents = root / "subagents.json"
        self.tasks = root / "tasks"
        self.worktrees = root / "worktrees"
        self.merge_lock = root / "merge.lock"
        self.merge_journals = (root / "merge.json", root / "merge-work.json")
        """Of a merge that runs or was cut off: in the main checkout, and in that of the member."""
        self.team_toml = root / "team.toml"
        self.settings = root / "settings.json"
        self.local_settings = root / "settings.local.json"
        self.logs = root / "logs"
        self.hooks = root / "hooks"
        """Files for hooks: transcripts in Claude Code's format, and what was too long for a conversation."""
        self.lock = root / "lead.lock"
        self.watch_socket = root / "watch.sock"
        self.owner_token = root / OWNER_TOKEN

    @classmethod
    def of(cls, directory: Path) -> TeamDir:
        return cls(directory / TEAM_DIR)

    @classmethod
    def here(cls) -> TeamDir:
        """Of the current directory. Inside a member's checkout, that of the team it belongs to."""
        current = Path.cwd()
        for checkout in (current, *current.parents):
            is_checkout = checkout.parent.name == "worktrees" and checkout.parent.parent.name == TEAM_DIR
            if is_checkout and (checkout == current or not (current / TEAM_DIR).exists()):
                return cls(checkout.parent.parent)
        return cls.of(current)

    @classmethod
    def mirror(cls, directory: Path, host: str) -> TeamDir:
        """The state of a team in a database, as one host has it. What is not state is that of the directory."""
        own, mirror = cls.of(directory), cls(directory / TEAM_DIR / "hosts" / host)
        for name in _SHARED:
            setattr(mirror, name, getattr(own, name))
        return mirror

    @classmethod
    def temporary(cls) -> TeamDir:
        import tempfile  # late: few runs have such a directory

        return cls(Path(tempfile.mkdtemp(prefix="teamcli-")), is_private=True)

    @property
    def has_state(self) -> bool:
        return any((self.root / name).exists() for name in _STATE)

    @property
    def holds_team(self) -> bool:
        """Whether there is anything here that a team in a database would not see. It shares the checkouts."""
        return any((self.root / name).exists() for name in _TEAM)

    def prepare(self) -> None:
        """Create the directory, readable only by its owner.

        Raises: StateError
        """
        try:
            inboxes = (self.inbox, self.inbox / "archive")
            for directory in (self.root, self.transcripts, self.logs, self.hooks, self.tasks, *inboxes):
                if directory.is_symlink():  # a cloned repository could point it anywhere
                    raise StateError(f"{directory} is a symbolic link; remove it, or use --no-team")
            self.root.mkdir(mode=PRIVATE_DIR, exist_ok=True)
            if self.root.stat().st_mode & 0o077:
                self.root.chmod(PRIVATE_DIR)
            ignored = self.root / ".gitignore"
            if not os.path.lexists(ignored):
                write_atomic(ignored, GITIGNORE.encode(), mode=0o644)
        except OSError as e:
            raise StateError(f"{cannot('prepare', self.root, e)}; --no-team works without it") from e

    def discard(self) -> None:
        """Delete a temporary directory."""
        if self.is_private:
            import shutil  # late, for the same reason

            shutil.rmtree(self.root, ignore_errors=True)

    def write_owner_token(self, token: str) -> None:
        """Mark the directory as known to this user. The user's home holds the counterpart.

        Raises: StateError
        """
        write_atomic(self.owner_token, token.encode())

    def read_owner_token(self) -> str:
        try:
            fd = open_private(self.owner_token, os.O_RDONLY)
        except StateError:
            return ""
        with os.fdopen(fd, encoding="utf-8", errors="replace") as file:
            return file.read(_TOKEN_LENGTH)


class LeadLock:
    """Held by the one lead of a directory. The kernel releases it when the process dies, however it dies."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, path: Path) -> LeadLock | None:
        """The lock, or None while another process holds it.

        Raises: StateError
        """
        fd = open_private(path, os.O_RDWR | os.O_CREAT)
        try:
            if not _try_lock(fd, path):
                os.close(fd)
                return None
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as e:  # some network file systems have no locks
            os.close(fd)
            raise StateError(f"{cannot('lock', path, e)}; --no-team works without it") from e
        return cls(fd)

    def is_lost(self, path: Path) -> bool:
        """Whether the locked file is gone from the path, most likely with all of `.team/`. Another lead could start."""
        if self._fd < 0:
            return False
        try:
            return not os.path.samestat(path.lstat(), os.fstat(self._fd))
        except FileNotFoundError:
            return True

    def take_again(self, path: Path) -> bool:
        """Lock the file that is at the path now. False if another process holds that lock.

        Raises: StateError
        """
        new = LeadLock.take(path)
        if new is not None:
            os.close(self._fd)
            self._fd, new._fd = new._fd, -1
        return new is not None

    def release(self) -> None:
        """A second call does nothing."""
        if self._fd >= 0:
            with suppress(OSError):  # a stale process id in the file is harmless: closing it releases the lock
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1


def _try_lock(fd: int, path: Path) -> bool:
    for tries_left in reversed(range(LOCK_TRIES)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if lock_holder(path) is not None or not tries_left:
                return False
            time.sleep(LOCK_SECONDS)  # another process is in `lock_holder`, which takes the lock for a moment
    return True


def lock_holder(path: Path) -> int | None:
    """The process id of the lead that runs here, or None if there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(fd, 32, 0).strip()
        return int(text) if text.isdigit() else None
    except OSError:  # a file system without locks, where no lead starts
        return None
    finally:
        os.close(fd)
    return None
