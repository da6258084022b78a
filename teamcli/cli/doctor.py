"""`teamcli doctor`: checks the installation and the project, and says how to fix what is wrong."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import cached_property
from pathlib import Path

from teamcli.agent.transcript_sessions import list_sessions
from teamcli.app.choices import choose_endpoint, choose_model, read_policy, read_settings
from teamcli.app.command_hosts import open_host, safe_programs
from teamcli.cli.model_check import try_model
from teamcli.config.options import ExitStatus, Options
from teamcli.config.project import Project, inspect_project
from teamcli.config.role_hooks import with_role_hooks
from teamcli.config.roles import Roles, load_roles, role_dirs
from teamcli.config.settings import Settings
from teamcli.config.trust import home_dir
from teamcli.errors import ConfigError, MaxTokensRefused, TeamcliError
from teamcli.llm.credentials import Endpoint
from teamcli.llm.pricing import price_of
from teamcli.permissions.access import Executes
from teamcli.permissions.decide import decide
from teamcli.permissions.policy import Verdict
from teamcli.storage.team_dir import TeamDir, lock_holder
from teamcli.store.location import find_store, refuse_files, refuse_without_store
from teamcli.team.roster_file import read_team
from teamcli.text.counting import counted
from teamcli.text.escaping import escape_controls, one_line
from teamcli.workspace.bounds import Workspace
from teamcli.worktrees.checkout import checkouts_in

_MOST_DETAILS = 40
_LONGEST_LIST = 300


class Doubt(str):
    """A finding that may or may not be a problem: a model can fail once and work the next time."""


def run_doctor(store: str | None, team: str) -> int:
    """Print a line for each check; returns the exit code.

    Raises: UsageError
    """
    if team and not find_store(store, os.environ, home_dir()):
        refuse_without_store(team)
    try:
        checks = _Checks(inspect_project(Path.cwd()), store, team)
    except TeamcliError as e:
        return _print("directory", e)
    code: int = ExitStatus.DONE
    for name, check in checks.all().items():
        finding: str | TeamcliError
        try:
            finding = check()
        except TeamcliError as e:
            finding = e
        code = max(code, _print(name, finding))
    return code


def explain(command: str) -> int:
    """Print whether `bash` would run this command here, why, and how to write it so that a rule applies."""
    project = inspect_project(Path.cwd())
    settings = read_settings(project)
    workspace = Workspace(project.directory)
    policy = read_policy(Options(), settings, project)
    # Only this setting makes the verdict depend on whether a sandbox works here, and trying that takes time.
    if settings.sandbox_allows_bash:
        with closing(open_host(settings, workspace, project, is_trial=True)) as host:
            policy = policy._replace(commands_are_confined=not host.why_unconfined())
    decision = decide(policy, "bash", Executes(command), workspace.root, workspace.can_change)
    print(f"{decision.verdict}: {escape_controls(decision.reason)}")
    if decision.verdict is Verdict.ASK and decision.rule:
        print(f"The rule that would allow exactly this: {escape_controls(decision.rule)}")
    return ExitStatus.DONE


def _print(name: str, finding: str | TeamcliError) -> int:
    mark = "BAD" if isinstance(finding, TeamcliError) else "?  " if isinstance(finding, Doubt) else "ok "
    print(f"{mark}  {name:<9}  {escape_controls(str(finding))}", flush=True)
    return ExitStatus.FAILED if isinstance(finding, TeamcliError) else ExitStatus.DONE


class _Checks:
    """Each check returns what it found, or raises an error that says how to fix it."""

    def __init__(self, project: Project, store: str | None, team_name: str) -> None:
        self._project = project
        self._store = store
        self._team_name = team_name

    def all(self) -> dict[str, Callable[[], str]]:
        return {
            "python": lambda: f"{platform.python_version()} on {platform.system()}",
            "settings": self._check_settings,
            "roles": self._check_roles,
            "hooks": self._check_hooks,
            "claude": self._check_claude,
            "key": self._check_key,
            "endpoint": self._check_endpoint,
            "client": self._check_client,
            "model": self._check_model,
            "sandbox": self._check_sandbox,
            "mcp": self._check_mcp,
            "search": self._check_search,
            "terminal": self._check_terminal,
            ".team": self._check_team,
            **({"store": self._check_store} if self._has_store else {}),
        }

    @property
    def _has_store(self) -> bool:
        try:
            return bool(find_store(self._store, os.environ, self._project.home))
        except TeamcliError:  # the check itself reports it
            return True

    @cached_property
    def _settings(self) -> Settings:
        return read_settings(self._project)

    @property
    def _workspace(self) -> Workspace:
        return Workspace(self._project.directory)

    @cached_property
    def _endpoint(self) -> Endpoint | None:
        return choose_endpoint(Options(), self._project, self._settings)

    def _check_settings(self) -> str:
        waiting = f"; not trusted, so not used: {'; '.join(self._project.offers)}" if self._project.offers else ""
        return f"permission mode {self._settings.permissions.mode or 'default'}{waiting}"

    @cached_property
    def _roles(self) -> Roles:
        project = self._project
        folders = role_dirs(
            project.directory, project.home, project.agreement.covers, project.plugins().folders("agents")
        )
        return load_roles(folders, project.claude.unused)

    def _check_roles(self) -> str:
        found = self._roles
        names = ", ".join(role.name for role in found.found.values())
        return "; ".join([f"{len(found.found)}: {one_line(names, _LONGEST_LIST)}", *found.problems])

    def _check_hooks(self) -> str:
        is_off = self._project.claude.disables_hooks
        hooks = self._settings.hooks if is_off else with_role_hooks(self._settings.hooks, self._roles.found.values())
        events = {event: sum(len(group.hooks) for group in groups) for event, groups in hooks.items()}
        return ", ".join(f"{count} for {one_line(event)}" for event, count in events.items()) or "none"

    def _check_claude(self) -> str:
        read_policy(Options(), self._settings, self._project)  # notes the rules that match nothing here
        claude = self._project.claude
        found = [*claude.problems, *claude.unused.details]
        more = f"; and {len(found) - _MOST_DETAILS} more" if len(found) > _MOST_DETAILS else ""
        return "; ".join(found[:_MOST_DETAILS]) + more or "nothing of Claude Code's settings is ignored"

    def _check_key(self) -> str:
        if self._endpoint is None:
            return (
                "none: the embedded model is used; for a real one, set ANTHROPIC_API_KEY in the environment or in .env"
            )
        environment = self._project.environment
        from_project = " in .env" if environment.has_projects_key and self._endpoint.secret else ""
        unused = (
            "; the key in .env is only for the endpoint in .env, and is not used" if environment.keeps_key_back else ""
        )
        return f"from {self._endpoint.source}{from_project}{unused}"

    def _check_endpoint(self) -> str:
        if self._endpoint is None:
            return "none needed"
        is_projects = self._project.environment.projects_endpoint and not self._endpoint.platform
        named = ", named in .env: your own key is never sent there" if is_projects else ""
        return f"{self._endpoint.base_url or self._endpoint.host}{named}"

    def _check_client(self) -> str:
        if self._endpoint is None:
            return "the embedded model"
        return f"{self._endpoint.client} (--client, or `client` in the settings, chooses another)"

    def _check_model(self) -> str:
        """Make a real call: only that shows that key, endpoint and model work together, and that tools work."""
        model = choose_model(Options(), self._project, self._settings, self._endpoint)
        if self._endpoint is None:
            return model
        try:
            trial = try_model(self._endpoint, model, self._settings)
        except MaxTokensRefused as e:
            if e.allowed:  # a session reduces max_tokens by itself
                return Doubt(str(e))
            raise
        if trial.trouble:
            return Doubt(f"{model} answers after {trial.seconds:.1f} s, {trial.trouble}")
        priced = "" if price_of(model, self._settings.prices) else "; its price is unknown (`prices` in the settings)"
        return f"{model} answers after {trial.seconds:.1f} s and calls tools{priced}"

    def _check_sandbox(self) -> str:
        with closing(open_host(self._settings, self._workspace, self._project, is_trial=True)) as host:
            why, why_refused = host.why_unconfined(), host.why_refused()
            is_out_of_reach = all(map(host.programs.is_out_of_reach, (Path(sys.executable), Path(__file__))))
        if why_refused:
            raise ConfigError(
                f"bwrap works, but not for this directory: {why_refused}. Commands are refused. Fix that, "
                "or set `sandbox` to `off` in ~/.teamcli/settings.json to run them with your own rights"
            )
        if why:
            return f"none, {why}: commands run with your own rights; permission rules decide which"
        network = self._settings.sandbox_network
        reach = f"only {', '.join(network) or 'nothing'}" if isinstance(network, tuple) else network
        caution = "" if is_out_of_reach else "; teamcli itself is inside the workspace, where agents can change it"
        return f"bwrap: commands write in the workspace, a private /tmp and private caches; network: {reach}{caution}"

    def _check_mcp(self) -> str:
        from teamcli.cli.mcp import describe_servers  # late: it needs more than the other checks

        return describe_servers(self._project)

    def _check_search(self) -> str:
        path = safe_programs(self._settings, self._workspace, self._project).find("rg")
        return f"ripgrep at {path}" if path else "built in (with ripgrep installed, grep is faster)"

    def _check_terminal(self) -> str:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            return "not a terminal: no line editing, and no permission questions"
        size = shutil.get_terminal_size()
        return f"{os.environ.get('TERM', 'unknown')}, {size.columns}×{size.lines}, {sys.stdout.encoding}"

    def _check_team(self) -> str:
        team = self._project.team
        if not team.root.exists():
            if not os.access(team.root.parent, os.W_OK | os.X_OK):
                raise ConfigError(
                    f"{team.root} cannot be created: change the permissions of the directory, or use --no-team"
                )
            return "not there yet; created at the first start"
        if not os.access(team.root, os.W_OK | os.X_OK):
            raise ConfigError(f"{team.root} is not writable: change its owner or mode, or use --no-team")
        if self._has_store:
            refuse_files(team)
            return f"the team is in the database{self._hosts_here()}"
        pid = lock_holder(team.lock)
        running = f"; teamcli is running here (process {pid})" if pid is not None else ""
        sessions = counted(len(list_sessions(team.lead_transcript)), "session")
        members = (member.name for member in read_team(team.config).members)
        return f"{sessions}{running}{_orphans(team, members)}"

    def _hosts_here(self) -> str:
        hosts = self._project.team.root / "hosts"
        names = sorted(each.name for each in hosts.iterdir()) if hosts.is_dir() else []
        pids = {name: lock_holder(TeamDir.mirror(self._project.directory, name).lock) for name in names}
        shown = ", ".join(f"{name} (running, process {pid})" if pid else name for name, pid in pids.items())
        return f"; hosts that have worked here: {one_line(shown, _LONGEST_LIST)}" if shown else ""

    def _check_store(self) -> str:
        url = find_store(self._store, os.environ, self._project.home)
        from teamcli.cli.store_check import check_store  # late: it loads what a team in files never needs

        found = check_store(url, self._team_name)
        fine = found.fine if found.members is None else found.fine + _orphans(self._project.team, found.members)
        return Doubt(f"{fine}; {found.problem}") if found.problem else fine


def _orphans(team: TeamDir, members: Iterable[str]) -> str:
    """The checkouts whose members are no longer in the team."""
    known = set(members)
    names = [each.member for each in checkouts_in(team.worktrees) if each.member not in known]
    return f"; worktrees of nobody: {', '.join(names)} (/discard NAME removes one)" if names else ""
