"""MCP servers at a terminal: what the user is asked, and what Esc and Tab do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, UsageError
from teamcli.mcp.server import Elicitation, ElicitationAnswer
from teamcli.ui.terminal.elicitation import ServerQuestion, choices, read_value
from tests.cli.test_mcp import fake, mcp_json, result, use
from tests.support.fake_api import text, tool
from tests.support.program import Program
from tests.support.screen import Screen

PROMPT = "team >>"


def test_the_question_shows_server_tool_and_the_whole_input_and_always_saves_a_rule(program: Program) -> None:
    use(program, fake=fake("few"))
    long = "word " * 60
    calls = [tool("mcp__fake__echo", text=long), tool("call_tool", name="mcp__fake__echo", input={"text": "two"})]
    with program.against([*calls, text("The end.")]) as api, Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("do it\r")
        screen.wait_for("allow? >>")
        screen.wait_for_all("lead wants to use mcp__fake__echo:", "MCP server fake, tool echo", '"text":')
        assert screen.text.count("word") == 60
        screen.type("aa\r")
        screen.wait_for("The end.")
    assert "two" in result(api)
    saved = json.loads((program.directory / ".team/settings.local.json").read_text())
    assert saved["permissions"]["allow"] == ["mcp__fake__echo"]


def test_a_question_of_a_server_comes_up_at_the_prompt(program: Program) -> None:
    use(program, fake=fake())
    calls = [tool("mcp__fake__form"), text("The end.")]
    with program.against(calls) as api, Screen(program, "--allowedTools", "mcp__fake") as screen:
        screen.wait_for(PROMPT)
        screen.type("do it\r")
        screen.wait_for("answer? >>")
        screen.wait_for_all("MCP server fake asks:", "Name?", "It wants to know: name")
        screen.type("y\r")
        screen.wait_for("name >>")
        screen.wait_for("default: bo")
        screen.type("carol\r")
        screen.wait_for("The end.")
    assert '"content": {"name": "carol"}' in result(api)


def test_esc_cancels_a_call(program: Program) -> None:
    use(program, fake=fake())
    with (
        program.against([tool("mcp__fake__hang"), text("no")]),
        Screen(program, "--allowedTools", "mcp__fake") as screen,
    ):
        screen.wait_for(PROMPT)
        screen.type("do it\r")
        screen.wait_for("mcp__fake__hang")
        screen.type("\x1b")
        screen.wait_for("Interrupted")


def test_a_projects_servers_are_asked_about_in_full_before_the_first_prompt(program: Program) -> None:
    mcp_json(program, fake=fake("few", env={"LAST": "the end of it"}))
    with program.against([text("The end.")]) as api, Screen(program, columns=200) as screen:
        screen.wait_for("MCP servers in .mcp.json")
        screen.wait_for("the end of it")
        screen.type("y\r")
        screen.wait_for(PROMPT)
        screen.type("hello\r")
        screen.wait_for("The end.")
    assert "mcp__fake__echo" in json.dumps(api.requests[0]["tools"])


def test_tab_completes_prompts_and_resources_once_they_are_known(program: Program) -> None:
    use(program, fake=fake())
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("/mcp reconnect fake\r")
        screen.wait_for("mcp__fake__echo")
        screen.wait_for("/fake:review")
        screen.type("/fake:r\t")
        screen.wait_for("team >> /fake:review")
        screen.type("\x15look at @fake:\t")
        screen.wait_for("team >> look at @fake:file:///a")


FORM = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "size": {"type": "integer", "default": 3},
        "kind": {"enum": ["a", "b"]},
        "sure": {"type": "boolean"},
    },
}


def filled_in(*answers: str, schema: dict[str, Any] = FORM, url: str = "") -> ElicitationAnswer:
    asked = ServerQuestion(Elicitation("s", "Why?\x1b[2J", {} if url else schema, url))
    for each in answers:
        asked.take(each)
    assert not asked.is_open
    return asked.wait(CancelScope())


def test_a_form_is_answered_field_by_field() -> None:
    given = filled_in("y", "bob", ".", "2", "yes")
    assert given == ElicitationAnswer("accept", {"name": "bob", "size": 3, "kind": "b", "sure": True})


def test_fields_that_are_not_needed_can_be_left_empty() -> None:
    assert filled_in("y", '"q"', "7", ".", ".") == ElicitationAnswer("accept", {"name": "q", "size": 7})


@pytest.mark.parametrize("answer", ["n", "no"])
def test_a_question_can_be_declined(answer: str) -> None:
    assert filled_in(answer) == ElicitationAnswer("decline")


def test_an_address_shows_its_host_and_is_not_fetched() -> None:
    asked = ServerQuestion(Elicitation("s", "Visit", url="https://user@evil.example:8443/login?good.example"))
    words = ["".join(part for part, _ in line) for line in asked.body()]
    assert "  It wants you to open a page at evil.example" in words
    assert filled_in("y", url="https://example.com") == ElicitationAnswer("accept", {})


@pytest.mark.parametrize(
    ("schema", "text"),
    [({"type": "integer"}, "x"), ({"type": "number"}, "1e"), ({"enum": ["a"]}, "2"), ({"type": "boolean"}, "maybe")],
)
def test_a_value_that_does_not_fit_is_refused(schema: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError):
        read_value(schema, text)


def test_several_choices_are_separated_by_commas() -> None:
    schema = {"type": "array", "items": {"oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]}}
    assert choices(schema) == [("r", "Red"), ("g", "Green")]
    assert read_value(schema, "1, Green") == ["r", "g"]


def test_needed_fields_cannot_be_skipped() -> None:
    asked = ServerQuestion(Elicitation("s", "?", FORM))
    asked.take("y")
    with pytest.raises(UsageError, match="name is needed"):
        asked.take(".")


def test_words_of_the_server_cannot_control_the_terminal() -> None:
    hostile = {"properties": {"\x1b[31mx": {"title": "\x1b]0;t\x07", "enum": ["\x1b[2J"], "default": "\x1b"}}}
    asked = ServerQuestion(Elicitation("s", "\x1b[2J", hostile))
    shown = [*asked.body()]
    asked.take("y")
    shown += asked.body()
    assert "\x1b" not in str([*shown, asked.label])
    assert "\\x1b" not in str([*shown, asked.label])


def test_a_question_that_is_void_is_closed() -> None:
    scope = CancelScope()
    scope.cancel("gone")
    asked = ServerQuestion(Elicitation("s", "?", FORM))
    with pytest.raises(Cancelled):
        asked.wait(scope)
    assert not asked.is_open
