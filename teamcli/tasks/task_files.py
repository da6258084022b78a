"""The files of the board, as a mapping from number to task: each read again only when it has changed.

Writing happens in a `change`, which excludes all other threads and processes. Reading takes no file lock, because a
file is always replaced as a whole.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from teamcli.errors import StateError, TaskError
from teamcli.storage.files import as_state_error, cannot, write_json
from teamcli.tasks.board import Task, TaskStatus
from teamcli.tasks.rules import USER
from teamcli.tasks.storage import TaskStorage
from teamcli.tasks.task_file import LARGEST_ID, Damaged, Signature, StoredTask, number_of, read_task, signature_of
from teamcli.tasks.task_lock import Counters, TaskLock

_TICK_NS = 50_000_000
_UNFINISHED_NS = 200_000_000
"""A file that was changed this recently may not be complete: many editors write in place."""
_UNFINISHED_SECONDS = 1.0
"""How long all unfinished files are waited for. A program may write to one without end."""
T = TypeVar("T")


class TaskFiles(TaskStorage):
    outsider = USER

    def __init__(
        self, directory: Path, warn: Callable[[str], None] = lambda text: None, only_reads: bool = False
    ) -> None:
        """`warn` reports a damaged file, once. With `only_reads`, it stays where it is."""
        self._directory = directory
        super().__init__(warn)
        self._only_reads = only_reads
        self._lock = TaskLock(directory)
        self._stored: dict[int, StoredTask] = {}
        self._current_at = -1
        """The number of changes at the last refresh under the lock."""
        self._looked_at = 0

    @property
    def exists(self) -> bool:
        return self._directory.is_dir()

    def __getitem__(self, id: int) -> Task:
        """The task as its file is now. Raises: KeyError, StateError."""
        with self.held():
            path = self._path(id)
            try:
                with as_state_error("read", path):
                    signature = signature_of(path.lstat())
            except StateError as e:
                self._stored.pop(id, None)
                if isinstance(e.__cause__, FileNotFoundError | NotADirectoryError):
                    raise KeyError(id) from None
                raise
            if not self._read(id, signature):
                self._set_aside([id])
            return self._stored[id].task

    def __iter__(self) -> Iterator[int]:
        return iter([stored.task.id for stored in self.all()])

    def __len__(self) -> int:
        return len(self.all())

    def all(self) -> list[StoredTask]:
        """All, by number.

        Raises: StateError
        """
        with self.held():
            self._refresh()
            return [self._stored[id] for id in sorted(self._stored)]

    def free(self) -> Iterator[Task]:
        """Those that nobody has, by number, under the lock. Cheap if others have only claimed since the last call."""
        for must_refresh in (self._current_at != self._lock.counters.changes, True):
            if must_refresh:
                self._refresh()
                self._current_at = self._lock.counters.changes
            # What was taken when it was read still is: otherwise the number of changes would be another.
            ids = sorted(self._stored)
            for id in ids if must_refresh else ids[bisect_left(ids, self._lock.counters.free_from) :]:
                known = self._stored.get(id)
                if known and known.task.is_free and (task := self.get(id)) and task.is_free:
                    yield task

    def may_have_free(self) -> bool:
        """Reads all files before the first use of the lock, so that nobody waits for that."""
        if not self.exists:
            return False
        if self._current_at < 0:
            self.all()
        return True

    def none_free_below(self, id: int) -> None:
        """Spare the next claim, of whichever process, to look at the tasks before this one. Under the lock."""
        self._lock.count(self._lock.counters._replace(free_from=id))

    def next_id(self) -> int:
        """A number that was never used, not even for a file that was set aside or deleted. Under the lock."""
        with as_state_error("read", self._directory):
            used = max((number_of(name)[0] for name in os.listdir(self._directory)), default=0)  # noqa: PTH208 - a path each is slow
        id = max(used, self._lock.counters.last) + 1
        if id > LARGEST_ID:
            raise TaskError(f"the board is full: there is a task {LARGEST_ID} in {self._directory}")
        self._lock.count(self._lock.counters._replace(last=id))
        return id

    def give_back(self, id: int) -> None:
        """The number was not used. If it is still the last one, the next task gets it. Under the lock."""
        if self._lock.counters.last == id:
            self._lock.count(Counters(id - 1, self._lock.counters.changes))

    def write(self, task: Task) -> None:
        """Replace its file, under the lock.

        Raises: StateError
        """
        known, path = self._stored.get(task.id), self._path(task.id)
        stored = StoredTask(task, (0, 0, 0, 0), known.unknown if known else {})
        if task.status is not TaskStatus.IN_PROGRESS:
            is_current, changes = self._current_at == self._lock.counters.changes, self._lock.counters.changes + 1
            self._lock.count(Counters(self._lock.counters.last, changes))
            self._current_at = changes if is_current else -1
        write_json(path, stored.to_json())
        with as_state_error("read", path):
            self._stored[task.id] = stored._replace(signature=signature_of(path.lstat()))

    def has_news(self) -> bool:
        """If nothing has changed, this is one system call, and one for each open task: some editors write a file in
        place, which does not change its directory."""
        now_ns = time.time_ns()
        try:
            modified = self._directory.lstat().st_mtime_ns
        except FileNotFoundError:
            modified = 0
        if modified == self._looked_at and not self._are_edited(now_ns - _TICK_NS):
            return False
        # The clock of a file system ticks slowly: a second change may still get the same time.
        self._looked_at = modified if now_ns - modified > _TICK_NS else 0
        return True

    def _are_edited(self, before_ns: int) -> bool:
        """Whether the file of an open task has changed since it was read, and not after `before_ns`: it may not be
        complete yet, and would count as damaged."""
        with self.held():
            for id, stored in self._stored.items():
                if not stored.task.status.is_over:
                    try:
                        found = self._path(id).lstat()
                    except OSError:  # its directory has changed, or says why
                        continue
                    if signature_of(found) != stored.signature and found.st_mtime_ns < before_ns:
                        return True
        return False

    def put_back(self) -> None:
        """Write all again if the directory was deleted.

        Raises: StateError
        """
        with self.held():
            lost, last = dict(self._stored), self._lock.counters.last
            if self._directory.exists() or not lost:
                return
            with self._locked():
                self._lock.count(Counters(max(last, *lost)))
                self._stored = lost
                for stored in lost.values():
                    self.write(stored.task)

    def change(self, actor: str, act: Callable[[], T]) -> T:
        with self._locked():
            return act()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Raises: StateError"""
        with self.held():
            self._refuse_link()
            with self._lock.held():
                yield

    def _path(self, id: int) -> Path:
        return self._directory / f"{id}.json"

    def _refuse_link(self) -> None:
        if self._directory.is_symlink():  # a cloned repository could point it anywhere
            raise StateError(f"{self._directory} is a symbolic link; remove it")

    def _refresh(self) -> None:
        """Read the files that are new or have changed. The caller is in `held`."""
        found = self._signatures()
        for id in self._stored.keys() - found.keys():
            del self._stored[id]
        if damaged := [id for id, signature in sorted(found.items()) if not self._read(id, signature)]:
            self._set_aside(damaged)

    def _signatures(self) -> dict[int, Signature]:
        self._refuse_link()
        found = {}
        try:
            with os.scandir(self._directory) as entries:
                for entry in entries:
                    id, is_task = number_of(entry.name)
                    if is_task:
                        found[id] = signature_of(entry.stat(follow_symlinks=False))
        except FileNotFoundError:  # no task yet; or a file was set aside during the scan, and the next one tells
            return self._signatures() if self._directory.is_dir() else {}
        except OSError as e:
            raise StateError(cannot("read", self._directory, e)) from e
        return found

    def _read(self, id: int, signature: Signature) -> bool:
        """Read the file if it has changed. False if it is damaged."""
        known = self._stored.get(id)
        if known is not None and known.signature == signature:
            return True
        self._stored.pop(id, None)
        try:
            stored = read_task(self._path(id), id, signature)
        except Damaged:
            return False
        if stored is not None:
            self._stored[id] = stored
        return True

    def _set_aside(self, ids: Sequence[int]) -> None:
        """Rename damaged files, so that each is reported once."""
        if not self._lock.is_held and not self._only_reads:
            with self._locked():
                self._set_aside(ids)
            return
        deadline = time.monotonic() + _UNFINISHED_SECONDS
        for id in ids:
            try:  # again, under the lock: another process may have replaced it
                stored = _read_finished(self._path(id), id, deadline)
            except Damaged as e:
                self._rename(self._path(id), str(e))
            else:
                self._stored.update({id: stored} if stored else {})

    def _rename(self, path: Path, problem: str) -> None:
        if self._only_reads:
            self._to_report.append(f"{path} does not hold a task ({problem}); fix or delete it")
            return
        number, aside = 1, path.with_suffix(".bad.json")
        while os.path.lexists(aside):
            number += 1
            aside = path.with_suffix(f".bad-{number}.json")
        with as_state_error("rename", path):
            path.rename(aside)
        self._to_report.append(f"{path} does not hold a task ({problem}); it is now {aside.name}")


def _read_finished(path: Path, id: int, deadline: float) -> StoredTask | None:
    """Read a task, and wait for an editor that is still writing it.

    Raises: Damaged
    """
    while True:
        try:
            return read_task(path, id, (0, 0, 0, 0))
        except Damaged:
            if not _may_be_unfinished(path) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _may_be_unfinished(path: Path) -> bool:
    try:
        return 0 <= time.time_ns() - path.lstat().st_mtime_ns < _UNFINISHED_NS
    except OSError:  # it is gone
        return False
