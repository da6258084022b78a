"""Where the state of a team is kept: in files, or in a database (`app/store_engine.py`, loaded if it is wanted)."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from teamcli.agent.permission_question import Ask
from teamcli.errors import ToolError
from teamcli.session.timeline import GATHERING_SECONDS
from teamcli.storage.append_log import AppendLog
from teamcli.storage.files import PRIVATE_DIR, make_private_dir
from teamcli.storage.team_dir import TeamDir
from teamcli.team.manager import TeammateManager
from teamcli.team.message_bus import FileBus, MessageBus
from teamcli.team.ports import PlacementPort
from teamcli.team.roster_file import ANY_HOST, Member
from teamcli.team.roster_store import RosterFile, RosterStore
from teamcli.team.signing import load_key

if TYPE_CHECKING:
    from teamcli.agent.budgets import Budgets
    from teamcli.app.host_life import HostLife
    from teamcli.app.lazy_board import LazyBoard
    from teamcli.cancel import CancelScope
    from teamcli.mcp.server import Ask as AskForServer
    from teamcli.storage.log import Log
    from teamcli.subagents.ledger import SharedLedger
    from teamcli.tasks.storage import TaskStorage
    from teamcli.team.remote_teammate import OtherHosts, RemoteTasksPort
    from teamcli.team.roster import Roster


class Engine(ABC):
    """What a team needs of its state. All methods raise StateError. What is not abstract is so if one process runs all
    members, and only it writes."""

    @property
    def host_name(self) -> str:
        """Of this process among the hosts of the team; empty if there can be no others."""
        return ""

    @property
    def team_name(self) -> str:
        """What the team is called among those of its repository; empty if there can be no others."""
        return ""

    @property
    def has_lead(self) -> bool:
        """Whether the lead runs here. The user of the team is where the lead is."""
        return True

    @property
    def timeline_seconds(self) -> float:
        """How long events are gathered before they are written together."""
        return GATHERING_SECONDS

    @abstractmethod
    def open_log(self, agent: str, incarnation: int = 0) -> Log:
        """The transcript of the lead or a teammate."""

    @abstractmethod
    def archive_log(self, agent: str) -> None:
        """The agent begins a new incarnation, with an empty transcript."""

    @abstractmethod
    def open_timeline(self) -> Log: ...

    @abstractmethod
    def roster_store(self) -> RosterStore: ...

    @abstractmethod
    def open_bus(self, warn: Callable[[str], None], on_look: Callable[[], None]) -> MessageBus:
        """`warn` gets what is wrong with mail; `on_look` is called a few times a second."""

    @abstractmethod
    def task_storage(self, warn: Callable[[str], None]) -> TaskStorage: ...

    @abstractmethod
    def has_tasks(self) -> bool:
        """Whether there can be a task."""

    def is_here(self, member: Member) -> bool:
        """Whether it is for this process to run this member."""
        return True

    def check_lease(self, agent: str) -> None:  # noqa: B027 - no other process can take it
        """Raises: LeaseLost, if another process runs this agent now; StateError"""

    def give_up(self, agent: str, is_announced: bool = False) -> None:  # noqa: B027 - there is nobody else
        """Give up the lease of an agent that is shut down, so that any host may begin its next incarnation. With
        `is_announced`, other hosts are notified at once. Without, only the host that begins it looks for it."""

    def placement(self, bus: MessageBus) -> PlacementPort:
        return _AllHere()

    def host_life(
        self, team: TeammateManager, bus: MessageBus, board: LazyBoard, budgets: Budgets, cancel: CancelScope
    ) -> HostLife | None:
        """What else runs for the team in this process; None if nothing does."""
        return None

    def shared_ask(self, ask: Ask, ask_for_server: AskForServer | None) -> tuple[Ask, AskForServer | None]:
        """How members of this process ask a person, if `ask` puts a question to the user of this process."""
        return ask, ask_for_server

    def others(self, roster: Roster, bus: MessageBus, tasks: Callable[[], RemoteTasksPort]) -> OtherHosts | None:
        """The members that other processes run; None if there can be none."""
        return None

    def shared_ledger(self) -> SharedLedger | None:
        """Where other processes find the sub-agents of this one; None if there can be none."""
        return None


class FileEngine(Engine):
    def __init__(self, dir: TeamDir, home: Path, durable: bool) -> None:
        self._dir = dir
        self._home = home
        self._durable = durable

    def open_log(self, agent: str, incarnation: int = 0) -> Log:
        # No other program writes transcripts: the lead's lock, or a private directory, keeps them away.
        return AppendLog(self._dir.transcripts / f"{agent}.jsonl", self._durable, is_shared=False)

    def archive_log(self, agent: str) -> None:
        archive_transcript(self._dir.transcripts / f"{agent}.jsonl")

    def open_timeline(self) -> Log:
        return AppendLog(self._dir.events, durable=False, is_shared=False)

    def roster_store(self) -> RosterStore:
        return RosterFile(self._dir.config)

    def open_bus(self, warn: Callable[[str], None], on_look: Callable[[], None]) -> FileBus:
        make_private_dir(self._dir.inbox)  # any program may append a line to an inbox, also before the first message
        return FileBus(self._dir.inbox, load_key(self._home), self._durable, warn, on_look=on_look)

    def task_storage(self, warn: Callable[[str], None]) -> TaskStorage:
        from teamcli.tasks.task_files import TaskFiles

        return TaskFiles(self._dir.tasks, warn)

    def has_tasks(self) -> bool:
        return self._dir.tasks.is_dir()


class _AllHere:
    """A `PlacementPort`."""

    def is_here(self, member: Member) -> bool:
        return True

    def stops_with_us(self, member: Member) -> bool:
        return True

    def holders(self) -> dict[str, str]:
        return {}

    def choose(self, host: str, planned: str) -> str:
        if host not in ("", ANY_HOST):
            raise ToolError(
                f"host: there is no host '{host}': this team is in files, so all run here; for others use --store URL"
            )
        return ""

    def why_no_room(self, member: Member, members: Sequence[Member]) -> str:
        return ""

    def next_incarnation(self, name: str, earlier: int) -> int:
        return earlier + 1  # what was forgotten is in an archive

    def claim(self, name: str, cancel: CancelScope) -> None:
        pass

    def begin(self, name: str, incarnation: int, cancel: CancelScope) -> None:
        raise AssertionError("no other host runs a member")

    def release(self, name: str) -> None:
        raise AssertionError("no other host runs a member")


def archive_transcript(path: Path) -> None:
    if path.exists():
        archive = path.parent / "archive"
        archive.mkdir(exist_ok=True, mode=PRIVATE_DIR)
        number = time.time_ns()
        while (archived := archive / f"{path.stem}.{number}.jsonl").exists():  # the clock may stand still
            number += 1
        path.rename(archived)
