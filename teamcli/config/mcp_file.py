"""The project's `.mcp.json`: MCP servers that are used once the user has agreed to each of them."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

from teamcli.storage.files import LARGEST_DOCUMENT, Json, read_regular
from teamcli.text.escaping import one_line

MCP_FILE = ".mcp.json"


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
