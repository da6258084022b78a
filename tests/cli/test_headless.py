"""`teamcli -p` from the outside: the real program, a real socket, the strict API."""

from __future__ import annotations

import ctypes
import json
import os
import pty
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_api import (
    FakeAPI,
    answer,
    result_text,
    said_by_user,
    stall_after,
    status,
    text,
    tool,
    tool_results,
)
from tests.support.program import ROOT, Program, Ran
from tests.support.team_script import After, TeamScript
from tests.support.waiting import wait_until
from tests.tools.shell import new_mark, processes_with

BYPASS = ("--permission-mode", "bypassPermissions")


def with_api(program: Program, api: FakeAPI) -> Program:
    program.url = api.url
    return program


def test_stdout_has_the_answer_and_nothing_else(program: Program) -> None:
    with FakeAPI([text("It is 4.")]) as api:
        ran = with_api(program, api).run("-p", "what is 2+2?")
    assert (ran.code, ran.out, ran.err) == (0, "It is 4.\n", "")
    assert said_by_user(api.requests[0]).startswith("what is 2+2?")
    assert api.requests[0]["model"] == "test-model"


@pytest.mark.parametrize(
    "arguments",
    [
        ("-p", "--model", "m", "hello"),
        ("--model", "m", "hello", "-p"),
        ("hello", "-p", "--model", "m"),
        ("--model=m", "--print", "hello"),
    ],
)
def test_the_prompt_may_come_anywhere_among_the_options(program: Program, arguments: tuple[str, ...]) -> None:
    with FakeAPI([text("ok")]) as api:
        assert with_api(program, api).run(*arguments).out == "ok\n"
    assert said_by_user(api.requests[0]).startswith("hello")
    assert api.requests[0]["model"] == "m"


def test_all_text_blocks_of_the_last_answer_are_printed(program: Program) -> None:
    with FakeAPI([answer(text("one"), text("two"))]) as api:
        assert with_api(program, api).run("-p", "x").out == "one\ntwo\n"


def test_tools_run_until_the_model_is_done(program: Program) -> None:
    with FakeAPI(
        [tool("write_file", path="a/b.txt", content="é\n"), tool("bash", command="cat a/b.txt; exit 3"), text("done")]
    ) as api:
        ran = with_api(program, api).run("-p", "x", *BYPASS)
    assert (ran.code, ran.out) == (0, "done\n")
    assert (program.directory / "a/b.txt").read_text() == "é\n"
    assert "3 bytes" in tool_results(api.requests[1])[0]["content"]
    assert "é" in tool_results(api.requests[2])[0]["content"]
    assert "exit code 3" in tool_results(api.requests[2])[0]["content"]
    api.assert_prefix_stable()


class TestTheAnswer:
    @pytest.mark.parametrize("reply", ["KEEP", "`KEEP`.", " "])
    def test_the_answer_stays_if_the_lead_has_nothing_to_add_to_late_results(
        self, program: Program, reply: str
    ) -> None:
        ran = self._run_with_late_results(program, text(reply))
        assert (ran.code, ran.out) == (0, "the whole summary\n")

    def test_an_answer_to_late_results_replaces_the_first_one(self, program: Program) -> None:
        ran = self._run_with_late_results(program, text("a better summary"))
        assert (ran.code, ran.out) == (0, "a better summary\n")

    def test_the_answer_is_printed_even_if_the_wake_up_after_it_fails(self, program: Program) -> None:
        program.settings(retries=0)
        ran = self._run_with_late_results(program, status(400))
        assert (ran.code, ran.out) == (1, "the whole summary\n")

    def _run_with_late_results(self, program: Program, reply: Any) -> Ran:
        names = ("alice", "bob", "carol")
        spawns = [tool("spawn_teammate", name=name, role="coder", prompt="go") for name in names]
        members = {name: [After(2, text(f"{name} is done"))] for name in names}
        script = TeamScript(lead=[answer(*spawns), text("the whole summary"), reply], **members)
        with program.against(script):
            ran = program.run("-p", "go")
        assert "This run prints only your last answer" in said_by_user(script.requests["lead"][2])
        assert [f"{name} → lead (result): {name} is done" in ran.err for name in names] == [True] * 3
        return ran


def test_at_a_terminal_each_step_has_the_name_of_its_agent(program: Program) -> None:
    spawn = tool("spawn_teammate", name="alice", role="coder", prompt="go")
    script = TeamScript(
        lead=[spawn, text("hired"), text("done")],
        alice=[tool("read_file", path="missing"), After(2, text("not there"))],
    )
    terminal, other = pty.openpty()
    with FakeAPI(script) as api:
        process = with_api(program, api).start("-p", "go", stderr=other)
        os.close(other)
        process.communicate(timeout=60)
    shown = b""
    with suppress(OSError):  # the other end is closed
        while data := os.read(terminal, 65_536):
            shown += data
    os.close(terminal)
    lines = shown.decode().splitlines()
    assert any(line.startswith("  ✓ lead: spawn alice") for line in lines), lines
    assert any(line.startswith("  ✗ alice: ") and "missing" in line for line in lines), lines


class TestStandardInput:
    def test_piped_text_is_added_to_the_prompt(self, program: Program) -> None:
        with FakeAPI([text("ok")]) as api:
            with_api(program, api).run("-p", "review this", stdin="diff --git a b\n")
        said = said_by_user(api.requests[0])
        assert said.startswith("review this")
        assert "diff --git a b" in said

    def test_piped_text_alone_is_the_prompt(self, program: Program) -> None:
        with FakeAPI([text("ok")]) as api:
            with_api(program, api).run("-p", stdin="fix the bug\n")
        assert said_by_user(api.requests[0]).startswith("fix the bug")

    def test_standard_input_may_be_a_file(self, program: Program) -> None:
        (program.directory / "task.txt").write_text("from a file")
        with FakeAPI([text("ok")]) as api, (program.directory / "task.txt").open() as file:
            process = with_api(program, api).start("-p", stdin=file)
            assert process.communicate(timeout=60)[0] == b"ok\n"
        assert said_by_user(api.requests[0]).startswith("from a file")

    def test_a_pipe_that_stays_silent_is_ignored(self, program: Program) -> None:
        with FakeAPI([text("ok")]) as api:
            process = with_api(program, api).start("-p", "go", stdin=subprocess.PIPE)
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read() == b"ok\n"
            assert b"no input on stdin within 3 s" in process.stderr.read()
            process.communicate(timeout=60)

    def test_piped_bytes_need_not_be_text(self, program: Program) -> None:
        with FakeAPI([text("ok")]) as api:
            assert with_api(program, api).run("-p", "x", stdin=b"\xff\xfe\x00abc").code == 0
        assert "abc" in said_by_user(api.requests[0])

    @pytest.mark.parametrize("stdin", [None, "", " \n"])
    def test_no_task_at_all_is_a_usage_error(self, program: Program, stdin: str | None) -> None:
        ran = program.run("-p", stdin=stdin)
        assert ran.code == 2
        assert "-p needs a task" in ran.err
        assert ran.err.count("\n") == 1


class TestOutputFormats:
    def test_json_is_one_object(self, program: Program) -> None:
        script = [
            answer(tool("bash", command="true"), usage={"input_tokens": 7}),
            answer(text("done"), usage={"output_tokens": 9}),
        ]
        with FakeAPI(script) as api:
            result = with_api(program, api).run("-p", "x", "--output-format", "json", *BYPASS).json
        session_id = program.transcript()[0]["id"]
        usage = {
            "input_tokens": 17,
            "output_tokens": 14,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        }
        assert result.pop("duration_ms") >= 0
        assert result == {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "result": "done",
            "session_id": session_id,
            "num_turns": 2,
            "total_cost_usd": None,
            "usage": usage,
            "agents": {"lead": {"turns": 2, "tool_calls": 1, "usage": usage}},
            "permission_denials": [],
            "waiting": [],
        }

    def test_a_priced_model_has_a_cost(self, program: Program) -> None:
        program.settings(prices={"test-model": {"input": 1.0, "output": 2.0}})
        with FakeAPI([answer(text("x"), usage={"input_tokens": 500_000, "output_tokens": 250_000})]) as api:
            result = with_api(program, api).run("-p", "x", "--output-format", "json").json
        assert result["total_cost_usd"] == 1.0

    def test_stream_json_is_one_object_per_line(self, program: Program) -> None:
        with FakeAPI([tool("bash", command="echo out"), text("done")]) as api:
            lines = with_api(program, api).run("-p", "hi", "--output-format", "stream-json", *BYPASS).json_lines
        first, *middle, last = lines
        assert (first["type"], first["subtype"], first["model"]) == ("system", "init", "test-model")
        assert first["cwd"] == str(program.directory)
        assert "bash" in first["tools"]
        assert [(line["type"], line["agent"], line["message"]["role"]) for line in middle] == [
            ("user", "lead", "user"),
            ("assistant", "lead", "assistant"),
            ("user", "lead", "user"),
            ("assistant", "lead", "assistant"),
        ]
        assert middle[2]["message"]["content"][0]["content"] == "out"
        assert {(line["session_id"], line["parent_tool_use_id"]) for line in middle} == {(first["session_id"], None)}
        assert "coder" in first["agents"]
        assert (last["type"], last["result"], last["session_id"]) == ("result", "done", first["session_id"])

    def test_stream_json_reports_what_the_team_does(self, program: Program) -> None:
        hire = tool("spawn_teammate", name="alice", role="coder", prompt="x")
        script = TeamScript(lead=[hire, text("hired"), text("end")], alice=[text("my result")])
        with FakeAPI(script) as api:
            lines = with_api(program, api).run("-p", "hi", "--output-format", "stream-json").json_lines
        team = [line for line in lines if line["type"] == "team"]
        statuses = [line["status"] for line in team if line["event"] == "status" and line["agent"] == "alice"]
        assert statuses == ["spawning", "working", "idle"]
        (mail,) = (line for line in team if line["event"] == "message")
        assert (mail["agent"], mail["to"], mail["message_type"]) == ("alice", "lead", "result")
        assert mail["content"] == "my result"
        assert {"lead", "alice"} == {line.get("agent") for line in lines[1:-1]}

    def test_a_reader_that_goes_away_ends_the_work(self, program: Program) -> None:
        with FakeAPI([tool("bash", command="true"), tool("bash", command="sleep 60"), text("never")]) as api:
            process = with_api(program, api).start("-p", "x", "--output-format", "stream-json", *BYPASS)
            assert process.stdout is not None
            assert process.stderr is not None
            assert b"init" in process.stdout.readline()
            process.stdout.close()
            assert process.wait(60) == 141
            assert process.stderr.read() == b""
            process.stderr.close()

    def test_escape_sequences_do_not_reach_plain_output(self, program: Program) -> None:
        with FakeAPI([text("a\x1b]0;owned\x07b\x9bc\rd")]) as api:
            ran = with_api(program, api).run("-p", "x")
        assert not set(ran.out) & set("\x1b\x07\x9b\r")


class TestExitCodes:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("--nonsense",), "--nonsense"),
            (("-p", "x", "--max-turns", "0"), "--max-turns"),
            (("-p", "x", "--max-budget-usd", "-1"), "--max-budget-usd"),
            (("-p", "x", "--permission-mode", "yolo"), "yolo"),
            (("-p", "x", "--cwd", "/does/not/exist"), "/does/not/exist"),
            (("-p", "x", "--add-dir", "/does/not/exist"), "/does/not/exist"),
            (("-p", "x", "--allowedTools", "bash(unclosed"), "bash(unclosed"),
            (("-p", "x", "--allowedTools", "bsh"), "bash"),
            (("-p", "x", "--resume", "ghost"), "ghost"),
            (("-p", "x", "-c", "-r", "y"), "--resume"),
            (("--output-format", "json", "x"), "--output-format"),
        ],
    )
    def test_a_wrong_command_line_exits_with_2_and_one_line_that_names_the_fault(
        self, program: Program, arguments: tuple[str, ...], said: str
    ) -> None:
        ran = program.run(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert said in ran.err
        assert ran.err.count("\n") == 1
        assert ran.err.startswith("teamcli: ")

    def test_a_rejected_key_exits_with_2_and_is_not_shown(self, program: Program) -> None:
        with FakeAPI([], key="another") as api:
            ran = with_api(program, api).run("-p", "x")
        assert ran.code == 2
        assert "ANTHROPIC_API_KEY" in ran.err
        assert program.key not in ran.err
        assert ran.err.count("\n") == 1

    def test_an_unknown_model_exits_with_2_and_is_named(self, program: Program) -> None:
        body = {"type": "error", "error": {"type": "not_found_error", "message": "model: test-model"}}
        with FakeAPI([status(404, body=body)]) as api:
            ran = with_api(program, api).run("-p", "x")
        assert ran.code == 2
        assert "test-model" in ran.err

    def test_an_endpoint_without_a_credential_exits_with_2(self, program: Program) -> None:
        ran = program.run("-p", "x", env={"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"})
        assert ran.code == 2
        assert "ANTHROPIC_API_KEY" in ran.err
        assert ran.err.count("\n") == 1

    def test_a_budget_for_a_model_without_a_price_exits_with_2(self, program: Program) -> None:
        with FakeAPI([]) as api:
            ran = with_api(program, api).run("-p", "x", "--max-budget-usd", "1")
        assert ran.code == 2
        assert "test-model" in ran.err
        assert "prices" in ran.err

    def test_an_unreachable_endpoint_exits_with_1(self, program: Program) -> None:
        program.settings(retries=1)
        program.url = "http://127.0.0.1:9"
        ran = program.run("-p", "x", "--output-format", "json")
        assert ran.code == 1
        assert "127.0.0.1:9" in ran.err
        assert (ran.json["subtype"], ran.json["is_error"]) == ("error", True)

    def test_a_refusal_exits_with_1(self, program: Program) -> None:
        with FakeAPI([answer(text("I would rather not."), stop_reason="refusal")]) as api:
            ran = with_api(program, api).run("-p", "x")
        assert ran.code == 1
        assert "refused" in ran.err

    def test_an_api_that_fails_after_all_retries_exits_with_1(self, program: Program) -> None:
        program.settings(retries=2)
        with FakeAPI([status(529, retry_after=0.01)] * 3) as api:
            ran = with_api(program, api).run("-p", "x")
        assert ran.code == 1
        assert "3 tries" in ran.err
        assert "Retrying in" in ran.err

    def test_an_overload_that_takes_many_tries_to_pass_exits_with_0(self, program: Program) -> None:
        with FakeAPI([*[status(529, retry_after=0.01)] * 12, text("ok")]) as api:
            ran = with_api(program, api).run("-p", "x")
        assert (ran.code, ran.out) == (0, "ok\n")
        assert ran.err.count("is overloaded (529)") == ran.err.count("Retrying in 0.0 s, for 10 more minutes.") == 12

    def test_no_more_time_for_retries_exits_with_1(self, program: Program) -> None:
        program.settings(retry_minutes=0)
        with FakeAPI([status(529)]) as api:
            ran = with_api(program, api).run("-p", "x")
        assert ran.code == 1
        assert "is overloaded (529)" in ran.err

    def test_an_overload_that_passes_exits_with_0(self, program: Program) -> None:
        with FakeAPI([status(529, retry_after=0.01), status(429, retry_after=0.01), text("ok")]) as api:
            assert with_api(program, api).run("-p", "x").out == "ok\n"

    def test_too_many_turns_exit_with_3(self, program: Program) -> None:
        with FakeAPI([tool("bash", command="true")] * 2) as api:
            ran = with_api(program, api).run("-p", "x", "--max-turns", "2", "--output-format", "json", *BYPASS)
        assert ran.code == 3
        assert "limit of 2 model calls" in ran.err
        assert (ran.json["subtype"], ran.json["num_turns"]) == ("error_max_turns", 2)

    def test_a_budget_that_is_used_up_exits_with_3(self, program: Program) -> None:
        program.settings(prices={"test-model": {"input": 1000, "output": 1000}})
        with FakeAPI([answer(tool("bash", command="true"), usage={"input_tokens": 1000})]) as api:
            ran = with_api(program, api).run("-p", "x", "--max-budget-usd", "0.5", "--output-format", "json", *BYPASS)
        assert (ran.code, ran.json["subtype"]) == (3, "error_max_budget")

    def test_a_call_that_no_one_could_be_asked_about_exits_with_4(self, program: Program) -> None:
        with FakeAPI([tool("bash", command="echo hi > made.txt"), text("could not")]) as api:
            ran = with_api(program, api).run("-p", "x", "--output-format", "json")
        assert (ran.code, ran.json["subtype"], ran.json["result"]) == (4, "error_permission", "could not")
        rule = ran.json["permission_denials"][0]["rule"]
        assert rule
        assert rule in tool_results(api.requests[1])[0]["content"]
        assert rule in ran.err
        assert not (program.directory / "made.txt").exists()
        with FakeAPI([tool("bash", command="echo hi > made.txt"), text("done")]) as api:
            assert with_api(program, api).run("-p", "x", "--allowedTools", rule).code == 0
        assert (program.directory / "made.txt").exists()

    @pytest.mark.parametrize("flags", [("--disallowedTools", "bash"), ("--permission-mode", "plan")])
    def test_a_call_refused_by_a_rule_or_mode_exits_with_0(self, program: Program, flags: tuple[str, ...]) -> None:
        with FakeAPI([tool("bash", command="echo hi > made.txt"), text("could not")]) as api:
            ran = with_api(program, api).run("-p", "x", *flags)
        assert ran.code == 0
        assert tool_results(api.requests[1])[0]["is_error"]
        assert not (program.directory / "made.txt").exists()


def test_a_path_that_may_not_be_read_is_not_found_by_searches_either(program: Program) -> None:
    (program.directory / "secrets").mkdir()
    (program.directory / "secrets/key.txt").write_text("hunter2\n")
    (program.directory / "open.txt").write_text("hunter3\n")
    calls = answer(
        tool("grep", pattern="hunter"), tool("glob", pattern="**/*.txt"), tool("read_file", path="secrets/key.txt")
    )
    with FakeAPI([calls, text("x")]) as api:
        with_api(program, api).run("-p", "x", "--disallowedTools", "read_file(secrets/**)")
    told = str(tool_results(api.requests[1]))
    assert "hunter3" in told
    assert "open.txt" in told
    assert "hunter2" not in told
    assert "key.txt" not in str(tool_results(api.requests[1])[:2])


def test_a_file_that_may_not_be_read_is_edited_without_showing_what_is_in_it(program: Program) -> None:
    (program.directory / ".env").write_text("A=1\nKEY=hunter2\nB=1\n")
    calls = answer(
        tool("edit_file", path=".env", old_text="A=1", new_text="A=2"),
        tool("edit_file", path=".env", old_text="=", new_text=":"),
        tool("edit_file", path=".env", old_text="B = 1", new_text="B=2"),
        tool("edit_file", path=".env", old_text="B  =1", new_text="B=2"),
    )
    flags = ("--disallowedTools", "read_file(.env)", "--permission-mode", "acceptEdits")
    with FakeAPI([calls, text("x")]) as api:
        with_api(program, api).run("-p", "x", *flags)
    told = [str(result["content"]) for result in tool_results(api.requests[1])]
    assert "A=2" in (program.directory / ".env").read_text()
    assert "Edited .env" in told[0]
    assert not any("hunter2" in each or "KEY" in each or "line" in each.replace("lines until", "") for each in told)


class TestSignals:
    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
    def test_a_signal_ends_a_stalled_stream(self, program: Program, number: signal.Signals, code: int) -> None:
        with FakeAPI([answer(text("half an answer"), stall_after(4))]) as api:
            process = with_api(program, api).start("-p", "x", "--output-format", "json")
            api.wait_for_stall()
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        assert (process.returncode, json.loads(out)["subtype"]) == (code, "error")
        assert b"Traceback" not in err

    def test_a_signal_that_another_thread_gets_ends_a_stalled_stream(self, program: Program) -> None:
        # As if it had come right before the main thread began to wait: it does not end that wait.
        with FakeAPI([answer(text("half an answer"), stall_after(4))]) as api:
            process = with_api(program, api).start("-p", "x")
            api.wait_for_stall()
            main = process.pid
            other = next(int(each.name) for each in Path(f"/proc/{main}/task").iterdir() if int(each.name) != main)
            assert ctypes.CDLL(None).tgkill(main, other, signal.SIGTERM) == 0
            process.communicate(timeout=60)
        assert process.returncode == 143

    def test_a_signal_ends_the_command_that_runs(self, program: Program) -> None:
        mark = new_mark()
        with FakeAPI([tool("bash", command=f"export M={mark}; sh -c 'sleep 60; echo late > late'")]) as api:
            process = with_api(program, api).start("-p", "x", *BYPASS)
            wait_until(lambda: processes_with(mark))
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        assert process.returncode == 143
        wait_until(lambda: not processes_with(mark))

    def test_the_history_is_valid_after_a_signal(self, program: Program) -> None:
        with FakeAPI([tool("bash", command="touch started; sleep 60"), text("went on")]) as api:
            process = with_api(program, api).start("-p", "x", *BYPASS)
            wait_until(lambda: (program.directory / "started").exists())
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=60)[0] == b"\n" * 0
            assert process.returncode == 130
            assert program.run("-p", "--continue", "go on").out == "went on\n"
        assert "Interrupted" in result_text(tool_results(api.requests[1])[0])


def test_progress_goes_to_stderr_when_it_is_a_terminal(program: Program) -> None:
    with FakeAPI([tool("bash", command="echo hi"), text("done")]) as api:
        terminal, other = pty.openpty()
        process = with_api(program, api).start("-p", "x", *BYPASS, stderr=other)
        os.close(other)
        assert process.communicate(timeout=60)[0] == b"done\n"
    shown = b""
    with suppress(OSError):  # the end of a terminal
        while data := os.read(terminal, 10_000):
            shown += data
    os.close(terminal)
    assert b"$ echo hi" in shown


def test_exit_handlers_of_others_run(program: Program, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import atexit; atexit.register(print, 'at the end')")
    with FakeAPI([text("hi")]) as api:
        env = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
        assert with_api(program, api).run("-p", "x", env=env).out == "hi\nat the end\n"
