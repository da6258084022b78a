"""Sub-agents from the outside: the real program and the strict API."""

from __future__ import annotations

import json
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_api import (
    answer,
    said_by_user,
    stall_after,
    stall_before_headers,
    status,
    text,
    tool,
    tool_results,
)
from tests.support.program import Program, Ran
from tests.support.running import Running
from tests.support.screen import Screen
from tests.support.team_script import After, TeamScript
from tests.support.waiting import wait_until

BYPASS = ("--permission-mode", "bypassPermissions")
UNTIL_GO = "until [ -e go ]; do sleep 0.02; done"


def agent(prompt: str = "look around", **more: Any) -> Any:
    return tool("agent", prompt=prompt, **more)


def fresh(prompt: str = "look around", **more: Any) -> Any:
    return agent(prompt, subagent_type="general", **more)


def aside(prompt: str = "look around", **more: Any) -> Any:
    return fresh(prompt, background=True, **more)


def run(program: Program, script: TeamScript, *arguments: str, prompt: str = "go", code: int = 0) -> Ran:
    with program.against(script):
        ran = program.run("-p", prompt, *(arguments or BYPASS))
    assert ran.code == code, ran.err
    return ran


def results(request: dict[str, Any]) -> list[str]:
    return [str(block["content"]) for block in tool_results(request)]


def told(script: TeamScript, name: str) -> str:
    """All that an agent was told, up to its last request."""
    messages = script.requests[name][-1]["messages"]
    return "\n".join(str(message["content"]) for message in messages if message["role"] == "user")


def inbox(program: Program, name: str = "lead") -> list[dict[str, Any]]:
    return program.lines(f".team/inbox/{name}.jsonl")


def config(program: Program) -> str:
    return (program.directory / ".team/config.json").read_text()


def sidechain(program: Program, id: str) -> list[dict[str, Any]]:
    return program.lines(f".team/transcripts/subagents/{id}.jsonl")


class TestForeground:
    def test_its_parent_reads_only_its_final_text(self, program: Program) -> None:
        script = TeamScript(
            lead=[fresh("find it"), text("end")], **{"sa-1": [tool("bash", command="echo inner"), text("found: 42")]}
        )
        ran = run(program, script, *BYPASS, "--output-format", "json")
        first, second = script.requests["sa-1"]
        assert said_by_user(first) == "find it"
        assert len(first["messages"]) == 1
        assert "agent" not in {each["name"] for each in first["tools"]}
        assert "inner" in results(second)[0]
        assert results(script.requests["lead"][1]) == ["found: 42"]
        assert not any("inner" in json.dumps(row) for row in program.transcript())
        kinds = [row["kind"] for row in sidechain(program, "sa-1")]
        assert kinds == ["subagent", "user", "assistant", "user", "assistant", "end"]
        assert ran.json["agents"]["sa-1"]["turns"] == 2
        assert ran.json["num_turns"] == 2
        both = [ran.json["agents"][name]["usage"]["input_tokens"] for name in ("lead", "sa-1")]
        assert ran.json["usage"]["input_tokens"] == sum(both)

    def test_a_fork_knows_the_conversation_and_keeps_the_cached_prefix(self, program: Program) -> None:
        (program.directory / "a.txt").write_text("alpha\n")
        script = TeamScript(
            lead=[tool("read_file", path="a.txt"), agent("go on"), text("end")],
            **{"sa-1": [tool("write_file", path="a.txt", content="beta\n"), text("forked")]},
        )
        run(program, script)
        before, fork, after = script.requests["lead"][1], script.requests["sa-1"][0], script.requests["lead"][2]
        assert (fork["model"], fork["system"], fork["tools"]) == (before["model"], before["system"], before["tools"])
        assert fork["messages"][:-1] == after["messages"][:-1]
        assert said_by_user(fork).endswith("go on")
        assert results(after) == ["forked"]
        assert (program.directory / "a.txt").read_text() == "beta\n"  # it knows what its parent has read
        assert [row["kind"] for row in sidechain(program, "sa-1")][:2] == ["subagent", "user"]

    def test_what_it_reads_and_changes_is_not_known_to_its_parent(self, program: Program) -> None:
        (program.directory / "a.txt").write_text("alpha\n")
        write = tool("write_file", path="a.txt", content="beta\n")
        works = [tool("read_file", path="a.txt"), text("read")]
        script = TeamScript(lead=[fresh(), write, agent(), text("end")], **{"sa-1": works, "sa-2": [write, text("no")]})
        run(program, script)
        for request in (script.requests["lead"][2], script.requests["sa-2"][1]):
            assert "you have not read" in results(request)[0]

    def test_a_busy_endpoint_is_tried_again(self, program: Program) -> None:
        busy = [status(529, retry_after=0.01), status(429, retry_after=0.01), text("found")]
        script = TeamScript(lead=[fresh(), text("end")], **{"sa-1": busy})
        ran = run(program, script)
        assert results(script.requests["lead"][1]) == ["found"]
        assert ran.err.count("Retrying in") == 2

    def test_the_budget_holds_for_it_too(self, program: Program) -> None:
        program.settings(prices={"test-model": {"input": 1.0, "output": 1.0}})
        dear = answer(text("so far"), tool("bash", command="true"), usage={"input_tokens": 900_000})
        script = TeamScript(lead=[fresh(), text("never")], **{"sa-1": [dear]})
        ran = run(program, script, *BYPASS, "--max-budget-usd", "0.5", "--output-format", "json", code=3)
        assert ran.json["subtype"] == "error_max_budget"
        assert len(script.requests["lead"]) == 1
        assert (
            sidechain(program, "sa-1")[-1]["error"] == "stopped: The session's budget of $0.50 is used up ($0.90 used)"
        )

    def test_a_fork_is_refused_what_is_not_for_sub_agents(self, program: Program) -> None:
        calls = answer(agent("deeper"), tool("spawn_teammate", name="bob", role="x", prompt="y"), tool("read_inbox"))
        script = TeamScript(lead=[agent(), text("end")], **{"sa-1": [calls, text("could not")]})
        run(program, script)
        assert [("not for a sub-agent" in result) for result in results(script.requests["sa-1"][1])] == [True] * 3
        assert "sa-2" not in script.requests
        assert "bob" not in script.requests

    def test_several_in_one_answer_run_together_and_results_keep_their_order(self, program: Program) -> None:
        meet = [
            tool("bash", command=f"touch {here}; until [ -e {there} ]; do sleep 0.02; done")
            for here, there in (("a", "b"), ("b", "a"))
        ]

        def work(request: dict[str, Any], number: int) -> Any:
            part = said_by_user(request["messages"] and {"messages": request["messages"][:1]})
            return meet[int(part)] if number == 0 else text(f"part {part}")

        script = TeamScript(lead=[answer(fresh("0"), fresh("1")), text("end")], **{"sa-1": work, "sa-2": work})
        run(program, script)
        assert results(script.requests["lead"][1]) == ["part 0", "part 1"]

    def test_failing_is_an_error_result_that_says_why(self, program: Program) -> None:
        program.settings(subagents={"turns": 1})
        script = TeamScript(
            lead=[fresh(), text("end")], **{"sa-1": [answer(text("so far"), tool("bash", command="true"))]}
        )
        ran = run(program, script)
        (result,) = tool_results(script.requests["lead"][1])
        assert result["is_error"]
        assert "limit of model calls" in result["content"]
        assert "so far" in result["content"]
        assert "sa-1" in ran.err

    def test_the_timeout_ends_it(self, program: Program) -> None:
        program.settings(subagents={"timeout_seconds": 0.2})
        script = TeamScript(lead=[fresh(), text("end")], **{"sa-1": [answer(text("partly"), stall_after(3))]})
        run(program, script)
        (result,) = tool_results(script.requests["lead"][1])
        assert result["is_error"]
        assert "timed out after 0.2 s" in result["content"]
        assert sidechain(program, "sa-1")[-1]["state"] == "failed"

    def test_what_needs_a_permission_names_the_sub_agent(self, program: Program) -> None:
        script = TeamScript(lead=[fresh(), text("end")], **{"sa-1": [tool("bash", command="touch x"), text("refused")]})
        ran = run(program, script, "--output-format", "json", code=4)
        assert [(each["agent"], each["call"]) for each in ran.json["permission_denials"]] == [("sa-1", "$ touch x")]

    def test_interrupting_the_lead_ends_it(self, program: Program) -> None:
        script = TeamScript(lead=[fresh(), text("again")], **{"sa-1": [answer(text("half of it"), stall_after(4))]})
        with program.against(script), Screen(program, *BYPASS) as screen:
            screen.wait_for("team >>")
            screen.type("go\r")
            wait_until(lambda: script.requests["sa-1"])
            screen.wait_for("● sa-1")
            screen.type("\x03")
            screen.wait_for("Interrupted")
            screen.type("go on\r")
            screen.wait_for("again")
            screen.wait_for("○ lead")
            screen.wait_for("bypassPermissions")  # below the line of the agents
            (agents,) = [line for line in screen.text.splitlines() if line.startswith("○ lead")]
            assert "sa-1" not in agents
            screen.type("q\r")
            assert screen.wait_for_end() == 0
        (result,) = tool_results({"messages": script.requests["lead"][1]["messages"][2:3]})
        assert "Interrupted" in result["content"]
        assert sidechain(program, "sa-1")[-1]["state"] == "cancelled"

    def test_interrupted_in_a_command_it_leaves_a_whole_conversation_and_no_process(self, program: Program) -> None:
        waits = "echo $$ > pid; until [ -e go ]; do sleep 0.02; done; touch late"
        calls = answer(tool("bash", "toolu_a", command=waits), tool("read_file", "toolu_b", path="pid"))
        program.settings(sandbox="off")  # inside, processes have other numbers
        script = TeamScript(lead=[fresh(), text("again")], **{"sa-1": [calls]})
        with program.against(script), Screen(program, *BYPASS) as screen:
            screen.wait_for("team >>")
            screen.type("go\r")
            wait_until(lambda: (program.directory / "pid").exists() and (program.directory / "pid").read_text())
            screen.type("\x03")
            screen.wait_for("Interrupted")
            screen.type("go on\r")
            screen.wait_for("again")
            screen.type("q\r")
            assert screen.wait_for_end() == 0
        rows = [row for row in sidechain(program, "sa-1") if row["kind"] in ("user", "assistant")]
        answered = [block["tool_use_id"] for block in rows[-1]["content"] if block["type"] == "tool_result"]
        assert rows[-1]["kind"] == "user"
        assert answered == ["toolu_a", "toolu_b"]
        pid = (program.directory / "pid").read_text().strip()
        assert not Path("/proc", pid).exists()
        assert not (program.directory / "late").exists()


class TestRoles:
    HEAD = "name: researcher\ndescription: finds out\ntools: Read, Grep, Bash\ndisallowedTools: Bash\n"

    def start(self, program: Program, more: str = "") -> None:
        run(program, TeamScript(lead=[text("hello")]))
        role = program.directory / ".claude/agents/researcher.md"
        role.parent.mkdir(parents=True)
        role.write_text(f"---\n{self.HEAD}{more}---\nTrust no one.\n")

    def test_a_role_brings_its_prompt_tools_and_model(self, program: Program) -> None:
        self.start(program, "model: other-model\n")
        script = TeamScript(
            lead=[
                answer(agent(subagent_type="Researcher"), agent(subagent_type="researcher", model="third")),
                text("end"),
            ],
            **{"sa-1": [text("one")], "sa-2": [text("two")]},
        )
        run(program, script, *BYPASS, "--trust")
        assert "- researcher: finds out" in script.requests["lead"][0]["system"][0]["text"]
        requests = [script.requests["sa-1"][0], script.requests["sa-2"][0]]
        assert {request["model"] for request in requests} == {"other-model", "third"}
        for request in requests:
            assert request["system"][0]["text"].count("Trust no one.") == 1
            assert [each["name"] for each in request["tools"]] == ["read_file", "grep"]

    def test_an_unknown_role_is_an_error_that_lists_the_roles(self, program: Program) -> None:
        self.start(program)
        script = TeamScript(lead=[agent(subagent_type="ghost"), text("end")])
        run(program, script, *BYPASS, "--trust")
        assert "ghost" in results(script.requests["lead"][1])[0]
        assert "general, researcher" in results(script.requests["lead"][1])[0]
        assert not (program.directory / ".team/transcripts/subagents").exists()


class TestBackground:
    def test_a_background_sub_agent_returns_an_id_at_once_and_reports_once(self, program: Program) -> None:
        script = TeamScript(
            lead=[aside(description="look"), tool("bash", command="touch go"), text("waiting"), text("end")],
            **{"sa-1": [tool("bash", command=UNTIL_GO), After(3, text("seen"))]},
        )
        ran = run(program, script)
        assert ran.out == "end\n"
        assert results(script.requests["lead"][1])[0].startswith("Started sa-1")
        (message,) = inbox(program)
        assert (message["type"], message["from"], message["state"]) == ("result", "sa-1", "completed")
        assert told(script, "lead").count('from="sa-1"') == 1
        assert ">seen<" in told(script, "lead")
        assert json.loads((program.directory / ".team/subagents.json").read_text())["running"] == []

    def test_a_background_sub_agent_outlives_the_turn_and_p_waits_for_it(self, program: Program) -> None:
        def wake(request: dict[str, Any]) -> Any:
            (program.directory / "go").touch()
            return text("all for now")

        script = TeamScript(
            lead=[aside(), wake, text("the end")], **{"sa-1": [tool("bash", command=UNTIL_GO), text("late")]}
        )
        assert run(program, script).out == "the end\n"
        assert 'type="result"' in said_by_user(script.requests["lead"][2])

    def test_the_end_of_a_teammates_sub_agent_is_reported_to_it(self, program: Program) -> None:
        spawn = tool("spawn_teammate", name="alice", role="coder", prompt="do it")
        script = TeamScript(
            lead=[spawn, text("hired"), text("one"), text("two")],
            alice=[aside(), tool("agent_status", wait_seconds=30), text("told")],
            **{"sa-1": [text("aside")]},
        )
        run(program, script)
        assert ">aside<" in told(script, "alice")
        assert ">aside<" not in told(script, "lead")
        assert "sa-1 (look around): completed" in told(script, "alice")

    def test_status_describes_and_stop_ends_sub_agents(self, program: Program) -> None:
        def both_run(request: dict[str, Any]) -> Any:
            wait_until(lambda: len(script.requests["sa-1"]) == len(script.requests["sa-2"]) == 2)
            return tool("agent_status")

        works = [answer(text("half of it"), tool("bash", command="true")), stall_before_headers()]

        script = TeamScript(
            lead=[
                tool("agent_status"),
                answer(aside("one", description="first"), aside("two")),
                both_run,
                tool("agent_stop", ids=["sa-1", "sa-9"]),
                tool("agent_stop", ids=["sa-1", "sa-2"]),
                tool("agent_status", id="sa-1"),
                tool("agent_status", id="ghost"),
                text("end"),
            ],
            **{"sa-1": works, "sa-2": works},
        )
        run(program, script)
        lead = script.requests["lead"]
        assert results(lead[1]) == ["(none)"]
        assert re.search(r"sa-1 \(first\): running for \d+ s", results(lead[3])[0])
        assert results(lead[4]) == ["sa-1: cancelled\nsa-9: unknown"]
        assert results(lead[5]) == ["sa-1: had ended before (cancelled)\nsa-2: cancelled"]
        assert "cancelled" in results(lead[6])[0]
        assert "half" in results(lead[6])[0]
        assert "sa-1, sa-2" in results(lead[7])[0]
        assert [(each["from"], each["type"], each["state"]) for each in inbox(program)] == [
            ("sa-1", "error", "cancelled"),
            ("sa-2", "error", "cancelled"),
        ]
        assert told(script, "lead").count('type="error"') == 2

    def test_more_than_may_run_at_once_wait_and_none_is_lost(self, program: Program) -> None:
        """Each says how many it saw beside itself."""
        program.settings(subagents={"max_concurrent": 3}, durable=False)
        count = 8
        look = "mkdir at_$$; ls | grep -c ^at_; sleep 0.05; rmdir at_$$"

        def work(request: dict[str, Any], number: int) -> Any:
            return tool("bash", command=look) if number == 0 else text(results(request)[0])

        script = TeamScript(
            lead=[answer(*(fresh() for _ in range(count))), text("end")],
            **{f"sa-{number}": work for number in range(1, count + 1)},
        )
        run(program, script)
        seen = [int(result) for result in results(script.requests["lead"][1])]
        assert len(seen) == count
        assert max(seen) <= 3

    def test_status_shows_what_it_has_said_and_how_others_failed(self, program: Program) -> None:
        program.settings(subagents={"turns": 1})

        def lead(request: dict[str, Any], number: int) -> Any:
            if number == 0:
                return answer(aside(), aside())
            result = "".join(results(request))
            if "[in progress]" in result:
                return tool("agent_stop", ids=["sa-2"])
            if "failed after" in result or "no output yet" in result:
                return tool("agent_status", id="sa-2")
            return text("end") if "cancelled" in result or not result else tool("agent_status")

        fails, hangs = answer(tool("bash", command="true")), answer(text("half of all"), stall_after(6))
        script = TeamScript(lead=lead, **{"sa-1": [fails], "sa-2": [hangs]})
        run(program, script)
        told = "\n".join(result for request in script.requests["lead"] for result in results(request))
        assert re.search(r"sa-1 \(look around\): failed after \d+ s, 1 tool call; stopped at its limit", told)
        assert re.search(r"sa-2 \(look around\): running for \d+ s; writing\n\[in progress\] half of all", told)

    def test_fifty_go_through_five_slots_and_each_end_is_reported_once(self, program: Program) -> None:
        program.settings(durable=False)
        count = 50
        gate, lock, busy = threading.Barrier(5), threading.Lock(), [0, 0]

        def work(request: dict[str, Any], number: int) -> Any:
            with lock:
                busy[0] += 1
                busy[1] = max(busy)
            gate.wait(60)  # five are here at the same time, or this fails
            with lock:
                busy[0] -= 1
            return text(f"did {said_by_user(request)}")

        def lead(request: dict[str, Any], number: int) -> Any:
            return answer(*(aside(f"job {n}") for n in range(count))) if number == 0 else text("end")

        script = TeamScript(lead=lead, **{f"sa-{number}": work for number in range(1, count + 1)})
        run(program, script)
        assert busy == [0, 5]
        mail = inbox(program)
        assert sorted(message["content"] for message in mail) == sorted(f"did job {n}" for n in range(count))
        assert len({message["from"] for message in mail}) == count
        assert {each["state"] for each in mail} == {"completed"}
        whole = told(script, "lead")
        assert [whole.count(f">did job {n}<") for n in range(count)] == [1] * count
        assert json.loads((program.directory / ".team/subagents.json").read_text())["running"] == []

    def test_a_waiting_one_can_be_stopped_and_makes_no_call(self, program: Program) -> None:
        program.settings(subagents={"max_concurrent": 1})

        def first_runs(request: dict[str, Any]) -> Any:
            wait_until(lambda: script.requests["sa-1"])
            return answer(tool("agent_status", id="sa-2"))

        script = TeamScript(
            lead=[
                aside(),
                aside(),
                first_runs,
                tool("agent_stop", ids=["sa-2"]),
                tool("agent_stop", ids=["sa-1"]),
                text("end"),
            ],
            **{"sa-1": [answer(text("x"), stall_after(2))]},
        )
        run(program, script)
        assert "pending" in results(script.requests["lead"][3])[0]
        assert results(script.requests["lead"][4]) == ["sa-2: cancelled"]
        assert "sa-2" not in script.requests

    @pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
    def test_a_sub_agent_that_teamcli_left_behind_is_reported_once_after_a_restart(
        self, program: Program, how: signal.Signals
    ) -> None:
        script = TeamScript(
            lead=[aside(description="dig"), answer(text("x"), stall_after(2)), text("second"), text("third")],
            **{"sa-1": [answer(text("x"), stall_after(2))], "sa-2": [text("new")]},
        )
        with program.against(script):
            process = program.start("-p", "go", *BYPASS)
            wait_until(lambda: script.requests["sa-1"] and len(script.requests["lead"]) == 2)
            process.send_signal(how)
            process.communicate()
            assert program.run("-p", "and now?", *BYPASS).out == "second\n"
            assert program.run("-p", "again?", "--continue", *BYPASS).out == "third\n"
        words = said_by_user(script.requests["lead"][2])
        assert 'from="sa-1" type="error"' in words
        assert 'state="cancelled"' in words
        assert "teamcli was stopped" in words
        assert told(script, "lead").count('from="sa-1"') == 1
        assert len(inbox(program)) == 1

    def test_a_teammates_lost_sub_agent_is_reported_after_a_restart_too(self, program: Program) -> None:
        spawn = tool("spawn_teammate", name="alice", role="coder", prompt="do it")
        script = TeamScript(
            lead=lambda request, number: spawn if number == 0 else text("fine"),
            alice=[aside(), text("started"), text("I see")],
            **{"sa-1": [answer(text("x"), stall_after(2))]},
        )
        with program.against(script):
            process = program.start("-p", "go", *BYPASS)
            wait_until(lambda: script.requests["sa-1"] and '"status": "idle"' in config(program))
            process.kill()
            process.communicate()
            program.run("-p", "and now?", *BYPASS)
        assert 'from="sa-1" type="error"' in said_by_user(script.requests["alice"][2])

    def test_ids_are_not_used_again_after_a_restart(self, program: Program) -> None:
        script = TeamScript(
            lead=[fresh(), text("one"), fresh(), text("two")], **{"sa-1": [text("a")], "sa-2": [text("b")]}
        )
        run(program, script)
        run(program, script)
        assert sidechain(program, "sa-1")[-1]["result"] == "a"
        assert sidechain(program, "sa-2")[-1]["result"] == "b"


def test_sub_agents_work_without_a_team(program: Program) -> None:
    script = TeamScript(lead=[aside(), text("waiting"), text("end")], **{"sa-1": [text("seen")]})
    run(program, script, *BYPASS, "--no-team")
    assert ">seen<" in told(script, "lead")


def test_no_teammate_can_have_the_name_of_a_sub_agent(program: Program) -> None:
    spawn = tool("spawn_teammate", name="sa-1", role="coder", prompt="x")
    script = TeamScript(lead=[spawn, text("end")])
    run(program, script)
    assert tool_results(script.requests["lead"][1])[0]["is_error"]


def test_a_teammates_sub_agent_can_do_no_more_than_the_teammate(program: Program) -> None:
    spawn = [
        tool("spawn_teammate", name=name, role="coder", prompt="do it", **more)
        for name, more in (("alice", {"tools": ["read_file", "agent"]}), ("bob", {"plan": True}))
    ]
    script = TeamScript(
        lead=[answer(*spawn), text("hired"), text("end"), text("end")],
        alice=[fresh(description="alice's"), text("done")],
        bob=[fresh("write", description="bob's"), text("done")],
        **{name: self_willed for name in ("sa-1", "sa-2")},
    )
    run(program, script)
    tools = sorted(len(script.requests[name][0]["tools"]) for name in ("sa-1", "sa-2"))
    assert tools == [1, 8]
    assert not (program.directory / "made").exists()


def self_willed(request: dict[str, Any], number: int) -> Any:
    """Tries to write, whatever its tools are."""
    return tool("write_file", path="made", content="x") if number == 0 else text("refused")


def test_max_turns_and_budget_hold_for_sub_agents_too(program: Program) -> None:
    script = TeamScript(lead=[fresh(), text("end")], **{"sa-1": lambda request, n: tool("bash", command="true")})
    run(program, script, *BYPASS, "--max-turns", "2", code=3)
    assert len(script.requests["sa-1"]) == 2


class TestAtThePrompt:
    """Where a background sub-agent runs."""

    def repl(self, program: Program, *lines: str) -> tuple[str, TeamScript]:
        """Type these lines, the last of which ends sa-1, and leave."""
        works = [tool("bash", command="touch on; until [ -e go ]; do sleep 0.02; done"), text("seen"), text("heard")]
        script = TeamScript(lead=[aside(description="dig deep"), text("waiting"), text("end")], **{"sa-1": works})
        with program.against(script), Running(program, *BYPASS) as repl:
            repl.type("start")
            repl.wait_for("waiting")
            wait_until(lambda: (program.directory / "on").exists())
            for line in lines:
                repl.type(line)
            repl.type("/wait")
            repl.wait_for("Everyone is idle")
            assert repl.leave() == 0
            return repl.out, script

    def test_the_agents_command_shows_what_each_is_doing(self, program: Program) -> None:
        out, _ = self.repl(program, "/agents", "/agents sa-1", "/agents ghost", "!touch go")
        (row,) = [line for line in out.splitlines() if line.startswith("sa-1 ")][:1]
        assert row.split()[:5] == ["sa-1", "lead", "dig", "deep", "running"]
        assert "bash" in row
        assert "sa-1 (dig deep): running" in out
        assert "→ bash" in out
        assert "no sub-agent 'ghost'" in out
        assert "\n1×bash\n" in out

    def test_its_work_is_visible_while_it_runs(self, program: Program) -> None:
        script = TeamScript(
            lead=[fresh(), text("end")],
            **{"sa-1": [tool("bash", command="echo inner"), answer(text("x"), stall_after(2))]},
        )
        with program.against(script) as api, Running(program, *BYPASS) as repl:
            repl.type("go")
            repl.wait_for("[sa-1] bash: inner")
            api.wait_for_stall()
            assert "end" not in repl.out
            api.release()
            repl.wait_for("end")
            assert repl.leave() == 0

    def test_stop_ends_it_without_waking_the_lead(self, program: Program) -> None:
        out, script = self.repl(program, "/stop sa-1")
        assert "Stopped sa-1" in out
        assert len(script.requests["lead"]) == 2
        assert inbox(program)[0]["state"] == "cancelled"

    @pytest.mark.parametrize("how", ["/send sa-1", "@sa-1"])
    def test_a_message_from_the_user_is_read_at_its_next_step(self, program: Program, how: str) -> None:
        _, script = self.repl(program, f"{how} look left", "!touch go")
        assert 'from="user"' in said_by_user(script.requests["sa-1"][1])
        assert ">look left<" in told(script, "sa-1")
