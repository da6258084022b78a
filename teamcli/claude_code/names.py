"""Claude Code's names for tools, commands and models, and ours.

It compares tool names with regard to case, and so do we.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

OUR_TOOLS: Mapping[str, str] = {
    "Bash": "bash",
    "BashOutput": "bash_output",
    "TaskOutput": "bash_output",
    "TaskStop": "bash_stop",
    "KillShell": "bash_stop",
    "KillBash": "bash_stop",
    "Read": "read_file",
    "Write": "write_file",
    "Edit": "edit_file",
    "MultiEdit": "edit_file",
    "Glob": "glob",
    "Grep": "grep",
    "Agent": "agent",
    "Task": "agent",
    "SendMessage": "send_message",
    "TaskCreate": "task_create",
    "TaskUpdate": "task_update",
    "TaskList": "task_list",
    "TaskGet": "task_list",
    "ExitPlanMode": "submit_plan",
}
"""By Claude Code's name; of several names for one tool, the present one comes first."""

_SAME_AS = {"spawn_teammate": "Agent", "agent_stop": "TaskStop", "agent_status": "TaskOutput"}
"""Tools of ours that are a case of one of theirs."""

_ABSENT = (
    "AskUserQuestion Cd CronCreate CronDelete CronList EnterPlanMode EnterWorktree ExitWorktree LS LSP "
    "ListMcpResources ListMcpResourcesTool Monitor NotebookEdit NotebookRead PowerShell ReadMcpResource "
    "ReadMcpResourceTool Skill SlashCommand TeamCreate TeamDelete TodoRead TodoWrite ToolSearch WebFetch WebSearch "
    "Workflow"
)
ABSENT_TOOLS = frozenset(_ABSENT.split())
"""Tools of Claude Code that do not exist here."""

BUILT_IN_THERE = frozenset(
    [
        "?",
        "agents",
        "clear",
        "compact",
        "config",
        "context",
        "cost",
        "diff",
        "exit",
        "help",
        "hooks",
        "mcp",
        "model",
        "permissions",
        "quit",
        "resume",
        "tasks",
    ]
)
"""Commands of ours that Claude Code has under the same name."""

_FAMILIES = {
    "fable": "fable",
    "best": "fable",
    "opus": "opus",
    "opusplan": "opus",
    "sonnet": "sonnet",
    "haiku": "haiku",
}
_LARGE_CONTEXT = "[1m]"
_OUR_ROLES = {"general-purpose": "general", "Explore": "researcher", "Plan": "general"}
MCP = "mcp__"
"""How the names of servers' tools begin."""
INHERIT = "inherit"
"""As a model: the parent's."""


def our_tool(name: str) -> str:
    """Our name for a tool. Names that Claude Code does not have, such as ours and `mcp__…`, stay as they are."""
    return OUR_TOOLS.get(name, name)


def our_tools(name: str) -> tuple[str, ...]:
    """All tools of ours that Claude Code's name means in a rule; none if it has no such tool, or we do not."""
    first = OUR_TOOLS.get(name)
    return (first, *(ours for ours, theirs in _SAME_AS.items() if OUR_TOOLS[theirs] == first)) if first else ()


def their_tool(name: str) -> str:
    """Claude Code's present name for a tool of ours; the same name if it has none."""
    return _SAME_AS.get(name) or next((theirs for theirs, ours in OUR_TOOLS.items() if ours == name), name)


def names_of(tool: str) -> tuple[str, ...]:
    """All names by which a matcher or rule may mean a tool of ours: ours, then theirs, old ones included."""
    ours = our_tool(_SAME_AS.get(tool, tool))
    return (tool, *(theirs for theirs, each in OUR_TOOLS.items() if each == ours))


def is_claude_tool(name: str) -> bool:
    """Whether a name is one of Claude Code's tools, or of a server's."""
    return name in OUR_TOOLS or name in ABSENT_TOOLS or name.startswith(MCP)


def our_role(name: str) -> str:
    """Our role for an agent that comes with Claude Code. Other names stay as they are."""
    return _OUR_ROLES.get(name, name)


def is_model_alias(name: str) -> bool:
    alias = name.removesuffix(_LARGE_CONTEXT)
    return alias in _FAMILIES or alias in ("default", INHERIT)


def model_id(name: str, parent: str, default: str, known: Iterable[str], chosen: Mapping[str, str]) -> str:
    """The model that a name means: an alias of Claude Code, or an id.

    Args:
        parent: The model of the agent that starts this one, for `inherit`.
        known: Ids of models, the newest of each family first.
        chosen: Environment variables; `ANTHROPIC_DEFAULT_OPUS_MODEL` says what `opus` means, and so on.
    """
    if not name or name == INHERIT:
        return parent
    if not is_model_alias(name):
        return name
    family = _FAMILIES.get(name.removesuffix(_LARGE_CONTEXT))
    if family is None:
        return default
    by_user = chosen.get(f"ANTHROPIC_DEFAULT_{family.upper()}_MODEL")
    return by_user or next((id for id in known if id.startswith(f"claude-{family}-")), default)
