"""What the command line asks for, as values: the options, the permission modes and the exit codes."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from pathlib import Path
from typing import NamedTuple


class ExitStatus(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    LIMIT = 3
    PERMISSION = 4
    SIGHUP = 129
    SIGINT = 130
    SIGPIPE = 141
    SIGTERM = 143


class Mode(StrEnum):
    """The permission modes. This is the only list of them: settings, command line and library check against it."""

    DEFAULT = "default"
    ACCEPT_EDITS = "acceptEdits"
    PLAN = "plan"
    BYPASS_PERMISSIONS = "bypassPermissions"


class Options(NamedTuple):
    prompt: str = ""
    headless: bool = False
    model: str | None = None
    permission_mode: str | None = None
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()
    max_turns: int | None = None
    max_budget_usd: float | None = None
    continue_last: bool = False
    """`--continue`: this directory's last session."""
    resume: str | None = None
    """`--resume ID`; empty without an ID."""
    output_format: str = "text"
    append_system_prompt: str = ""
    offline: bool = False
    client: str | None = None
    trust: bool = False
    add_dirs: tuple[Path, ...] = ()
    no_team: bool = False
    cwd: Path | None = None
    debug: bool = False
    verbose: bool = False
    mcp_config: tuple[str, ...] = ()
    """`--mcp-config`: files with MCP servers, or JSON."""
    strict_mcp_config: bool = False
    """`--strict-mcp-config`: no other MCP servers."""
    system_prompt: str | None = None
    """Replaces how the lead's system prompt begins."""
    tools: tuple[str, ...] | None = None
    """The built-in tools that exist; None for all."""
    effort: str = ""
    thinking: str = ""
    max_thinking_tokens: int | None = None
    fallback_models: tuple[str, ...] = ()
    """Asked in this order if the model is overloaded or not available."""
    settings: str = ""
    """Settings for Claude Code, as JSON or in a file; they win over all others."""
    setting_sources: tuple[str, ...] | None = None
    """Of `user`, `project` and `local`, those whose configuration counts; None for all."""
    session_id: str = ""
    """For a new session."""
    fork_session: bool = False
    """Resume as a new session."""
    agents: str = ""
    """More roles, as JSON."""
    agent: str = ""
    """The role that the lead works in."""
    json_schema: str = ""
    """What the last answer must look like, as JSON."""
    input_format: str = "text"
    include_partial_messages: bool = False
    replay_user_messages: bool = False
    permission_prompt_tool: str = ""
    plugin_dirs: tuple[Path, ...] = ()
    bare: bool = False
    """Without hooks, skills, commands, roles, plugins and instructions."""
    store: str = ""
    """The database that the state of the team is in."""
    team: str = ""
    """Which team of it."""
    host: str = ""
    """What this machine is called there."""
    without_effect: tuple[str, ...] = ()
    """Flags of Claude Code that were given and mean nothing here."""

    @property
    def is_controlled(self) -> bool:
        """Whether another program drives this one, with messages on standard input."""
        return self.input_format == "stream-json"
