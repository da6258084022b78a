"""Every tool as the model sees it, on file: requests are made from it, and a change of that contract shows in review.

`UPDATE_SPECS=1 pytest tests/tools/test_specs.py` writes the files anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from teamcli.exec.command_host import CommandHost
from teamcli.exec.commands import Commands
from teamcli.tools.catalog import ALL_TOOLS, BASE_TOOLS, LEAD_TOOLS, SOLO_TOOLS, SPECS, TEAMMATE_TOOLS, LazyTool
from teamcli.tools.context import AgentContext
from teamcli.workspace.bounds import Workspace
from teamcli.workspace.known_files import KnownFiles, PathLocks

GROUPS = {"sub-agent": BASE_TOOLS, "without a team": SOLO_TOOLS, "lead": LEAD_TOOLS, "teammate": TEAMMATE_TOOLS}


def agent_context(root: Path) -> AgentContext:
    return AgentContext(Workspace(root), Commands(CommandHost({})), KnownFiles(PathLocks()))


def specs_of(tools: tuple[LazyTool, ...], root: Path) -> list[dict[str, Any]]:
    """As their modules define them."""
    return [tool.load().bind(agent_context(root)).spec.to_dict() for tool in tools]


def compare(path: Path, present: object) -> None:
    """Order matters, of tools and of fields: it is part of what the model's cache holds."""
    text = json.dumps(present, ensure_ascii=False, indent=1) + "\n"
    if os.environ.get("UPDATE_SPECS"):
        path.write_text(text, encoding="utf-8")
        pytest.skip("written anew")
    assert text == path.read_text(encoding="utf-8"), "see the top of this file"


def test_the_model_sees_the_tools_that_are_on_file(tmp_path: Path) -> None:
    compare(SPECS, specs_of(ALL_TOOLS, tmp_path))
    sent = [tool.bind(agent_context(tmp_path)).spec.to_dict() for tool in ALL_TOOLS]
    assert json.dumps(sent) == json.dumps(specs_of(ALL_TOOLS, tmp_path))


def test_who_has_which_tools_is_on_file() -> None:
    groups = {group: [tool.name for tool in tools] for group, tools in GROUPS.items()}
    compare(Path(__file__).with_name("groups.json"), groups)


def test_all_tools_of_a_lead_are_a_small_part_of_a_request(tmp_path: Path) -> None:
    assert len(json.dumps(specs_of(LEAD_TOOLS, tmp_path))) <= 8_000
