"""The input of tool calls in Claude Code's words and in ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamcli.claude_code.names import OUR_TOOLS
from teamcli.claude_code.tool_inputs import to_ours, to_theirs, updated_to_ours
from teamcli.tools.catalog import ALL_TOOLS

ROOT = Path("/srv/project")

BOTH_WAYS: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("bash", {"command": "ls"}, "Bash", {"command": "ls"}),
    (
        "bash",
        {"command": "make", "timeout_seconds": 90, "background": True},
        "Bash",
        {"command": "make", "timeout": 90_000, "run_in_background": True},
    ),
    ("read_file", {"path": "src/a.py"}, "Read", {"file_path": "/srv/project/src/a.py"}),
    (
        "read_file",
        {"path": "/etc/hosts", "offset": 5, "limit": 9},
        "Read",
        {"file_path": "/etc/hosts", "offset": 5, "limit": 9},
    ),
    ("write_file", {"path": "a", "content": "x"}, "Write", {"file_path": "/srv/project/a", "content": "x"}),
    (
        "edit_file",
        {"path": "a", "old_text": "x", "new_text": "y", "replace_all": True},
        "Edit",
        {"file_path": "/srv/project/a", "old_string": "x", "new_string": "y", "replace_all": True},
    ),
    ("glob", {"pattern": "**/*.py"}, "Glob", {"pattern": "**/*.py"}),
    ("glob", {"pattern": "*", "path": "src"}, "Glob", {"pattern": "*", "path": "/srv/project/src"}),
    (
        "grep",
        {
            "pattern": "x",
            "path": "src",
            "glob": "*.py",
            "ignore_case": True,
            "context": 2,
            "limit": 9,
            "output": "files",
        },
        "Grep",
        {
            "pattern": "x",
            "path": "/srv/project/src",
            "glob": "*.py",
            "-i": True,
            "-C": 2,
            "head_limit": 9,
            "output_mode": "files_with_matches",
        },
    ),
    ("grep", {"pattern": "x", "output": "count"}, "Grep", {"pattern": "x", "output_mode": "count"}),
    (
        "agent",
        {"prompt": "do it", "description": "job", "subagent_type": "coder", "background": True, "model": "opus"},
        "Agent",
        {"prompt": "do it", "description": "job", "subagent_type": "coder", "run_in_background": True, "model": "opus"},
    ),
    ("bash_output", {"id": "bash-1"}, "BashOutput", {"bash_id": "bash-1"}),
    ("bash_stop", {"id": "bash-1"}, "TaskStop", {"task_id": "bash-1"}),
    ("agent_stop", {"ids": ["sa-1", "sa-2"]}, "TaskStop", {"task_id": "sa-1,sa-2"}),
    ("agent_status", {"id": "sa-1", "wait_seconds": 3}, "TaskOutput", {"task_id": "sa-1", "timeout": 3000}),
    (
        "send_message",
        {"to": "alice", "content": "hi", "summary": "s"},
        "SendMessage",
        {"to": "alice", "message": "hi", "summary": "s"},
    ),
    ("submit_plan", {"plan": "p"}, "ExitPlanMode", {"plan": "p"}),
    ("task_create", {"subject": "s", "description": "d"}, "TaskCreate", {"subject": "s", "description": "d"}),
    (
        "task_update",
        {"id": 3, "status": "completed", "blocked_by": [1, 2]},
        "TaskUpdate",
        {"taskId": "3", "status": "completed", "addBlockedBy": ["1", "2"]},
    ),
    ("task_list", {}, "TaskList", {}),
    ("task_list", {"id": 3}, "TaskGet", {"taskId": "3"}),
    ("mcp__s__t", {"path": "a", "timeout": 3}, "mcp__s__t", {"path": "a", "timeout": 3}),
    ("broadcast", {"content": "hi"}, "broadcast", {"content": "hi"}),
]


@pytest.mark.parametrize(("tool", "ours", "name", "theirs"), BOTH_WAYS)
def test_a_call_of_ours_reads_as_one_of_theirs(
    tool: str, ours: dict[str, Any], name: str, theirs: dict[str, Any]
) -> None:
    assert to_theirs(tool, ours, ROOT) == (name, theirs)


@pytest.mark.parametrize(("tool", "ours", "name", "theirs"), BOTH_WAYS)
def test_their_input_means_a_call_of_ours(tool: str, ours: dict[str, Any], name: str, theirs: dict[str, Any]) -> None:
    assert to_ours(tool, theirs, ROOT) == ours


@pytest.mark.parametrize(
    ("tool", "ours", "theirs"),
    [
        ("grep", {"pattern": "x"}, {"pattern": "x", "output_mode": "content"}),
        ("agent", {"prompt": "fix the bug in the parser of rules"}, {"description": "fix the bug in the"}),
        ("agent", {"prompt": "x"}, {"run_in_background": False}),
        (
            "spawn_teammate",
            {"name": "alice", "role": "coder", "prompt": "x", "worktree": True},
            {"name": "alice", "subagent_type": "coder", "isolation": "worktree", "run_in_background": True},
        ),
        ("read_file", {"path": "../a"}, {"file_path": "/srv/a"}),
        ("read_file", {"path": "./a/../b"}, {"file_path": "/srv/project/b"}),
    ],
)
def test_what_they_expect_is_said_even_if_our_call_leaves_it_out(
    tool: str, ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    assert theirs.items() <= to_theirs(tool, ours, ROOT).input.items()


@pytest.mark.parametrize(
    ("tool", "theirs", "ours"),
    [
        ("bash", {"command": "x", "description": "d", "dangerouslyDisableSandbox": True}, {"command": "x"}),
        ("bash", {"command": "x", "timeout": 1}, {"command": "x", "timeout_seconds": 1}),
        ("bash", {"command": "x", "timeout": 3_600_000}, {"command": "x", "timeout_seconds": 600}),
        ("bash", {"command": "x", "timeout": "soon"}, {"command": "x", "timeout_seconds": "soon"}),
        ("bash_output", {"task_id": "b-1", "block": True, "timeout": 5}, {"id": "b-1"}),
        ("bash_stop", {"shell_id": "b-1"}, {"id": "b-1"}),
        ("read_file", {"file_path": "a", "pages": "1-3"}, {"path": "a"}),
        ("grep", {"pattern": "x"}, {"pattern": "x", "output": "files"}),
        (
            "grep",
            {"pattern": "x", "-A": 2, "-B": 3, "-n": True, "type": "py", "output_mode": "content"},
            {"pattern": "x", "context": 3, "glob": "*.py", "output": "content"},
        ),
        (
            "grep",
            {"pattern": "x", "context": 4, "output_mode": "content"},
            {"pattern": "x", "context": 4, "output": "content"},
        ),
        ("agent", {"prompt": "x", "effort": "high", "isolation": "worktree"}, {"prompt": "x"}),
        ("read_file", {"path": "a"}, {"path": "a"}),
        ("read_file", {"file_path": "/srv/project"}, {"path": "."}),
        ("read_file", {"file_path": "/srv/projects/a"}, {"path": "/srv/projects/a"}),
        ("read_file", {"file_path": 7}, {"path": 7}),
    ],
)
def test_their_other_fields_are_understood_or_dropped(tool: str, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    assert to_ours(tool, theirs, ROOT) == ours


@pytest.mark.parametrize(
    ("tool", "before", "updated", "after"),
    [
        pytest.param("bash", {"command": "a"}, {"command": "b"}, {"command": "b"}, id="the same word in both"),
        pytest.param("read_file", {"path": "a"}, {"file_path": "/srv/project/b"}, {"path": "b"}, id="their words"),
        pytest.param("read_file", {"path": "a"}, {"path": "b"}, {"path": "b"}, id="our words"),
        pytest.param(
            "read_file",
            {"path": "a"},
            {"path": "a", "file_path": "/srv/project/b"},
            {"path": "b"},
            id="both, changed in theirs",
        ),
        pytest.param(
            "read_file",
            {"path": "a"},
            {"path": "b", "file_path": "/srv/project/a"},
            {"path": "b"},
            id="both, changed in ours",
        ),
        pytest.param(
            "bash",
            {"command": "a", "timeout_seconds": 5},
            {"command": "a", "timeout": 9000, "timeout_seconds": 5},
            {"command": "a", "timeout_seconds": 9},
            id="a time",
        ),
        pytest.param("grep", {"pattern": "a"}, {"pattern": "b"}, {"pattern": "b", "output": "content"}, id="a default"),
    ],
)
def test_a_hook_may_change_a_call_in_either_words(
    tool: str, before: dict[str, Any], updated: dict[str, Any], after: dict[str, Any]
) -> None:
    assert updated_to_ours(tool, updated, before, ROOT) == after


@pytest.mark.parametrize("tool", [tool.name for tool in ALL_TOOLS])
def test_every_field_of_ours_survives_the_way_there_and_back(tool: str) -> None:
    properties = next(each.spec for each in ALL_TOOLS if each.name == tool).input_schema["properties"]
    samples = {"string": "a", "boolean": True, "integer": 7, "number": 7, "array": ["1"]}
    ours = {name: samples[schema["type"]] for name, schema in properties.items()}
    ours |= {"blocked_by": [1]} if "blocked_by" in ours and tool == "task_update" else {}
    ours |= {"output": "files"} if "output" in ours else {}
    assert to_ours(tool, to_theirs(tool, ours, ROOT).input, ROOT) == ours


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = (
    "command timeout timeout_seconds path file_path ids id task_id edits -A -C type output_mode output name isolation "
    "worktree taskId blocked_by addBlockedBy prompt"
)
FIELDS = st.sampled_from(NAMES.split())


@given(st.sampled_from([*OUR_TOOLS, "mcp__s__t", "x"]), st.dictionaries(FIELDS, VALUES, max_size=6))
def test_no_input_breaks_the_translation(tool: str, given: dict[str, Any]) -> None:
    theirs = to_theirs(tool, to_ours(tool, given, ROOT), ROOT).input
    assert isinstance(updated_to_ours(tool, theirs, given, ROOT), dict)
