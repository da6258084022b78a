"""What servers offer, kept in the user's home, so that a later start need not wait for them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from teamcli.errors import StateError
from teamcli.mcp.offers import parse_all, parse_prompt, parse_resource, parse_tool
from teamcli.mcp.server import PromptInfo, ResourceInfo, ToolInfo
from teamcli.storage.files import make_private_dir, read_regular, write_atomic

LARGEST = 8_000_000
FRESH_SECONDS = 24 * 3600.0
"""How long a server is not asked again, unless it runs anyway."""


class Lists(NamedTuple):
    tools: tuple[ToolInfo, ...] = ()
    prompts: tuple[PromptInfo, ...] = ()
    resources: tuple[ResourceInfo, ...] = ()


class Kept(NamedTuple):
    lists: Lists
    is_fresh: bool


class KeptLists:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, digest: str) -> Kept | None:
        """What the server with a configuration of this digest offers; None if that is not known."""
        try:
            raw = json.loads(read_regular(self._path(digest), LARGEST))
            age = time.time() - float(raw["at"])
            lists = Lists(
                tuple(parse_all(raw["tools"], parse_tool)),
                tuple(parse_all(raw.get("prompts", ()), parse_prompt)),
                tuple(parse_all(raw.get("resources", ()), parse_resource)),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):  # it is only a copy
            return None
        # Negative if the clock was set back: then nobody knows how old they are.
        return Kept(lists, 0 <= age < FRESH_SECONDS)

    def write(self, digest: str, lists: Lists) -> None:
        """Raises: StateError"""
        raw = {
            "at": time.time(),
            "tools": list(map(_tool, lists.tools)),
            "prompts": list(map(_prompt, lists.prompts)),
            "resources": [each._asdict() for each in lists.resources],
        }
        data = json.dumps(raw).encode()
        if len(data) > LARGEST:
            raise StateError(f"the list of its tools is larger than {LARGEST:,} bytes")
        make_private_dir(self._directory.parent)
        make_private_dir(self._directory)
        write_atomic(self._path(digest), data)

    def _path(self, digest: str) -> Path:
        return self._directory / f"{digest[:32]}.json"


def _tool(tool: ToolInfo) -> dict[str, Any]:
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "annotations": tool.annotations,
    }


def _prompt(prompt: PromptInfo) -> dict[str, Any]:
    arguments = [
        {"name": each.name, "description": each.description, "required": each.is_required} for each in prompt.arguments
    ]
    return {"name": prompt.name, "title": prompt.title, "description": prompt.description, "arguments": arguments}
