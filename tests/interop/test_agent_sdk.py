"""The published SDK of Claude Code drives teamcli."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.interop.installed import install_python
from tests.support.fake_api import answer, drip, text, tool, tool_results
from tests.support.program import PATIENCE_SECONDS, Program

pytestmark = pytest.mark.interop

# From source: its wheel holds Claude Code itself, with 165 MB.
SDK = ("--no-binary", "claude-agent-sdk", "claude-agent-sdk==0.2.184")
CLIENT = Path(__file__).with_name("agent_sdk_client.py")
TOUCH = [tool("bash", command="touch made"), text("done")]


@pytest.fixture(scope="module")
def python() -> Path:
    return install_python("agent-sdk", SDK) / "python"


def run(python: Path, program: Program, scenario: str) -> Any:
    cli = Path(sys.executable).with_name("teamcli")
    env = {name: value for name, value in program.env().items() if name != "PYTHONWARNINGS"}
    command = [python, CLIENT, scenario, cli, program.directory, json.dumps(env)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_query_gets_its_answer(python: Path, program: Program) -> None:
    with program.against([text("hello there")]):
        seen = run(python, program, "one_query")
    assert (seen["texts"], seen["results"]) == (["hello there"], [["success", False, "hello there"]])
    assert seen["events"] > 3


def test_a_client_has_a_conversation_of_three_turns(python: Path, program: Program) -> None:
    with program.against([text("a"), text("b"), text("c")]) as api:
        seen = run(python, program, "turns")
    assert (seen["texts"], len(api.requests[2]["messages"])) == (["a", "b", "c"], 5)


def test_a_client_interrupts_and_continues(python: Path, program: Program) -> None:
    with program.against([answer(text("word " * 2000), drip(0.05)), text("back")]):
        seen = run(python, program, "interrupt")
    assert [each[0] for each in seen["results"]] == ["error_during_execution", "success"]
    assert seen["texts"][-1] == "back"


def test_can_use_tool_allows(python: Path, program: Program) -> None:
    with program.against(TOUCH):
        seen = run(python, program, "allow")
    assert seen["asked"] == ["Bash", {"command": "touch made"}, True]
    assert (program.directory / "made").exists()


def test_an_answer_with_the_suggestions_is_remembered(python: Path, program: Program) -> None:
    with program.against([tool("bash", command="touch made"), *TOUCH]):
        seen = run(python, program, "always")
    assert seen["asked"] == 1
    assert seen["offered"][0]["rules"] == [{"toolName": "Bash", "ruleContent": "touch made"}]


def test_a_client_knows_commands_servers_and_context(python: Path, program: Program) -> None:
    with program.against([text("hello")]):
        seen = run(python, program, "overview")
    assert 0 < seen["usage"]["totalTokens"] < seen["usage"]["maxTokens"]
    assert seen["servers"] == {"mcpServers": []}
    assert "help" in [each["name"] for each in seen["info"]["commands"]]


def test_can_use_tool_denies(python: Path, program: Program) -> None:
    with program.against(TOUCH) as api:
        seen = run(python, program, "deny")
    assert "not on a Friday" in tool_results(api.requests[1])[0]["content"]
    assert [each["tool_name"] for each in seen["denials"]] == ["Bash"]
    assert not (program.directory / "made").exists()


def test_a_hook_in_python_blocks(python: Path, program: Program) -> None:
    with program.against(TOUCH) as api:
        seen = run(python, program, "hook")
    assert seen["hooked"] == ["Bash", "touch made"]
    assert "never touch" in tool_results(api.requests[1])[0]["content"]
    assert not (program.directory / "made").exists()


def test_a_tool_inside_the_program_is_called(python: Path, program: Program) -> None:
    with program.against([tool("mcp__calc__add", a=2, b=3), text("five")]) as api:
        run(python, program, "own_tool")
    assert tool_results(api.requests[1])[0]["content"] == "the sum is 5"


def test_model_and_mode_change(python: Path, program: Program) -> None:
    with program.against(TOUCH) as api:
        run(python, program, "changes")
    assert {request["model"] for request in api.requests} == {"other-model"}
    assert (program.directory / "made").exists()


def test_a_limit_raises_with_its_reason(python: Path, program: Program) -> None:
    with program.against(TOUCH):
        seen = run(python, program, "failure")
    assert (seen["results"][0][:2], seen["raised"]) == (["error_max_turns", True], "ResultError")
