"""Flags of Claude Code from the outside: the real program does what they say."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.support.fake_api import said_by_user, status, text, tool, tool_results
from tests.support.program import Program

PRICE = {"input": 1_000_000, "output": 0, "cache_read": 0, "cache_write": 0}
AGENTS = {"critic": {"description": "finds faults", "prompt": "You find faults.", "tools": ["Read"], "model": "haiku"}}


def write(program: Program, name: str, content: str) -> None:
    path = program.directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def system_of(request: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in request.get("system", ()))


def tools_of(request: dict[str, Any]) -> list[str]:
    return [each["name"] for each in request.get("tools", ())]


def test_skipping_permissions_and_several_rules_work_as_there(program: Program) -> None:
    program.settings(sandbox="off")  # else it says so if there is none
    with program.against([tool("bash", command="touch made"), text("done")]):
        ran = program.run("-p", "--dangerously-skip-permissions", "go")
    assert (ran.code, ran.out, ran.err) == (0, "done\n", "")
    assert (program.directory / "made").exists()
    with program.against([tool("bash", command="touch other"), text("done")]) as api:
        ran = program.run("-p", "--allowedTools", "Read", "Bash(touch *)", "go now")
    assert (ran.code, said_by_user(api.requests[0]).split("\n")[0]) == (0, "go now")
    assert (program.directory / "other").exists()


def test_flags_without_effect_are_named_once(program: Program) -> None:
    with program.against([text("ok")]):
        ran = program.run("-p", "x", "--betas", "a", "--ide", "--betas=b")
    assert (ran.out, ran.err) == ("ok\n", "teamcli: Flags of Claude Code without an effect here: --betas, --ide.\n")


def test_the_system_prompt_can_be_replaced(program: Program) -> None:
    write(program, "CLAUDE.md", "Use tabs.")
    with program.against([text("ok")]) as api:
        program.run("-p", "x", "--no-team", "--system-prompt", "You are a poet.", "--append-system-prompt", "In rhyme.")
    system = system_of(api.requests[0])
    assert system.startswith("You are a poet.")
    assert "In rhyme." in system
    assert "Use tabs." in system
    assert "You are teamcli" not in system


def test_only_the_chosen_tools_exist(program: Program) -> None:
    with program.against([text("ok"), text("ok")]) as api:
        program.run("-p", "x", "--tools", "Bash,Read,WebFetch")
        program.run("-p", "x", "--tools", "")
    assert [tools_of(request) for request in api.requests] == [["bash", "read_file"], []]


def test_effort_goes_to_the_model(program: Program) -> None:
    with program.against([text("ok")]) as api:
        program.run("-p", "x", "--effort", "low")
    assert api.requests[0]["output_config"] == {"effort": "low"}


@pytest.mark.parametrize(
    "arguments, thinking",
    [
        (("--thinking", "adaptive"), {"type": "adaptive"}),
        (("--thinking", "disabled"), {"type": "disabled"}),
        (("--max-thinking-tokens", "2000"), {"type": "enabled", "budget_tokens": 2000}),
    ],
)
def test_thinking_is_chosen_on_the_command_line(
    program: Program, arguments: tuple[str, ...], thinking: dict[str, Any]
) -> None:
    with program.against([text("ok")]) as api:
        program.run("-p", "x", *arguments)
    assert api.requests[0]["thinking"] == thinking


def test_another_model_answers_if_the_first_is_overloaded(program: Program) -> None:
    program.settings(retries=0, prices={"test-model": PRICE, "third": {**PRICE, "input": 3_000_000}})
    with program.against([status(529), status(529), text("hello")]) as api:
        ran = program.run("-p", "x", "--fallback-model", "second,third", "--output-format", "json")
    assert (ran.code, ran.json["result"]) == (0, "hello")
    assert ran.json["total_cost_usd"] == 3 * ran.json["usage"]["input_tokens"]
    assert [request["model"] for request in api.requests] == ["test-model", "second", "third"]
    assert "Now second is asked" in ran.err


@pytest.mark.parametrize("is_file", [True, False])
def test_settings_of_the_command_line_win(program: Program, is_file: bool) -> None:
    settings = json.dumps({"permissions": {"allow": ["Bash(touch *)"], "deny": ["Bash(touch no)"]}, "model": "other"})
    write(program, "mine.json", settings)
    calls = [tool("bash", command="touch yes"), tool("bash", command="touch no"), text("ok")]
    with program.against(calls) as api:
        ran = program.run("-p", "x", "--settings", "mine.json" if is_file else settings, env={"MODEL_ID": ""})
    assert (ran.code, api.requests[0]["model"]) == (0, "other")
    assert (program.directory / "yes").exists()
    assert not (program.directory / "no").exists()


def test_settings_that_cannot_be_read_are_a_usage_error(program: Program) -> None:
    ran = program.run("-p", "x", "--settings", "missing.json", "--offline")
    assert ran.code == 2
    assert "--settings: missing.json cannot be read: No such file or directory" in ran.err


class TestSources:
    def test_unnamed_sources_do_not_count(self, program: Program) -> None:
        write(program, "CLAUDE.md", "Use tabs.")
        write(program, ".claude/agents/fixer.md", "---\nname: fixer\ndescription: fixes\n---\nFix.")
        (program.home / ".claude").mkdir()
        (program.home / ".claude/CLAUDE.md").write_text("Be kind.")
        with program.against([text("ok")] * 3) as api:
            program.run("-p", "x", "--trust")
            program.run("-p", "x", "--setting-sources", "user")
            program.run("-p", "x", "--setting-sources=project")
        known = ("Use tabs.", "fixer: fixes", "Be kind.")
        found = [[part in system_of(request) for part in known] for request in api.requests]
        assert found == [[True, True, True], [False, False, True], [True, True, False]]

    def test_rules_of_an_unnamed_source_do_not_count(self, program: Program) -> None:
        write(program, ".claude/settings.json", json.dumps({"permissions": {"deny": ["Read"]}}))
        write(program, "a.txt", "content")
        with program.against([tool("read_file", path="a.txt"), text("ok")] * 2) as api:
            program.run("-p", "x")
            program.run("-p", "x", "--setting-sources", "")
        assert ["content" in tool_results(api.requests[n])[0]["content"] for n in (1, 3)] == [False, True]

    def test_bare_runs_no_hook(self, program: Program) -> None:
        hook = {"hooks": [{"type": "command", "command": "echo a hook spoke"}]}
        program.settings(hooks={"UserPromptSubmit": [hook]})
        with program.against([text("ok")] * 2) as api:
            program.run("-p", "x")
            program.run("-p", "x", "--bare")
        assert ["a hook spoke" in said_by_user(request) for request in api.requests] == [True, False]


class TestSessions:
    def test_a_session_gets_the_id_that_was_chosen(self, program: Program) -> None:
        with program.against([text("one"), text("two")]) as api:
            first = program.run("-p", "hello", "--session-id", "4f0c-77", "--output-format", "json")
            again = program.run("-p", "hello", "--session-id", "4f0c-77")
            program.run("-p", "more", "--resume=4f0c-77")
        assert first.json["session_id"] == "4f0c-77"
        assert (again.code, again.err) == (
            2,
            "teamcli: --session-id: there is a session '4f0c-77' here; use --resume 4f0c-77\n",
        )
        assert len(api.requests[1]["messages"]) == 3

    def test_a_fork_leaves_the_session_as_it_was(self, program: Program) -> None:
        with program.against([text("one"), text("two"), text("three"), text("four")]) as api:
            program.run("-p", "hello", "--session-id", "first")
            fork = program.run("-p", "more", "--resume", "first", "--fork-session", "--output-format", "json")
            program.run("-p", "back", "--resume", "first")
            program.run("-p", "on", "--resume", fork.json["session_id"])
        assert fork.json["session_id"] != "first"
        assert [len(request["messages"]) for request in api.requests] == [1, 3, 3, 5]


class TestRoles:
    def test_roles_come_from_the_command_line(self, program: Program) -> None:
        spawn = tool("agent", prompt="look", subagent_type="critic")
        with program.against([spawn, text("bad"), text("done")]) as api:
            ran = program.run("-p", "x", "--agents", json.dumps(AGENTS))
        assert ran.out == "done\n"
        assert "critic: finds faults" in system_of(api.requests[0])
        assert "You find faults." in system_of(api.requests[1])
        assert tools_of(api.requests[1]) == ["read_file"]

    def test_they_win_over_files_and_their_tools_are_read_like_those_of_files(self, program: Program) -> None:
        role = "---\nname: critic\ndescription: from the file\n---\nx"
        write(program, ".claude/agents/critic.md", role)
        given = {"critic": {"description": "finds faults", "prompt": "You find faults.", "tools": "Read, WebFetch"}}
        script = [tool("agent", prompt="look", description="x", subagent_type="critic"), text("fine"), text("done")]
        with program.against(script) as api:
            ran = program.run("-p", "x", "--trust", "--agents", json.dumps(given))
        assert "- critic: finds faults" in system_of(api.requests[0])
        assert tools_of(api.requests[1]) == ["read_file"]
        assert "1 role tool (WebFetch)" in ran.err

    def test_the_lead_works_in_a_role(self, program: Program) -> None:
        with program.against([text("ok")]) as api:
            program.run("-p", "x", "--no-team", "--agents", json.dumps(AGENTS), "--agent", "critic")
        assert system_of(api.requests[0]).startswith("You find faults.")
        assert tools_of(api.requests[0]) == ["read_file"]

    def test_an_unknown_role_is_a_usage_error(self, program: Program) -> None:
        ran = program.run("-p", "x", "--agent", "nobody", "--offline")
        assert (ran.code, "--agent: there is no role 'nobody' (there are: " in ran.err) == (2, True)

    def test_roles_that_are_not_json_are_a_usage_error(self, program: Program) -> None:
        ran = program.run("-p", "x", "--agents", "[]", "--offline")
        assert (ran.code, "--agents: it is not an object" in ran.err) == (2, True)


class TestCommands:
    def test_a_command_of_the_project_becomes_the_task(self, program: Program) -> None:
        write(program, ".claude/commands/review.md", "Review $1 with care.")
        with program.against([text("fine")]) as api:
            ran = program.run("-p", "/review src/a.py", "--trust", stdin="the diff")
        assert ran.out == "fine\n"
        assert said_by_user(api.requests[0]).startswith("Review src/a.py with care.")
        assert "the diff" in said_by_user(api.requests[0])

    def test_a_built_in_command_prints_what_it_shows(self, program: Program) -> None:
        ran = program.run("-p", "/team", "--offline", "--output-format", "json")
        assert (ran.code, ran.json["num_turns"]) == (0, 0)
        assert "No teammates yet." in ran.json["result"]

    def test_an_unknown_command_is_a_usage_error(self, program: Program) -> None:
        ran = program.run("-p", "/taem", "--offline")
        assert (ran.code, ran.err) == (2, "teamcli: unknown command /taem: did you mean /team?\n")

    def test_a_path_is_not_a_command(self, program: Program) -> None:
        with program.against([text("ok"), text("ok")]) as api:
            program.run("-p", "/etc/hosts is wrong")
            program.run("-p", "/tmp is full")
        assert [said_by_user(each).split(" ")[0] for each in api.requests] == ["/etc/hosts", "/tmp"]


class TestStructuredOutput:
    SCHEMA = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})

    def test_the_answer_is_given_in_the_form_of_the_schema(self, program: Program) -> None:
        script = [text("It is 4."), tool("StructuredOutput", n="4"), tool("StructuredOutput", n=4), text("done")]
        with program.against(script) as api:
            ran = program.run("-p", "2+2?", "--json-schema", self.SCHEMA, "--output-format", "json")
        assert (ran.code, ran.json["structured_output"], ran.json["result"]) == (0, {"n": 4}, "done")
        assert "Give your final answer with StructuredOutput now." in said_by_user(api.requests[1])
        assert "n must be of type integer" in tool_results(api.requests[2])[0]["content"]
        api.assert_prefix_stable()

    def test_text_output_is_the_json(self, program: Program) -> None:
        with program.against([tool("StructuredOutput", n=4), text("done")]):
            ran = program.run("-p", "2+2?", "--json-schema", self.SCHEMA)
        assert (ran.code, json.loads(ran.out)) == (0, {"n": 4})

    def test_a_model_that_never_gives_it_is_an_error(self, program: Program) -> None:
        with program.against([text("no")] * 9):
            ran = program.run("-p", "2+2?", "--json-schema", self.SCHEMA, "--output-format", "json")
        assert (ran.code, ran.json["subtype"]) == (1, "error_max_structured_output_retries")

    @pytest.mark.parametrize("schema", ["{", "[]", '{"type": "string"}'])
    def test_a_bad_schema_is_a_usage_error(self, program: Program, schema: str) -> None:
        ran = program.run("-p", "x", "--json-schema", schema, "--offline")
        assert (ran.code, "--json-schema: it " in ran.err) == (2, True)


def test_parts_of_answers_are_lines_of_the_stream(program: Program) -> None:
    arguments = ("--output-format", "stream-json", "--include-partial-messages")
    with program.against([tool("read_file", path="missing"), text("hello")]):
        ran = program.run("-p", "x", *arguments)
    events = [line["event"] for line in ran.json_lines if line["type"] == "stream_event"]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(delta.get("text", "") for delta in deltas) == "hello"
    assert [event["type"] for event in events].count("message_stop") == 2


APPROVER = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    method, params = request.get("method"), request.get("params", {})
    if method == "initialize":
        about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
        result = {"protocolVersion": params["protocolVersion"], **about}
    elif method == "tools/list":
        result = {"tools": [{"name": "approve", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        asked = params["arguments"]
        changed = {**asked["input"], "command": asked["input"]["command"].replace("old", "new")}
        said = {"behavior": "allow", "updatedInput": changed}
        if asked["tool_name"] != "Bash" or "bad" in changed["command"]:
            said = {"behavior": "deny", "message": "not on a Friday"}
        result = {"content": [{"type": "text", "text": json.dumps(said)}]}
    else:
        result = {}
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


class TestPromptTool:
    def test_the_tool_of_a_server_answers_permission_questions(self, program: Program) -> None:
        write(program, "approver.py", APPROVER)
        server = {"command": sys.executable, "args": ["-I", str(program.directory / "approver.py")]}
        config = json.dumps({"mcpServers": {"perm": server}})
        arguments = (
            "--mcp-config",
            config,
            "--permission-prompt-tool",
            "mcp__perm__approve",
            "--output-format",
            "json",
        )
        script = [tool("bash", command="touch old"), tool("bash", command="touch bad"), text("done")]
        with program.against(script) as api:
            ran = program.run("-p", "x", *arguments)
        assert (ran.code, ran.json["result"]) == (0, "done")
        assert [(program.directory / name).exists() for name in ("old", "new", "bad")] == [False, True, False]
        assert "not on a Friday" in str(tool_results(api.requests[2])[0]["content"])

    def test_a_tool_that_cannot_be_asked_allows_nothing(self, program: Program) -> None:
        with program.against([tool("bash", command="touch made"), text("done")]) as api:
            ran = program.run("-p", "x", "--permission-prompt-tool", "mcp__perm__approve")
        assert (ran.code, (program.directory / "made").exists()) == (0, False)
        assert "there is no MCP server that has mcp__perm__approve" in str(tool_results(api.requests[1])[0]["content"])

    def test_a_wrong_name_is_a_usage_error(self, program: Program) -> None:
        ran = program.run("-p", "x", "--permission-prompt-tool", "approve", "--offline")
        assert (ran.code, "is not of the form mcp__SERVER__TOOL" in ran.err) == (2, True)
