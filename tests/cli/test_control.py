"""teamcli driven by another program, over the control protocol of Claude Code's SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.control import Json, driving
from tests.support.fake_api import answer, said_by_user, stall_after, status, text, thinking, tool, tool_results
from tests.support.program import Program
from tests.support.team_script import TeamScript

RESULT_KEYS = (
    "subtype",
    "is_error",
    "duration_ms",
    "duration_api_ms",
    "num_turns",
    "result",
    "stop_reason",
    "session_id",
    "total_cost_usd",
    "usage",
    "modelUsage",
    "permission_denials",
    "uuid",
)
ASKS = ("--permission-prompt-tool", "stdio")
SDK_SERVER = ("--mcp-config", json.dumps({"mcpServers": {"calc": {"type": "sdk", "name": "calc"}}}))


def allow(request: Json) -> Json:
    return {"behavior": "allow", "updatedInput": request["input"]}


def test_one_message_gets_one_result_and_the_end_of_input_ends_the_program(program: Program) -> None:
    with program.against([text("hello")]), driving(program) as driver:
        driver.initialize()
        driver.say("hi")
        code = driver.close()
    assert code == 0
    init, assistant, result = driver.messages
    assert (init["type"], init["subtype"], init["permissionMode"], init["model"]) == (
        "system",
        "init",
        "default",
        "test-model",
    )
    assert {"Bash", "Read", "Task"} <= set(init["tools"])
    assert assistant["message"]["content"] == [{"type": "text", "text": "hello"}]
    assert (assistant["message"]["model"], assistant["parent_tool_use_id"]) == ("test-model", None)
    assert [key for key in RESULT_KEYS if key not in result] == []
    assert (result["subtype"], result["is_error"], result["result"], result["num_turns"]) == (
        "success",
        False,
        "hello",
        1,
    )
    assert {message["session_id"] for message in driver.messages} == {init["session_id"]}


def test_each_message_is_a_turn_of_one_conversation(program: Program) -> None:
    with program.against([text("one"), text("two"), text("three")]) as api, driving(program) as driver:
        driver.initialize()
        results = [driver.turn(each)["result"] for each in ("a", "b", "c")]
        assert driver.close() == 0
    assert results == ["one", "two", "three"]
    assert len(api.requests[2]["messages"]) == 5


def test_a_program_need_not_begin_with_a_request(program: Program) -> None:
    with program.against([text("one")]), driving(program, "-p") as driver:
        assert driver.turn("a")["result"] == "one"


def test_the_program_knows_commands_roles_skills_plugins_and_how_full_the_context_is(program: Program) -> None:
    plugin = program.home / "forge"
    long = "Makes it. " * 20 + "Use when it glows."
    for name, content in {
        "commands/make.md": f"---\ndescription: {long}\nargument-hint: <what>\n---\nMake it.",
        "agents/smith.md": f"---\nname: smith\ndescription: {long}\nmodel: haiku\n---\nForge.",
        "skills/weld/SKILL.md": "---\ndescription: how to weld\n---\nWeld.",
    }.items():
        (plugin / name).parent.mkdir(parents=True, exist_ok=True)
        (plugin / name).write_text(content)
    with program.against([text("ok")]), driving(program, "--plugin-dir", str(plugin)) as driver:
        known = driver.initialize()["response"]
        driver.turn("x")
        usage = driver.request("get_context_usage")["response"]
    assert {"name": "forge:make", "description": long, "argumentHint": "<what>"} in known["commands"]
    assert {"name": "forge:smith", "description": long, "model": "haiku"} in known["agents"]
    init = driver.of_type("system")[0]
    assert {"forge:make", "forge:weld", "help"} < set(init["slash_commands"])
    assert "forge:smith" in init["agents"]
    assert init["plugins"] == [{"name": "forge", "path": str(plugin)}]
    assert usage["totalTokens"] == sum(each["tokens"] for each in usage["categories"][:2])
    assert 0 < usage["totalTokens"] < usage["maxTokens"]


def test_calls_and_results_are_in_claude_codes_words(program: Program) -> None:
    (program.directory / "a.txt").write_text("content\n")
    with program.against([tool("read_file", path="a.txt"), text("ok")]), driving(program) as driver:
        driver.initialize()
        driver.turn("x")
    call = driver.of_type("assistant")[0]["message"]["content"][0]
    (result,) = driver.of_type("user")
    assert (call["name"], call["input"]) == ("Read", {"file_path": str(program.directory / "a.txt")})
    assert result["message"]["content"][0]["tool_use_id"] == call["id"]
    assert result["tool_use_result"]["file"]["content"] == "content"


def test_each_block_of_an_answer_is_a_message(program: Program) -> None:
    with program.against([answer(thinking("hm"), text("one"), text("two"))]), driving(program) as driver:
        driver.initialize()
        driver.turn("x")
    messages = [each["message"] for each in driver.of_type("assistant")]
    assert [block["type"] for each in messages for block in each["content"]] == ["thinking", "text", "text"]
    assert len({each["id"] for each in messages}) == 1


def test_parts_of_answers_arrive_as_events_of_the_api(program: Program) -> None:
    script = [tool("read_file", path="missing"), text("hello")]
    with program.against(script), driving(program, "--include-partial-messages") as driver:
        driver.initialize()
        driver.turn("x")
    events = [message["event"] for message in driver.of_type("stream_event")]
    assert [event["type"] for event in events].count("message_start") == 2
    assert [event["type"] for event in events].count("message_stop") == 2
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(delta.get("text", "") for delta in deltas) == "hello"
    assert any(delta["type"] == "input_json_delta" for delta in deltas)


def test_user_messages_are_repeated_if_asked_for(program: Program) -> None:
    with program.against([text("ok")]), driving(program, "--replay-user-messages") as driver:
        driver.initialize()
        driver.turn("hello there")
    assert [each["message"]["content"] for each in driver.of_type("user")] == ["hello there"]


class TestPermissions:
    def test_the_program_is_asked_and_may_allow(self, program: Program) -> None:
        script = [tool("bash", command="touch made"), text("done")]
        with program.against(script), driving(program, *ASKS, answers={"can_use_tool": allow}) as driver:
            driver.initialize()
            result = driver.turn("x")
        assert (program.directory / "made").exists()
        assert result["permission_denials"] == []
        (asked,) = driver.asked
        assert (asked["tool_name"], asked["input"]) == ("Bash", {"command": "touch made"})
        assert asked["tool_use_id"]

    def test_an_answer_may_allow_more_calls_like_it(self, program: Program) -> None:
        def always(request: Json) -> Json:
            rules = [{"toolName": "Bash", "ruleContent": "touch *"}]
            update = {"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"}
            return {**allow(request), "updatedPermissions": [update]}

        script = [tool("bash", command="touch a"), tool("bash", command="touch b"), text("done")]
        with program.against(script), driving(program, *ASKS, answers={"can_use_tool": always}) as driver:
            driver.initialize()
            driver.turn("x")
        assert [each["input"]["command"] for each in driver.asked] == ["touch a"]
        assert (program.directory / "b").exists()

    @pytest.mark.parametrize("destination", ["session", "localSettings"])
    def test_it_is_offered_rules_and_may_have_them_remembered(self, program: Program, destination: str) -> None:
        def always(request: Json) -> Json:
            offered = [{**each, "destination": destination} for each in request["permission_suggestions"]]
            return {"behavior": "allow", "updatedInput": request["input"], "updatedPermissions": offered}

        script = [tool("bash", command="touch 'a b'"), tool("bash", command="touch 'a b'"), text("done")]
        with program.against(script), driving(program, *ASKS, answers={"can_use_tool": always}) as driver:
            driver.initialize()
            driver.turn("x")
        (asked,) = driver.asked
        rules = [{"toolName": "Bash", "ruleContent": "touch 'a b'"}]
        place = {"behavior": "allow", "destination": "localSettings"}
        assert asked["permission_suggestions"] == [{"type": "addRules", "rules": rules, **place}]
        assert (program.directory / ".team/settings.local.json").exists() == (destination == "localSettings")

    def test_it_may_switch_to_the_mode_that_is_offered_for_an_edit(self, program: Program) -> None:
        def accept_edits(request: Json) -> Json:
            return {"behavior": "allow", "updatedPermissions": request["permission_suggestions"][:1]}

        script = [tool("write_file", path="a", content="x"), tool("write_file", path="b", content="x"), text("done")]
        with program.against(script), driving(program, *ASKS, answers={"can_use_tool": accept_edits}) as driver:
            driver.initialize()
            driver.turn("x")
        (asked,) = driver.asked
        assert asked["permission_suggestions"][0] == {
            "type": "setMode",
            "mode": "acceptEdits",
            "destination": "session",
        }
        assert (program.directory / "b").exists()

    def test_it_may_change_the_call(self, program: Program) -> None:
        def other(request: Json) -> Json:
            return {"behavior": "allow", "updatedInput": {"command": "touch other"}}

        script = [tool("bash", command="touch made"), text("done")]
        with program.against(script), driving(program, *ASKS, answers={"can_use_tool": other}) as driver:
            driver.initialize()
            driver.turn("x")
        assert [(program.directory / name).exists() for name in ("made", "other")] == [False, True]

    def test_a_refusal_reaches_the_model_and_the_result_and_is_not_an_error(self, program: Program) -> None:
        def deny(request: Json) -> Json:
            return {"behavior": "deny", "message": "not on a Friday"}

        script = [tool("bash", command="touch made"), text("done")]
        with program.against(script) as api, driving(program, *ASKS, answers={"can_use_tool": deny}) as driver:
            driver.initialize()
            result = driver.turn("x")
            code = driver.close()
        assert (code, result["is_error"], (program.directory / "made").exists()) == (0, False, False)
        assert "not on a Friday" in tool_results(api.requests[1])[0]["content"]
        (denial,) = result["permission_denials"]
        assert (denial["tool_name"], denial["tool_input"]) == ("Bash", {"command": "touch made"})

    def test_a_rule_that_denies_is_not_asked_about(self, program: Program) -> None:
        script = [tool("bash", command="touch made"), text("done")]
        arguments = (*ASKS, "--disallowedTools", "Bash(touch:*)")
        with program.against(script), driving(program, *arguments, answers={"can_use_tool": allow}) as driver:
            driver.initialize()
            result = driver.turn("x")
        assert (driver.asked, len(result["permission_denials"])) == ([], 1)

    def test_without_someone_to_ask_the_call_is_refused_and_the_exit_code_stays_0(self, program: Program) -> None:
        with program.against([tool("bash", command="touch made"), text("done")]), driving(program) as driver:
            driver.initialize()
            result = driver.turn("x")
            assert driver.close() == 0
        assert len(result["permission_denials"]) == 1


class TestHooks:
    def test_a_hook_of_the_program_blocks_a_call(self, program: Program) -> None:
        def block(request: Json) -> Json:
            decision = {"permissionDecision": "deny", "permissionDecisionReason": "never touch"}
            return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}

        script = [tool("bash", command="touch made"), text("done")]
        hooks = {"PreToolUse": [{"matcher": "Bash", "hookCallbackIds": ["hook_0"]}]}
        arguments = ("--dangerously-skip-permissions",)
        with (
            program.against(script) as api,
            driving(program, *arguments, answers={"hook_callback": block}) as driver,
        ):
            driver.initialize(hooks=hooks)
            driver.turn("x")
        assert not (program.directory / "made").exists()
        assert "never touch" in tool_results(api.requests[1])[0]["content"]
        (asked,) = driver.asked
        assert (asked["callback_id"], asked["input"]["tool_name"]) == ("hook_0", "Bash")
        assert asked["input"]["tool_input"]["command"] == "touch made"

    def test_a_hook_adds_to_the_prompt(self, program: Program) -> None:
        def add(request: Json) -> Json:
            return {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": "It is Friday."}}

        hooks = {"UserPromptSubmit": [{"matcher": None, "hookCallbackIds": ["a"]}]}
        with program.against([text("ok")]) as api, driving(program, answers={"hook_callback": add}) as driver:
            driver.initialize(hooks=hooks)
            driver.turn("x")
        assert "It is Friday." in said_by_user(api.requests[0])


class TestControl:
    def test_interrupt_ends_the_turn_and_the_next_one_works(self, program: Program) -> None:
        with program.against([answer(text("never"), stall_after(3)), text("back")]) as api, driving(program) as driver:
            driver.initialize()
            driver.say("x")
            driver.read_until(lambda message: message.get("subtype") == "init")
            api.wait_for_stall()
            assert driver.request("interrupt")["subtype"] == "success"
            result = driver.of_type("result")[0] if driver.of_type("result") else driver.result()
            assert (result["subtype"], result["is_error"]) == ("error_during_execution", True)
            assert driver.turn("y")["result"] == "back"

    def test_an_interrupt_right_after_the_message_counts(self, program: Program) -> None:
        with program.against([answer(text("never"), stall_after(3))]), driving(program) as driver:
            driver.initialize()
            driver.say("x")
            driver.send_request("interrupt")
            assert driver.result()["subtype"] == "error_during_execution"

    def test_model_and_mode_can_be_changed(self, program: Program) -> None:
        script = [text("one"), tool("bash", command="touch made"), text("two"), text("three")]
        with program.against(script) as api, driving(program) as driver:
            driver.initialize()
            driver.turn("a")
            assert driver.request("set_model", model="other-model")["subtype"] == "success"
            assert driver.request("set_permission_mode", mode="bypassPermissions")["subtype"] == "success"
            driver.turn("b")
            driver.request("set_model", model=None)
            driver.turn("c")
        assert (program.directory / "made").exists()
        assert [request["model"] for request in api.requests] == [
            "test-model",
            "other-model",
            "other-model",
            "test-model",
        ]
        assert [each["permissionMode"] for each in driver.of_type("system")] == ["default", *["bypassPermissions"] * 2]

    def test_a_server_is_switched_off(self, program: Program) -> None:
        program.settings(mcpServers={"own": {"command": "true"}})
        with program.against([]), driving(program) as driver:
            driver.initialize()
            driver.request("mcp_toggle", serverName="own", enabled=False)
            status = driver.request("mcp_status")["response"]
        assert status == {"mcpServers": [{"name": "own", "status": "disabled"}]}

    @pytest.mark.parametrize(
        "request_",
        [
            {"subtype": "fly"},
            {"subtype": "set_permission_mode", "mode": "wild"},
            {"subtype": "mcp_toggle", "serverName": "none", "enabled": True},
        ],
    )
    def test_what_cannot_be_done_is_an_error_reply(self, program: Program, request_: dict[str, Any]) -> None:
        with program.against([]), driving(program) as driver:
            driver.initialize()
            reply = driver.request(**request_)
        assert reply["subtype"] == "error"


class TestEndings:
    def test_a_limit_is_an_error_result_and_exit_1(self, program: Program) -> None:
        script = [tool("read_file", path="a"), text("late")]
        with program.against(script), driving(program, "--max-turns", "1") as driver:
            driver.initialize()
            result = driver.turn("x")
            code = driver.close()
        assert (code, result["subtype"], result["is_error"]) == (1, "error_max_turns", True)
        assert result["errors"]

    def test_a_failure_of_the_model_is_an_error_and_exit_1(self, program: Program) -> None:
        program.settings(retries=0)
        with program.against([status(400)]), driving(program) as driver:
            driver.initialize()
            result = driver.turn("x")
            code = driver.close()
        assert (code, result["subtype"], result["is_error"]) == (1, "success", True)
        assert "400" in result["result"]

    def test_an_unknown_command_is_an_error_result(self, program: Program) -> None:
        with program.against([]), driving(program) as driver:
            driver.initialize()
            assert "unknown command /nosuch" in driver.turn("/nosuch")["result"]


def test_messages_of_a_teammate_name_the_call_that_started_it(program: Program) -> None:
    spawn = tool("spawn_teammate", name="alice", role="coder", prompt="go")
    script = TeamScript(
        lead=[spawn, text("hired"), text("all done")], alice=[tool("glob", pattern="*"), text("alice is done")]
    )
    with program.against(script), driving(program) as driver:
        driver.initialize()
        result = driver.turn("x")
    spawned = driver.of_type("assistant")[0]["message"]["content"][0]
    assert (spawned["name"], spawned["input"]["name"]) == ("Agent", "alice")
    of_alice = [each for each in driver.messages if each.get("parent_tool_use_id") == spawned["id"]]
    assert [each["type"] for each in of_alice] == ["assistant", "user", "assistant"]
    assert result["result"] == "all done"


def test_a_tool_inside_the_program_can_be_called(program: Program) -> None:
    def serve(request: Json) -> Json:
        message = request["message"]
        results: Json = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "calc"}},
            "tools/list": {"tools": [{"name": "add", "description": "Adds.", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "it is 5"}]},
        }
        return {
            "mcp_response": {"jsonrpc": "2.0", "id": message.get("id"), "result": results.get(message["method"], {})}
        }

    arguments = (*SDK_SERVER, "--allowedTools", "mcp__calc__add")
    script = [tool("mcp__calc__add", a=2, b=3), text("five")]
    with program.against(script) as api, driving(program, *arguments, answers={"mcp_message": serve}) as driver:
        driver.initialize()
        status_ = driver.request("mcp_status")
        driver.turn("x")
    assert tool_results(api.requests[1])[0]["content"] == "it is 5"
    assert status_["response"]["mcpServers"] == [{"name": "calc", "status": "connected"}]
    assert driver.asked[-1]["message"]["params"] == {"name": "add", "arguments": {"a": 2, "b": 3}}


def test_a_rule_that_asks_is_answered_by_the_program(program: Program) -> None:
    settings = json.dumps({"permissions": {"ask": ["Bash(touch:*)"]}})
    arguments = (*ASKS, "--settings", settings, "--dangerously-skip-permissions")
    script = [tool("bash", command="touch made"), text("done")]
    with program.against(script), driving(program, *arguments, answers={"can_use_tool": allow}) as driver:
        driver.initialize()
        driver.turn("x")
    assert (len(driver.asked), (program.directory / "made").exists()) == (1, True)


def test_the_answer_is_also_given_in_the_form_of_a_schema(program: Program) -> None:
    schema = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}})
    script = [tool("StructuredOutput", n=4), text("done"), tool("StructuredOutput", n=5), text("done")]
    with program.against(script), driving(program, "--json-schema", schema) as driver:
        driver.initialize()
        results = [driver.turn(each)["structured_output"] for each in ("a", "b")]
    assert results == [{"n": 4}, {"n": 5}]
