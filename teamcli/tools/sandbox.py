"""The sandbox of a program: whether there is one, the directories that it needs, and what to say of it to a model."""

from __future__ import annotations

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
from teamcli.files import PRIVATE_DIR
from teamcli.tools.sandbox_git import missing_config, repositories_in, set_aside, upper_directories
from teamcli.tools.sandbox_paths import exists, is_directory, is_link
from teamcli.tools.sandbox_places import CACHES, SKILLS
from teamcli.tools.sandbox_plan import Plan, Private, Wanted, make_plan
from teamcli.workspace import OWNER_TOKEN, TEAM_DIR, USER_DIR

BWRAP = "bwrap"
_PREFIX, _UNLOCKED, _LOCK = "teamcli-sandbox-", "teamcli-sandbox.", "lock"
_NO_NETWORK = r"Network is unreachable|resolve host|name resolution|ENETUNREACH|EAI_AGAIN|Name or service not known"
_REFUSED_BY_PROXY = rf"{_NO_NETWORK}|tunnel|proxy|403"


class Sandbox:
    """The sandbox of one program. `close` removes what it has made for it."""

    def __init__(self, wanted: Wanted) -> None:
        """Raises: ToolError, where there can be none."""
        program = shutil.which(BWRAP)
        if sys.platform != "linux":
            raise ToolError(f"there is none for {sys.platform}")
        if program is None:
            raise ToolError("bwrap is not installed (the package is called bubblewrap)")
        self.program = program
        self.wanted = wanted
        # Those that come later are made by commands, which have them in hand as they make them: to guard them would
        # only keep an agent from configuring its own.
        self._repositories = [repository for root in wanted.roots for repository in repositories_in(root)]
        self._states = [path for root in wanted.roots for path in _states_in(root)]
        self._missing = missing_config(self._repositories)
        _remove_leftovers()
        made = Path(tempfile.mkdtemp(prefix=_UNLOCKED))  # under a name by which nobody takes it for left over
        self._lock = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        temp = made.rename(made.with_name(_PREFIX + made.name.removeprefix(_UNLOCKED)))
        self._private = _make_private(temp, wanted)

    def plan(self, environment: Mapping[str, str]) -> Plan:
        """Raises: OSError."""
        make_mount_points(self.wanted, self._private, environment, self._repositories)
        return make_plan(self.wanted, self._private, environment, self._repositories, self._states)

    def clear(self) -> None:
        """Set aside what a command has put where it cannot be kept from, and the user's git would obey it."""
        if not self.wanted.is_trial:
            set_aside(path for path in self._missing if path not in self.wanted.paths(self.wanted.writable))

    def explain(self, output: str) -> str:
        """What to tell a model whose command has met the sandbox without knowing."""
        return explain(output, self.wanted)

    def close(self) -> None:
        _remove(self._private.temp)
        os.close(self._lock)


def _states_in(root: Path) -> list[Path]:
    """Of other projects inside this one, which teamcli has worked in and obeys there."""
    states = [directory / TEAM_DIR for directory in upper_directories(root)[1:]]
    return [path for path in states if exists(path / OWNER_TOKEN) and not is_link(path)]


def _remove_leftovers() -> None:
    """Directories of programs that were killed: nobody holds their lock any more."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # another user's, or just being made
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)


def _remove(temp: Path) -> None:
    """The lock last: by it the next program finds what this one was killed in the middle of."""
    for name in ("tmp", "var-tmp", "caches", "empty"):
        shutil.rmtree(temp / name, ignore_errors=True)
    shutil.rmtree(temp, ignore_errors=True)


def explain(output: str, wanted: Wanted) -> str:
    if re.search(r"Read-only file system|EROFS|\.git/config.*Device or resource busy", output, re.IGNORECASE):
        return (
            "the sandbox lets commands write in the workspace, /tmp and caches, but not to hooks or config of git, "
            ".claude or .team; the user can open more with `sandbox_writable`, or run it as !command"
        )
    if isinstance(wanted.network, tuple) and re.search(_REFUSED_BY_PROXY, output, re.IGNORECASE):
        listed = ", ".join(wanted.network) or "none"
        return f"the user lets commands reach only these hosts, by the setting `sandbox_network`: {listed}"
    if not wanted.has_network and re.search(_NO_NETWORK, output, re.IGNORECASE):
        return "the user has closed the network to commands with `sandbox_network`"
    return ""


def _make_private(temp: Path, wanted: Wanted) -> Private:
    """Raises: OSError."""
    for name in ("tmp", "var-tmp", "empty", "only-skills", f"only-skills/{SKILLS}"):
        (temp / name).mkdir(PRIVATE_DIR)
    (temp / "nothing").touch(0o400)
    caches = temp / "caches" if wanted.is_trial else _caches_of(wanted)
    try:
        for directory in (caches.parents[1], caches.parents[0], caches):
            directory.mkdir(PRIVATE_DIR, exist_ok=True)
    except OSError:  # a home that cannot be written: then they last as long as the program
        caches = temp / "caches"
        caches.mkdir(PRIVATE_DIR)
    return Private(temp, caches)


def _caches_of(wanted: Wanted) -> Path:
    """Of each project its own: what one has put into a cache must not be run in another."""
    root = wanted.roots[0]
    name = f"{root.name or 'root'}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:12]}"
    return wanted.home / USER_DIR / "sandbox" / name


def make_mount_points(
    wanted: Wanted, private: Private, environment: Mapping[str, str], repositories: Iterable[Path]
) -> None:
    """Nothing can be mounted where nothing is: make the empty directories that the tools would make themselves.

    Raises: OSError
    """
    for cache in CACHES:
        for part in ("", *cache.parts):
            (private.caches / cache.own(part)).mkdir(PRIVATE_DIR, exist_ok=True)
    if wanted.is_trial:
        return
    for repository in repositories:
        if is_directory(repository) and not is_link(repository / "hooks"):
            _try_mkdir(repository / "hooks")
    for cache in CACHES:
        top = Path(environment.get(cache.variable) or wanted.home / cache.directory)
        for part in cache.parts if is_directory(top) else ():
            _try_mkdir(top / part)


def _try_mkdir(path: Path) -> None:
    try:
        path.mkdir(exist_ok=True)
    except OSError:
        return  # not ours to write: then neither is it a command's
