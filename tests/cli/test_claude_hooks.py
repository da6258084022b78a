"""Projects with hooks for Claude Code, from the outside."""

from __future__ import annotations

import json
import shlex
import shutil
from typing import Any

import pytest

from tests.support.answers import answer, result_text, said_by_user, tool_results
from tests.support.fake_api import FakeAPI, status, text, tool
from tests.support.program import Program
from tests.support.team_script import TeamScript

BYPASS = ("--permission-mode", "bypassPermissions")


def hooks(program: Program, where: str = "", **events: Any) -> None:
    """Write the settings of the user's Claude Code, or of the project's: by event, pairs of a matcher and a command."""
    groups = {
        event: [{"matcher": matcher, "hooks": [{"type": "command", "command": command}]} for matcher, command in pairs]
        for event, pairs in events.items()
    }
    path = (program.directory if where else program.home) / ".claude/settings.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"hooks": groups}))


def says(event: str, **fields: Any) -> str:
    return f"echo {shlex.quote(json.dumps({'hookSpecificOutput': {'hookEventName': event, **fields}}))}"


def results(api: FakeAPI, request: int = 1) -> list[dict[str, Any]]:
    return tool_results(api.requests[request])


def told(program: Program, name: str = "told.json") -> dict[str, Any]:
    value: dict[str, Any] = json.loads((program.directory / name).read_text())
    return value


def test_a_projects_guard_waits_for_trust_and_then_blocks(program: Program) -> None:
    script = program.directory / ".claude/hooks/guard.py"
    script.parent.mkdir(parents=True)
    script.write_text(
        "import json, sys\n"
        "call = json.load(sys.stdin)\n"
        "if call['tool_name'] in ('Write', 'Edit') and call['tool_input']['file_path'].endswith('/.env'):\n"
        "    sys.exit(print('.env is protected', file=sys.stderr) or 2)\n"
    )
    hooks(program, "project", PreToolUse=[("Write|Edit", 'python3 "$CLAUDE_PROJECT_DIR"/.claude/hooks/guard.py')])
    calls = answer(tool("write_file", path=".env", content="x"), tool("write_file", path="a.txt", content="x"))
    with program.against([calls, text("done")] * 2) as api:
        ran = program.run("-p", "x", *BYPASS)
        assert "hooks in .claude/settings.json" in ran.err
        (program.directory / ".env").unlink()
        program.run("-p", "x", *BYPASS, "--trust")
    blocked, free = results(api, 3)
    assert (result_text(blocked), blocked["is_error"]) == (".env is protected", True)
    assert not free.get("is_error")
    assert not (program.directory / ".env").exists()


def test_a_failing_command_is_a_failure_and_not_a_result(program: Program) -> None:
    hooks(
        program,
        PostToolUse=[("Bash", "cat > fine.json")],
        PostToolUseFailure=[("*", "cat >> failed; echo >> failed; echo look at the log >&2; exit 2")],
    )
    calls = [
        tool("bash", command="echo oops; exit 3"),
        tool("bash", command="echo hi"),
        tool("edit_file", path="no", old_text="a", new_text="b"),
    ]
    with program.against([answer(*calls), text("done")]) as api:
        program.run("-p", "x", *BYPASS)
    assert ["look at the log" in result_text(result) for result in results(api)] == [True, False, True]
    fine = told(program, "fine.json")
    assert (fine["tool_input"]["command"], fine["tool_response"]["stdout"]) == ("echo hi", "hi")
    failed = {each["tool_name"]: each for each in program.lines("failed")}
    assert failed["Bash"]["error"] == "Exit code 3\noops"
    assert "no" in failed["Edit"]["error"]


def test_a_changed_call_is_mapped_back_and_its_context_reaches_the_model(program: Program) -> None:
    changed = {"file_path": str(program.directory / "b.txt"), "content": "changed"}
    command = says("PreToolUse", updatedInput=changed, additionalContext="mind the style")
    hooks(program, PreToolUse=[("Write", command)])
    with program.against([tool("write_file", path="a.txt", content="x"), text("done")]) as api:
        program.run("-p", "x", *BYPASS)
    assert (program.directory / "b.txt").read_text() == "changed"
    assert "PreToolUse hook says:\nmind the style" in result_text(results(api)[0])


def test_continue_false_ends_the_turn_and_the_conversation_stays_valid(program: Program) -> None:
    stops = 'grep -q one && echo \'{"continue": false, "stopReason": "wait for Ada"}\'; exit 0'
    hooks(program, PreToolUse=[("Bash", stops)])
    calls = answer(tool("bash", command="touch one"), tool("bash", command="touch two"))
    with program.against([calls, text("next")]) as api:
        ran = program.run(stdin="go\nand now\n")
    assert "A hook has ended the turn: wait for Ada" in ran.out
    assert len(api.requests) == 2
    assert not (program.directory / "one").exists()
    assert result_text(results(api)[0]) == "wait for Ada"
    assert "and now" in said_by_user(api.requests[1])


def test_a_hook_reads_all_calls_of_an_answer_and_may_end_the_turn(program: Program) -> None:
    adds = f"cat > told.json; {says('PostToolBatch', additionalContext='two of them')}"
    hooks(program, PostToolBatch=[("", adds), ("", "grep -q second && { echo enough >&2; exit 2; }; exit 0")])
    both = answer(tool("bash", command="echo first"), tool("glob", pattern="*"))
    with program.against([both, tool("bash", command="echo second")]) as api:
        ran = program.run("-p", "x", *BYPASS)
    assert "PostToolBatch hook says:\ntwo of them" in result_text(results(api)[1])
    assert [call["tool_name"] for call in told(program)["tool_calls"]] == ["Bash"]
    assert told(program)["tool_calls"][0]["tool_response"] == "second"
    assert "A hook has ended the turn: enough" in ran.err
    assert len(api.requests) == 2


def test_a_hooks_allow_lifts_no_rule(program: Program) -> None:
    hooks(program, PreToolUse=[("Bash", says("PreToolUse", permissionDecision="allow"))])
    program.settings(permissions={"deny": ["Bash(touch denied)"], "ask": ["Bash(touch asked)"]})
    calls = [tool("bash", command=f"touch {name}") for name in ("free", "denied", "asked")]
    with program.against([answer(*calls), text("done")]):
        assert program.run("-p", "x").code == 4
    made = [name for name in ("free", "denied", "asked") if (program.directory / name).exists()]
    assert made == ["free"]


class TestTranscript:
    GREP = (
        "path=$(python3 -c 'import json,sys; print(json.load(sys.stdin)[\"transcript_path\"])'); "
        'grep -q \'"role":"assistant"\' "$path" && grep -q \'"name":"Bash","input":{"command":"make test"\' "$path" '
        '|| { echo "run the tests first" >&2; exit 2; }; cp "$path" copy.jsonl'
    )

    def test_a_stop_hook_finds_calls_in_it_by_grep(self, program: Program) -> None:
        hooks(program, Stop=[("", self.GREP)])
        script = [text("done"), tool("bash", "toolu_1", command="make test"), text("now I am")]
        with program.against(script) as api:
            ran = program.run("-p", "please test", *BYPASS, "--output-format", "json")
        assert "Stop hook says:\nrun the tests first" in said_by_user(api.requests[1])
        assert ran.json["result"] == "now I am"
        lines = program.lines("copy.jsonl")
        kinds = [(line["type"], _kind(line)) for line in lines if not line.get("isMeta")]
        assert kinds == [
            ("user", "please test"),
            ("assistant", "text"),
            ("assistant", "tool_use"),
            ("user", "tool_result"),
            ("assistant", "text"),
        ]
        assert [line["parentUuid"] for line in lines] == [None, *(line["uuid"] for line in lines[:-1])]
        assert {line["sessionId"] for line in lines} == {ran.json["session_id"]}
        usage = lines[-1]["message"]["usage"]
        assert set(usage) == {
            "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens",
        }  # fmt: skip
        assert program.key not in (program.directory / "copy.jsonl").read_text()
        assert (program.directory / ".team/hooks").stat().st_mode & 0o077 == 0

    LOOP = (
        'path=$(jq -r .transcript_path); last=$(grep \'"role":"assistant"\' "$path" | tail -1 | '
        'jq -r \'.message.content | map(select(.type == "text")) | map(.text) | join(" ")\'); '
        '[[ "$last" == *"<promise>DONE</promise>"* ]] && exit 0; '
        'jq -n --arg said "$last" \'{decision: "block", reason: ("again, after " + $said), systemMessage: "looping"}\''
    )

    @pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
    def test_a_loop_reads_the_last_answer_and_ends_with_its_promise(self, program: Program) -> None:
        hooks(program, Stop=[("", self.LOOP)])
        answers = [text("first"), text("second"), text("<promise>DONE</promise>")]
        with program.against(answers) as api:
            ran = program.run("-p", "loop")
        assert "again, after first" in said_by_user(api.requests[1])
        assert "again, after second" in said_by_user(api.requests[2])
        assert ran.out == "<promise>DONE</promise>\n"
        assert ran.err.count("looping") == 2

    def test_a_resumed_session_has_all_of_it(self, program: Program) -> None:
        with program.against([text("one"), text("two"), text("three")]):
            program.run("-p", "first")
            hooks(program, UserPromptSubmit=[("", "cat > told.json")])
            program.run("-p", "second", "--continue")
            program.run("-p", "third", "--continue")
        lines = program.lines(told(program)["transcript_path"])
        assert [_said(line) for line in lines if not line.get("isMeta")] == [
            "first", "one", "second", "two", "third", "three",
        ]  # fmt: skip

    def test_without_a_hook_that_could_read_it_there_is_none(self, program: Program) -> None:
        program.settings(hooks={"Stop": [{"hooks": [{"type": "command", "command": "cat > told.json"}]}]})
        with program.against([text("one")]):
            program.run("-p", "x")
        assert told(program)["transcript_path"].endswith(".team/transcripts/lead.jsonl")
        assert not (program.directory / ".team/hooks").exists()


def _kind(line: dict[str, Any]) -> str:
    content = line["message"]["content"]
    return content if isinstance(content, str) else str(content[0]["type"])


def _said(line: dict[str, Any]) -> str:
    content = line["message"]["content"]
    return content if isinstance(content, str) else str(content[0]["text"])


def test_sub_agents_start_and_stop_by_their_type(program: Program) -> None:
    hooks(
        program,
        SubagentStart=[("general-purpose", f"cat > start.json; {says('SubagentStart', additionalContext='be brief')}")],
        SubagentStop=[("general-purpose", "cat > stop.json"), ("code-reviewer", "touch wrong")],
        PreToolUse=[("Bash", "cat > call.json")],
    )
    script = TeamScript(
        lead=[tool("agent", prompt="look", subagent_type="general"), text("end")],
        **{"sa-1": [tool("bash", command="true"), text("ok")]},
    )
    with program.against(script):
        program.run("-p", "x", *BYPASS)
    assert "SubagentStart hook says:\nbe brief" in said_by_user(script.requests["sa-1"][0])
    about = [told(program, name) for name in ("start.json", "stop.json", "call.json")]
    assert {(each["agent_id"]) for each in about} == {"sa-1"}
    assert (about[0]["agent_type"], about[1]["agent_type"]) == ("general-purpose", "general-purpose")
    own = program.lines(about[1]["agent_transcript_path"])
    assert [line["isSidechain"] for line in own] == [True] * len(own)
    assert own[-1]["message"]["content"] == [{"type": "text", "text": "ok"}]
    assert about[1]["transcript_path"] == about[0]["transcript_path"]
    assert not (program.directory / "wrong").exists()


def test_a_roles_hooks_mode_and_turns_apply_to_its_agents_only(program: Program) -> None:
    agents = program.directory / ".claude/agents"
    agents.mkdir(parents=True)
    (agents / "reader.md").write_text(
        "---\nname: reader\ndescription: x\npermissionMode: acceptEdits\nmaxTurns: 2\nhooks:\n  PreToolUse:\n"
        "    - matcher: Bash\n      hooks:\n        - type: command\n          command: ./guard.sh\n---\nRead."
    )
    (program.directory / "guard.sh").write_text("#!/bin/sh\necho read only >&2; exit 2\n")
    (program.directory / "guard.sh").chmod(0o755)
    both = [tool("bash", command="echo hi"), tool("write_file", path="a.txt", content="x")]
    changes = tool("write_file", path="guard.sh", content="x")
    script = TeamScript(
        lead=[answer(*both), tool("agent", prompt="go", subagent_type="reader"), text("end")],
        **{"sa-1": [answer(*both), changes, text("ok")]},
    )
    assert "role in .claude/agents/reader.md, new, with hooks" in program.run("doctor").out
    with program.against(script):
        program.run("-p", "x", "--trust", "--allowedTools", "Bash(echo:*)")
    leads, theirs = (tool_results(script.requests[name][1]) for name in ("lead", "sa-1"))
    assert [bool(each.get("is_error")) for each in leads] == [False, True]
    assert [bool(each.get("is_error")) for each in theirs] == [True, False]
    assert result_text(theirs[0]) == "read only"
    assert "stopped at its limit of model calls" in result_text(tool_results(script.requests["lead"][2])[-1])
    assert (program.directory / "guard.sh").read_text().startswith("#!")  # changing what a hook runs asks
    program.url = ""
    assert "1 for PreToolUse" in program.run("doctor").out


def test_a_teammate_that_turns_idle_is_named(program: Program) -> None:
    hooks(program, TeammateIdle=[("", "cat > told.json")])
    script = TeamScript(
        lead=[tool("spawn_teammate", name="alice", role="coder", prompt="go"), text("waiting"), text("fine")],
        alice=[text("written")],
    )
    with program.against(script):
        program.run("-p", "x", *BYPASS)
    about = {"teammate_name": "alice", "team_name": "default", "agent_id": "alice", "agent_type": "coder"}
    assert about.items() <= told(program).items()


def test_lines_from_a_session_start_hook_run_before_each_command(program: Program) -> None:
    hooks(program, SessionStart=[("startup", "echo 'export STAGE=test' >> \"$CLAUDE_ENV_FILE\"; echo be kind")])
    with program.against([tool("bash", command="echo $STAGE"), text("done")]) as api:
        program.run("-p", "x", *BYPASS)
    assert result_text(results(api)[0]) == "test"
    assert "SessionStart hook says:\nbe kind" in said_by_user(api.requests[0])


def test_hooks_know_when_a_conversation_was_compacted(program: Program) -> None:
    hooks(program, PostCompact=[("manual", "cat > told.json")], SessionStart=[("compact", "echo the ticket is 7")])
    with program.against([text("1"), text("2"), text("SO FAR"), text("3")]) as api:
        program.run(stdin=f"one {'x ' * 2000}\ntwo\n/compact\nthree\n")
    assert (told(program)["trigger"], told(program)["compact_summary"]) == ("manual", "SO FAR")
    assert "the ticket is 7" in str(api.requests[3]["messages"])
    lines = program.lines(told(program)["transcript_path"])
    boundary = next(n for n, line in enumerate(lines) if line.get("subtype") == "compact_boundary")
    assert lines[boundary + 1]["isCompactSummary"] is True
    assert "SO FAR" in lines[boundary + 1]["message"]["content"]


def test_a_model_call_that_fails_is_reported_to_hooks(program: Program) -> None:
    hooks(program, StopFailure=[("authentication_failed", "cat > told.json"), ("rate_limit", "touch wrong")])
    with program.against([status(401)]):
        assert program.run("-p", "x").code != 0
    assert told(program)["error"] == "authentication_failed"
    assert not (program.directory / "wrong").exists()


def test_hooks_that_hang_flood_or_print_garbage_keep_no_agent_from_its_work(program: Program) -> None:
    handlers = [
        {"type": "command", "command": "sleep 100", "timeout": 0.2},
        {"type": "command", "command": "sleep 100", "async": True},
        {"type": "command", "command": "head -c 20000000 /dev/zero"},
        {"type": "command", "command": "head -c 100000 /dev/urandom; exit 3"},
        {"type": "command", "command": "/no/such/program"},
        {"type": "command", "command": "echo '{\"hookSpecificOutput\": 5}'"},
    ]
    path = program.home / ".claude/settings.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": handlers}], "Stop": [{"hooks": handlers}]}}))
    with program.against([tool("bash", command="echo ran"), text("done")]) as api:
        ran = program.run("-p", "x", *BYPASS)
    assert (ran.code, ran.out) == (0, "done\n")
    assert result_text(results(api)[0]) == "ran"
