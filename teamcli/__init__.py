"""teamcli: a coding agent in the terminal that is a team. It is also a library: see docs/library.md."""

__version__ = "0.1.0"

TYPE_CHECKING = False  # as in `typing`, which the command line does not need to load
if TYPE_CHECKING:
    from teamcli import errors, events
    from teamcli.agent.events import Event, Outcome
    from teamcli.agent.hooks import HookEvent, HookResult
    from teamcli.agent.permission_question import Answer, Consent, Question
    from teamcli.cancel import CancelScope
    from teamcli.commands.reports.inbox import Mail
    from teamcli.errors import ConfigError, ModelError, TeamcliError, TeamError, ToolError, UsageError
    from teamcli.hooks.functions import Hook
    from teamcli.llm.langchain import langchain_model
    from teamcli.llm.types import LLM, Reply, Request, Usage
    from teamcli.sdk.function_tool import ToolContext, tool
    from teamcli.sdk.session import Result, Session
    from teamcli.sdk.subagents import SubAgents
    from teamcli.sdk.tasks import Tasks
    from teamcli.subagents.snapshot import Activity, AgentEvent, EventKind, Snapshot, State
    from teamcli.tasks.board import Task, TaskStatus
    from teamcli.team.message import Message, MessageType
    from teamcli.team.requests import Request as PlanRequest
    from teamcli.team.roster import Member
    from teamcli.worktrees.merge import Merged

__all__ = [
    "LLM",
    "Activity",
    "AgentEvent",
    "Answer",
    "CancelScope",
    "ConfigError",
    "Consent",
    "Event",
    "EventKind",
    "Hook",
    "HookEvent",
    "HookResult",
    "Mail",
    "Member",
    "Merged",
    "Message",
    "MessageType",
    "ModelError",
    "Outcome",
    "PlanRequest",
    "Question",
    "Reply",
    "Request",
    "Result",
    "Session",
    "Snapshot",
    "State",
    "SubAgents",
    "Task",
    "TaskStatus",
    "Tasks",
    "TeamError",
    "TeamcliError",
    "ToolContext",
    "ToolError",
    "Usage",
    "UsageError",
    "__version__",
    "errors",
    "events",
    "langchain_model",
    "tool",
]

_HOMES = {
    "agent.permission_question": "Answer Consent Question",
    "agent.events": "Event Outcome",
    "agent.hooks": "HookEvent HookResult",
    "cancel": "CancelScope",
    "errors": "ConfigError ModelError TeamError TeamcliError ToolError UsageError",
    "sdk.session": "Result Session",
    "sdk.subagents": "SubAgents",
    "sdk.tasks": "Tasks",
    "tasks.board": "Task TaskStatus",
    "commands.reports.inbox": "Mail",
    "llm.langchain": "langchain_model",
    "llm.types": "LLM Reply Request Usage",
    "subagents.snapshot": "Activity AgentEvent EventKind Snapshot State",
    "team.message": "Message MessageType",
    "team.requests": "PlanRequest=Request",
    "team.roster": "Member",
    "sdk.function_tool": "ToolContext tool",
    "hooks.functions": "Hook",
    "worktrees.merge": "Merged",
}
"""The module of each public name (`public=internal` if they differ). Loaded on first use."""

_RENAMED = {"Ruling": "HookResult"}
"""Old public names, kept for one release."""


def __getattr__(name: str) -> object:
    """Load a public name on first use."""
    from importlib import import_module

    if name in _RENAMED:
        import warnings

        warnings.warn(f"teamcli.{name} is now teamcli.{_RENAMED[name]}", DeprecationWarning, stacklevel=2)
        return __getattr__(_RENAMED[name])

    if name in ("errors", "events"):
        return import_module(f"teamcli.{name}")
    for home, names in _HOMES.items():
        for each in names.split():
            public, _, there = each.partition("=")
            if public == name:
                globals()[name] = found = getattr(import_module(f"teamcli.{home}"), there or public)
                return found
    raise AttributeError(f"module 'teamcli' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
