"""Opens the hosts that run commands, and the sandbox around those of agents."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from teamcli.app.choices import find_hook_files
from teamcli.config.environment import is_kept_back
from teamcli.config.project import Project
from teamcli.config.settings import Settings
from teamcli.errors import ConfigError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.programs import Programs
from teamcli.exec.sandbox.paths import listed_paths, real_path
from teamcli.workspace.bounds import Workspace

if TYPE_CHECKING:
    from teamcli.exec.sandbox.sandbox import Sandbox


def safe_programs(settings: Settings, workspace: Workspace, project: Project) -> Programs:
    """Programs that agents cannot replace."""
    opened = listed_paths(settings.sandbox_writable, workspace.root, project.home.parent)
    return Programs(None, [workspace.root, *workspace.extra, *opened, project.home, real_path(project.home)])


def plain_host(
    settings: Settings,
    programs: Programs,
    owns_process: bool = True,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> CommandHost:
    """What runs the user's own commands and hooks, which no sandbox confines."""
    environment = _environment(settings, variables)
    return CommandHost(environment, settings.hidden_variables, owns_process, programs=programs)


def open_host(
    settings: Settings,
    workspace: Workspace,
    project: Project,
    is_trial: bool = False,
    owns_process: bool = True,
    warn: Callable[[str], None] = lambda text: None,
) -> CommandHost:
    """What runs the commands of agents. A trial leaves no traces.

    Raises: ConfigError, if a sandbox is required and there is none
    """
    programs = safe_programs(settings, workspace, project)
    if settings.sandbox == "off":
        if settings.sandbox_network != "on":
            raise ConfigError("`sandbox_network` closes the network by the sandbox, which `sandbox` turns off")
        return plain_host(settings, programs, owns_process)

    def make_sandbox() -> Sandbox:
        return _sandbox(settings, project, programs, (workspace.root, *workspace.extra), is_trial)

    is_needed = _is_needed(settings)
    host = CommandHost(
        _environment(settings),
        settings.hidden_variables,
        owns_process,
        make_sandbox,
        is_needed,
        programs,
        lambda why: warn(f"No sandbox: {why}; commands run with your own rights."),
    )
    if is_needed and (why := host.why_unconfined() or host.why_refused()):
        setting = "sandbox" if settings.sandbox == "required" else "sandbox_network"
        raise ConfigError(f"the setting `{setting}` needs a sandbox, and there is none: {why}; see teamcli doctor")
    return host


def open_member_host(
    settings: Settings,
    root: Path,
    project: Project,
    programs: Programs,
    checkout: Path,
    variables: Mapping[str, str],
    owns_process: bool = True,
) -> CommandHost:
    """What runs the commands of a member with its own checkout. The directory `root` and its repository are read-only.

    `programs` are those of the team, which no agent can replace.
    """
    if settings.sandbox == "off":
        return plain_host(settings, programs, owns_process, variables)

    def make_sandbox() -> Sandbox:
        from teamcli.exec.sandbox.git import repositories_behind

        return _sandbox(settings, project, programs, (checkout,), main=(root, *repositories_behind(root)))

    environment = _environment(settings, variables)
    hidden = settings.hidden_variables
    return CommandHost(environment, hidden, owns_process, make_sandbox, _is_needed(settings), programs)


def _environment(settings: Settings, variables: Mapping[str, str] = MappingProxyType({})) -> Mapping[str, str]:
    configured = {name: value for name, value in settings.env.items() if not is_kept_back(name)}
    return {**os.environ, **configured, **variables}


def _is_needed(settings: Settings) -> bool:
    return settings.sandbox == "required" or settings.sandbox_network != "on"


def _sandbox(
    settings: Settings,
    project: Project,
    programs: Programs,
    roots: tuple[Path, ...],
    is_trial: bool = False,
    main: tuple[Path, ...] = (),
) -> Sandbox:
    from teamcli.exec.sandbox.plan import SandboxSettings
    from teamcli.exec.sandbox.sandbox import Sandbox

    network, paths = settings.sandbox_network, (settings.sandbox_writable, settings.sandbox_closed)
    hook_files = find_hook_files(settings, roots[0])
    return Sandbox(SandboxSettings(roots, project.home.parent, network, *paths, is_trial, hook_files, main), programs)
