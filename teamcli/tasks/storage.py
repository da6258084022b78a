"""Where a board keeps its tasks: files, or another engine. The rules are the board's."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from teamcli.tasks.board import Task
from teamcli.tasks.task_file import StoredTask

T = TypeVar("T")


class TaskStorage(Mapping[int, Task]):
    """The tasks by number, as they are now. Every method may raise StateError."""

    outsider: str
    """Who has made the changes that `look` finds: the user, by hand, or nobody knows."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        """`warn` gets what is wrong with a task, once."""
        self._warn = warn
        self._mutex = threading.RLock()  # the lock of an engine does not separate threads that share what was read
        self._depth = 0
        self._to_report: list[str] = []

    @property
    @abstractmethod
    def exists(self) -> bool:
        """Whether there can be a task."""

    @abstractmethod
    def all(self) -> Sequence[StoredTask]:
        """By number."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other threads of this process out. Problems are reported at the end, when others may read again: what
        reports them may wait for a thread that reads the board."""
        report: list[str] = []
        try:
            with self._mutex:
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1
                    if not self._depth:
                        report, self._to_report = self._to_report, report
        finally:
            for problem in report:
                self._warn(problem)

    @abstractmethod
    def change(self, actor: str, act: Callable[[], T]) -> T:
        """Call `act` while nobody else can change a task, in any process. What it writes is kept at the end, unless it
        raises. It may be called twice: then what it wrote first does not count."""

    @abstractmethod
    def may_have_free(self) -> bool:
        """Before a claim: read what can be read without keeping others waiting. False if nobody needs to look."""

    def notice(self) -> None:
        """Another process says that it has changed something; from any thread."""

    @abstractmethod
    def has_news(self) -> bool:
        """Whether others may have changed something since the last call. Cheap."""

    @abstractmethod
    def put_back(self) -> None:
        """Write all again if it was deleted."""

    # Inside `change`

    @abstractmethod
    def free(self) -> Iterator[Task]:
        """Those that nobody has, by number."""

    @abstractmethod
    def none_free_below(self, id: int) -> None:
        """A claim has found that no task before this one is free."""

    @abstractmethod
    def next_id(self) -> int:
        """A number that was never used. Raises: TaskError if there is none."""

    @abstractmethod
    def give_back(self, id: int) -> None:
        """The number was not used. If it is still the last one, the next task gets it."""

    @abstractmethod
    def write(self, task: Task) -> None: ...
