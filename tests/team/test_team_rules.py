"""Rules of a team that users rely on: when the lead wakes, what roles give, what limits and permissions hold back."""

from __future__ import annotations

import json
import threading
from typing import Any

from tests.support.fake_api import answer, said_by_user, stall_after, text, tool, tool_results
from tests.support.program import Program
from tests.support.running import Running
from tests.support.team_script import After, TeamScript
from tests.support.waiting import wait_until
from tests.team.test_team import BYPASS, run, spawn, told

ROLE = """\
---
name: coder
description: writes code
tools: read_file, write_file, edit_file
disallowedTools: [edit_file]
model: small-model
---
You like short functions.
"""


def write_role(program: Program) -> None:
    path = program.directory / ".team/agents/coder.md"
    path.parent.mkdir(parents=True)
    path.write_text(ROLE)


def hire_alice(**more: Any) -> TeamScript:
    return TeamScript(lead=[spawn("alice", **more), text("hired"), text("end")], alice=[text("done")])


class TestRoles:
    def test_give_a_teammate_its_prompt_model_and_tools(self, program: Program) -> None:
        write_role(program)
        script = hire_alice()
        run(program, script, "--trust")
        (request,) = script.requests["alice"]
        names = {each["name"] for each in request["tools"]}
        assert request["model"] == "small-model"
        assert "You like short functions." in request["system"][0]["text"]
        assert {"read_file", "write_file", "send_message", "submit_plan"} <= names
        assert not names & {"edit_file", "bash"}

    def test_yield_to_what_the_spawn_says(self, program: Program) -> None:
        write_role(program)
        script = hire_alice(model="large-model", tools=["bash"])
        run(program, script, "--trust")
        (request,) = script.requests["alice"]
        names = {each["name"] for each in request["tools"]}
        assert request["model"] == "large-model"
        assert "bash" in names
        assert "read_file" not in names

    def test_of_a_cloned_directory_wait_for_trust(self, program: Program) -> None:
        write_role(program)
        script = hire_alice()
        ran = run(program, script)
        assert "not trusted" in ran.err
        assert ".team/agents" in ran.err
        assert script.requests["alice"][0]["model"] == "test-model"
        script = hire_alice()
        run(program, script, "--trust")
        assert script.requests["alice"][0]["model"] == "small-model"


class TestLeadWakes:
    def test_not_after_an_interruption_until_the_users_next_line(self, program: Program) -> None:
        script = TeamScript(
            lead=[
                spawn("alice"),
                text("hired"),
                answer(text("never ending"), stall_after(2)),
                text("now I see it"),
            ],
            alice=[
                After(2, tool("send_message", to="lead", content="a question")),
                tool("bash", command="until [ -e go ]; do sleep 0.02; done"),
                text("my result"),
            ],
        )
        with program.against(script) as api, Running(program, *BYPASS) as repl:
            repl.type("go")
            api.wait_for_stall()
            repl.type("/stop lead")
            repl.wait_for("Stopped the lead")
            (program.directory / "go").touch()
            repl.wait_for("my result")
            repl.type("/wait")
            repl.wait_for("Everyone is idle")
            assert len(script.requests["lead"]) == 3
            repl.type("and?")
            repl.wait_for("now I see it")
        assert ">my result<" in said_by_user(script.requests["lead"][3])

    def test_no_more_than_25_times_in_a_row_for_nothing(self, program: Program) -> None:
        def alice(request: dict[str, Any], n: int) -> Any:
            wait_until(lambda: len(script.requests["lead"]) >= min(n, 25) + 2)
            return tool("send_message", to="lead", content=f"ping {n}") if n < 30 else text("done")

        script = TeamScript(lead=lambda request, n: spawn("alice") if n == 0 else text("hm"), alice=alice)
        ran = run(program, script)
        assert len(script.requests["lead"]) == 27
        assert "sleeps until your next line" in ran.err


class TestLimits:
    def test_a_restart_does_not_reset_the_count_of_a_piece_of_work(self, program: Program) -> None:
        program.settings(limits={"teammate_turns": 4})
        work = tool("bash", command="touch a-$RANDOM; [ $(ls a-* | wc -l) -lt 3 ] || { touch on; sleep 60; }")
        script = TeamScript(lead=[spawn("alice"), text("hired")], alice=lambda request, n: work)
        with program.against(script):
            process = program.start("-p", "go", *BYPASS)
            wait_until(lambda: (program.directory / "on").exists())
            process.kill()
            process.communicate(timeout=60)
        assert len(script.requests["alice"]) == 3
        script = TeamScript(lead=[text("waiting"), text("end")], alice=lambda request, n: tool("bash", command="true"))
        ran = run(program, script, "--continue")
        assert len(script.requests["alice"]) == 1
        assert "limit of 4" in ran.err

    def test_calls_at_the_same_time_are_bounded_for_the_whole_team(self, program: Program) -> None:
        program.settings(max_concurrent_calls=1)
        under_way: list[int] = []
        overlap = threading.Event()
        is_first = threading.Lock()

        def mate(request: dict[str, Any], n: int) -> Any:
            under_way.append(n)
            if len(under_way) > 1:
                overlap.set()
            if is_first.acquire(blocking=False):
                overlap.wait(0.5)  # time for another one to come
            under_way.pop()
            return text("done")

        names = [f"mate{n}" for n in range(4)]
        script = TeamScript(lead=[answer(*map(spawn, names)), *[text("seen")] * 6], **dict.fromkeys(names, mate))
        run(program, script)
        assert not overlap.is_set()
        assert all(len(script.requests[name]) == 1 for name in names)


def test_what_nobody_allows_a_teammate_is_refused_by_name_and_is_exit_4(program: Program) -> None:
    program.settings(sandbox="off")  # else it says so first if there is none
    script = TeamScript(
        lead=[spawn("alice"), text("hired"), text("end")],
        alice=[tool("bash", command="touch made"), text("I was not allowed to")],
    )
    with program.against(script):
        ran = program.run("-p", "go", "--output-format", "json")
    (denial,) = ran.json["permission_denials"]
    assert (ran.code, denial["agent"], denial["rule"]) == (4, "alice", "bash(touch made)")
    assert ran.err.startswith("teamcli: alice: refused bash")
    assert "bash(touch made)" in ran.err
    assert tool_results(script.requests["alice"][1])[0]["is_error"]
    assert not (program.directory / "made").exists()
    assert "not allowed" in told(script, "lead")


def test_a_clock_that_stands_still_makes_no_two_messages_the_same(program: Program) -> None:
    program.use_test_clock().write_text("=1700000000")
    write = tool("send_message", to="lead", content="first"), tool("send_message", to="lead", content="second")
    of_alice = [*write, text("one"), text("two")]
    script = TeamScript(
        lead=lambda request, n: spawn("alice") if said_by_user(request) == "go" else text("ok"),
        alice=lambda request, n: of_alice[n] if n < len(of_alice) else text("ok"),
    )
    with program.against(script):
        ran = program.run(*BYPASS, stdin="go\n/wait\n/shutdown alice\ngo\n/wait\n@alice x\n@alice y\n/wait\nend\n")
    assert ran.code == 0
    heard = told(script, "lead")
    assert [word for word in ("first", "second", "one", "two") if f">{word}<" not in heard] == []
    assert len(program.lines(".team/inbox/alice.jsonl")) == 2


def test_members_beyond_the_limit_are_named_and_not_started(program: Program) -> None:
    program.settings(limits={"teammates": 2})
    team = program.directory / ".team"
    team.mkdir()
    members = [{"name": name, "role": "coder", "status": "working"} for name in ("a", "b", "c", "d")]
    (team / "config.json").write_text(json.dumps({"members": members}))
    ran = program.run("--offline", "--trust", stdin="list\n/send c hello\n/shutdown c\n/forget c\n/team\n")
    assert "2 teammates are not started, c first: `limits.teammates` allows 2." in ran.out
    assert "there is no active teammate 'c'; you can write to: lead, a, b" in ran.out
    assert "Forgot 'c'" in ran.out
    assert not (team / "transcripts/d.jsonl").exists()


def test_a_file_with_thousands_of_members_starts_no_more_than_the_limit(program: Program) -> None:
    team = program.directory / ".team"
    team.mkdir()
    members = [{"name": f"m{number}", "role": "coder", "status": "working"} for number in range(10_000)]
    (team / "config.json").write_text(json.dumps({"members": members}))
    ran = program.run("--offline", "--trust", "-p", "list")
    assert ran.code == 0
    assert "9,750 teammates are not started" in ran.err
    assert "... and 9,700 more" in ran.out
    assert len(list((team / "transcripts").glob("m*.jsonl"))) == 250
