"""Opens the state of a team in a database, for a session or a worker in this directory."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack

from teamcli.app.state import LeadRuns, OpenState
from teamcli.config.options import Options
from teamcli.config.project import Project
from teamcli.errors import ConfigError, UsageError
from teamcli.storage.files import make_private_dir
from teamcli.storage.team_dir import LeadLock, TeamDir, lock_holder
from teamcli.store.location import check_team_name, refuse_files, root_commit

DEFAULT_SLOTS = 8
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def open_store(
    options: Options,
    project: Project,
    url: str,
    lease_seconds: float,
    resources: ExitStack,
    has_lead: bool,
    slots: int = DEFAULT_SLOTS,
) -> OpenState:
    """Raises: ConfigError, LeadRuns, StateError, UsageError"""
    try:
        from teamcli.app.store_engine import HostOptions, StoreEngine
    except ModuleNotFoundError as e:
        raise ConfigError(f"a store needs the extra `postgres` ({e}): pip install 'teamcli[postgres]'") from e
    directory = project.directory
    refuse_files(project.team)
    name = host_name(options.host, has_lead)
    dir = TeamDir.mirror(directory, name)
    lock = _lock(project.team, dir, name, has_lead)
    resources.callback(lock.release)
    team = check_team_name(options.team) if options.team else ""
    host = HostOptions(url, root_commit(directory), team, name, slots, has_lead, lease_seconds)
    return OpenState(dir, lock, StoreEngine(host, dir, resources), project)


def host_name(given: str, has_lead: bool) -> str:
    """Raises: UsageError"""
    name = given or re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())
    if has_lead and not given:
        name = f"{name}-lead"  # a worker may run on the same machine
    if not _HOST_NAME.fullmatch(name):
        raise UsageError(f"'{name}' is not a valid name of a host: use letters, digits, dots and dashes")
    return name


def _lock(own: TeamDir, mirror: TeamDir, name: str, has_lead: bool) -> LeadLock:
    own.prepare()
    make_private_dir(mirror.root.parent)
    mirror.prepare()
    if (lock := LeadLock.take(mirror.lock)) is None:
        runs = f"the host '{name}' already runs in this directory (process {lock_holder(mirror.lock)})"
        if has_lead:
            raise LeadRuns(runs, "leave it, or use --no-team")
        raise ConfigError(f"{runs}; leave it, or choose another --name")
    return lock
