"""Every tool as the model sees it, on file: requests are made from it, and a change of that contract shows in review.

`UPDATE_SPECS=1 pytest tests/tools/test_specs.py` writes the file again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from teamcli.exec.command_host import CommandHost
from teamcli.exec.commands import Commands
from teamcli.tools.base.context import AgentContext
from teamcli.tools.catalog import ALL_TOOLS, BASE_TOOLS, LEAD_TOOLS, SOLO_TOOLS, SPECS, TEAMMATE_TOOLS, LazyTool
from teamcli.workspace.bounds import Workspace
from teamcli.workspace.known_files import KnownFiles, PathLocks

AGENT_TOOLS = "agent agent_status agent_stop"
TASK_TOOLS = "task_create task_update task_list"
TOOLS_BY_AGENT = {
    "sub-agent": (BASE_TOOLS, "bash read_file write_file edit_file glob grep bash_output bash_stop"),
    "without a team": (
        SOLO_TOOLS,
        f"bash read_file write_file edit_file glob grep bash_output bash_stop {AGENT_TOOLS}",
    ),
    "lead": (
        LEAD_TOOLS,
        "bash read_file write_file edit_file spawn_teammate list_teammates send_message read_inbox broadcast glob grep"
        f" wait_for_message shutdown_request plan_review {AGENT_TOOLS} bash_output bash_stop {TASK_TOOLS}"
        " merge_teammate",
    ),
    "teammate": (
        TEAMMATE_TOOLS,
        "bash read_file write_file edit_file send_message read_inbox glob grep wait_for_message submit_plan"
        f" shutdown_response {AGENT_TOOLS} bash_output bash_stop {TASK_TOOLS}",
    ),
}


def agent_context(root: Path) -> AgentContext:
    return AgentContext(Workspace(root), Commands(CommandHost({})), KnownFiles(PathLocks()))


def specs_of(tools: tuple[LazyTool, ...], root: Path) -> list[dict[str, Any]]:
    """As their modules define them."""
    return [tool.load().bind(agent_context(root)).spec.to_dict() for tool in tools]


def test_the_model_sees_the_tools_that_are_on_file(tmp_path: Path) -> None:
    """Order matters, of tools and of fields: it is part of what the model's cache holds."""
    defined = specs_of(ALL_TOOLS, tmp_path)
    text = json.dumps(defined, ensure_ascii=False, indent=1) + "\n"
    if os.environ.get("UPDATE_SPECS"):
        SPECS.write_text(text, encoding="utf-8")
        pytest.skip("written again")
    assert text == SPECS.read_text(encoding="utf-8"), "see the top of this file"
    sent = [tool.bind(agent_context(tmp_path)).spec.to_dict() for tool in ALL_TOOLS]
    assert json.dumps(sent) == json.dumps(defined)


def test_all_tools_of_a_lead_are_a_small_part_of_a_request(tmp_path: Path) -> None:
    assert len(json.dumps(specs_of(LEAD_TOOLS, tmp_path))) <= 9_750


def test_the_three_task_tools_cost_little(tmp_path: Path) -> None:
    tools = tuple(map(LazyTool, TASK_TOOLS.split()))
    assert sum(len(json.dumps(spec)) for spec in specs_of(tools, tmp_path)) < 1_200


@pytest.mark.parametrize("agent", TOOLS_BY_AGENT)
def test_each_kind_of_agent_has_its_tools_in_a_fixed_order(agent: str) -> None:
    """The order is part of the prefix that the model's cache holds."""
    tools, names = TOOLS_BY_AGENT[agent]
    assert " ".join(tool.name for tool in tools) == names
