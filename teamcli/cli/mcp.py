"""`teamcli mcp`: list, show, add and remove MCP servers in the files that configure them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from teamcli.app.choices import read_settings
from teamcli.app.mcp import expanded, find_servers
from teamcli.cli.tables import print_table
from teamcli.config.mcp_file import MCP_FILE
from teamcli.config.options import ExitStatus, Options
from teamcli.config.project import Project, inspect_project
from teamcli.config.settings import read_settings_file
from teamcli.errors import ConfigError, UsageError
from teamcli.mcp.configured import Servers, read_server, server_name
from teamcli.storage.files import Json, make_private_dir, read_json, write_atomic, write_json
from teamcli.text.escaping import escape_controls, one_line
from teamcli.text.table import Column, Table

SCOPES = ("local", "project", "user")
COLUMNS = (
    Column("SERVER", "name"),
    Column("STATE"),
    Column("COMMAND OR ADDRESS", shrinks=True),
    Column("FROM", "dim"),
)
PUBLIC_FILE = 0o644


def run_list() -> int:
    project = inspect_project(Path.cwd())
    servers = _servers(project)
    rows = [
        (name, _state(project, servers, name), server.what, server.source) for name, server in servers.found.items()
    ]
    waiting = [(one_line(name, 40), "not agreed to yet", "", file) for file, name in project.pending_servers()]
    nothing = "No MCP servers are configured. Add one with: teamcli mcp add NAME -- COMMAND"
    print_table(Table("" if rows or waiting else nothing, COLUMNS, (*rows, *waiting)))
    for problem in servers.problems:
        print(escape_controls(problem))
    return ExitStatus.DONE


def run_get(name: str) -> int:
    project = inspect_project(Path.cwd())
    servers = _servers(project)
    if name not in servers.found:
        raise UsageError(f"there is no MCP server {name} (there are: {', '.join(servers.found) or 'none'})")
    found = servers.found[name]
    print(escape_controls(f"{name}: {_state(project, servers, name)}, from {found.source}"))
    servers_in_files = read_settings(project).mcpServers
    entry = next(each for written, each in servers_in_files.items() if written == name or server_name(written) == name)
    print(escape_controls(json.dumps(entry, indent=2, ensure_ascii=False)))
    return ExitStatus.DONE


def run_add(given: argparse.Namespace, command: Sequence[str]) -> int:
    name, entry, scope = given.name, _entry(given, command), given.scope or "local"
    try:
        server = read_server(name, entry, scope)
        if server is None or server_name(name) != name:
            raise ValueError("its name should have letters, digits, '_' or '-' only")
    except ValueError as e:
        raise UsageError(f"the MCP server {name} cannot be added: {e}") from e
    project = inspect_project(Path.cwd())
    path = _file(project, scope)
    if scope == "local":
        project.team.prepare()
    raw = _read(path)
    servers = raw.setdefault("mcpServers", {})
    if name in servers:
        raise UsageError(f"{path} has an MCP server {name} already; remove it first: teamcli mcp remove {name}")
    servers[name] = entry
    _write(path, raw)
    if scope != "user":
        # The user has just written it, so the next start must not ask about it.
        project.claim().agreement.setting_written(path, ("mcpServers", name), entry)
    print(f"Added {name} to {path}.")
    return ExitStatus.DONE


def run_remove(name: str, scope: str) -> int:
    project = inspect_project(Path.cwd())
    files = {each: _file(project, each) for each in ((scope,) if scope else SCOPES)}
    found = [each for each, path in files.items() if name in (_read(path).get("mcpServers") or {})]
    if len(found) != 1:
        where = f"is in {' and '.join(found)}; say which with --scope" if found else "is in none of these files"
        raise UsageError(
            f"the MCP server {name} {where}" + ("" if found else f": {', '.join(map(str, files.values()))}")
        )
    path = files[found[0]]
    raw = _read(path)
    del raw["mcpServers"][name]
    _write(path, raw)
    print(f"Removed {name} from {path}.")
    return ExitStatus.DONE


def describe_servers(project: Project) -> str:
    """For `doctor`: what is configured, and what is wrong with it."""
    servers = _servers(project)
    bad = [each for name in servers.found if (each := _problem(project, servers, name))]
    found = ", ".join(servers.found) or "none configured"
    return "; ".join((found, *project.problems, *servers.problems, *bad))


def _servers(project: Project) -> Servers:
    return find_servers(Options(), read_settings(project), project)


def _state(project: Project, servers: Servers, name: str) -> str:
    if name in read_settings(project).disabled_mcp_servers:
        return "disabled"
    return "not usable: " + problem if (problem := _problem(project, servers, name)) else "configured"


def _problem(project: Project, servers: Servers, name: str) -> str:
    try:
        expanded(servers.found[name], project.directory)
    except ConfigError as e:
        return str(e)
    return ""


def _entry(given: argparse.Namespace, command: Sequence[str]) -> Json:
    words = [*given.words, *command]
    if given.transport == "http":
        if len(words) != 1:
            raise UsageError("an MCP server over HTTP has one address: teamcli mcp add NAME --transport http URL")
        headers = dict(_pair(each, ":") for each in given.header)
        return {"type": "http", "url": words[0], **({"headers": headers} if headers else {})}
    if not words:
        raise UsageError("give the command of the MCP server: teamcli mcp add NAME -- COMMAND ARGUMENTS")
    variables = dict(_pair(each, "=") for each in given.env)
    return {"command": words[0], "args": words[1:], **({"env": variables} if variables else {})}


def _pair(text: str, separator: str) -> tuple[str, str]:
    name, found, value = text.partition(separator)
    if not found or not name.strip():
        raise UsageError(f"{text} should be NAME{separator}VALUE")
    return name.strip(), value.strip()


def _file(project: Project, scope: str) -> Path:
    if scope == "user":
        return project.home / "settings.json"
    return project.directory / MCP_FILE if scope == "project" else project.team.local_settings


def _read(path: Path) -> Json:
    """Raises: ConfigError"""
    raw = (read_json(path) if path.name == MCP_FILE else read_settings_file(path, may_be_link=True)) or {}
    if not isinstance(raw.get("mcpServers", {}), dict):
        raise ConfigError(f"{path}: mcpServers should be an object in braces; fix it there")
    return raw


def _write(path: Path, raw: Json) -> None:
    if path.name == MCP_FILE:  # it belongs to the project, and git brings it to others
        write_atomic(path, json.dumps(raw, indent=2, ensure_ascii=False).encode() + b"\n", PUBLIC_FILE)
        return
    make_private_dir(path.parent)
    write_json(path, raw)
