"""What the team and its teammates need of their surroundings, as `app` provides it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from teamcli.agent.tool_calls import Toolset
from teamcli.cancel import CancelScope
from teamcli.llm.types import Preamble
from teamcli.team.outbox import Outbox
from teamcli.team.roster import Member, Roster
from teamcli.team.task_claims import BoardPort
from teamcli.tools.base.context import SpawnRequest

if TYPE_CHECKING:
    from teamcli.config.team_file import PlannedMember
    from teamcli.team.manager import TeammateManager
    from teamcli.team.teammate import Teammate
    from teamcli.worktrees.checkouts import Checkouts


class AgentSetup(NamedTuple):
    """What a teammate works with: how its requests begin, and the tools behind them. A new task may change it."""

    preamble: Preamble
    toolset: Toolset


class TeammateSetup(Protocol):
    """What the composition root provides for one teammate."""

    @property
    def max_wakes(self) -> int | None:
        """How often in a row other agents may wake it without a message from the user."""

    def set_up(self, member: Member) -> AgentSetup:
        """What a member with this role, model and tools works with."""

    def begin_work(self, cancel: CancelScope) -> bool:
        """See that it has a place to work in. Returns whether a sandbox keeps it there, if one should.

        Raises: ToolError, StateError, Cancelled
        """

    def end_work(self, cancel: CancelScope | None = None) -> str:
        """Called after each piece of work. Returns a line for the report; often nothing. With `cancel`, that ends what
        may take long."""

    def release(self) -> str:
        """Close what the teammate used. Returns what is left of it; often nothing."""


class ShutdownPort(Protocol):
    def turn_done(self, teammate: Teammate) -> None:
        """A turn has ended normally."""

    def remove(self, name: str) -> str:
        """Shut a teammate down whose turn has ended. Returns what is to say about that; often nothing."""


class IdlePort(Protocol):
    def teammate_idle(self) -> None:
        """A teammate has nothing to do."""


class TeammatePort(Protocol):
    """What a teammate needs of its team."""

    @property
    def roster(self) -> Roster: ...

    @property
    def outbox(self) -> Outbox: ...

    @property
    def protocols(self) -> ShutdownPort: ...

    @property
    def quiescence(self) -> IdlePort: ...

    @property
    def tasks(self) -> BoardPort: ...


class TeammateFactory(Protocol):
    """Builds teammates; implemented by the composition root."""

    def check(self, request: SpawnRequest) -> SpawnRequest:
        """The request, with what its role adds.

        Raises: ToolError, for a tool that no teammate can have, or a model that its budget cannot count
        """

    def prepare(self, member: Member, cancel: CancelScope | None) -> str:
        """Make a checkout for a new member, if it works in one. Returns where it is, in a few words.

        Raises: ToolError, StateError, Cancelled
        """

    def build_teammate(
        self, team: TeammateManager, member: Member, prompt: str | None, by_user: bool = False
    ) -> Teammate:
        """Build the teammate for a member. With a prompt it starts over, and the prompt is durable when this returns.

        Raises: StateError
        """

    def report_left(self, team: TeammateManager, name: str) -> None:
        """Report to a member the background sub-agents that an earlier host ran for it.

        Raises: StateError
        """


class TeamFilePort(Protocol):
    """The project's team file."""

    def find(self, name: str) -> PlannedMember | None:
        """The member of that name in the file, as it was when it was last read or written here."""

    def save(self, team_name: str, members: Sequence[Member], replaces: bool) -> str:
        """Write the file; returns what to show the user.

        Raises: UsageError, if there is another and `replaces` is not set; StateError
        """


class CheckoutSource(Protocol):
    """The checkouts of isolated members; what they need is loaded when the first is wanted."""

    def open(self) -> Checkouts: ...

    def end(self, member: Member) -> str:
        """The member is gone. Returns what is to say about its checkout and its branch; often nothing."""

    def discard(self, member: str) -> str:
        """Remove its checkout and its branch, whatever is in them.

        Raises: ToolError, StateError
        """

    @property
    def branches(self) -> BranchPort: ...


class BranchPort(Protocol):
    """The branches of members at the remote that all hosts share."""

    def announce(self, member: Member, cancel: CancelScope | None) -> tuple[str, str]:
        """Before a member is spawned that other hosts may run: what its branch at the remote is called, if it can have
        one, and what to say about that; often nothing.

        Raises: ToolError, if there is such a branch, which is not its own; Cancelled
        """

    def begin(self, member: Member, cancel: CancelScope | None) -> str:
        """Push what the lead is at as the branch of a new member. Returns why that is not possible; often nothing."""


class PlacementPort(Protocol):
    """Which host runs which member. In files, this process runs all."""

    def is_here(self, member: Member) -> bool:
        """Whether it is for this process to run it."""

    def stops_with_us(self, member: Member) -> bool:
        """Whether its work stops until the user resumes it when this process ends. Otherwise another host continues."""

    def holders(self) -> Mapping[str, str]:
        """The living host of each member that another process may run; empty if there is none.

        Raises: StateError
        """

    def choose(self, host: str, planned: str) -> str:
        """Where a new member starts: the name of a host, `any`, or empty for this process. `planned` is what the team
        file says, and may name a host that is not there yet.

        Raises: ToolError, if there is no such host
        """

    def why_no_room(self, member: Member, members: Sequence[Member]) -> str:
        """Why a member that is to be spawned must wait for a free slot, next to these; empty if it need not.

        Raises: StateError
        """

    def next_incarnation(self, name: str, earlier: int) -> int:
        """Of a member that is spawned. `earlier` is the last one that the roster knows, 0 if it knows none.

        Raises: StateError
        """

    def claim(self, name: str, cancel: CancelScope) -> None:
        """Wait until the last member of that name is cleaned up, on whichever host that was. From now on, only this
        process writes for the new one.

        Raises: ToolError, if that takes too long; StateError, Cancelled
        """

    def begin(self, name: str, incarnation: int, cancel: CancelScope) -> None:
        """Claim a new member that another host will run, and give it an empty conversation. No host takes it yet.

        Raises: ToolError, StateError, Cancelled
        """

    def release(self, name: str) -> None:
        """From now on, hosts may take a new member.

        Raises: StateError
        """
