"""Protects the git repositories in a workspace: commands cannot change what makes git run something.

A `.git` can be a directory, a file that names one, or a link. Git obeys the config and the hooks that it finds behind
it, also in repositories inside the workspace: `git status` enters submodules. Mounts guard all of that, because nothing
inside the sandbox can replace them. A link cannot be mounted: it is restored after each command.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from teamcli.errors import ToolError
from teamcli.exec.sandbox.paths import (
    directories_in,
    exists,
    is_above_any,
    is_below_any,
    is_directory,
    is_file,
    is_in_any,
    is_link,
    link_target,
    real_path,
    search,
)
from teamcli.workspace.bounds import OWNER_TOKEN, TEAM_DIR
from teamcli.workspace.git_files import gitlinks, named_directory, path_in, text_of

_GIT = ".git"
_OBEYED = ("hooks", "config", "config.worktree", "commondir", "gitdir")
"""In a git directory. `commondir` names another one whose config and hooks apply, `gitdir` a checkout."""
_MOST_DIRECTORIES = 4000
"""Searched for repositories, outer ones first. Submodules and worktrees are found without searching."""
_MOST_MOUNTS = 300
"""Each costs a third of a millisecond, and more as their number grows. This many take less than a fifth of a second."""
_MOST_MOUNTS_AT_LAST = 600


class Guards(NamedTuple):
    """What is mounted to guard repositories."""

    open: tuple[Path, ...]
    """Git directories: commands can write there, but cannot move them."""
    fixed: tuple[Path, ...]
    """What commands can only read."""
    links: tuple[Path, ...] = ()
    """What cannot be mounted, and is restored after a command has replaced it."""
    note: str = ""
    """What is kept from commands because there are so many repositories."""


def above(guarded: Iterable[Path], tops: Iterable[Path]) -> list[Path]:
    """The directories that commands could move, together with what is guarded in them. Outer ones first."""
    return sorted({each for path in guarded for each in path.parents if is_below_any(each, tops)})


class _Index(NamedTuple):
    state: tuple[int, ...]
    """Differs if the file has changed."""
    entered: tuple[Path, ...]
    """The `.git` of submodules that were not there at first."""


class Repositories:
    """Those that exist when the program starts. Commands may do what they like with those that they make later."""

    def __init__(self, roots: Iterable[Path], writable: Iterable[Path], opened: Iterable[Path] = ()) -> None:
        """`opened` are more directories to search. Only what is in `writable` needs a guard.

        Raises: OSError
        """
        self._roots, self._writable = tuple(roots), tuple(writable)
        self._own: dict[Path, None] = {}
        """Git directories of the workspace itself."""
        self._inner: dict[Path, None] = {}
        """Git directories of submodules, worktrees and other repositories inside."""
        self._files: dict[Path, None] = {}
        """Each is a `.git` that names a git directory."""
        self._checkouts: dict[Path, Path] = {}
        """By git directory: where the files are that its index lists."""
        self._indexes: dict[Path, _Index] = {}
        self.links: dict[Path, str] = {}
        """Each `.git` that is a link, with its target."""
        self.states: list[Path] = []
        """`.team/` of other projects inside that teamcli has worked in, so it obeys them."""
        for root in (*self._roots, *opened):
            for entry in search(root, (_GIT, TEAM_DIR), _MOST_DIRECTORIES):
                is_own = entry.parent in self._roots
                if entry.name == _GIT:
                    self._add(entry, self._own if is_own else self._inner)
                elif not is_own and exists(entry / OWNER_TOKEN) and not is_link(entry):
                    self.states.append(entry)
        self._unwanted = [path for path in self._obeyed_if_there() if not exists(path)]
        """What git would obey if it existed. A mount needs something to cover."""

    def intruders(self) -> Iterator[Path]:
        """What commands have added and git would obey.

        Raises: OSError, if the system is out of descriptors
        """
        entered = (path for directory in self._checkouts for path in self._entered(directory))
        yield from (path for path in itertools.chain(self._unwanted, entered) if exists(path) or is_link(path))

    def _entered(self, directory: Path) -> tuple[Path, ...]:
        """Reads the index only if it has changed."""
        state: tuple[int, ...] = ()
        with contextlib.suppress(OSError):
            found = (directory / "index").stat()
            # A command can keep inode, size and mtime, but it cannot set the ctime.
            state = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        known = self._indexes.get(directory)
        if known is None or known.state != state:
            hash_size = 32 if "sha256" in text_of(directory / "config") else 20
            entries = {self._checkouts[directory] / path / _GIT for path in gitlinks(directory, hash_size)}
            new = entries - self._files.keys() - self._own.keys() - self._inner.keys() - self.links.keys()
            known = self._indexes[directory] = _Index(state, tuple(new))
        return known.entered

    @property
    def directories(self) -> list[Path]:
        return sorted(path for path in {*self._own, *self._inner} if is_directory(path))

    def guards(self) -> Guards:
        """As fine as the number of repositories allows.

        Raises: OSError, and ToolError if there are too many
        """
        for make, least, most in (
            (self._fine, len(self._inner) + len(self._files) + len(self.states), _MOST_MOUNTS),
            (self._without_commits, len(self._files) + len(self.states), _MOST_MOUNTS),
            (self._read_only, 0, _MOST_MOUNTS_AT_LAST),
        ):
            if least > most:  # no need to look closer
                continue
            guards = make()
            mounted = (*guards.open, *guards.fixed)
            if len({*mounted, *above((*mounted, *guards.links), self._writable)}) <= most:
                return guards
        count = len(self._own) + len(self._inner)
        raise ToolError(f"{self._roots[0]} holds {count} git repositories, too many to guard; start in one of them")

    def _fine(self) -> Guards:
        directories = self.directories
        fixed = [part for path in directories for part in _fixed_parts(path)]
        return Guards(
            tuple(directories),
            _outermost([*fixed, *self._git_files(), *filter(is_directory, self.states)]),
            tuple(self.links),
        )

    def _without_commits(self) -> Guards:
        note = "there are so many git repositories in here that commands cannot commit to those below the workspace"
        return self._coarse([*self._inner, *self._git_files(), *self.states], note)

    def _read_only(self) -> Guards:
        inner = [path for path in (*self._inner, *self._git_files(), *self.states) if not is_in_any(path, self._own)]
        tops = {
            root / path.relative_to(root).parts[0]
            for root in self._roots
            for path in inner
            if is_below_any(path, [root])
        }
        note = "there are so many git repositories in here that commands cannot write in directories that contain some"
        return self._coarse([*tops, *self._git_files(of_roots=True)], note)

    def _coarse(self, fixed: Iterable[Path], note: str) -> Guards:
        own = [path for path in self._own if is_directory(path)]
        whole = [path / name for path in own for name in ("modules", "worktrees") if exists(path / name)]
        parts = [part for path in own for part in _fixed_parts(path)]
        all_fixed = _outermost([*parts, *whole, *filter(exists, fixed)])
        links = tuple(path for path in self.links if not is_in_any(path, all_fixed))
        return Guards(tuple(own), all_fixed, links, note)

    def _git_files(self, of_roots: bool = False) -> list[Path]:
        roots = [root / _GIT for root in self._roots]
        return [path for path in self._files if exists(path) and (not of_roots or path in roots)]

    def _add(self, entry: Path, kind: dict[Path, None]) -> None:
        """Add a `.git`, and the git directories behind it."""
        checkout = entry.parent
        if (target := link_target(entry)) is not None:
            self.links[entry] = target
            entry = real_path(entry)
        directory: Path | None = entry
        if is_file(entry) and is_in_any(entry, self._writable):
            self._files[entry] = None
            directory = named_directory(entry)  # outside the workspace, maybe: `_add_directory` decides
        if directory is not None and is_directory(directory):
            self._checkouts[directory] = checkout
            self._add_directory(directory, kind)

    def _add_directory(self, path: Path | None, kind: dict[Path, None]) -> None:
        """Only if commands can write there, and never a directory that contains the workspace."""
        if path is None or not is_in_any(path, self._writable) or path in self._own or path in self._inner:
            return
        if path in self._roots or is_above_any(path, self._roots) or not is_directory(path):
            return
        kind[path] = None
        self._add_directory(common_directory(path), kind)
        for module in _modules(path / "modules"):
            self._add_directory(module, self._inner)
            checkout = re.search(r"^\s*worktree\s*=\s*(\S.*?)\s*$", text_of(module / "config"), re.MULTILINE)
            if checkout and "\0" not in checkout[1]:
                self._add(real_path(module / checkout[1]) / _GIT, self._inner)
        for record in directories_in(path / "worktrees")[:_MOST_DIRECTORIES]:
            if is_file(record / "gitdir"):
                self._add_worktree(record)

    def _add_worktree(self, record: Path) -> None:
        entry = path_in(record / "gitdir")
        if entry is None or not exists(entry.parent):
            return
        if record not in self._own:
            self._inner[record] = None
        if is_in_any(entry, self._writable):
            self._checkouts[record] = entry.parent
            if is_file(entry):
                self._files[entry] = None

    def _obeyed_if_there(self) -> Iterator[Path]:
        directories = self.directories
        has_config_of_checkouts = any("worktreeconfig" in text_of(path / "config").lower() for path in directories)
        for path in directories:
            yield path / "commondir"
            if has_config_of_checkouts:  # git reads that file only with this extension
                yield path / "config.worktree"
        for root in self._roots:  # if `.git` is invalid, git takes the directory itself for a repository
            if exists(root / _GIT):
                yield root / "HEAD"


def _outermost(paths: Iterable[Path]) -> tuple[Path, ...]:
    kept: dict[Path, None] = {}
    for path in sorted(set(paths)):
        if not any(above in kept for above in path.parents):
            kept[path] = None
    return tuple(kept)


def _fixed_parts(directory: Path) -> list[Path]:
    parts = [directory / name for name in _OBEYED]
    if any(map(is_link, parts)):  # a link can be replaced: fix what holds it
        return [directory]
    return [part for part in parts if exists(part)]


def common_directory(directory: Path) -> Path | None:
    return path_in(directory / "commondir") if is_file(directory / "commondir") else None


def _modules(directory: Path) -> Iterator[Path]:
    """Git directories of submodules; a name may have slashes."""
    left = _MOST_DIRECTORIES
    pending = directories_in(directory)
    while pending and left:
        left -= 1
        entry = pending.pop()
        if exists(entry / "HEAD"):
            yield entry
        else:
            pending += directories_in(entry)


def shared_repository(root: Path) -> Path | None:
    """The repository behind a git worktree, if it lists `root`. Otherwise any text could open any directory."""
    entry = root / _GIT
    kept = named_directory(entry) if is_file(entry) else None
    shared = common_directory(kept) if kept else None
    if kept is None or shared is None or path_in(kept / "gitdir") != entry:
        return None
    return shared if kept.parent == shared / "worktrees" else None


def repositories_behind(root: Path) -> tuple[Path, ...]:
    """The directories outside `root` that hold its repository: of a worktree, of a submodule, behind a link."""
    entry = real_path(root / _GIT)
    own = named_directory(entry) if is_file(entry) else entry
    found = (own, common_directory(own)) if own else ()
    return tuple(path for path in found if path and is_directory(path) and not path.is_relative_to(root))


def set_aside(paths: Iterable[Path]) -> None:
    """Rename to something that git does not know, so that nothing is lost if the user has made it."""
    for path in paths:
        aside = path.with_name(f"{path.name}.set-aside")
        if exists(aside) or is_link(aside):
            aside = aside.with_name(f"{aside.name}-{secrets.token_hex(4)}")
        with contextlib.suppress(OSError), _held(path.parent) as directory:  # another user's, so no command has made it
            os.rename(path.name, aside.name, src_dir_fd=directory, dst_dir_fd=directory)


def put_back(links: Iterable[tuple[Path, str]]) -> None:
    """Restore links that a command has replaced."""
    for path, target in links:
        if link_target(path) != target:
            set_aside([path])
            with contextlib.suppress(OSError), _held(path.parent) as directory:  # the directory may be gone
                os.symlink(target, path.name, dir_fd=directory)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[int]:
    """A descriptor for a directory at exactly this path: a command could replace it with a link at any time.

    Raises: OSError
    """
    directory = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.readlink(f"/proc/self/fd/{directory}") != str(path):  # noqa: PTH115
            raise NotADirectoryError(f"{path} is somewhere else")
        yield directory
    finally:
        os.close(directory)
