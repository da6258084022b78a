"""The sandbox of a program: whether there is one, the directories it needs, and what a model should know about it."""

from __future__ import annotations

import contextlib
import copy
import fcntl
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from teamcli.errors import ToolError
from teamcli.exec.programs import Programs
from teamcli.exec.sandbox import NoSandbox
from teamcli.exec.sandbox.git import Repositories, put_back, set_aside
from teamcli.exec.sandbox.paths import exists, is_directory, is_in_any, is_link, link_target, real_path
from teamcli.exec.sandbox.plan import PrivateDirs, SandboxPlan, SandboxSettings, make_plan, make_trial
from teamcli.exec.sandbox.protected_paths import CACHES, CLAUDE_DIR, CLOSED_IN_HOME, SKILLS
from teamcli.storage.files import PRIVATE_DIR
from teamcli.workspace.bounds import TEAM_DIR, USER_DIR

BWRAP = "bwrap"
_PREFIX, _UNLOCKED, _LOCK = "teamcli-sandbox-", "teamcli-sandbox.", "lock"
_NO_NETWORK = r"Network is unreachable|resolve host|name resolution|ENETUNREACH|EAI_AGAIN|Name or service not known"
_REFUSED_BY_PROXY = rf"{_NO_NETWORK}|tunnel|proxy|403"


class Sandbox:
    """The sandbox of one program. `close` removes what was made for it."""

    def __init__(self, settings: SandboxSettings, programs: Programs | None = None) -> None:
        """Raises: NoSandbox, and OSError or ToolError if there should be one and it cannot be made"""
        writable = settings.all_writable()
        if sys.platform != "linux":
            raise NoSandbox(f"there is none for {sys.platform}")
        program = (programs or Programs(None, [*writable, settings.home / USER_DIR])).find(BWRAP)
        if program is None and (planted := shutil.which(BWRAP)):
            raise ToolError(f"{planted} is in a place where agents can write; install bubblewrap for the whole system")
        if program is None:
            raise NoSandbox("bwrap is not installed (the package is called bubblewrap)")
        self.program = program
        self.settings = settings
        # Repositories that appear later are made by commands, which control them from the start. Guarding those would
        # only keep an agent from configuring its own.
        self._repositories = Repositories(
            settings.roots, writable, filter(is_directory, settings.paths(settings.writable))
        )
        states = [root / name for root in settings.obeyed for name in (TEAM_DIR, CLAUDE_DIR)]
        links = {path: target for path in states if (target := link_target(path)) is not None}
        self._links = {**self._repositories.links, **links}
        self._note = ""
        self._named: tuple[Path, ...] = ()
        _remove_leftovers()
        self._lock, self._private = _lock_private(settings)

    def separate(self, named: Iterable[Path]) -> Sandbox:
        """Another one with the same rules and its own temp directories. Commands in it can also read what is `named`.

        Raises: OSError
        """
        # What was there when the program started still decides: commands may have changed it since.
        other = copy.copy(self)
        other._named = tuple(named)
        other._lock, other._private = _lock_private(self.settings)
        return other

    def plan(self, environment: Mapping[str, str]) -> SandboxPlan:
        """Raises: OSError, ToolError"""
        make_mount_points(self.settings, self._private, environment, self._repositories.directories)
        guards = self._repositories.guards()
        self._note = guards.note
        return make_plan(self.settings, self._private, environment, guards, self._named)

    def trial(self, environment: Mapping[str, str]) -> SandboxPlan:
        """The simplest sandbox, to see whether any can be made here."""
        return make_trial(environment)

    def clear(self) -> None:
        """Undo what mounts could not keep a command from doing and the user's git would obey."""
        if not self.settings.is_trial:
            opened = self.settings.paths(self.settings.writable)
            with contextlib.suppress(OSError):  # out of descriptors: the next command, or `close`, tries again
                put_back(item for item in self._links.items() if item[0] not in opened)
                set_aside(path for path in self._repositories.intruders() if path not in opened)

    def explain(self, output: str) -> str:
        closed = [self.settings.home / name for name in CLOSED_IN_HOME]
        hidden = [path for path in self._named if is_in_any(real_path(path), closed) and str(path) in output]
        if hidden:
            return f"{hidden[0]} is in a directory that the sandbox closes; move it, or run it outside the sandbox"
        return explain(output, self.settings, self._note)

    def close(self) -> None:
        _remove(self._private.temp)
        os.close(self._lock)


def _remove_leftovers() -> None:
    """Remove directories of programs that were killed: their locks are free."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # another user's, or not locked yet
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)


def _remove(temp: Path) -> None:
    """Remove the lock last: if we are killed in between, the next program finds the rest by it."""
    for name in ("tmp", "var-tmp", "caches", "empty"):
        shutil.rmtree(temp / name, ignore_errors=True)
    shutil.rmtree(temp, ignore_errors=True)


def explain(output: str, settings: SandboxSettings, note: str = "") -> str:
    """What to tell a model whose command has run into the sandbox without knowing."""
    if re.search(r"Read-only file system|EROFS|\.git\b.*Device or resource busy", output, re.IGNORECASE):
        return (
            "the sandbox lets commands write in the workspace, /tmp and caches, but not to hooks or config of git, "
            ".claude or .team; the user can open more with `sandbox_writable`, or run it as !command"
            + (f"; {note}" if note else "")
        )
    if isinstance(settings.network, tuple) and re.search(_REFUSED_BY_PROXY, output, re.IGNORECASE):
        listed = ", ".join(settings.network) or "none"
        return f"the user lets commands reach only these hosts, by the setting `sandbox_network`: {listed}"
    if not settings.has_network and re.search(_NO_NETWORK, output, re.IGNORECASE):
        return "the user has closed the network to commands with `sandbox_network`"
    return ""


def _lock_private(settings: SandboxSettings) -> tuple[int, PrivateDirs]:
    """Raises: OSError"""
    with contextlib.ExitStack() as undo:
        # Until it is locked, its name keeps other programs from removing it as a leftover.
        made = Path(tempfile.mkdtemp(prefix=_UNLOCKED))
        temp = made.with_name(_PREFIX + made.name.removeprefix(_UNLOCKED))
        undo.callback(_remove, temp)
        undo.callback(_remove, made)
        lock = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        undo.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        private = _make_private(made.rename(temp), settings)
        undo.pop_all()
    return lock, private


def _make_private(temp: Path, settings: SandboxSettings) -> PrivateDirs:
    """Raises: OSError"""
    for name in ("tmp", "var-tmp", "empty", "only-skills", f"only-skills/{SKILLS}"):
        (temp / name).mkdir(PRIVATE_DIR)
    (temp / "nothing").touch(0o400)
    # Each project has its own: what one has put into a cache must not be run in another.
    root = (settings.main or settings.roots)[0]
    name = f"{root.name or 'root'}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:12]}"
    caches = temp / "caches" if settings.is_trial else settings.home / USER_DIR / "sandbox" / name
    try:
        for directory in (caches.parents[1], caches.parents[0], caches):
            directory.mkdir(PRIVATE_DIR, exist_ok=True)
    except OSError:  # the home directory is read-only: keep them for as long as the program runs
        caches = temp / "caches"
        caches.mkdir(PRIVATE_DIR)
    return PrivateDirs(temp, caches)


def make_mount_points(
    settings: SandboxSettings, private: PrivateDirs, environment: Mapping[str, str], repositories: Iterable[Path]
) -> None:
    """Make the empty directories and files that tools would make themselves: a mount needs something to cover.

    Raises: OSError
    """
    for cache in CACHES:
        for part in ("", *cache.parts):
            (private.caches / cache.replacement(part)).mkdir(PRIVATE_DIR, exist_ok=True)
    if settings.is_trial:
        return
    for repository in repositories:
        # With a `commondir`, git takes hooks and config from there.
        if exists(repository / "HEAD") and not exists(repository / "commondir"):
            if not is_link(repository / "hooks"):
                _try_mkdir(repository / "hooks")
            if not is_link(repository / "config"):
                with contextlib.suppress(OSError):
                    os.close(os.open(repository / "config", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    for cache in CACHES:
        top = Path(environment.get(cache.variable) or settings.home / cache.directory)
        for part in cache.parts if is_directory(top) else ():
            _try_mkdir(top / part)


def _try_mkdir(path: Path) -> None:
    with contextlib.suppress(OSError):  # we cannot write there, so commands cannot either
        path.mkdir(exist_ok=True)
