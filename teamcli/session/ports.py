"""What a session needs of its surroundings, as `app` provides it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from teamcli.agent.events import Event
from teamcli.session.watching import AgentSnapshot
from teamcli.team.manager import TeammateManager

if TYPE_CHECKING:
    from teamcli.subagents.manager import SubAgentManager
    from teamcli.team.host_row import HostRow


class SubAgentSource(Protocol):
    """The sub-agents of the program; what they need is loaded when the first is wanted."""

    @property
    def existing(self) -> SubAgentManager | None:
        """None if there were none in this run."""

    def open(self, team: TeammateManager) -> SubAgentManager: ...

    def parent_of(self, agent: str) -> str:
        """Who started a sub-agent; the name itself for any other agent."""

    def report_lost(self, team: TeammateManager) -> None:
        """Report background sub-agents that an earlier run left behind to their parents.

        Raises: StateError
        """


class RecordedPort(Protocol):
    """What a member on another host has recorded."""

    def begin(self) -> AgentSnapshot:
        """Raises: StateError"""

    def new_steps(self) -> Sequence[Event]:
        """Those since the last call.

        Raises: StateError
        """

    def close(self) -> None: ...


class TeamHostPort(Protocol):
    """What runs next to a team in a database."""

    def start(self) -> None: ...

    def close(self) -> None:
        """After the session's scope was cancelled."""

    def describe(self) -> str:
        """Which team this is, where it is kept, and which host this process is."""

    def holders(self) -> Mapping[str, str]:
        """The living host of each agent that has one.

        Raises: StateError
        """

    def open_recorded(self, agent: str) -> RecordedPort: ...

    def marks_of(self, name: str) -> Mapping[str, Any]:
        """How far a member that another host runs has read its mail.

        Raises: StateError
        """

    def rows(self) -> Sequence[HostRow]:
        """All hosts, this one among them.

        Raises: StateError
        """
