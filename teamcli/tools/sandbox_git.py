"""The repositories of a workspace, and what in them makes git run something: closed to the hands of commands."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from teamcli.tools.sandbox_paths import directories_in, exists, is_below_any, is_directory, is_link, real_path

_CONFIG = ("config", "config.worktree", "commondir")
"""`commondir` names another directory whose config counts."""
_MOST_BYTES = 1024 * 1024
_MOST_DIRECTORIES = 1000
"""Looked at for repositories inside the workspace."""


def repositories_in(root: Path) -> list[Path]:
    """`.git` of the workspace, and of directories up to two levels down."""
    found = [directory / ".git" for directory in upper_directories(root)]
    return [path for path in found if is_directory(path) and not is_link(path)]


def upper_directories(root: Path) -> list[Path]:
    found, level = [root], [root]
    for _ in range(2):
        level = [entry for path in level for entry in directories_in(path)][: _MOST_DIRECTORIES - len(found) + 1]
        found += level
    return found


def guarded_in(repository: Path, roots: Iterable[Path]) -> Iterator[Path]:
    """What makes git run something when the user calls it."""
    parts = [repository / name for name in ("hooks", *_CONFIG)]
    if any(is_link(part) for part in parts):  # a link can be replaced: guard what it stands in
        yield repository
        return
    yield from (part for part in parts if exists(part))
    for module in _modules(repository / "modules"):
        yield from guarded_in(module, roots)
    for kept in directories_in(repository / "worktrees"):
        checkout = _checkout(kept)
        if exists(checkout) and not is_below_any(checkout, roots):  # those inside are for agents to make and remove
            yield from (part for name in ("gitdir", *_CONFIG) if exists(part := kept / name))


def missing_config(repositories: Iterable[Path]) -> tuple[Path, ...]:
    """What git would obey if it were there. It cannot be guarded, as nothing can be mounted where nothing is."""
    return tuple(path for repository in repositories for path in _obeyed_in(repository) if not exists(path))


def _obeyed_in(repository: Path) -> Iterator[Path]:
    yield repository / "commondir"
    try:
        if "worktreeconfig" in _text_of(repository / "config").lower():  # else git does not look for it
            yield repository / "config.worktree"
    except OSError:
        return


def set_aside(paths: Iterable[Path]) -> None:
    """Under a name that git does not know: should the user have made it, nothing is lost."""
    for path in paths:
        if exists(path) or is_link(path):
            try:
                path.replace(path.with_name(f"{path.name}.set-aside"))
            except OSError:  # something stands there; what cannot be removed either, no command of ours has made
                with contextlib.suppress(OSError):
                    path.unlink()


def _checkout(kept: Path) -> Path:
    """The directory of a worktree, of which a repository keeps this."""
    try:
        return real_path(kept / _text_of(kept / "gitdir").strip()).parent
    except OSError:
        return kept


def _modules(directory: Path) -> Iterator[Path]:
    """Repositories of submodules; a name may have slashes."""
    for entry in directories_in(directory):
        if exists(entry / "HEAD"):
            yield entry
        else:
            yield from _modules(entry)


def shared_repository(root: Path) -> Path | None:
    """The repository behind a git worktree, where it acknowledges `root`: else any text could open any directory."""
    try:
        kept = real_path(root / _text_of(root / ".git").removeprefix("gitdir:").strip())
        shared = real_path(kept / _text_of(kept / "commondir").strip())
        is_known = real_path(Path(_text_of(kept / "gitdir").strip())) == root / ".git"
    except OSError:
        return None
    return shared if is_known and kept.parent == shared / "worktrees" else None


def _text_of(path: Path) -> str:
    """Commands can put a FIFO there: nobody waits for its writer.

    Raises: OSError
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return (file.read(_MOST_BYTES) or b"").decode("utf-8", "surrogateescape")
