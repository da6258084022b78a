"""MCP servers from the outside: configured, approved, offered to the model, called, and ended."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from teamcli.config.mcp_file import read_users_servers
from tests.mcp.servers import FAKE
from tests.redteam.conftest import need_sandbox
from tests.support.answers import answer, result_text, said_by_user, tool_results
from tests.support.fake_api import FakeAPI, text, tool
from tests.support.program import Program
from tests.support.team_script import TeamScript

ALLOW = ("--allowedTools", "mcp__fake")
Json = dict[str, Any]


def fake(*behaviors: str, **more: Any) -> Json:
    return {"command": sys.executable, "args": ["-I", "-S", FAKE, *behaviors], **more}


def use(program: Program, **servers: Json) -> None:
    """In the user's settings, which need no agreement."""
    program.settings(mcpServers=servers)


def mcp_json(program: Program, **servers: Any) -> None:
    (program.directory / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))


def tools_in(request: Json) -> list[str]:
    return [each["name"] for each in request["tools"]]


def outside(request: Json) -> list[str]:
    return [name for name in tools_in(request) if name.startswith("mcp__") or name in ("tool_search", "call_tool")]


def result(api: FakeAPI, request: int = -1) -> str:
    return result_text(tool_results(api.requests[request])[0])


class TestOffering:
    def test_without_servers_nothing_changes(self, program: Program) -> None:
        with program.against([text("hi")]) as api:
            program.run("-p", "x")
        assert outside(api.requests[0]) == []
        assert [row["kind"] for row in program.transcript()] == ["session", "user", "assistant"]

    def test_a_few_tools_are_offered_directly_and_can_be_called(self, program: Program) -> None:
        use(program, fake=fake("few"))
        with program.against([tool("mcp__fake__echo", text="hello"), text("done")]) as api:
            ran = program.run("-p", "x", *ALLOW)
        assert ran.code == 0, ran.err
        assert outside(api.requests[0]) == ["tool_search", "call_tool", "mcp__fake__crash", "mcp__fake__echo"]
        assert result(api) == '<outside-text from="MCP server fake">\nhello\n</outside-text>'

    def test_500_tools_fit_into_14000_characters(self, program: Program) -> None:
        use(program, **{f"server{number}": fake("many:50") for number in range(10)})
        with program.against([text("hi"), text("again")]) as api:
            program.run("-p", "x")
        request = api.requests[0]
        system = "".join(block["text"] for block in request["system"])
        assert len(system) + len(json.dumps(request["tools"], ensure_ascii=False)) <= 14_000
        assert outside(request) == ["tool_search", "call_tool"]

    def test_other_tools_are_found_by_searching_and_called_by_name(self, program: Program) -> None:
        use(program, fake=fake("many:50"))
        calls = [
            tool("tool_search", query="echo"),
            tool("call_tool", name="mcp__fake__echo", input={"text": "found"}),
            text("done"),
        ]
        with program.against(calls) as api:
            ran = program.run("-p", "x", *ALLOW, "--output-format", "stream-json")
        found = result(api, 1)
        assert "mcp__fake__echo: Does echo" in found
        assert "found" in result(api, 2)
        events = [line for line in program.lines(".team/events.jsonl") if line["event"] == "tool_started"]
        assert [event["tool"] for event in events] == ["tool_search", "mcp__fake__echo"]
        assert ran.code == 0

    def test_the_prefix_stays_the_same_after_a_restart_though_the_server_has_changed(self, program: Program) -> None:
        use(program, fake=fake("few"))
        with program.against([text("one"), text("two"), text("three")]) as api:
            program.run("-p", "x")
            (kept,) = (program.home / ".teamcli/mcp/lists").iterdir()
            kept.write_text(json.dumps({"at": 0, "tools": [{"name": "other", "inputSchema": {"type": "object"}}]}))
            program.run("-p", "--continue", "y")
            program.run("-p", "new conversation")
        first, resumed, fresh = api.requests
        assert resumed["tools"] == first["tools"]
        assert outside(fresh) != outside(first)

    def test_known_tools_do_not_start_the_server(self, program: Program) -> None:
        use(program, fake=fake("few"))
        with program.against([text("one"), text("two")]) as api:
            program.run("-p", "x")
            use(program, fake=fake("few"))
            (kept,) = (program.home / ".teamcli/mcp/lists").iterdir()
            before = kept.stat().st_mtime_ns
            program.run("-p", "y")
        assert outside(api.requests[1]) == outside(api.requests[0])
        assert kept.stat().st_mtime_ns == before

    def test_a_silent_server_delays_the_first_request_only_for_a_bounded_time(self, program: Program) -> None:
        use(program, fake=fake("silent"), good=fake("few"))
        with program.against([tool("tool_search", query="echo"), text("done")]) as api:
            ran = program.run("-p", "x")
        assert ran.code == 0
        assert "mcp__good__echo" in outside(api.requests[0])
        assert "(not listed: fake: not ready yet)" in result(api)

    def test_hostile_names_and_descriptions_reach_neither_the_terminal_nor_the_prefix_raw(
        self, program: Program
    ) -> None:
        use(program, fake=fake("hostile"))
        with program.against([tool("tool_search", query="evil"), text("done")]) as api:
            ran = program.run("-p", "x", "--verbose")
        prefix = json.dumps(api.requests[0]["tools"])
        assert "\\u001b" not in prefix and "schema0" not in prefix
        found = result(api)
        assert found.count("</outside-text>") == 1
        assert "\x1b" not in ran.err + ran.out


class TestCalling:
    def test_a_call_needs_permission_and_the_refusal_names_the_rule(self, program: Program) -> None:
        use(program, fake=fake("few"))
        with program.against([tool("mcp__fake__echo", text="hello"), text("done")]) as api:
            ran = program.run("-p", "x")
        assert ran.code == 4
        assert "mcp__fake__echo" in result(api)
        assert "--allowedTools" in result(api) or "rule" in result(api)

    @pytest.mark.parametrize(
        ("options", "runs", "through_call_tool"),
        [
            (("--allowedTools", "mcp__fake"), True, True),
            (("--allowedTools", "mcp__fake__*"), True, False),
            (("--allowedTools", "mcp__fake__echo"), True, True),
            (("--allowedTools", "mcp__fak"), False, False),
            (("--allowedTools", "mcp__fake__crash"), False, True),
            (("--permission-mode", "bypassPermissions"), True, False),
            (("--permission-mode", "bypassPermissions", "--disallowedTools", "mcp__fake__echo"), False, True),
            (("--permission-mode", "plan", "--allowedTools", "mcp__fake"), False, True),
            (("--permission-mode", "plan", "--allowedTools", "mcp__fake"), False, False),
        ],
    )
    def test_rules_name_the_tool_however_it_is_called(
        self, program: Program, options: tuple[str, ...], runs: bool, through_call_tool: bool
    ) -> None:
        use(program, fake=fake("few"))
        direct = tool("mcp__fake__echo", text="hello")
        call = tool("call_tool", name="mcp__fake__echo", input={"text": "hello"}) if through_call_tool else direct
        with program.against([call, text("done")]) as api:
            program.run("-p", "x", *options)
        assert ("hello" in result(api)) is runs

    def test_hooks_see_the_tool_that_is_meant(self, program: Program) -> None:
        command = "cat > told.json; echo no >&2; exit 2"
        group = {"matcher": "mcp__fake__.*", "hooks": [{"type": "command", "command": command}]}
        program.settings(mcpServers={"fake": fake("few")}, hooks={"PreToolUse": [group]})
        call = tool("call_tool", name="mcp__fake__echo", input={"text": "hello"})
        with program.against([call, text("done")]) as api:
            program.run("-p", "x", *ALLOW)
        told = json.loads((program.directory / "told.json").read_text())
        assert (told["tool_name"], told["tool_input"]) == ("mcp__fake__echo", {"text": "hello"})
        assert result(api) == "no"

    def test_a_crash_is_an_error_result_and_the_next_call_works(self, program: Program) -> None:
        use(program, fake=fake("few"))
        calls = [tool("mcp__fake__crash"), tool("mcp__fake__echo", text="again"), text("done")]
        with program.against(calls) as api:
            program.run("-p", "x", *ALLOW)
        crashed = tool_results(api.requests[1])[0]
        assert crashed["is_error"]
        assert "the database is on fire" in result_text(crashed)
        assert "again" in result(api, 2)

    def test_a_call_that_hangs_ends_with_its_time(self, program: Program) -> None:
        use(program, fake=fake(timeout=300))
        with program.against([tool("mcp__fake__hang"), text("done")]) as api:
            program.run("-p", "x", *ALLOW)
        assert tool_results(api.requests[1])[0]["is_error"]

    def test_calls_of_one_answer_and_errors_of_the_server_are_results(self, program: Program) -> None:
        use(program, fake=fake())
        calls = answer(
            tool("mcp__fake__echo", text="one"),
            tool("mcp__fake__fails"),
            tool("mcp__fake__refuse"),
            tool("call_tool", name="mcp__fake__nothing", input={}),
            tool("call_tool", name="nonsense", input={}),
            tool("call_tool", name="mcp__other__x", input={}),
        )
        with program.against([calls, text("done")]) as api:
            program.run("-p", "x", *ALLOW)
        results = tool_results(api.requests[1])
        assert [bool(each.get("is_error")) for each in results] == [False, True, True, True, True, True]
        assert "has no tool mcp__fake__nothing" in result_text(results[3])

    def test_a_huge_result_is_cut(self, program: Program) -> None:
        use(program, fake=fake())
        with program.against([tool("mcp__fake__huge", bytes=1_000_000), text("done")]) as api:
            program.run("-p", "x", *ALLOW)
        assert len(result(api)) < 41_000

    def test_changing_the_script_of_a_server_outside_the_sandbox_always_asks(self, program: Program) -> None:
        need_sandbox()
        run = {"command": "python3", "args": ["-u", "${CLAUDE_PROJECT_DIR}/out.py"], "sandbox": False}
        use(program, outside=run, inside={**run, "args": ["-u", "in.py"], "sandbox": True})
        writes = [tool("write_file", path=name, content="x") for name in ("out.py", "in.py")]
        (program.directory / "out.py").write_text("as it was")
        calls = [tool("read_file", path="out.py"), *writes, tool("bash", command="echo x | tee out.py")]
        with program.against([answer(*calls), text("done")]) as api:
            program.run("-p", "x", "--permission-mode", "bypassPermissions")
        _, first, second, third = map(result_text, tool_results(api.requests[1]))
        assert "MCP server runs out.py: changing it always asks" in first
        assert "asks" not in second
        assert "Read-only file system" in third
        assert (program.directory / "out.py").read_text() == "as it was"

    def test_a_server_never_sees_the_key(self, program: Program) -> None:
        secret = {"A": "${ANTHROPIC_API_KEY:-nothing}", "B": "${HOME}", "C": "given"}
        use(program, fake=fake(env=secret))
        with program.against([tool("mcp__fake__environment"), text("done")]) as api:
            program.run("-p", "x", *ALLOW)
        seen = json.loads(result(api).split("\n")[1])
        assert (seen["A"], seen["B"], seen["C"]) == ("nothing", str(program.home), "given")
        assert program.key not in json.dumps(seen)


class TestConfiguring:
    def test_a_projects_server_is_not_used_until_the_user_agrees(self, program: Program) -> None:
        mcp_json(program, fake=fake("few"))
        with program.against([text("one"), text("two"), text("three")]) as api:
            ran = program.run("-p", "x")
            program.run("-p", "x", "--trust")
            program.run("-p", "x")
        assert [bool(outside(request)) for request in api.requests] == [False, True, True]
        assert "Not used, because not trusted (--trust): MCP servers in .mcp.json" in ran.err
        assert FAKE in ran.err

    def test_a_changed_server_needs_agreement_again_and_the_others_do_not(self, program: Program) -> None:
        mcp_json(program, a=fake("few"), b=fake("few"))
        with program.against([text("one"), text("two")]) as api:
            program.run("-p", "x", "--trust")
            mcp_json(program, a=fake("few", env={"X": "1"}), b=fake("few"))
            ran = program.run("-p", "x")
        assert "mcp__b__echo" in outside(api.requests[1])
        assert "mcp__a__echo" not in outside(api.requests[1])
        assert "mcpServers.a" in ran.err

    @pytest.mark.parametrize("name", [".claude/settings.json", ".claude/settings.local.json", ".team/settings.json"])
    def test_a_repository_cannot_approve_its_own_servers(self, program: Program, name: str) -> None:
        mcp_json(program, fake=fake("few"))
        path = program.directory / name
        path.parent.mkdir()
        path.write_text(json.dumps({"enableAllProjectMcpServers": True, "enabledMcpjsonServers": ["fake"]}))
        with program.against([text("one")]) as api:
            program.run("-p", "x")
        assert outside(api.requests[0]) == []

    def test_the_command_line_names_files_and_json_and_excludes_others(self, program: Program, tmp_path: Path) -> None:
        use(program, own=fake("few"))
        (program.directory / "servers.json").write_text(json.dumps({"mcpServers": {"a": fake("few")}}))
        inline = json.dumps({"mcpServers": {"b": fake("few")}})
        options = ("--mcp-config", "servers.json", "--mcp-config", inline)
        with program.against([text("one"), text("two"), text("three")]) as api:
            program.run("-p", "x", *options)
            program.run("-p", "x", *options, "--strict-mcp-config")
            program.run("-p", "x", *options, "--bare")
        servers = [{name.split("__")[1] for name in outside(each) if "__" in name} for each in api.requests]
        assert servers == [{"own", "a", "b"}, {"a", "b"}, {"a", "b"}]

    def test_a_plugin_brings_servers_under_its_name(self, program: Program) -> None:
        plugin = program.directory / ".claude/plugins/shop"
        (plugin / ".claude-plugin").mkdir(parents=True)
        (plugin / ".claude-plugin/plugin.json").write_text(json.dumps({"name": "shop"}))
        (plugin / "server.py").write_text(Path(FAKE).read_text())
        entry = {"command": sys.executable, "args": ["-I", "-S", "${CLAUDE_PLUGIN_ROOT}/server.py", "few"]}
        (plugin / ".mcp.json").write_text(json.dumps({"mcpServers": {"stock": entry}}))
        with program.against([text("one")]) as api:
            ran = program.run("-p", "x", "--trust")
        assert "mcp__plugin_shop_stock__echo" in outside(api.requests[0]), ran.err

    def test_bad_entries_are_dropped_with_one_line_each(self, program: Program) -> None:
        use(
            program,
            good=fake("few"),
            empty={},
            both={"command": "x", "url": "y"},
            old={"type": "sse", "url": "http://x"},
            helped=fake("few", headersHelper="get-token"),
        )
        with program.against([text("one")]) as api:
            ran = program.run("-p", "x")
        assert "mcp__good__echo" in outside(api.requests[0])
        assert len([line for line in ran.err.splitlines() if "the MCP server" in line]) == 4
        assert "headersHelper of the MCP server helped is not used" in ran.err

    @pytest.mark.parametrize("content", ["{", "[]", '{"mcpServers": []}', '{"mcpServers": {"x": 5}}', "\0"])
    def test_a_broken_file_stops_nothing(self, program: Program, content: str) -> None:
        (program.directory / ".mcp.json").write_text(content)
        with program.against([text("one")]):
            ran = program.run("-p", "x", "--trust")
        assert ran.code == 0
        assert ".mcp.json" in ran.err

    def test_a_variable_that_is_not_set_drops_the_server(self, program: Program) -> None:
        use(program, fake=fake("few", env={"X": "${NOT_SET}"}), other=fake("few", env={"X": "${NOT_SET:-x}"}))
        with program.against([text("one")]) as api:
            ran = program.run("-p", "x")
        assert "the variable NOT_SET is not set" in ran.err
        assert "mcp__other__echo" in outside(api.requests[0])


class TestAtThePrompt:
    def test_mcp_shows_state_tools_and_errors_and_reconnects(self, program: Program) -> None:
        use(program, fake=fake("few"), broken=fake("dies:out of luck"))
        lines = ["/mcp", "/mcp reconnect fake", "/mcp reconnect broken", "/mcp broken", "/mcp disable fake", "/mcp"]
        ran = program.run(stdin="\n".join(lines))
        assert "not started" in ran.out
        assert "mcp__fake__echo  Does echo" in ran.out
        assert "out of luck" in ran.out
        assert "fake    disabled" in ran.out

    def test_a_disabled_server_is_not_called(self, program: Program) -> None:
        use(program, fake=fake("few"))
        with program.against([text("one"), tool("mcp__fake__echo", text="x"), text("done")]) as api:
            program.run(*ALLOW, stdin="hello\n/mcp disable fake\nagain\n")
        assert "/mcp enable fake" in result(api)

    @pytest.mark.parametrize("name", ["fake:review", "mcp__fake__review"])
    def test_a_prompt_of_a_server_is_a_command(self, program: Program, name: str) -> None:
        use(program, fake=fake())
        with program.against([text("done")]) as api:
            ran = program.run(stdin=f"/{name} a.py\n/{name}\n/fake:nothing\n")
        (request,) = api.requests
        assert json.loads(said_by_user(request).split("\n")[0])["arguments"] == {"file": "a.py"}
        assert "review needs file" in ran.out
        assert "has no prompt nothing (there are: review)" in ran.out

    def test_a_resource_of_a_server_is_attached_like_a_file(self, program: Program) -> None:
        use(program, fake=fake())
        with program.against([text("done")]) as api:
            ran = program.run("-p", "look at @fake:file:///a, please", "--verbose")
        said = json.dumps(api.requests[0]["messages"])
        assert "[resource file:///a]" in said
        assert "[resource b, unknown type, 3 bytes: not shown]" in said
        assert ran.code == 0

    def test_headless_a_question_of_a_server_is_declined(self, program: Program) -> None:
        use(program, fake=fake())
        with program.against([tool("mcp__fake__form"), text("done")]) as api:
            program.run("-p", "x", *ALLOW)
        assert '"action": "decline"' in result(api)


class TestFromTheShell:
    @pytest.mark.parametrize(
        ("scope", "file"),
        [("local", ".team/settings.local.json"), ("project", ".mcp.json"), ("user", "home")],
    )
    def test_an_added_server_is_used_without_a_question_and_removed_again(
        self, program: Program, scope: str, file: str
    ) -> None:
        path = program.home / ".teamcli/settings.json" if file == "home" else program.directory / file
        command = fake("few")
        words = ("-e", "X=${HOME}", "--", command["command"], *command["args"])
        added = program.run("mcp", "add", "fake", "--scope", scope, *words)
        assert added.code == 0, added.err
        assert json.loads(path.read_text())["mcpServers"] == {"fake": {**command, "env": {"X": "${HOME}"}}}
        with program.against([text("one")]) as api:
            ran = program.run("-p", "x")
        assert "mcp__fake__echo" in outside(api.requests[0]), ran.err
        listed, again = program.run("mcp", "list").out, program.run("mcp", "add", "fake", "--scope", scope, "x")
        assert "configured" in listed and FAKE in listed
        assert again.code == 2
        assert program.run("mcp", "remove", "fake").code == 0
        assert json.loads(path.read_text())["mcpServers"] == {}

    def test_a_server_over_http_is_added_with_headers(self, program: Program) -> None:
        ran = program.run("mcp", "add", "web", "--transport", "http", "https://example.com/mcp", "-H", "X-Key: ${K}")
        assert ran.code == 0, ran.err
        shown = program.run("mcp", "get", "web").out
        assert "the variable K is not set" in shown
        assert '"X-Key": "${K}"' in shown

    @pytest.mark.parametrize(
        "words",
        [
            ("get", "nothing"),
            ("remove", "nothing"),
            ("add",),
            ("add", "x"),
            ("add", "x y", "true"),
            ("add", "x", "-t", "http", "a", "b"),
            ("add", "x", "-e", "Y", "true"),
            ("nonsense",),
        ],
    )
    def test_mistakes_are_one_line_and_exit_2(self, program: Program, words: tuple[str, ...]) -> None:
        ran = program.run("mcp", *words)
        assert ran.code == 2
        assert len(ran.err.splitlines()) == 1

    def test_servers_that_wait_for_agreement_are_listed_and_doctor_names_problems(self, program: Program) -> None:
        mcp_json(program, later=fake("few"))
        use(program, fake=fake("few", env={"X": "${NOT_SET}"}))
        assert "not agreed to yet" in program.run("mcp", "list").out
        line = next(line for line in program.run("doctor").out.splitlines() if line.startswith("ok   mcp"))
        assert "the variable NOT_SET is not set" in line


def role(program: Program, name: str, *fields: str) -> None:
    path = program.home / f".teamcli/agents/{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["---", f"name: {name}", "description: x", *fields, "---", "Help."]))


def system(request: Json) -> str:
    return "".join(block["text"] for block in request["system"])


class TestOthers:
    @pytest.mark.parametrize(
        ("kind", "fields", "seen"),
        [
            (
                "teammate",
                (),
                ["tool_search", "call_tool", "mcp__a__crash", "mcp__a__echo", "mcp__b__crash", "mcp__b__echo"],
            ),
            ("sub-agent", ("tools: Read, mcp__a",), ["tool_search", "call_tool", "mcp__a__crash", "mcp__a__echo"]),
            ("teammate", ("tools: Read, mcp__a__ec*",), ["tool_search", "call_tool", "mcp__a__echo"]),
            ("sub-agent", ("tools: Read, mcp__b__echo",), ["tool_search", "call_tool", "mcp__b__echo"]),
            ("teammate", ("tools: Read",), []),
            ("sub-agent", ("tools: Read",), []),
            ("teammate", ("disallowedTools: mcp__a, mcp__b__crash",), ["tool_search", "call_tool", "mcp__b__echo"]),
        ],
    )
    def test_a_role_says_which_servers_and_tools_an_agent_has(
        self, program: Program, fields: tuple[str, ...], seen: list[str], kind: str
    ) -> None:
        use(program, a=fake("few"), b=fake("few"))
        role(program, "helper", *fields)
        hire = tool("spawn_teammate", name="alice", role="helper", prompt="go")
        if kind == "sub-agent":
            hire = tool("agent", prompt="go", subagent_type="helper")
        theirs: list[Json] = []

        def script(request: Json, n: int) -> Any:
            if "Help." in system(request):
                theirs.append(request)
                return text("done")
            return hire if n == 0 else text("end")

        with program.against(script):
            ran = program.run("-p", "x")
        assert ran.code == 0, ran.err
        assert outside(theirs[0]) == seen

    def test_a_role_cannot_be_circumvented_by_naming_a_tool(self, program: Program) -> None:
        use(program, a=fake("few"), b=fake("few"))
        role(program, "helper", "tools: Read, mcp__a")
        results: list[str] = []

        def script(request: Json, n: int) -> Any:
            if "Help." not in system(request):
                return tool("spawn_teammate", name="alice", role="helper", prompt="go") if n == 0 else text("end")
            if found := tool_results(request):
                results.extend(map(result_text, found))
                return text("done")
            calls = [tool("call_tool", name=f"mcp__{each}__echo", input={"text": f"from {each}"}) for each in "ab"]
            return answer(*calls, tool("mcp__b__echo", text="direct"), tool("tool_search", query="echo"))

        with program.against(script):
            program.run("-p", "x", "--permission-mode", "bypassPermissions")
        first, second, third, found = results
        assert "from a" in first
        assert "Unknown tool: mcp__b__echo" in second
        assert "Unknown tool: mcp__b__echo" in third
        assert "mcp__b__echo" not in found

    @pytest.mark.parametrize("kind", ["teammate", "sub-agent"])
    def test_a_role_may_bring_servers_of_its_own(self, program: Program, kind: str) -> None:
        role(program, "helper", f"mcpServers: {json.dumps({'own': fake('few')})}")
        hire = tool("spawn_teammate", name="alice", role="helper", prompt="go")
        if kind == "sub-agent":
            hire = tool("agent", prompt="go", subagent_type="helper")
        results: list[str] = []

        def script(request: Json, n: int) -> Any:
            if "Help." not in system(request):
                assert outside(request) == []
                return hire if n == 0 else text("end")
            if found := tool_results(request):
                results.extend(map(result_text, found))
                return text("done")
            assert "mcp__own__echo" in outside(request)
            return tool("mcp__own__echo", text="mine")

        with program.against(script):
            ran = program.run("-p", "x", "--allowedTools", "mcp__own")
        assert ran.code == 0, ran.err
        assert "mine" in results[0]

    def test_a_sub_agent_has_no_more_tools_than_the_agent_that_started_it(self, program: Program) -> None:
        use(program, a=fake("few"), b=fake("few"))
        role(program, "helper", "tools: Agent, Read, mcp__a")
        theirs: list[Json] = []

        def script(request: Json, n: int) -> Any:
            if "a sub-agent" in system(request):
                theirs.append(request)
                return text("done")
            if "Help." in system(request):
                return text("done") if tool_results(request) else tool("agent", prompt="go", subagent_type="general")
            return tool("spawn_teammate", name="alice", role="helper", prompt="go") if n == 0 else text("end")

        with program.against(script):
            program.run("-p", "x")
        assert outside(theirs[0]) == ["tool_search", "call_tool", "mcp__a__crash", "mcp__a__echo"]

    def test_a_fork_sends_the_tools_of_its_parent_unchanged_and_can_call_them(self, program: Program) -> None:
        use(program, fake=fake("few"))

        def script(request: Json, n: int) -> Any:
            if n == 0:
                return tool("agent", prompt="go")
            return [tool("mcp__fake__echo", text="forked"), text("done"), text("end")][n - 1]

        with program.against(script) as api:
            program.run("-p", "x", *ALLOW)
        assert api.requests[1]["tools"] == api.requests[0]["tools"]
        assert "forked" in result(api, 2)

    def test_a_member_with_its_own_checkout_has_servers_of_its_own_there(self, program: Program) -> None:
        for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
            identity = ["-c", "user.name=x", "-c", "user.email=x@x"]
            subprocess.run(["git", *identity, *words], cwd=program.directory, check=True)
        use(program, fake=fake())
        hire = tool("spawn_teammate", name="alice", role="x", prompt="go", worktree=True)
        where = tool("mcp__fake__where")
        script = TeamScript(lead=[where, hire, text("hired"), text("end")], alice=[where, text("done")])
        with program.against(script):
            ran = program.run("-p", "x", *ALLOW)
        assert ran.code == 0, ran.err
        results = [result_text(tool_results(script.requests[name][1])[-1]) for name in ("lead", "alice")]
        places = [json.loads(each.split("\n")[1])["cwd"] for each in results]
        assert places == [str(program.directory), str(program.directory / ".team/worktrees/alice")]


class TestServersOfClaudeCode:
    def test_the_users_own_servers_are_used_everywhere_and_those_of_a_directory_there(self, program: Program) -> None:
        projects = {
            str(program.directory): {"mcpServers": {"here": fake("few")}},
            "/x": {"mcpServers": {"far": fake()}},
        }
        file = {"numStartups": 3, "mcpServers": {"fake": fake("few")}, "projects": projects}
        (program.home / ".claude.json").write_text(json.dumps(file))
        with program.against([tool("mcp__fake__echo", text="hello"), text("done")]) as api:
            program.run("-p", "x", *ALLOW)
        assert "hello" in result(api)
        listed = program.run("mcp", "list").out
        assert listed.count("~/.claude.json") == 2
        assert "far" not in listed

    @pytest.mark.parametrize("content", ['{"mcpServers": {"x"', '{"mcpServers": {"x": 5}}', "[]", '{"projects": []}'])
    def test_a_bad_file_stops_nothing(self, tmp_path: Path, content: str) -> None:
        (tmp_path / ".claude.json").write_text(content)
        assert read_users_servers(tmp_path / ".claude.json", tmp_path)[0] == {}
