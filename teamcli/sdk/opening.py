"""What is given to a `Session`, checked and turned into what `app` opens."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teamcli.agent.approval import nobody_to_ask
from teamcli.app.build import open_session
from teamcli.app.embedding import Embedding
from teamcli.config.environment import ENDPOINT, KEY_VARIABLES
from teamcli.config.options import Options
from teamcli.config.project import Project, look_around
from teamcli.errors import ConfigError
from teamcli.permissions.policy import Mode
from teamcli.sdk.asker import Asker
from teamcli.session.session import Session as Running
from teamcli.storage.team_dir import lock_holder

if TYPE_CHECKING:
    from teamcli.hooks.functions import Hook
    from teamcli.sdk.function_tool import FunctionTool


def open_running(options: Options, place: Project, asker: Asker | None, embedding: Embedding) -> Running:
    running = open_session(options, place, asker or nobody_to_ask, embedding)
    try:
        if running.state.is_private and not options.no_team:
            raise ConfigError(_why_no_team(place))
        running.start(resume_all=options.continue_last or bool(options.resume))
    except BaseException:
        running.close()
        raise
    return running


def _why_no_team(place: Project) -> str:
    if (holder := lock_holder(place.team.lock)) is not None:
        return f"another teamcli leads in {place.directory} (process {holder}): close it, or use team=False"
    return f"the team in {place.team.root} was not made here: look at it, then use trust=True, or team=False"


def place_of(directory: str | os.PathLike[str], trust: bool, api_key: str, base_url: str) -> Project:
    root = Path(directory).expanduser().resolve()
    if not root.is_dir():
        raise ConfigError(f"{root} is not a directory")
    given = {KEY_VARIABLES[0]: api_key, KEY_VARIABLES[1]: ""} if api_key else {}
    place = look_around(root, given={**given, ENDPOINT: base_url} if base_url else given)
    return place.trust() if place.pending and trust else place


def as_tools(functions: Iterable[Any]) -> tuple[FunctionTool, ...]:
    if not (functions := tuple(functions)):
        return ()
    from teamcli.sdk import function_tool  # late: most sessions do without it, and without pydantic

    return function_tool.as_tools(functions)


def checked_hooks(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    if not (hooks := tuple(hooks)):
        return ()
    from teamcli.hooks.functions import check_hooks  # late as well

    return check_hooks(hooks)


def mode_of(mode: Mode | str | None) -> str | None:
    if mode is not None and mode not in list(Mode):
        raise ConfigError(f"permission_mode: {mode!r} is none of {', '.join(Mode)}")
    return mode


def rules_of(rules: str | Iterable[str]) -> tuple[str, ...]:
    return (rules,) if isinstance(rules, str) else tuple(rules)


def at_least_one(turns: int | None) -> int | None:
    if turns is not None and turns < 1:
        raise ConfigError(f"max_turns: must be from 1 up, not {turns}")
    return turns


def above_zero(dollars: float | None) -> float | None:
    if dollars is not None and not 0 < dollars < float("inf"):
        raise ConfigError(f"max_budget_usd: must be an amount above 0, not {dollars}")
    return dollars
