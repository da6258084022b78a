"""Checks the arguments of the library's `Session` and opens the running session behind it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teamcli.agent.permission_question import nobody_to_ask
from teamcli.app.build import open_session
from teamcli.app.host_program import Embedding
from teamcli.config.environment import ENDPOINT, KEY_VARIABLES
from teamcli.config.options import Mode, Options
from teamcli.config.project import Project, inspect_project
from teamcli.errors import ConfigError, UsageError
from teamcli.sdk.callbacks import ApprovalCallback
from teamcli.session.session import Session as RunningSession
from teamcli.storage.team_dir import lock_holder

if TYPE_CHECKING:
    from teamcli.hooks.functions import Hook
    from teamcli.sdk.function_tool import FunctionTool


def check_options(options: Options) -> None:
    """Raises: ConfigError, UsageError."""
    if options.continue_last and options.resume is not None:
        raise UsageError("continue_ and resume exclude each other")
    if (mode := options.permission_mode) is not None and mode not in list(Mode):
        raise ConfigError(f"permission_mode: {mode!r} is not one of {', '.join(Mode)}")
    if options.max_turns is not None and options.max_turns < 1:
        raise ConfigError(f"max_turns: must be at least 1, not {options.max_turns}")
    if options.max_budget_usd is not None and not 0 < options.max_budget_usd < float("inf"):
        raise ConfigError(f"max_budget_usd: must be an amount above 0, not {options.max_budget_usd}")


def open_running(
    options: Options, project: Project, ask: ApprovalCallback | None, embedding: Embedding
) -> RunningSession:
    session = open_session(options, project, ask or nobody_to_ask, embedding)
    try:
        # The command line falls back to private state here. A program that asked for a team must know.
        if session.state.is_private and not options.no_team:
            if (holder := lock_holder(project.team.lock)) is not None:
                why = f"another teamcli runs in {project.directory} (process {holder}): close it"
            else:
                why = f"the team in {project.team.root} was not made here: look at it, then use trust=True"
            raise ConfigError(f"{why}, or use team=False")
        session.start(resume_all=options.continue_last or bool(options.resume))
    except BaseException:
        session.close()
        raise
    return session


def find_project(directory: str | os.PathLike[str], trust: bool, api_key: str, base_url: str) -> Project:
    root = Path(directory).expanduser().resolve()
    if not root.is_dir():
        raise ConfigError(f"{root} is not a directory")
    # An empty token, so that one in the environment does not win over the key that was given.
    given = {KEY_VARIABLES[0]: api_key, KEY_VARIABLES[1]: ""} if api_key else {}
    project = inspect_project(root, given={**given, ENDPOINT: base_url} if base_url else given)
    return project.trust() if project.pending and trust else project


def as_rules(rules: str | Iterable[str]) -> tuple[str, ...]:
    return (rules,) if isinstance(rules, str) else tuple(rules)


def as_tools(functions: Iterable[Any]) -> tuple[FunctionTool, ...]:
    if not (functions := tuple(functions)):
        return ()
    from teamcli.sdk import function_tool  # late: most sessions need neither it nor pydantic

    return function_tool.as_tools(functions)


def as_hooks(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    if not (hooks := tuple(hooks)):
        return ()
    from teamcli.hooks.functions import check_hooks  # late, too

    return check_hooks(hooks)
