"""Settings: JSON files of the user, of the project, and of the person in the project, merged.

Later files win, key by key; lists of permission rules are joined. `project_settings` decides which parts of a project's
files apply.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from teamcli.config.options import Mode
from teamcli.config.setting_checks import (
    each_value,
    flag,
    list_of,
    made_of,
    mapping,
    network,
    number,
    one_of,
    or_nothing,
    pattern,
    text,
    whole_number,
)
from teamcli.errors import ConfigError
from teamcli.storage.files import Json, read_json, write_json


class Price(NamedTuple):
    """Dollars per million tokens."""

    input: float
    output: float


class PermissionSettings(NamedTuple):
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    mode: Mode | None = None


class LimitSettings(NamedTuple):
    teammate_turns: int = 200
    """Model calls of a teammate for one piece of work."""
    teammates: int = 250
    """How many teammates there may be, not counting those that are shut down."""
    subagents: int = 100
    """How many sub-agents one agent may have running or waiting."""
    wakes: int = 500
    """How often in a row other agents may wake a teammate without a message from the user."""
    shutdown_seconds: float = 60.0
    """How long a working teammate may take to answer a shutdown request."""


class SubAgentSettings(NamedTuple):
    max_concurrent: int = 5
    """How many run at once; the others wait."""
    timeout_seconds: float = 1800.0
    turns: int = 200
    """Model calls of one sub-agent."""
    depth: int = 1
    """How deep they may nest: with 2, sub-agents may have sub-agents."""
    show_output: bool = False
    """Whether their text is shown while they work."""


class Allowance(NamedTuple):
    """How much may be used; None for no bound."""

    usd: float | None = None
    tokens: int | None = None
    """All input, cached or not, and all output."""
    calls: int | None = None
    seconds: float | None = None
    """Of work: time inside turns, without the time that a question waits for the user."""


class BudgetSettings(NamedTuple):
    session: Allowance = Allowance()
    """All agents together, in one run."""
    team: Allowance = Allowance()
    """All teammates with their sub-agents, in one run."""
    lead: Allowance = Allowance()
    """The lead with its sub-agents, in one run."""
    teammate: Allowance = Allowance()
    """Each teammate with its sub-agents, over all runs."""
    subagent: Allowance = Allowance()
    """Each sub-agent."""
    agents: Mapping[str, Allowance] = MappingProxyType({})
    """Teammates by name; fields that are not given here come from `teammate`."""


class HookCommand(NamedTuple):
    """A command that runs when something happens."""

    command: str
    timeout: float | None = None
    """In seconds; None for the default."""
    type: str = "command"
    raw: Mapping[str, Any] = MappingProxyType({})
    """All fields as written, if it is from a settings file of Claude Code."""


class HookGroup(NamedTuple):
    hooks: tuple[HookCommand, ...]
    matcher: str = ""
    """A regular expression for the subject of the event, for example a tool name; empty for all."""
    source: str = ""
    """The settings file of Claude Code that it is from; empty if it is from one of ours."""
    plugin: str = ""
    """The folder of the plugin that it comes with, if it does."""
    role: str = ""
    """The role for whose agents it runs; empty for all agents."""


class WorktreeSettings(NamedTuple):
    setup: str | None = None
    """A command that runs once in each new checkout."""
    gate: str | None = None
    """A command that must succeed in a checkout before its work is merged."""


HOOK_EVENTS = (
    "PreToolUse",
    "PostToolUse",
    "UserPromptSubmit",
    "Stop",
    "SubagentStop",
    "TeammateIdle",
    "SessionStart",
    "SessionEnd",
    "PreCompact",
    "TaskCreated",
    "TaskCompleted",
    "PostToolUseFailure",
    "PermissionRequest",
    "Notification",
    "SubagentStart",
    "PostCompact",
    "StopFailure",
    "PostToolBatch",
)


class Settings(NamedTuple):
    """All settings. A new one also needs an entry in `_check` below. A list or an object: see "Where do I add" in
    docs/contributing.md."""

    model: str | None = None
    """The model, unless `--model` or MODEL_ID names one."""
    client: Literal["auto", "direct", "sdk"] = "auto"
    platform: Literal["bedrock", "vertex", "foundry"] | None = None
    """Reach the model through a cloud platform, with its usual credentials."""
    auth_header: Literal["auto", "bearer", "x-api-key", "both"] = "auto"
    """How the key is sent; some gateways read only `x-api-key`."""
    permissions: PermissionSettings = PermissionSettings()
    sandbox: Literal["auto", "off", "required"] = "auto"
    sandbox_network: Literal["on", "off"] | tuple[str, ...] = "on"
    """Where commands may connect: anywhere, nowhere, or only to these hosts."""
    sandbox_writable: tuple[str, ...] = ()
    """Paths that commands may write to, in addition to the workspace."""
    sandbox_closed: tuple[str, ...] = ()
    """Paths that commands may not even read."""
    sandbox_allows_bash: bool = False
    """Run commands without asking if the sandbox works."""
    max_tokens: int = 32_000
    """The longest answer to request."""
    context_tokens: int | None = None
    """The model's context size, if teamcli does not know it or should not use all of it."""
    compact_at: float = 0.8
    """The share of the context that a conversation may fill before it is compacted."""
    thinking: Mapping[str, Any] | None = None
    """The `thinking` field of requests, for models that have it: `{"type": "adaptive"}`."""
    prompt_caching: bool = True
    retry_minutes: float = 10.0
    """How long a model call is retried while the endpoint is overloaded, limits the rate or is down."""
    retries: int | None = None
    """The most retries. If unset, only an answer that breaks off in the middle has a limit, which is 5."""
    limits: LimitSettings = LimitSettings()
    subagents: SubAgentSettings = SubAgentSettings()
    budgets: BudgetSettings = BudgetSettings()
    """How much agents may use: dollars, tokens, model calls, seconds of work."""
    max_concurrent_calls: int | None = None
    """How many model calls of the team may run at once."""
    stuck_after_seconds: float = 120.0
    """How long a teammate may work without progress before it is shown as stuck."""
    prices: Mapping[str, Price] = MappingProxyType({})
    """Prices that are not in the built-in list, by model."""
    hooks: Mapping[str, tuple[HookGroup, ...]] = MappingProxyType({})
    """Commands to run, by event."""
    worktree: WorktreeSettings = WorktreeSettings()
    """What belongs to the checkouts of isolated members."""
    vi_mode: bool = False
    """Use vi keys at the prompt."""
    notify: Literal["off", "bell", "desktop"] = "bell"
    """How the terminal gets the user's attention when a question waits, or when the team has finished longer work."""
    shell_output: Literal["share", "private"] = "share"
    """Whether the lead sees the user's own commands (`!command`) and what they print."""
    env: Mapping[str, str] = MappingProxyType({})
    """Variables for commands and hooks."""
    additional_directories: tuple[str, ...] = ()
    """Directories that belong to the workspace in addition, as with `--add-dir`."""
    wrap: Literal["terminal", "words"] = "terminal"
    """Who wraps the paragraphs of an answer: the terminal, so that they are whole when copied, or teamcli."""
    hidden_variables: tuple[str, ...] = ()
    """Names or patterns, such as `AWS_*`, of variables that commands and hooks must not see."""
    mcpServers: Mapping[str, Any] = MappingProxyType({})
    """MCP servers by name, as in `.mcp.json`."""
    disabled_mcp_servers: tuple[str, ...] = ()
    """Names of MCP servers that are not used."""
    store: str | None = None
    """The database that holds the teams' state instead of files. Only from the user's own settings."""
    lease_seconds: float = 30.0
    """How long other hosts wait before they take over the members of a host that has died."""
    durable: bool = True
    """Wait for the disk at each step, so that not even a power cut loses anything."""


# The upper bounds refuse `Infinity`, which Python reads in JSON.
_DOLLARS = number("from 0 up", lambda number: 0 <= number < 1e12)
_SECONDS = number("of seconds above 0", lambda number: 0 < number < 1e9)
_COUNT = whole_number(1)
_TEXTS = list_of(text)
_ALLOWANCE = made_of(
    Allowance,
    is_strict=True,
    usd=or_nothing(_DOLLARS),
    tokens=or_nothing(_COUNT),
    calls=or_nothing(_COUNT),
    seconds=or_nothing(_SECONDS),
)
_HOOK = made_of(
    HookCommand, ("command",), type=one_of("command"), command=text, timeout=or_nothing(_SECONDS), raw=mapping
)
_HOOK_GROUP = made_of(HookGroup, ("hooks",), matcher=pattern, hooks=list_of(_HOOK), source=text, plugin=text)
_check = made_of(
    Settings,
    model=or_nothing(text),
    client=one_of("auto", "direct", "sdk"),
    platform=or_nothing(one_of("bedrock", "vertex", "foundry")),
    auth_header=one_of("auto", "bearer", "x-api-key", "both"),
    permissions=made_of(PermissionSettings, allow=_TEXTS, ask=_TEXTS, deny=_TEXTS, mode=or_nothing(one_of(*Mode))),
    sandbox=one_of("auto", "off", "required"),
    sandbox_network=network,
    sandbox_writable=_TEXTS,
    sandbox_closed=_TEXTS,
    sandbox_allows_bash=flag,
    max_tokens=_COUNT,
    context_tokens=or_nothing(_COUNT),
    compact_at=number("above 0 and up to 1", lambda number: 0 < number <= 1),
    thinking=or_nothing(mapping),
    prompt_caching=flag,
    retry_minutes=number("of minutes from 0 to 1440", lambda number: 0 <= number <= 1440),
    retries=or_nothing(whole_number(0, 20)),
    limits=made_of(
        LimitSettings,
        teammate_turns=_COUNT,
        teammates=_COUNT,
        subagents=_COUNT,
        wakes=_COUNT,
        shutdown_seconds=_SECONDS,
    ),
    subagents=made_of(
        SubAgentSettings,
        max_concurrent=_COUNT,
        timeout_seconds=_SECONDS,
        turns=_COUNT,
        depth=whole_number(1, 3),
        show_output=flag,
    ),
    budgets=made_of(
        BudgetSettings,
        is_strict=True,
        session=_ALLOWANCE,
        team=_ALLOWANCE,
        lead=_ALLOWANCE,
        teammate=_ALLOWANCE,
        subagent=_ALLOWANCE,
        agents=each_value(_ALLOWANCE),
    ),
    max_concurrent_calls=or_nothing(_COUNT),
    stuck_after_seconds=_SECONDS,
    lease_seconds=_SECONDS,
    prices=each_value(made_of(Price, ("input", "output"), input=_DOLLARS, output=_DOLLARS)),
    hooks=each_value(list_of(_HOOK_GROUP)),
    worktree=made_of(WorktreeSettings, setup=or_nothing(text), gate=or_nothing(text)),
    env=each_value(text),
    additional_directories=_TEXTS,
    hidden_variables=_TEXTS,
    mcpServers=mapping,
    disabled_mcp_servers=_TEXTS,
    store=or_nothing(text),
    durable=flag,
    vi_mode=flag,
    notify=one_of("off", "bell", "desktop"),
    shell_output=one_of("share", "private"),
    wrap=one_of("terminal", "words"),
)


def load_settings(
    user: Path,
    projects: Iterable[Json] = (),
    given: Mapping[str, Any] = MappingProxyType({}),
    below: Json | None = None,
) -> Settings:
    """The user's settings, overridden by the project's `projects`, overridden by those that a program has `given`.

    What is `below` is overridden by all of them.

    Raises: ConfigError, naming the file and the field
    """
    merged = _merge(below or {}, read_settings_file(user, may_be_link=True))
    for raw in projects:
        merged = _merge(merged, raw)
    # Checked by itself, as each file was: the error says whose mistake it is. What valid parts add up to is valid.
    try:
        _check(dict(given), "")
    except ValueError as e:
        raise ConfigError(f"settings: {e}") from e
    settings: Settings = _check(_merge(merged, dict(given)), "")
    return settings


def settings_problem(raw: Json) -> str:
    """What is not valid in settings; empty if nothing is."""
    try:
        _check(raw, "")
    except ValueError as e:
        return str(e)
    return ""


def read_settings_file(path: Path, may_be_link: bool = False) -> Json:
    """One file, checked by itself so that an error message names the right one.

    Raises: ConfigError
    """
    raw = read_json(path, may_be_link) or {}
    if problem := settings_problem(raw):
        raise ConfigError(f"{path}: {problem}; fix it there")
    return raw


def add_allow_rule(path: Path, rule: str) -> None:
    """Add an `allow` rule to a settings file and keep everything else in it.

    Raises: ConfigError
    """
    raw = read_settings_file(path)
    permissions = raw.setdefault("permissions", {})
    rules = permissions.setdefault("allow", [])
    if rule not in rules:
        rules.append(rule)
        write_json(path, raw)


_JOINED = frozenset(
    (
        *("allow", "ask", "deny", "additional_directories", "hidden_variables", "sandbox_writable", "sandbox_closed"),
        "disabled_mcp_servers",
    )
)
"""Lists that are joined over all files, like those of hooks."""


def _merge(base: Json, over: Json, is_joined: bool = False) -> Json:
    merged = {**base, **over}
    for key in base.keys() & over.keys():
        if key == "mcpServers":  # each as a whole: parts of two could send the key of one to the address of the other
            merged[key] = {**base[key], **over[key]}
        elif isinstance(base[key], dict) and isinstance(over[key], dict):
            merged[key] = _merge(base[key], over[key], key == "hooks")
        elif is_joined or key in _JOINED:
            merged[key] = [*base[key], *over[key]]
    return merged
