"""Every tool as the model sees it, on file: a change of that contract shows in review.

`UPDATE_SPECS=1 pytest tests/tools/test_specs.py` writes the file anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from teamcli.tools.base import Toolbox
from teamcli.tools.catalog import ALL_TOOLS, BASE_TOOLS, LEAD_TOOLS, TEAMMATE_TOOLS, Bindable
from teamcli.tools.command_host import CommandHost
from teamcli.tools.commands import Commands
from teamcli.tools.known_files import KnownFiles, PathLocks
from teamcli.workspace import Workspace

SPECS = Path(__file__).with_name("specs.json")
GROUPS = {"without a team": BASE_TOOLS, "lead": LEAD_TOOLS, "teammate": TEAMMATE_TOOLS}


def specs_of(tools: tuple[Bindable, ...], root: Path) -> list[dict[str, Any]]:
    toolbox = Toolbox(Workspace(root), Commands(CommandHost({})), KnownFiles(PathLocks()))
    return [tool.bind(toolbox).spec.to_dict() for tool in tools]


def as_text(specs: object) -> str:
    """Order matters, of tools and of fields: it is part of what the model's cache holds."""
    return json.dumps(specs, ensure_ascii=False, indent=1) + "\n"


def test_the_model_sees_the_tools_that_are_on_file(tmp_path: Path) -> None:
    groups = {group: [tool.name for tool in tools] for group, tools in GROUPS.items()}
    present = as_text({"groups": groups, "tools": specs_of(ALL_TOOLS, tmp_path)})
    if os.environ.get("UPDATE_SPECS"):
        SPECS.write_text(present, encoding="utf-8")
        pytest.skip("written anew")
    assert present == SPECS.read_text(encoding="utf-8"), "see the top of this file"


def test_all_tools_of_a_lead_are_a_small_part_of_a_request(tmp_path: Path) -> None:
    assert len(json.dumps(specs_of(LEAD_TOOLS, tmp_path))) <= 8_000
