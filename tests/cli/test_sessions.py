"""Sessions: what `--continue` and `--resume` bring back, after a clean exit and after a crash."""

from __future__ import annotations

import os
import random
import re
import signal
from pathlib import Path

import pytest

from tests.support.fake_api import said_by_user, text, tool, turns
from tests.support.program import Program
from tests.support.waiting import wait_until

BYPASS = ("--permission-mode", "bypassPermissions")
KILLS = 50 if os.environ.get("TEAMCLI_SOAK") else 5


def test_continue_resumes_the_last_session(program: Program) -> None:
    with program.against([text("noted"), text("it is blue")]) as api:
        program.run("-p", "my colour is blue")
        assert program.run("-p", "--continue", "what is my colour?").out == "it is blue\n"
    assert [message["role"] for message in api.requests[1]["messages"]] == ["user", "assistant", "user"]
    api.assert_prefix_stable()


def test_continue_resumes_the_last_session_although_the_clock_was_set_back(program: Program) -> None:
    clock = program.use_test_clock()
    with program.against([text("noted"), text("noted too"), text("it is red")]) as api:
        program.run("-p", "my colour is blue")
        clock.write_text("-86400")
        program.run("-p", "my colour is red")
        program.run("-p", "--continue", "what is my colour?")
    assert "my colour is red" in str(api.requests[2]["messages"][0])
    listed = program.run("sessions").out.splitlines()
    assert ["red" in line for line in listed] == [True, False]


def test_a_plain_start_begins_a_new_session(program: Program) -> None:
    with program.against([text("a"), text("b")]) as api:
        program.run("-p", "one")
        program.run("-p", "two")
    assert len(api.requests[1]["messages"]) == 1


def test_continue_without_a_session_says_so_and_begins_a_new_one(program: Program) -> None:
    with program.against([text("hello")]):
        ran = program.run("-p", "-c", "hi")
    assert (ran.code, ran.out) == (0, "hello\n")
    assert "no session to continue" in ran.err


def test_resume_takes_the_named_session(program: Program) -> None:
    with program.against([text("a"), text("b"), text("c"), text("d")]) as api:
        ids = [
            program.run("-p", prompt, "--output-format", "json").json["session_id"] for prompt in ("first", "second")
        ]
        assert program.run("-p", "--resume", ids[0], "go on").out == "c\n"
        assert said_by_user(api.requests[2]) == "go on"
        assert api.requests[2]["messages"][0] == api.requests[0]["messages"][0]
        program.run("-p", "--continue", "the last one written to")
    assert api.requests[3]["messages"][:3] == api.requests[2]["messages"]
    listed = program.run("sessions").out.splitlines()
    assert [line.split()[0] for line in listed] == ids
    assert program.run("-r").out.splitlines() == listed
    assert "first" in listed[0]
    assert "second" in listed[1]


def test_sessions_are_in_one_private_file_and_each_begins_with_its_line(program: Program) -> None:
    with program.against([text("a"), text("b")]):
        program.run("-p", "one")
        program.run("-p", "two")
    assert [row["kind"] for row in program.transcript()] == ["session", "user", "assistant"] * 2
    team = program.directory / ".team"
    assert team.stat().st_mode & 0o777 == 0o700
    assert (team / "transcripts/lead.jsonl").stat().st_mode & 0o777 == 0o600
    events = [entry["event"] for entry in program.lines(".team/events.jsonl")]
    assert "answer" in events
    assert "turn_ended" in events


def test_a_torn_last_line_is_repaired(program: Program) -> None:
    with program.against([text("a"), text("b")]) as api:
        program.run("-p", "one")
        with (program.directory / ".team/transcripts/lead.jsonl").open("a") as file:
            file.write('{"kind":"user","content":[{"type":"te')
        ran = program.run("-p", "-c", "two")
    assert (ran.code, ran.out) == (0, "b\n")
    assert "unfinished" in ran.err
    assert len(api.requests[1]["messages"]) == 3


def test_a_session_with_garbage_in_the_middle_is_resumed(program: Program) -> None:
    with program.against([tool("bash", command="true"), text("a"), text("b")]) as api:
        program.run("-p", "one", *BYPASS)
        path = program.directory / ".team/transcripts/lead.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join([*lines[:3], "garbage\n", *lines[4:]]))  # the tool result is lost
        assert program.run("-p", "-c", "two").out == "b\n"
    assert "lost" in str(api.requests[2]["messages"][2]["content"])


def test_a_session_with_an_invalid_time_is_resumed(program: Program) -> None:
    with program.against([text("a"), text("b")]):
        program.run("-p", "one")
        path = program.directory / ".team/transcripts/lead.jsonl"
        path.write_text(re.sub(r'"ts": ?[0-9.e+]+', f'"ts":{"9" * 400}', path.read_text()))
        assert program.run("-p", "-c", "two").out == "b\n"


def test_files_read_before_a_restart_still_count_as_read(program: Program) -> None:
    (program.directory / "a.txt").write_text("old\n")
    script = [tool("read_file", path="a.txt"), text("a"), tool("write_file", path="a.txt", content="new\n"), text("b")]
    with program.against(script):
        program.run("-p", "one", *BYPASS)
        program.run("-p", "-c", "two", *BYPASS)
    assert (program.directory / "a.txt").read_text() == "new\n"


def test_a_transcript_of_a_newer_version_is_refused(program: Program) -> None:
    with program.against([text("a")]):
        program.run("-p", "one")
        with (program.directory / ".team/transcripts/lead.jsonl").open("a") as file:
            file.write('{"v":99,"kind":"session","id":"future"}\n')
        ran = program.run("-p", "-c", "two")
    assert ran.code == 2
    assert "newer teamcli" in ran.err


def test_a_second_lead_works_alone_next_to_the_first(program: Program) -> None:
    with program.against(
        [tool("bash", command="touch on; until [ -e off ]; do sleep 0.05; done"), text("second"), text("first")]
    ):
        first = program.start("-p", "one", *BYPASS)
        wait_until(lambda: (program.directory / "on").exists())
        ran = program.run("-p", "two")
        assert (ran.code, ran.out) == (0, "second\n")
        assert str(first.pid) in ran.err
        (program.directory / "off").touch()
        assert first.communicate(timeout=60)[0] == b"first\n"
    assert sum(row["kind"] == "session" for row in program.transcript()) == 1


def test_no_team_leaves_nothing_behind(program: Program, tmp_path: Path) -> None:
    (tmp_path / "temp").mkdir()
    with program.against([tool("bash", command="true"), text("done")]):
        program.variables["TMPDIR"] = str(tmp_path / "temp")
        assert program.run("-p", "x", "--no-team", *BYPASS).out == "done\n"
    assert list(program.directory.iterdir()) == []
    assert list((tmp_path / "temp").iterdir()) == []


@pytest.mark.soak
@pytest.mark.parametrize("moment", range(KILLS))
def test_a_session_continues_after_sigkill_at_any_moment(program: Program, moment: int) -> None:
    """Killed at a random moment; `--continue` finishes and the strict API accepts every request."""
    chance = random.Random(moment)
    with program.against(turns(20, "echo step {n} >> steps.txt")) as api:
        process = program.start("-p", "work", *BYPASS)
        target = chance.randrange(1, 18)
        api.wait_for_requests(target)
        delay = chance.random() * 0.01  # anywhere within a step, which takes a few milliseconds
        signal.sigtimedwait([], delay)
        process.kill()
        process.communicate(timeout=60)
        ran = program.run("-p", "--continue", "go on", *BYPASS)
        assert ran.code == 0, ran.err


def test_one_model_call_is_listed_as_one_call(program: Program) -> None:
    with program.against([text("hi")]):
        program.run("-p", "hello")
    assert "  1 call  hello" in program.run("sessions").out
