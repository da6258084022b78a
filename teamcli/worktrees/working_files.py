"""Brings the files of a checkout from one commit to another, and never loses what anyone else has written there.

No link on the way to a file is followed: agents could put one there at any time.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from teamcli.workspace.open_file import open_parent
from teamcli.worktrees.changes import TreeChange

Signature = tuple[int, ...]
CHANGED = "it was changed in the meantime"


def signature(name: str | Path, parent: int | None = None) -> Signature | None:
    """Differs whenever the file has changed; None if there is none."""
    try:
        found = os.lstat(name, dir_fd=parent)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def move(source: Path, target: Path, top: Path, how: Callable[..., None] = os.rename) -> None:
    """Rename, or link, without following a link on the way.

    Raises: OSError
    """
    with open_parent(source, top) as of_source, open_parent(target, top) as of_target:
        how(source.name, target.name, src_dir_fd=of_source, dst_dir_fd=of_target)


def obstacle(root: Path, path: str, removed: Collection[str]) -> str:
    """What is in the way of a new file and is not removed with the old commit's files; empty if nothing is."""
    *above, last = (root / path).relative_to(root).parts
    place = root
    for name in above:
        place /= name
        if not place.is_dir() or place.is_symlink():
            is_free = not os.path.lexists(place) or str(place.relative_to(root)) in removed
            return "" if is_free else str(place.relative_to(root))
    place /= last
    if place.is_dir() and not place.is_symlink():
        inside = (Path(directory, name) for directory, _, names in os.walk(place) for name in names)
        return next((each for file in inside if (each := str(file.relative_to(root))) not in removed), "")
    return path if os.path.lexists(place) else ""


def update_files(
    root: Path, staged: Path, changes: Iterable[TreeChange], unchanged: Mapping[str, Signature | None]
) -> dict[str, str]:
    """Bring all changes into the files below `root`. Returns the files that could not be updated, and why.

    `staged` has the new files, `unchanged` says how the files looked that are as in the old commit. Any other file
    stays as it is.
    """
    kept = {}
    for change in sorted(changes, key=lambda each: each.new is not None):  # removals make room
        try:
            reason = _update(root, staged, change, unchanged)
        except OSError as e:
            reason = e.strerror or str(e)
        if reason:
            kept[change.path] = reason
    return kept


def _update(root: Path, staged: Path, change: TreeChange, unchanged: Mapping[str, Signature | None]) -> str:
    path, new = root / change.path, staged / change.path
    if change.path not in unchanged:
        return "" if _is_done(path, new, change) else CHANGED
    if change.old is None:
        _remove_empty(path)
    with open_parent(path, root, make=change.new is not None) as parent:
        # Checked at the last moment: what anyone has written since the look is not replaced.
        if signature(path.name, parent) != unchanged[change.path]:
            return CHANGED
        if change.new is None:
            os.unlink(path.name, dir_fd=parent)
        else:
            with open_parent(new, root) as of_new:
                os.rename(new.name, path.name, src_dir_fd=of_new, dst_dir_fd=parent)
    if change.new is None:
        _prune(path.parent, root)
    return ""


def _is_done(path: Path, new: Path, change: TreeChange) -> bool:
    """Whether the file is already as in the new commit: a merge that was cut off got this far."""
    if change.new is None or not os.path.lexists(path):
        return change.new is None and not os.path.lexists(path)
    mode, wanted = path.lstat().st_mode, new.lstat().st_mode
    if stat.S_IFMT(mode) != stat.S_IFMT(wanted):
        return False
    if stat.S_ISLNK(mode):
        return path.readlink() == new.readlink()
    is_same_mode = bool(mode & stat.S_IXUSR) == bool(wanted & stat.S_IXUSR)
    return stat.S_ISREG(mode) and is_same_mode and filecmp.cmp(path, new, shallow=False)


def _remove_empty(path: Path) -> None:
    """Remove a directory that holds nothing but directories: a file of the new commit takes its place."""
    if path.is_dir() and not path.is_symlink():
        for directory, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):  # someone has put a file there: the caller sees that
                Path(directory).rmdir()


def _prune(directory: Path, root: Path) -> None:
    """Like git, leave no empty directory behind."""
    with contextlib.suppress(OSError):  # not empty
        while directory != root:
            directory.rmdir()
            directory = directory.parent
