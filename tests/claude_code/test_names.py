"""Claude Code's names for tools and models, and ours."""

from __future__ import annotations

import pytest

from teamcli.claude_code.names import is_claude_tool, is_model_alias, model_id, names_of, our_tool, their_tool
from teamcli.llm.pricing import DEFAULT_MODEL, built_in_prices

TOOLS = {
    "Bash": "bash",
    "Read": "read_file",
    "Write": "write_file",
    "Edit": "edit_file",
    "Glob": "glob",
    "Grep": "grep",
    "Agent": "agent",
    "BashOutput": "bash_output",
    "TaskStop": "bash_stop",
    "SendMessage": "send_message",
    "TaskCreate": "task_create",
    "TaskUpdate": "task_update",
    "TaskList": "task_list",
    "ExitPlanMode": "submit_plan",
}
OLD = {
    "Task": "agent",
    "MultiEdit": "edit_file",
    "KillShell": "bash_stop",
    "KillBash": "bash_stop",
    "TaskOutput": "bash_output",
    "TaskGet": "task_list",
}


@pytest.mark.parametrize("theirs", TOOLS)
def test_a_tool_translates_there_and_back(theirs: str) -> None:
    assert (our_tool(theirs), their_tool(TOOLS[theirs])) == (TOOLS[theirs], theirs)


@pytest.mark.parametrize("old", OLD)
def test_an_old_name_still_means_the_tool(old: str) -> None:
    assert our_tool(old) == OLD[old]


@pytest.mark.parametrize("name", ["mcp__github__create_issue", "broadcast", "bash", "WebFetch", "read", "my_tool"])
def test_other_names_stay_as_they_are(name: str) -> None:
    assert (our_tool(name), their_tool(our_tool(name))) == (name, their_tool(name))


def test_names_are_compared_with_regard_to_case() -> None:
    assert our_tool("BASH") == "BASH"


def test_a_teammate_is_a_case_of_their_agent() -> None:
    assert (their_tool("spawn_teammate"), names_of("spawn_teammate")) == ("Agent", ("spawn_teammate", "Agent", "Task"))


def test_a_matcher_may_use_any_name_of_a_tool() -> None:
    assert names_of("edit_file") == ("edit_file", "Edit", "MultiEdit")


@pytest.mark.parametrize(
    ("name", "is_theirs"),
    [("Bash", True), ("WebFetch", True), ("mcp__s__t", True), ("bash", False), ("Bsh", False)],
)
def test_tools_of_claude_code_are_known(name: str, is_theirs: bool) -> None:
    assert is_claude_tool(name) is is_theirs


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("opus", "claude-opus-5-5"),
        ("opus[1m]", "claude-opus-5-5"),
        ("opusplan", "claude-opus-5-5"),
        ("sonnet", "claude-sonnet-5-5"),
        ("sonnet[1m]", "claude-sonnet-5-5"),
        ("haiku", "claude-haiku-4-5"),
        ("fable", "claude-fable-5-1"),
        ("best", "claude-fable-5-1"),
        ("default", DEFAULT_MODEL),
        ("inherit", "parent"),
        ("", "parent"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5-20250929"),
        ("gpt-oss:20b", "gpt-oss:20b"),
    ],
)
def test_a_model_alias_means_the_newest_model_of_its_family(name: str, id: str) -> None:
    assert model_id(name, "parent", DEFAULT_MODEL, built_in_prices().prices, {}) == id


def test_the_user_says_what_an_alias_means() -> None:
    chosen = {"ANTHROPIC_DEFAULT_SONNET_MODEL": "my-model"}
    assert model_id("sonnet", "parent", DEFAULT_MODEL, built_in_prices().prices, chosen) == "my-model"


def test_an_alias_of_an_unknown_family_means_the_default() -> None:
    assert model_id("haiku", "parent", "mine", [], {}) == "mine"


def test_ids_are_not_aliases() -> None:
    assert [name for name in ("opus", "inherit", "claude-opus-5", "opus-5") if is_model_alias(name)] == [
        "opus",
        "inherit",
    ]
