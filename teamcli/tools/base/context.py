"""What the tools of an agent work with: its workspace and commands, the files it knows, team and sub-agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from teamcli.agent.tool import Progress, ToolOutput
from teamcli.cancel import CancelScope
from teamcli.errors import ToolError
from teamcli.exec.commands import Commands
from teamcli.workspace.bounds import Workspace
from teamcli.workspace.known_files import KnownFiles

if TYPE_CHECKING:
    from teamcli.workspace.file_access import Content


class SpawnRequest(NamedTuple):
    """What a spawn asks for."""

    name: str
    role: str
    prompt: str
    model: str = ""
    tools: tuple[str, ...] | None = None
    plan: bool = False
    worktree: bool = False
    """It works in its own checkout of the repository."""
    claims: bool = False
    """It takes free tasks from the board by itself while it is idle."""
    host: str = ""
    """Where it starts, of a team on several machines: the name of a host, or `any`."""
    by_user: bool = False
    """Its result is shown to the user, and does not wake the lead."""


class TeamPort(Protocol):
    """What the team tools need from the team. `agent` is the caller; teamcli sets it and `key`, not the model.

    All return the text of the result. They raise ToolError or TeamError, which become error results.
    """

    def spawn(self, request: SpawnRequest, cancel: CancelScope | None = None) -> str: ...

    def describe(self) -> str: ...

    @property
    def mail(self) -> MailPort: ...

    @property
    def quiescence(self) -> WaitPort: ...

    @property
    def protocols(self) -> ProtocolPort: ...

    @property
    def merging(self) -> MergePort: ...


class MailPort(Protocol):
    def send(self, agent: str, to: str | tuple[str, ...], content: str, summary: str, key: str) -> str: ...

    def broadcast(self, agent: str, content: str, key: str) -> str: ...

    def read_inbox(self, agent: str) -> ToolOutput: ...


class WaitPort(Protocol):
    def wait_for_message(self, agent: str, timeout_seconds: float, cancel: CancelScope) -> ToolOutput: ...


class ProtocolPort(Protocol):
    def request_shutdown(self, asker: str, name: str, reason: str) -> str: ...

    def answer_shutdown(self, agent: str, request_id: str, approve: bool, reason: str) -> str: ...

    def submit_plan(self, agent: str, plan: str) -> str: ...

    def review_plan(self, reviewer: str, request_id: str, approve: bool, feedback: str) -> str: ...


class TaskPort(Protocol):
    """What the task tools need from the board. `agent` is the caller; teamcli sets it, not the model.

    All return the text of the result. They raise TeamError and StateError, which become error results.
    """

    def create(self, agent: str, subject: str, description: str, blocked_by: tuple[int, ...], owner: str) -> str: ...

    def update(self, agent: str, id: int, fields: Mapping[str, Any]) -> str:
        """`fields` are those of the call; None for what stays."""

    def describe(self, agent: str, id: int | None) -> str: ...


class MergePort(Protocol):
    def preview(self, name: str) -> str:
        """What a merge would bring, in words. Never raises: what is wrong is said by the merge itself."""

    def merge(self, asker: str, name: str, message: str, cancel: CancelScope, progress: Progress) -> str: ...


class SubAgentTask(NamedTuple):
    """What a sub-agent is to do."""

    prompt: str
    description: str = ""
    role: str = ""
    """Empty for a copy of its parent, which knows everything its parent knows."""
    model: str = ""
    """Empty for the role's, or the parent's."""
    cwd: str = ""
    """The directory of the workspace it works in; empty for that of its role, or the root."""
    tools: tuple[str, ...] | None = None
    """The only tools it may use; None for all that its role allows."""
    by_user: bool = False
    """The user's program started it: its end is shown to the user, and does not wake its parent."""


class SubAgentPort(Protocol):
    """What the sub-agent tools need. `parent` is the caller; teamcli sets it, not the model. All raise ToolError."""

    def run(self, parent: str, task: SubAgentTask, call: CallContext) -> str: ...

    def start(self, parent: str, task: SubAgentTask) -> str: ...

    def status(self, parent: str, id: str, wait_seconds: float, cancel: CancelScope) -> str: ...

    def stop(self, parent: str, ids: Iterable[str]) -> str: ...


class AgentContext(NamedTuple):
    """What the tools of one agent work with, for as long as the agent lives."""

    workspace: Workspace
    commands: Commands
    known_files: KnownFiles
    agent: str = "lead"
    team: TeamPort | None = None
    """None for an agent without team tools."""
    may_see: Callable[[Path], bool] = lambda path: True
    """Whether a search may show this file: the pipeline has checked only the directory that is searched."""
    changed: Callable[[Path, Content | None, bytes], None] = lambda path, before, after: None
    """Called after each file change, with what was there before (None for nothing) and what is there now."""
    subagents: Callable[[], SubAgentPort] | None = None
    """Called when the first one is wanted; None for an agent that cannot have any."""
    tasks: Callable[[], TaskPort] | None = None
    """Called when the board is wanted; None for an agent without one."""
    instructions_for: Callable[[Path], str] = lambda file: ""
    """What else an agent that reads this file should know; empty if it knows that already."""


class CallContext(NamedTuple):
    """What one call works with while it runs."""

    cancel: CancelScope
    progress: Progress
    call_id: str
    """The model's id for the call."""
    key: str = ""
    """Identifies the call permanently: what is derived from it (a message's id) is the same if the call is repeated."""


def subagents_of(context: AgentContext) -> SubAgentPort:
    """Raises: ToolError"""
    if context.subagents is None:
        raise ToolError("You cannot have sub-agents: do it yourself.")
    return context.subagents()
