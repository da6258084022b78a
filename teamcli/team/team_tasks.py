"""The team's side of the task board: assigned tasks reach their owners, and idle members take free ones.

Everything follows from the board. `look` does what is left to do and may be repeated at any time, so a crash, or a
change by another process, loses nothing and repeats nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from teamcli.errors import StateError, TeamcliError
from teamcli.team.message import LEAD, USER, WAITED, Message, MessageType
from teamcli.team.outbox import Outbox
from teamcli.team.quiescence import Quiescence
from teamcli.team.roster import Roster
from teamcli.team.running_agents import RunningAgents
from teamcli.team.task_message import BEGUN_BY_USER, assignment_id, task_message
from teamcli.text.tags import one_fact

if TYPE_CHECKING:  # the board's modules are loaded when there is a board
    from teamcli.tasks.board import Board, BoardChange, Task

VOID = "This task is over, or someone else has it. There is nothing for you to do."


class BoardSource(Protocol):
    """The task board. What it needs is loaded when there is one, or one is wanted."""

    @property
    def exists(self) -> bool:
        """Whether there can be a task."""

    def open(self) -> Board: ...

    def look(self) -> None:
        """Report what other processes have changed since the last look."""


class TeamTasks:
    def __init__(
        self, source: BoardSource, roster: Roster, agents: RunningAgents, outbox: Outbox, quiescence: Quiescence
    ) -> None:
        self._source = source
        self._roster = roster
        self._agents = agents
        self._outbox = outbox
        self._quiescence = quiescence
        self._lock = threading.RLock()
        """One look at a time. `offers` and `held` do not take it: their callers hold locks of their own."""
        self._is_started = False
        self._sent: set[str] = set()
        """The ids of messages about assignments that are in their owners' inboxes."""
        self._begun_by_user: set[str] = set()
        """Those about an assignment by the user, as far as this run knows."""
        self._problem = ""
        """What was reported last."""
        self._free: frozenset[int] = frozenset()
        self._has_new = False
        self._held: Mapping[str, Sequence[Task]] = {}
        self._from_before: frozenset[str] = frozenset()
        """The assignments that were in progress when this process began to run their owners."""

    # What happens

    def restore(self) -> None:
        """Before any member runs: release the tasks of members that are gone, and send what a crash kept back."""
        self._try(self._restore)

    def start(self) -> None:
        """All members are there: from now on the board wakes them."""
        self._is_started = True
        self._source.look()  # what it finds from now on is news
        self._try(self._settle)
        self._from_before = frozenset(assignment_id(task) for tasks in self._held.values() for task in tasks)

    def changed(self, change: BoardChange) -> None:
        """A task was changed, here or by another process."""
        if change.actor == USER and (change.before is None or change.before.assigned != change.after.assigned):
            self._begun_by_user.add(assignment_id(change.after))
        self.look()

    def look(self) -> None:
        """The board may have changed."""
        if not self._is_started:
            return
        self._try(self._settle)
        for mate in self._agents.teammates:
            if (member := self._roster.find(mate.name)) and member.claims:
                mate.wake()
        self._quiescence.teammate_idle()  # without a free task, members that could have taken it are idle

    def mail_read(self, ids: Iterable[str]) -> None:
        """These messages are in an agent's conversation: the tasks among them are in progress."""
        if not self._sent.isdisjoint(ids):
            self.look()

    def as_current(self, message: Message) -> Message:
        """A message as it is when it is read: its task may have been given to someone else."""
        if message.type is not MessageType.TASK:
            return message
        try:
            tasks = self._source.open().tasks()
        except StateError:  # a refused update tells it later
            return message
        if any(assignment_id(task) == message.id and task.owner and not task.status.is_over for task in tasks):
            return message
        return message._replace(content=VOID, fields={"task": message.fields.get("task")})

    def why_unread(self, name: str) -> str:
        """What keeps this agent from reading about a task yet; empty if nothing does."""
        member = self._roster.find(name)
        if member is None:
            return ""
        if self._agents.is_left_out(member.name):
            return f"{member.name} is not started"
        return f"{member.name} is paused and reads it when the user resumes it" if member.paused else ""

    def taken_over(self, name: str) -> None:
        """This process runs a member that another host has run. Like after a restart, what it holds may not have
        reached its conversation."""
        self._try(self._settle)
        self._from_before |= {assignment_id(task) for task in self.held(name)}

    def left(self, name: str) -> None:
        """A member was shut down or forgotten: its unfinished tasks are free again."""
        self._try(lambda board: board.release(name))

    # What a member asks

    def held(self, name: str) -> Sequence[Task]:
        return self._held.get(name, ())

    @property
    def has_new(self) -> bool:
        """Whether there is a free task that nobody has had yet."""
        return self._has_new

    def is_from_before(self, task: Task) -> bool:
        return assignment_id(task) in self._from_before

    def reminder(self, name: str) -> str:
        """For an agent whose conversation starts over; empty if it has no task in progress."""
        lines = [f"  {task.id}: {one_fact(task.subject)}" for task in self.held(name)]
        return "\n".join(["Your tasks in progress:", *lines]) if lines else ""

    def offers(self, name: str, given: Collection[int]) -> bool:
        return not self._free.issubset(given) or any(task.id not in given for task in self.held(name))

    def take(self, name: str, given: frozenset[int]) -> Task | None:
        board = self._source.open()
        own = (task for task in board.tasks() if task.owner == name and task.is_in_progress and task.id not in given)
        task = next(own, None) or board.claim_next(name, given)
        if task is None:
            self.look()
        return task

    def give_back(self, name: str, task: Task) -> None:
        self._try(lambda board: board.release(name, task.id))

    def _try(self, act: Callable[[Board], object]) -> None:
        """A board that cannot be read or written stops nobody. The next look tries again."""
        if not self._source.exists:
            return
        try:
            with self._lock:
                act(self._source.open())
        except TeamcliError as e:
            if (problem := str(e)) != self._problem:
                self._problem = problem
                self._outbox.warn(LEAD, f"Tasks cannot be delivered or released: {problem}")

    def _restore(self, board: Board) -> None:
        owners = {task.owner for task in board.tasks() if task.owner and not task.status.is_over}
        for gone in sorted(owner for owner in owners - {USER} if not self._is_here(owner)):
            board.release(gone)
        for task in self._assigned(board.ready()):
            # It is news for an interrupted member. A paused one waits for the user.
            member = self._roster.find(str(task.owner))
            if task.created_by == USER:  # most likely with `teamcli tasks add`, while nothing was running
                self._begun_by_user.add(assignment_id(task))
            self._send(task, {} if member and member.paused else {WAITED: True})

    def _settle(self, board: Board) -> None:
        ready = board.ready()
        for task in self._assigned(ready):
            thread = self._agents.get(str(task.owner))
            if thread is not None and thread.mailbox.has_read(assignment_id(task)):
                board.start(task)
            else:
                self._send(task)
        held: dict[str, list[Task]] = {}
        for task in board.tasks():
            if task.owner and task.is_in_progress:
                held.setdefault(task.owner, []).append(task)
        self._held = held
        self._free = frozenset(task.id for task in ready if task.is_free)
        self._has_new = any(task.is_free and not task.assigned for task in ready)

    def _assigned(self, ready: Iterable[Task]) -> list[Task]:
        """The tasks that their owners are to begin."""
        return [task for task in ready if task.owner and self._is_here(task.owner)]

    def _is_here(self, owner: str) -> bool:
        member = self._roster.find(owner)
        return owner == LEAD or (member is not None and member.is_active)

    def _send(self, task: Task, fields: Mapping[str, Any] = MappingProxyType({})) -> None:
        if (id := assignment_id(task)) not in self._sent:
            begun = {BEGUN_BY_USER: True} if id in self._begun_by_user else {}
            self._outbox.post(task_message(task, {**fields, **begun}), once=True)
            self._sent.add(id)
