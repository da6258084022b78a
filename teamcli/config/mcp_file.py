"""Files with MCP servers: the project's `.mcp.json`, which are used once the user has agreed to each of them, and the
user's own in Claude Code's `~/.claude.json`."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

from teamcli.storage.files import LARGEST_DOCUMENT, Json, read_regular
from teamcli.text.escaping import one_line

MCP_FILE = ".mcp.json"
CLAUDE_JSON = ".claude.json"
_HAS_SERVERS = rb'"mcpServers"\s*:\s*\{\s*"'
"""The file holds much else, and is often large."""


def read_mcp_file(directory: Path) -> tuple[dict[str, Json], tuple[str, ...]]:
    """The servers in the form of settings, by the name of the file, and what the user should know about it."""
    try:
        raw = json.loads(read_regular(directory / MCP_FILE, LARGEST_DOCUMENT, os.O_NOFOLLOW))
        return {MCP_FILE: {"mcpServers": servers_in(raw)}}, ()
    except (FileNotFoundError, NotADirectoryError):
        return {}, ()
    except OSError as e:
        reason = "it is a symbolic link" if e.errno == errno.ELOOP else e.strerror or str(e)
    except (ValueError, RecursionError) as e:
        reason = str(e)
    return {}, (one_line(f"{MCP_FILE} is not used: {reason}", 300),)


def servers_in(raw: object) -> Json:
    """Raises: ValueError"""
    servers = raw.get("mcpServers") if isinstance(raw, dict) else None
    if not isinstance(servers, dict):
        raise ValueError('it should be {"mcpServers": {NAME: {…}}}')
    return servers


def read_users_servers(path: Path, directory: Path) -> tuple[Json, tuple[str, ...]]:
    """The user's servers in Claude Code's own file, for all directories and for this one, and what the user should know
    about the file."""
    try:
        data = read_regular(path, LARGEST_DOCUMENT)
        raw = json.loads(data) if re.search(_HAS_SERVERS, data) else {}
        here = _object(_object(_object(raw).get("projects")).get(str(directory)))
        servers = {**_object(_object(raw).get("mcpServers")), **_object(here.get("mcpServers"))}
        return {name: entry for name, entry in servers.items() if isinstance(entry, dict)}, ()
    except (FileNotFoundError, NotADirectoryError):
        return {}, ()
    except (OSError, ValueError, RecursionError) as e:
        return {}, (one_line(f"MCP servers in {path} are not used: {getattr(e, 'strerror', None) or e}", 300),)


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}
