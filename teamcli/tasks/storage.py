"""Where a board keeps its tasks: files, or another engine. The rules are the board's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from teamcli.tasks.board import Task
from teamcli.tasks.task_file import StoredTask

T = TypeVar("T")


class TaskStorage(Mapping[int, Task]):
    """The tasks by number, as they are now. Every method may raise StateError."""

    outsider: str
    """Who has made the changes that `look` finds: the user, by hand, or nobody knows."""

    @property
    @abstractmethod
    def exists(self) -> bool:
        """Whether there can be a task."""

    @abstractmethod
    def all(self) -> Sequence[StoredTask]:
        """By number."""

    @abstractmethod
    def held(self) -> AbstractContextManager[None]:
        """Keeps other threads of this process out."""

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
