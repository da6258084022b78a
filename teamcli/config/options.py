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
    plugin_dirs: tuple[Path, ...] = ()
    mcp_config: tuple[str, ...] = ()
    """`--mcp-config`: files with MCP servers, or JSON."""
    strict_mcp_config: bool = False
    """`--strict-mcp-config`: no other MCP servers."""
