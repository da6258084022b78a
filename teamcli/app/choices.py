"""Chooses settings, endpoint, model and policy from options, files and environment. Opens nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from teamcli.app.host_program import NOTHING_EMBEDDED, Embedding
from teamcli.config.claude_settings import ClaudeSettings, read_given_settings
from teamcli.config.environment import MODEL
from teamcli.config.options import Options
from teamcli.config.project import Project
from teamcli.config.role_hooks import with_role_hooks
from teamcli.config.roles import Role
from teamcli.config.settings import HookGroup, Settings, load_settings
from teamcli.errors import ConfigError
from teamcli.llm.credentials import ClientChoice, Endpoint, find_endpoint
from teamcli.llm.pricing import DEFAULT_MODEL, cost, meant_model
from teamcli.llm.types import Usage
from teamcli.permissions.policy import Mode, Policy
from teamcli.session.session import EMBEDDED, OWN_MODEL
from teamcli.tools.catalog import ALL_TOOLS, ToolDefinition
from teamcli.workspace.bounds import Workspace

if TYPE_CHECKING:
    from teamcli.permissions.rules import Rule

OFFERS_IN_A_LINE = 10
NO_KEY = (
    "No API key: a small embedded model is on, which understands simple commands such as `run ls`."
    " For a real one set ANTHROPIC_API_KEY, in the environment or in .env."
)


class Choices(NamedTuple):
    """What was chosen before anything is opened."""

    settings: Settings
    workspace: Workspace
    policy: Policy
    endpoint: Endpoint | None
    """None for the embedded model and for one that the host program provides."""
    model: str
    price: Callable[[Usage, str], float | None]
    embedding: Embedding = NOTHING_EMBEDDED
    effort: str = ""
    """How much the model may think; empty for its default."""
    fallback_models: tuple[str, ...] = ()

    def with_hooks_of(self, roles: Collection[Role], project: Project) -> Choices:
        """Add the hooks that roles bring."""
        if project.claude.disables_hooks or not any(role.hooks for role in roles):
            return self
        settings = self.settings._replace(hooks=with_role_hooks(self.settings.hooks, roles))
        policy = self.policy._replace(hook_files=find_hook_files(settings, project.directory))
        return self._replace(settings=settings, policy=policy)

    def hiding(self, *variables: str) -> Choices:
        """Let commands not see these variables either."""
        hidden = (*self.settings.hidden_variables, *variables)
        return self._replace(settings=self.settings._replace(hidden_variables=hidden))


def choose(options: Options, project: Project, embedding: Embedding, notes: list[str]) -> Choices:
    """Raises: ConfigError."""
    notes += [*project.environment.notes, *project.notes]
    notes += [*project.claude.problems, *project.problems]
    notes += project.plugins(() if options.bare else options.plugin_dirs).problems
    settings = read_settings(project, _given_settings(options, project, embedding))
    if options.bare:
        settings = settings._replace(hooks={})
    if options.without_effect:
        notes.append(f"Flags of Claude Code without an effect here: {', '.join(options.without_effect)}.")
    endpoint = choose_endpoint(options, project, settings) if embedding.llm is None else None
    model = choose_model(options, project, settings, endpoint)
    if embedding.llm is not None:
        model = options.model or OWN_MODEL
    elif endpoint is None and not options.offline:
        notes.append(NO_KEY)

    def price(usage: Usage, model: str) -> float | None:
        return 0.0 if model == EMBEDDED else cost(usage, model, settings.prices)

    if price(Usage(), model) is None and (setting := _setting_in_dollars(options, settings)):
        raise ConfigError(f"{setting}: no price is known for {model}; give one under `prices` in settings")
    workspace = open_workspace(options, settings, project)
    policy = read_policy(options, settings, project, embedding.tools)
    others = tuple(meant_model(name, model) for name in options.fallback_models)
    return Choices(settings, workspace, policy, endpoint, model, price, embedding, options.effort, others)


def _only_ours(hooks: Mapping[str, tuple[HookGroup, ...]]) -> Mapping[str, tuple[HookGroup, ...]]:
    ours = {event: tuple(group for group in groups if not group.source) for event, groups in hooks.items()}
    return {event: groups for event, groups in ours.items() if groups}


def _given_settings(options: Options, project: Project, embedding: Embedding) -> Mapping[str, Any]:
    given = read_given_settings(options.settings, project.claude.unused) if options.settings else {}
    return {**embedding.settings, **given, **_thinking(options)}


def _thinking(options: Options) -> Mapping[str, Any]:
    """The setting that the options choose, if they do. A number of tokens enables thinking, and 0 disables it."""
    tokens = options.max_thinking_tokens
    if tokens and options.thinking in ("", "enabled"):
        return {"thinking": {"type": "enabled", "budget_tokens": tokens}}
    chosen = options.thinking if options.thinking != "enabled" else "adaptive"
    chosen = chosen or ("disabled" if tokens == 0 else "")
    return {"thinking": {"type": chosen}} if chosen else {}


def read_settings(project: Project, given: Mapping[str, Any] = MappingProxyType({})) -> Settings:
    """`given` settings override those on disk.

    Raises: ConfigError
    """
    projects = [*project.plugins().settings, *project.settings]
    settings = load_settings(project.home / "settings.json", projects, given, project.claude.user)
    return settings._replace(hooks=_only_ours(settings.hooks)) if project.claude.disables_hooks else settings


def choose_endpoint(options: Options, project: Project, settings: Settings) -> Endpoint | None:
    """None for the embedded model.

    Raises: ConfigError
    """
    if options.offline:
        return None
    client = cast(ClientChoice, options.client or settings.client)
    environment = project.environment
    return find_endpoint(
        environment.variables, client, settings.platform, settings.auth_header, environment.no_credential
    )


def choose_model(options: Options, project: Project, settings: Settings, endpoint: Endpoint | None) -> str:
    if endpoint is None:
        return EMBEDDED
    named = options.model or project.environment.get(MODEL) or settings.model or DEFAULT_MODEL
    return meant_model(named)


def open_workspace(options: Options, settings: Settings, project: Project) -> Workspace:
    """Raises: ConfigError, if a directory of the command line does not exist."""
    configured = (Path(os.path.expanduser(each)) for each in settings.additional_directories)  # noqa: PTH111
    existing = [path for each in configured if (path := project.directory / each).is_dir()]
    return Workspace(project.directory, tuple(_directory(path) for path in (*existing, *options.add_dirs)))


def read_policy(
    options: Options,
    settings: Settings,
    project: Project,
    own_tools: Sequence[ToolDefinition] = (),
) -> Policy:
    """The mode, and the rules of the settings plus those of the command line.

    Raises: ConfigError
    """
    rules, names = settings.permissions, {tool.name for tool in (*ALL_TOOLS, *own_tools)}
    read = partial(read_rules, known_tools=names, claude=project.claude)
    return Policy(
        mode=Mode(options.permission_mode or rules.mode or Mode.DEFAULT),
        allow=read([*rules.allow, *options.allowed_tools], kind="allow"),
        ask=read(rules.ask, kind="ask"),
        deny=read([*rules.deny, *options.disallowed_tools], kind="deny"),
        hook_files=find_hook_files(settings, project.directory),
    )


def find_hook_files(settings: Settings, root: Path) -> tuple[Path, ...]:
    """What runs outside the sandbox at the user's word: hooks, and MCP servers that are not confined."""
    servers = [
        entry for entry in settings.mcpServers.values() if isinstance(entry, dict) and entry.get("sandbox") is False
    ]
    if not settings.hooks and not servers:
        return ()
    from teamcli.hooks.files import hook_files  # late: most starts do without hooks

    return hook_files(settings.hooks, root, servers)


def read_rules(
    rules: Sequence[str], known_tools: Collection[str] = (), kind: str = "allow", claude: ClaudeSettings | None = None
) -> tuple[Rule, ...]:
    """Rules that apply. Those of Claude Code's files that mean nothing here are noted as unused.

    Raises: ConfigError, about a rule of any other file
    """
    if not rules:
        return ()
    from teamcli.permissions.claude_rules import why_unused
    from teamcli.permissions.rules import parse_rules  # late: most starts do without any

    found: list[Rule] = []
    for text in rules:
        try:
            found += parse_rules(text, known_tools, kind)
        except ConfigError as e:
            if claude is None or text not in claude.rules:
                raise
            claude.unused.add("permission rule", text, str(e).partition(": ")[2])
    for rule in found:
        if claude is not None and rule.written and (why := why_unused(rule.tool, rule.form, rule.pattern, kind)):
            claude.unused.add("permission rule", str(rule), why)
    return tuple(found)


def untrusted_notes(project: Project) -> list[str]:
    """What is not used because the directory is not trusted, in one line."""
    if not project.offers:
        return []
    more = f"; and {len(project.offers) - OFFERS_IN_A_LINE} more" if len(project.offers) > OFFERS_IN_A_LINE else ""
    return [f"Not used, because not trusted (--trust): {'; '.join(project.offers[:OFFERS_IN_A_LINE])}{more}."]


def _setting_in_dollars(options: Options, settings: Settings) -> str:
    """The setting that limits dollars for the lead's model, if there is one."""
    if options.max_budget_usd is not None:
        return "--max-budget-usd"
    plan = settings.budgets._asdict()
    return next((f"budgets.{name}.usd" for name, each in plan.items() if name != "agents" and each.usd is not None), "")


def _directory(path: Path) -> Path:
    try:
        resolved = path.expanduser().resolve()
    except (OSError, RuntimeError) as e:  # an unknown `~user`, or a loop of links
        raise ConfigError(f"--add-dir: {path} cannot be found: {e}") from e
    if not resolved.is_dir():
        raise ConfigError(f"--add-dir: {path} is not a directory")
    return resolved
