"""Faults that were found by attacking the program, kept from coming back."""

from __future__ import annotations

import os
import re
import subprocess
import uuid
from importlib.util import find_spec
from pathlib import Path

import pytest

from teamcli.config.environment import SECRET_VARIABLES
from tests.support.fake_api import FakeAPI, answer, status, text, tool, tool_json, tool_results
from tests.support.program import Program

BYPASS = ("--permission-mode", "bypassPermissions")


@pytest.mark.parametrize("name", ["lead.lock", "transcripts/lead.jsonl", "events.jsonl", "transcripts", "logs"])
def test_a_cloned_repository_cannot_point_our_files_elsewhere(program: Program, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious, without a newline")
    link = program.directory / ".team" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(victim)
    program.run("-p", "run echo hi")
    ran = program.run("-p", "run echo hi", "--trust")
    assert ran.code == 2
    assert "symbolic link" in ran.err
    assert ran.err.count("\n") == 1
    assert victim.read_text() == "precious, without a newline"


def test_a_team_directory_that_is_a_link_is_refused(program: Program, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (program.directory / ".team").symlink_to(tmp_path / "elsewhere")
    assert program.run("-p", "run echo hi").code == 2
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_a_path_means_is_judged_when_the_call_runs(program: Program) -> None:
    (program.directory / "secret").mkdir()
    (program.directory / "secret/x").write_text("hunter2")
    calls = answer(tool("bash", command="ln -s secret/x y"), tool("read_file", path="y"))
    with program.against([calls, text("x")]) as api:
        program.run("-p", "x", *BYPASS, "--disallowedTools", "read_file(secret/**)")
    assert "hunter2" not in str(tool_results(api.requests[1]))


def test_commands_do_not_find_the_key_in_proc(program: Program) -> None:
    program = Program(program.directory, program.home)  # a new Python: a fork has the variables of another process
    key = f"test-key-{uuid.uuid4().hex}"  # its own: all processes of the machine are looked at
    most = key[:-4]  # all of it would be masked in what the model says
    look = f'for p in /proc/[0-9]*/environ; do tr "\\0" "\\n" < $p 2>/dev/null; done | grep -c "{most}"'
    with FakeAPI([tool("bash", command=look + "; true"), text("x")]) as api:
        program.url, program.key = api.url, key
        program.run("-p", "x", *BYPASS)
    assert str(tool_results(api.requests[1])[0]["content"]).split()[-1] == "0"


def test_the_key_is_redacted_in_a_result(program: Program) -> None:
    (program.directory / "leak.txt").write_text(f"key={program.key}")
    with program.against([tool("read_file", path="leak.txt"), text("x")]) as api:
        program.run("-p", "x")
    assert program.key not in str(api.requests[1])


def test_a_call_that_is_always_cut_ends(program: Program) -> None:
    cut = answer(tool_json("write_file", '{"path": "a"'), stop_reason="max_tokens")
    with program.against(lambda request, n: cut) as api:
        ran = program.run("-p", "x", *BYPASS)
    assert ran.code == 1
    assert len(api.requests) == 11
    assert "cut off" in ran.err


def test_no_team_with_continue_starts_afresh(program: Program, tmp_path: Path) -> None:
    (tmp_path / "temp").mkdir()
    with program.against([text("hi")]):
        program.variables["TMPDIR"] = str(tmp_path / "temp")
        assert program.run("-p", "x", "--no-team", "-c").out == "hi\n"
        assert program.run("-p", "x", "--no-team", "-r", "ghost").code == 2
    assert list((tmp_path / "temp").iterdir()) == []


def test_a_session_that_was_only_opened_does_not_hide_the_last_one(program: Program) -> None:
    with program.against([text("a"), text("b")]) as api:
        program.run("-p", "one")
        program.run(stdin="q\n")
        assert program.run("-p", "-c", "two").out == "b\n"
    assert len(api.requests[1]["messages"]) == 3
    assert len(program.run("sessions").out.splitlines()) == 1


@pytest.mark.parametrize("arguments", [("-p", "  "), ("  ",)])
def test_a_blank_prompt_counts_as_no_prompt(program: Program, arguments: tuple[str, ...]) -> None:
    with program.against([text("ok")]):
        assert "ok" in program.run(*arguments, stdin="the real task\n").out


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("arguments", ["-p 'run echo hi' --permission-mode bypassPermissions", ""])
def test_closed_standard_streams_do_no_harm(program: Program, closed: str, arguments: str) -> None:
    command = " ".join(program.command([])) + f" {arguments} {closed}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=program.directory, env=program.env(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "embedded" not in done.stdout


def in_shell(program: Program, arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    command = f"{before}{' '.join(program.command([]))} {arguments}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=program.directory, env=program.env(), capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    return done


RUN_ECHO = "-p 'run echo hi' --permission-mode bypassPermissions"


@pytest.mark.parametrize(
    "arguments",
    [RUN_ECHO, f"{RUN_ECHO} --output-format stream-json", "--help", "--version", "sessions", "doctor", "<<< '/help'"],
)
def test_output_that_cannot_be_written_is_reported_in_one_sentence(program: Program, arguments: str) -> None:
    done = in_shell(program, f"{arguments} > /dev/full")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("teamcli: standard output cannot be written: No space left")


@pytest.mark.parametrize(
    ("arguments", "code"), [(RUN_ECHO, 0), ("-p 'run date'", 4), ("sessions", 0), ("-p x --max-turns 0", 2)]
)
def test_a_lost_standard_error_changes_nothing(program: Program, arguments: str, code: int) -> None:
    usual = in_shell(program, arguments)
    for lost in ("2> /dev/full", "2>&-", "2> >(exec <&-; exec sleep 0)"):
        done = in_shell(program, f"{arguments} {lost}")
        assert usual.returncode == done.returncode == code, lost
        assert done.stdout == usual.stdout, lost


def test_a_deleted_directory_is_one_clear_line(program: Program) -> None:
    command = f"mkdir gone; cd gone; rmdir ../gone; {' '.join(program.command(['-p', 'x']))}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=program.directory, env=program.env(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "the current directory no longer exists" in done.stderr
    assert done.stderr.count("\n") == 1


def test_instructions_are_not_read_through_a_link_out_of_the_workspace(program: Program, tmp_path: Path) -> None:
    (tmp_path / "private.txt").write_text("hunter2")
    (program.directory / "AGENTS.md").symlink_to(tmp_path / "private.txt")
    with program.against([text("ok")]) as api:
        ran = program.run("-p", "x")
    assert ran.code == 0
    assert "AGENTS.md" in ran.err
    assert "hunter2" not in str(api.requests[0])


def test_clear_forgets_which_files_were_read(program: Program) -> None:
    (program.directory / "a.txt").write_text("old")
    script = [tool("read_file", path="a.txt"), text("x"), tool("write_file", path="a.txt", content="new"), text("x")]
    with program.against(script):
        program.run(*BYPASS, stdin="one\n/clear\ntwo\n")
    assert (program.directory / "a.txt").read_text() == "old"


def test_a_budget_cannot_be_escaped_by_changing_the_model(program: Program) -> None:
    program.settings(prices={"test-model": {"input": 1, "output": 1}})
    with program.against([]):
        ran = program.run("--max-budget-usd", "1", stdin="/model mystery\n/model\n")
    assert "no price is known for mystery" in ran.out
    assert "Model: test-model" in ran.out


def test_rows_of_any_shape_in_a_transcript_do_no_harm(program: Program) -> None:
    with program.against([text("a"), text("b")]):
        program.run("-p", "one")
        with (program.directory / ".team/transcripts/lead.jsonl").open("a") as file:
            for row in (
                '{"kind":"user","content":[1,null,{"type":5},{"type":"tool_use"},{"type":"text"}],"files":[]}',
                '{"kind":"assistant","content":[{"type":"tool_use","id":7}],"usage":[]}',
                '{"kind":"user","content":"text"}',
                '{"kind":["x"],"content":{}}',
            ):
                file.write(row + "\n")
        assert program.run("-p", "-c", "two").out == "b\n"


def test_escape_sequences_in_a_projects_files_do_not_reach_the_terminal(program: Program) -> None:
    (program.directory / ".env").write_text("ANTHROPIC_BASE_URL=http://x/\x1b]0;owned\x07\nMODEL_ID=m\x1b[2J\n")
    ran = program.run("-p", "run echo hi")
    assert "\x1b" not in ran.err + program.run("doctor").out


def test_parallel_always_answers_keep_every_rule(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor
    from functools import partial

    from teamcli.config.settings import add_allow_rule, read_settings_file
    from teamcli.permissions.policy import Policy
    from teamcli.permissions.rules import parse_rules
    from teamcli.session.live_policy import LivePolicy

    path = tmp_path / "settings.local.json"
    live_policy = LivePolicy(Policy(), partial(add_allow_rule, path), parse_rules)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(live_policy.always_allow, [f"bash(echo {n})" for n in range(40)]))
    assert len(read_settings_file(path)["permissions"]["allow"]) == 40
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("stdin", ["0> written", "0> /dev/null"])
def test_standard_input_that_cannot_be_read_counts_as_empty(program: Program, stdin: str) -> None:
    assert "hi" in in_shell(program, f"{RUN_ECHO} {stdin}").stdout
    done = in_shell(program, f"-p {stdin}")
    assert done.returncode == 2
    assert "needs a task" in done.stderr
    assert in_shell(program, stdin).returncode == 0


def test_a_directory_and_a_prompt_that_are_not_valid_text_work(program: Program, tmp_path: Path) -> None:
    strange = Path(os.fsdecode(bytes(tmp_path / "caf") + b"\xe9"))
    strange.mkdir()
    program = Program(strange, program.home)  # a new Python, which reads its arguments itself
    with program.against([text("one"), text("two")]) as api:
        assert program.run("-p", os.fsdecode(b"say \xe9")).out == "one\n"
        assert program.run("-p", "-c", "again").out == "two\n"
    assert len(api.requests[1]["messages"]) == 3


@pytest.mark.parametrize("target", ["/dev/zero", "elsewhere.json"])
def test_settings_of_a_project_are_not_read_through_a_link(program: Program, target: str) -> None:
    (program.directory / "elsewhere.json").write_text("{}")
    (program.directory / ".team").mkdir()
    (program.directory / ".team/settings.json").symlink_to(program.directory / target)
    ran = program.run("-p", "run echo hi")
    assert ran.code == 2
    assert "settings.json is a symbolic link" in ran.err
    assert ran.err.count("\n") == 1


def test_settings_of_the_user_may_be_a_link_to_a_file_and_to_nothing_else(program: Program, tmp_path: Path) -> None:
    (tmp_path / "dotfile").write_text('{"permissions": {"mode": "bypassPermissions"}}')
    settings = program.home / ".teamcli/settings.json"
    settings.parent.mkdir()
    settings.symlink_to(tmp_path / "dotfile")
    assert program.run("-p", "run echo hi").code == 0
    settings.unlink()
    settings.symlink_to("/dev/zero")
    ran = program.run("-p", "run echo hi")
    assert ran.code == 2
    assert "not a regular file" in ran.err


def test_settings_of_any_size_do_no_harm(program: Program) -> None:
    (program.directory / ".team").mkdir()
    with (program.directory / ".team/settings.json").open("wb") as file:
        file.truncate(2**36)
    ran = program.run("-p", "run echo hi")
    assert ran.code == 2
    assert "larger than 5,000,000 bytes" in ran.err


def test_everything_after_two_dashes_is_the_prompt(program: Program) -> None:
    with program.against([text("ok")]) as api:
        assert program.run("-p", "--", "-x", "--model").out == "ok\n"
    assert "-x --model" in str(api.requests[0]["messages"])
    assert program.run("send", "lead", "--", "-x").code == 0


def test_trust_that_cannot_be_remembered_holds_for_this_run(program: Program, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with FakeAPI([text("hi")]) as api:
        program.variables["HOME"] = str(tmp_path / "file")
        (program.directory / ".env").write_text(
            f"ANTHROPIC_BASE_URL={api.url}\nANTHROPIC_API_KEY=test-key-0123456789\nMODEL_ID=m\n"
        )
        ran = program.run("-p", "x", "--trust")
    assert ran.out == "hi\n"
    assert "applies to this run only" in ran.err
    assert all(line.startswith("teamcli: ") for line in ran.err.splitlines())


def test_a_home_that_cannot_be_written_is_reported_in_one_sentence(program: Program, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    program.variables["HOME"] = str(tmp_path / "file")
    ran = program.run("-p", "run echo hi", *BYPASS)
    assert ran.code == 0
    assert "cannot be saved as yours" in ran.err
    assert all(line.startswith("teamcli: ") for line in ran.err.splitlines())


def test_a_time_outside_the_calendar_does_no_harm(program: Program) -> None:
    program.run("-p", "run echo hi")
    transcript = program.directory / ".team/transcripts/lead.jsonl"
    usual = transcript.read_text()
    for ts in ("1e400", "1" + "0" * 400, "-1e300", "NaN", "true"):
        transcript.write_text(f'{usual}{{"kind":"user","ts":{ts},"content":[]}}\n')
        assert program.run("sessions").code == 0, ts


def test_blocks_that_the_api_would_refuse_are_not_sent_again(program: Program) -> None:
    call = '{"type":"tool_use","id":"t1","name":"bash","input":{}}'
    result = '{"type":"tool_result","tool_use_id":"t1","content":"x"}'
    rows = [
        '{"kind":"assistant","content":[{"type":"thinking","thinking":"x"},{"type":"text","text":" "}]}',
        f'{{"kind":"assistant","content":[{call},{call}]}}',
        f'{{"kind":"user","content":[{result},{{"type":"text","text":""}}]}}',
        f'{{"kind":"assistant","content":[{call}]}}',
        f'{{"kind":"user","content":[{result}]}}',
    ]
    with program.against([text("a"), text("b")]) as api:
        program.run("-p", "one")
        with (program.directory / ".team/transcripts/lead.jsonl").open("a") as file:
            file.write("".join(f"{row}\n" for row in rows))
        assert program.run("-p", "-c", "two").out == "b\n"
    blocks = [block for message in api.requests[1]["messages"] for block in message["content"]]
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert len(ids) == len(set(ids)) == 2
    assert [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"] == ids
    assert all(block["text"].strip() for block in blocks if block["type"] == "text")
    assert "thinking" not in str(blocks)


def test_commands_see_no_secret_that_the_sdk_knows() -> None:
    spec = find_spec("anthropic")  # not imported: that takes seconds
    assert spec is not None
    assert spec.origin is not None
    sources = Path(spec.origin).parent.rglob("*.py")
    found = {name for path in sources for name in re.findall(r'"(ANTHROPIC_\w+)"', path.read_text(encoding="utf-8"))}
    secret = {name for name in found if re.search(r"KEY$|SECRET$|_TOKEN$|HEADERS$", name)}
    assert secret
    assert secret <= SECRET_VARIABLES


@pytest.mark.parametrize("value", ["²", "٠", "9" * 5000, "-1"])
def test_an_invalid_number_of_turns_is_reported(program: Program, value: str) -> None:
    ran = program.run("-p", "x", f"--max-turns={value}")
    assert ran.code == 2
    assert "must be a whole number from 1 up" in ran.err


def test_the_home_of_an_unknown_user_is_one_clear_line(program: Program) -> None:
    ran = program.run("-p", "x", "--add-dir", "~nosuchuser/x")
    assert ran.code == 2
    assert "--add-dir: ~nosuchuser" in ran.err


def test_an_endpoint_that_redirects_is_a_configuration_error(program: Program) -> None:
    with program.against([status(307, body="x", headers={"location": "http://x/"})]):
        assert program.run("-p", "x").code == 2
