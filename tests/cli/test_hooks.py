"""Hooks from the outside: commands of the user's own that have a say in what agents do."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from teamcli.config.settings import HOOK_EVENTS
from tests.support.answers import answer, result_text, said_by_user, tool_results
from tests.support.fake_api import FakeAPI, text, tool
from tests.support.program import ROOT, Program
from tests.support.team_script import After, TeamScript

BYPASS = ("--permission-mode", "bypassPermissions")
DOCUMENTED = (ROOT / "docs/hooks.md").read_text(encoding="utf-8")


def hook(command: str, matcher: str = "", **more: object) -> dict[str, Any]:
    group = {"hooks": [{"type": "command", "command": command, **more}]}
    return {"matcher": matcher, **group} if matcher else group


def says(**fields: object) -> str:
    """A command that prints this object."""
    return f"echo '{json.dumps(fields)}'"


def about_call(**fields: object) -> str:
    return says(hookSpecificOutput={"hookEventName": "PreToolUse", **fields})


def results(api: FakeAPI, request: int = 1) -> list[dict[str, Any]]:
    return tool_results(api.requests[request])


class TestPreToolUse:
    def test_exit_2_blocks_with_stderr_as_the_result_and_others_run(self, program: Program) -> None:
        guard = "grep -q 'rm ' && { echo no deleting here >&2; exit 2; }; exit 0"
        program.settings(hooks={"PreToolUse": [hook(guard, "bash")]})
        (program.directory / "a").touch()
        calls = [tool("bash", command="rm a"), tool("bash", command="touch b"), tool("read_file", path="a")]
        with program.against([answer(*calls), text("done")]) as api:
            ran = program.run("-p", "x", *BYPASS, "--output-format", "json")
        blocked, *others = results(api)
        assert (result_text(blocked), blocked["is_error"]) == ("no deleting here", True)
        assert not any(result.get("is_error") for result in others)
        assert sorted(p.name for p in program.directory.iterdir()) == [".team", "a", "b"]
        assert ran.code == 0  # nobody would have been asked
        assert [d["reason"] for d in ran.json["permission_denials"]] == ["no deleting here"]

    def test_a_hooks_context_reaches_the_model_with_the_result(self, program: Program) -> None:
        program.settings(hooks={"PreToolUse": [hook(about_call(additionalContext="mind the style"))]})
        calls = answer(tool("bash", command="echo fine"), tool("read_file", path="missing"))
        with program.against([calls, text("done")]) as api:
            program.run("-p", "x", *BYPASS)
        told = "<note>\nThe user's PreToolUse hook says:\nmind the style\n</note>"
        assert [result_text(result).endswith(told) for result in results(api)] == [True, True]
        assert [bool(result.get("is_error")) for result in results(api)] == [False, True]

    def test_a_hooks_context_reaches_the_model_even_if_it_blocks(self, program: Program) -> None:
        blocks = about_call(permissionDecision="deny", permissionDecisionReason="no", additionalContext="use make")
        program.settings(hooks={"PreToolUse": [hook(blocks, "bash")]})
        with program.against([tool("bash", command="true"), text("done")]) as api:
            program.run("-p", "x", *BYPASS)
        assert "use make" in result_text(results(api)[0])

    def test_a_hook_receives_the_event_and_never_the_key(self, program: Program) -> None:
        program.settings(hooks={"PreToolUse": [hook("cat > told.json; env > env.txt; pwd > pwd.txt")]})
        with program.against([tool("bash", "toolu_1", command="true"), text("done")]):
            session = program.run("-p", "x", *BYPASS, "--output-format", "json").json["session_id"]
        told = json.loads((program.directory / "told.json").read_text())
        assert told == {
            "hook_event_name": "PreToolUse",
            "agent": "lead",
            "session_id": session,
            "transcript_path": str(program.directory / ".team/transcripts/lead.jsonl"),
            "cwd": str(program.directory),
            "permission_mode": "bypassPermissions",
            "tool_name": "bash",
            "tool_input": {"command": "true"},
            "tool_use_id": "toolu_1",
        }
        seen = (program.directory / "env.txt").read_text()
        assert program.key not in seen + str(told)
        assert f"CLAUDE_PROJECT_DIR={program.directory}\n" in seen
        assert (program.directory / "pwd.txt").read_text() == f"{program.directory}\n"

    def test_changed_input_is_validated_and_judged_again(self, program: Program) -> None:
        program.settings(
            permissions={"deny": ["write_file(secret/**)"]},
            hooks={
                "PreToolUse": [
                    hook(about_call(updatedInput={"path": "b.txt", "content": "changed"}), "write_file"),
                    hook("grep -q b.txt && touch second-hook-sees-it", "write_file"),
                    hook(about_call(updatedInput={"command": 5}), "bash"),
                    hook(about_call(updatedInput={"path": "secret/x", "old_text": "a", "new_text": "b"}), "edit_file"),
                ]
            },
        )
        write, edit = (
            tool("write_file", path="a.txt", content="x"),
            tool("edit_file", path="q", old_text="1", new_text=""),
        )
        with program.against([answer(write, tool("bash", command="true"), edit), text("done")]) as api:
            ran = program.run("-p", "x", "--permission-mode", "acceptEdits")
        written, invalid, denied = map(result_text, results(api))
        assert "b.txt" in written
        assert (program.directory / "b.txt").read_text() == "changed"
        assert not (program.directory / "a.txt").exists()
        assert (program.directory / "second-hook-sees-it").exists()
        assert "Invalid input for bash: command" in invalid
        assert "write_file(secret/**) denies" in denied
        assert "A hook has changed this call" in ran.err

    def test_a_hook_may_skip_or_require_a_question_but_overrides_no_rule(self, program: Program) -> None:
        allow, ask = about_call(permissionDecision="allow"), about_call(permissionDecision="ask")
        deny = about_call(permissionDecision="deny", permissionDecisionReason="not on Fridays")
        program.settings(
            permissions={"deny": ["bash(touch denied)"], "ask": ["bash(touch asked)"]},
            hooks={
                "PreToolUse": [hook(allow, "bash"), hook(ask, "read_file"), hook(allow, "glob"), hook(deny, "glob")]
            },
        )
        (program.directory / "f").touch()
        calls = [tool("bash", command=f"touch {name}") for name in ("free", "denied", "asked")]
        with program.against(
            [answer(*calls, tool("read_file", path="f"), tool("glob", pattern="*")), text("done")]
        ) as api:
            ran = program.run("-p", "x")
        free, denied, asked, read, globbed = map(result_text, results(api))
        assert (program.directory / "free").exists()
        assert free == "(no output)"
        assert "denies this call" in denied
        assert "asks before each such call" in asked
        assert "A hook asks before this call, and nobody can be asked" in read
        assert globbed == "not on Fridays"
        assert ran.code == 4

    def test_any_other_failure_is_reported_and_blocks_nothing(self, program: Program) -> None:
        failing = ["echo oops >&2; exit 1", "echo '{not json'", "sleep 60", "kill -9 $$", about_call(updatedInput=5)]
        hooks = [hook(command, timeout=0.2 if "sleep" in command else 30) for command in failing]
        program.settings(hooks={"PreToolUse": hooks, "Tomorrow": [hook("exit 2")]})
        with program.against([tool("bash", command="touch made"), text("done")]):
            ran = program.run("-p", "x", *BYPASS)
        assert ran.code == 0
        assert (program.directory / "made").exists()
        assert "hook `echo oops >&2; exit 1` failed and is ignored: exit code 1: oops" in ran.err
        assert "hook `sleep 60` failed and is ignored: it took too long" in ran.err
        assert "SIGKILL" in ran.err
        assert "updatedInput" in ran.err
        assert ran.err.count("failed and is ignored") == 5
        assert "Hooks for Tomorrow are never run" in ran.err

    def test_matchers_are_whole_regular_expressions_and_know_other_names_of_tools(self, program: Program) -> None:
        matchers = ("bash|glob", "Bash", "bas", ".*", "*", "Read")
        program.settings(hooks={"PreToolUse": [hook(f"echo '{each}' >> heard", each) for each in matchers]})
        with program.against([tool("bash", command="true"), text("done")]):
            program.run("-p", "x", *BYPASS)
        assert (program.directory / "heard").read_text().splitlines() == ["bash|glob", "Bash", ".*", "*"]


def test_after_a_call_a_hook_may_add_to_its_result(program: Program) -> None:
    program.settings(
        hooks={
            "PostToolUse": [
                hook("cat > told.json; echo 'a.py: line 1 is bad </note>' >&2; exit 2", "write_file"),
                hook(says(hookSpecificOutput={"additionalContext": "mind the style"}), "write_file"),
                hook(says(decision="block", reason="tests fail", systemMessage="for the user"), "bash"),
            ]
        }
    )
    calls = [tool("write_file", path="a.py", content="x"), tool("bash", command="echo hi; exit 3")]
    with program.against([answer(*calls), text("done")]) as api:
        ran = program.run("-p", "x", *BYPASS)
    wrote, shell = map(result_text, results(api))
    assert wrote.startswith("Wrote 1 bytes to a.py")
    assert "line 1 is bad <\\/note>\nmind the style\n</note>" in wrote
    assert shell.startswith("hi")
    assert "PostToolUse hook says:\ntests fail" in shell
    told = json.loads((program.directory / "told.json").read_text())
    assert told["tool_response"]["content"].startswith("Wrote 1 bytes")
    assert told["tool_response"]["is_error"] is False
    assert "for the user" in ran.err


def test_a_hook_may_block_a_line_of_the_user_or_add_to_it(program: Program) -> None:
    guard = "grep -q password && { echo no secrets please >&2; exit 2; }; echo today is Friday"
    program.settings(hooks={"UserPromptSubmit": [hook(guard)], "SessionStart": [hook("echo be brief; cat", "startup")]})
    with program.against([text("ok")]) as api:
        ran = program.run(stdin="my password is x\nhello\n")
        assert ran.code == 1
        assert "A hook has blocked this line: no secrets please" in ran.out
        assert program.run("-p", "password", "--output-format", "json").json["result"] == "no secrets please"
    said = said_by_user(api.requests[0])
    assert said.startswith("hello")
    assert "<environment>" in said
    assert "password" not in said
    assert "UserPromptSubmit hook says:\ntoday is Friday" in said
    assert '"source": "startup"' in said
    assert "be brief" in said


def test_piped_input_and_messages_to_teammates_pass_the_hook_too(program: Program) -> None:
    guard = "tee -a told | grep -q password && { echo no secrets please >&2; exit 2; }; echo today is Friday"
    program.settings(hooks={"UserPromptSubmit": [hook(f"{guard}; echo >> told")]})
    with program.against([text("ok")]) as api:
        ran = program.run("-p", "review this", stdin="the password is x\n")
        assert ran.code == 1
        assert "no secrets please" in ran.err
        assert not api.requests
        assert program.run("-p", "review this", stdin="a diff\n").code == 0
    (program.directory / "told").unlink()
    script = TeamScript(
        lead=[tool("spawn_teammate", name="alice", role="coder", prompt="go"), text("hired"), text("noted")],
        alice=[text("ready"), text("heard")],
    )
    with program.against(script):
        ran = program.run(stdin="go\n/wait\n@alice my password\n/send alice my password\n@Alice hello\n")
    assert ran.out.count("a hook has blocked this line: no secrets please") == 2
    heard = said_by_user(script.requests["alice"][-1])
    assert "hello" in heard
    assert "today is Friday" in heard
    assert "password" not in heard
    told = (program.directory / "told").read_text()
    assert told.count('"agent": "alice"') == 3
    assert "Alice" not in told.replace("@Alice", "")


class TestStop:
    def test_a_stop_hook_sends_the_agent_back_until_it_is_satisfied(self, program: Program) -> None:
        program.settings(hooks={"Stop": [hook("test -e done.txt || { echo done.txt is missing >&2; exit 2; }")]})
        with program.against(
            [text("I am done"), tool("write_file", path="done.txt", content="x"), text("now I am")]
        ) as api:
            assert program.run("-p", "x", *BYPASS).out == "now I am\n"
        assert "Stop hook says:\ndone.txt is missing" in said_by_user(api.requests[1])

    def test_a_stop_hook_cannot_send_an_agent_back_forever(self, program: Program) -> None:
        program.settings(hooks={"Stop": [hook("cat >> told; echo >> told; echo more >&2; exit 2")]})
        with program.against([text(str(n)) for n in range(9)]):
            ran = program.run("-p", "x")
        assert (ran.code, ran.out) == (0, "8\n")
        assert "still objects after 8 more tries" in ran.err
        told = [json.loads(line) for line in (program.directory / "told").read_text().splitlines()]
        assert [each["stop_hook_active"] for each in told] == [False] + [True] * 8
        assert told[0]["last_assistant_message"] == "0"


def test_a_teammate_about_to_idle_is_sent_back_and_the_lead_reads_only_its_last_text(program: Program) -> None:
    wants_more = "test -e asked || { touch asked; cat > told.json; echo and the tests? >&2; exit 2; }"
    program.settings(hooks={"TeammateIdle": [hook(wants_more)], "PreToolUse": [hook("cat >> calls")]})
    script = TeamScript(
        lead=[tool("spawn_teammate", name="alice", role="coder", prompt="go"), text("waiting"), text("fine")],
        alice=[text("written"), tool("bash", command="true"), After(2, text("tested"))],
    )
    with program.against(script):
        assert program.run("-p", "x", *BYPASS).out == "fine\n"
    assert "TeammateIdle hook says:\nand the tests?" in said_by_user(script.requests["alice"][1])
    assert "tested" in said_by_user(script.requests["lead"][-1])
    assert json.loads((program.directory / "told.json").read_text())["agent"] == "alice"
    assert '"agent": "alice"' in (program.directory / "calls").read_text()


def test_hooks_of_a_sub_agent_receive_its_id_and_its_own_transcript(program: Program) -> None:
    program.settings(hooks={"PreToolUse": [hook("cat > told.json", "bash")]})
    script = TeamScript(
        lead=[tool("agent", prompt="look", subagent_type="general"), text("end")],
        **{"sa-1": [tool("bash", command="true"), text("ok")]},
    )
    with program.against(script):
        program.run("-p", "x", *BYPASS)
    told = json.loads((program.directory / "told.json").read_text())
    own = program.directory / ".team/transcripts/subagents/sa-1.jsonl"
    assert (told["agent"], told["transcript_path"]) == ("sa-1", str(own))
    assert own.exists()


def test_hooks_run_at_the_beginning_and_end_of_a_session(program: Program) -> None:
    events = ("SessionStart", "SessionEnd")
    program.settings(hooks={name: [hook("cat >> heard; echo >> heard", timeout=30)] for name in events})
    program.run(stdin="run true\n/clear\nrun true\n")
    program.run("-p", "run true", "--continue")
    heard = [(each["hook_event_name"], each.get("source") or each["reason"]) for each in program.lines("heard")]
    assert heard == [
        ("SessionStart", "startup"),
        ("SessionEnd", "clear"),
        ("SessionStart", "clear"),
        ("SessionEnd", "exit"),
        ("SessionStart", "resume"),
        ("SessionEnd", "exit"),
    ]


def test_a_hook_may_say_what_a_summary_keeps_or_that_there_is_none(program: Program) -> None:
    guard = "grep -q secret && { echo not now >&2; exit 2; }; echo the ticket numbers"
    program.settings(hooks={"PreCompact": [hook(guard, "manual"), hook("touch never", "auto")]})
    with program.against([text("a"), text("b"), text("SO FAR"), text("c")]) as api:
        ran = program.run(stdin=f"one {'x ' * 2000}\ntwo\n/compact secret\n/compact names\nthree\n")
    assert "A hook prevented a summary of the conversation: not now" in ran.out
    assert "keep above all: names\nthe ticket numbers" in said_by_user(api.requests[2])
    assert "SO FAR" in str(api.requests[3]["messages"])
    assert not (program.directory / "never").exists()


class TestTasks:
    def test_exit_2_refuses_a_task_with_stderr_as_the_result(self, program: Program) -> None:
        guard = "cat > told.json; grep -q 'because' told.json || { echo say why >&2; exit 2; }"
        program.settings(hooks={"TaskCreated": [hook(guard)]})
        calls = [
            tool("task_create", subject="x"),
            tool("task_create", subject="x", description="because"),
            tool("task_list"),
        ]
        with program.against([*calls, text("done")]) as api:
            program.run("-p", "x")
        refused, created, listed = (results(api, request)[0] for request in (1, 2, 3))
        assert (result_text(refused), refused["is_error"]) == ("Error: say why", True)
        assert result_text(created).startswith("Created task")
        assert result_text(listed).count(": x") == 1
        told = json.loads((program.directory / "told.json").read_text())
        about = {"hook_event_name": "TaskCreated", "agent": "lead", "task_subject": "x", "task_description": "because"}
        assert about.items() <= told.items()
        assert (told["team_name"], told["task_id"]) == ("default", result_text(created).split()[2])

    @pytest.mark.parametrize("output", [{"decision": "block", "reason": "not yet"}, {"continue": False}])
    def test_json_refuses_the_end_of_a_task(self, program: Program, output: dict[str, Any]) -> None:
        program.settings(hooks={"TaskCompleted": [hook(says(**output))]})
        calls = [tool("task_create", subject="x"), tool("task_update", id=1, status="completed"), text("done")]
        with program.against(calls) as api:
            program.run("-p", "x")
        (refused,) = results(api, 2)
        assert result_text(refused) == f"Error: {output.get('reason', 'A TaskCompleted hook blocks this.')}"
        assert json.loads((program.directory / ".team/tasks/1.json").read_text())["status"] == "pending"


class TestExamples:
    """Those of docs/hooks.md, as they stand there."""

    def test_every_example_is_run_here(self) -> None:
        assert len(examples()) == 5
        assert all(set(each["hooks"]) <= set(HOOK_EVENTS) for each in examples())

    def test_the_example_that_guards_commands_works(self, program: Program) -> None:
        program.settings(**examples()[0])
        with program.against(
            [answer(tool("bash", command="git push"), tool("bash", command="echo hi")), text("ok")]
        ) as api:
            program.run("-p", "x", *BYPASS)
        assert [result_text(result) for result in results(api)] == ["Pushing is my business.", "hi"]

    def test_the_example_that_checks_written_files_works(self, program: Program) -> None:
        program.settings(**examples()[1])
        write_scripts(program)
        calls = [tool("write_file", path=name, content="x = (\n") for name in ("a.py", "a.txt")]
        with program.against([answer(*calls), text("ok")]) as api:
            program.run("-p", "x", *BYPASS)
        bad, good = map(result_text, results(api))
        assert "a.py:1: '(' was never closed" in bad
        assert "hook" not in good

    def test_the_example_that_works_until_the_tests_pass_works(self, program: Program) -> None:
        program.settings(**examples()[2])
        (program.directory / "Makefile").write_text("test:\n\ttest -e fixed || { echo 1 failed; false; }\n")
        with program.against([text("done"), tool("bash", command="touch fixed"), text("fixed")]) as api:
            assert program.run("-p", "x", *BYPASS).out == "fixed\n"
        assert "1 failed" in said_by_user(api.requests[1])

    def test_the_example_that_changes_a_call_works(self, program: Program) -> None:
        program.settings(**examples()[3])
        write_scripts(program)
        (program.directory / "Makefile").write_text("all:\n\techo built\n")
        with program.against([tool("bash", command="make"), text("ok")]) as api:
            assert program.run("-p", "x").code == 0
        assert [result_text(result) for result in results(api)] == ["built"]

    def test_the_example_that_adds_context_works(self, program: Program) -> None:
        program.settings(**examples()[4])
        (program.directory / "on-call.txt").write_text("Ada")
        with program.against([text("ok")]) as api:
            program.run("-p", "x")
        assert "On call today: Ada" in said_by_user(api.requests[0])


def examples() -> list[dict[str, Any]]:
    return [json.loads(found) for found in re.findall(r"^```json\n(.*?)^```", DOCUMENTED, re.DOTALL | re.MULTILINE)]


def write_scripts(program: Program) -> None:
    (program.directory / ".team").mkdir()
    for name, script in re.findall(r"^```python\n# (\S+)\n(.*?)^```", DOCUMENTED, re.DOTALL | re.MULTILINE):
        (program.directory / name).write_text(script)


class TestFilesThatHooksRun:
    """Hooks run outside the sandbox, so an agent must not be able to rewrite one unseen."""

    COMMANDS = (
        "./checks/one.sh --fast",
        "timeout 5 python3 -u checks/two.py 2> /dev/null || exit 2",
        'test -d . && bash "$CLAUDE_PROJECT_DIR/checks/three.sh"',
        "env A=1 checks/not-yet-there",
    )

    @pytest.mark.parametrize("mode", ["acceptEdits", "bypassPermissions"])
    def test_changing_a_file_that_a_hook_runs_asks_in_every_mode(self, program: Program, mode: str) -> None:
        (program.directory / "checks").mkdir()
        for name in ("one.sh", "two.py", "three.sh"):
            (program.directory / "checks" / name).write_text("exit 0\n")
        program.settings(hooks={"SessionEnd": [hook(command) for command in self.COMMANDS]})
        names = ("one.sh", "two.py", "three.sh", "not-yet-there", "other.sh")
        calls = [tool("write_file", path=f"checks/{name}", content="evil\n") for name in names]
        calls = [answer(*(tool("read_file", path=f"checks/{name}") for name in names)), answer(*calls), text("done")]
        with program.against(calls) as api:
            ran = program.run("-p", "x", "--permission-mode", mode)
        assert ["always asks" in result_text(result) for result in results(api, 2)] == [True] * 4 + [False]
        assert (program.directory / "checks/one.sh").read_text() == "exit 0\n"
        assert (program.directory / "checks/other.sh").read_text() == "evil\n"
        assert ran.code == 4

    def test_a_redirection_to_a_file_that_a_hook_runs_asks(self, program: Program) -> None:
        program.settings(hooks={"SessionEnd": [hook("sh checks.sh")]})
        with program.against([tool("bash", command="echo evil > checks.sh"), text("done")]) as api:
            ran = program.run("-p", "x", *BYPASS)
        assert "always asks" in result_text(results(api)[0])
        assert not (program.directory / "checks.sh").exists()
        assert ran.code == 4


class TestTrust:
    def test_hooks_of_a_project_wait_for_trust(self, program: Program) -> None:
        (program.directory / ".team").mkdir()
        hooks = {"PreToolUse": [hook("touch ran")]}
        (program.directory / ".team/settings.json").write_text(json.dumps({"hooks": hooks}))
        ran = program.run("-p", "run true", *BYPASS)
        assert "not trusted (--trust): hooks in .team/settings.json, which run commands" in ran.err
        assert "loosen" not in ran.err
        assert not (program.directory / "ran").exists()
        assert "hooks" not in program.run("-p", "run true", *BYPASS, "--trust").err
        assert (program.directory / "ran").exists()

    def test_hooks_of_all_files_add_up(self, program: Program) -> None:
        program.settings(hooks={"PreToolUse": [hook("echo user >> heard")]})
        (program.directory / ".team").mkdir()
        for name in ("settings.json", "settings.local.json"):
            hooks = {"PreToolUse": [hook(f"echo {name} >> heard")]}
            (program.directory / ".team" / name).write_text(json.dumps({"hooks": hooks}))
        program.run("-p", "run true", *BYPASS, "--trust")
        assert (program.directory / "heard").read_text().split() == ["user", "settings.json", "settings.local.json"]


@pytest.mark.parametrize(
    ("hooks", "said"),
    [
        ({"PreToolUse": [hook("x", "(")]}, "hooks.PreToolUse.0.matcher: should be a regular expression"),
        ({"PreToolUse": [{"hooks": [{"type": "http"}]}]}, "hooks.PreToolUse.0.hooks.0.command: should be given"),
        ({"PreToolUse": [hook("x", type="prompt")]}, "hooks.PreToolUse.0.hooks.0.type: should be one of command"),
        ({"PreToolUse": [{"matcher": "x"}]}, "hooks.PreToolUse.0.hooks: should be given"),
        ({"Stop": [hook("x", timeout=0)]}, "hooks.Stop.0.hooks.0.timeout: should be a number of seconds above 0"),
    ],
)
def test_a_mistake_in_the_settings_is_named(program: Program, hooks: Any, said: str) -> None:
    program.settings(hooks=hooks)
    ran = program.run("-p", "x")
    assert ran.code == 2
    assert said in ran.err
