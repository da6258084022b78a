"""Budgets from the outside: real program, strict API. An agent at its limit stops, and everyone is notified."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.fake_api import answer, delay, said_by_user, stall_after, text, tool, tool_results
from tests.support.program import Program, Ran
from tests.support.running import Running
from tests.support.team_script import TeamScript
from tests.support.waiting import wait_until

BYPASS = ("--permission-mode", "bypassPermissions")
PRICES = {"test-model": {"input": 0, "output": 10}}
DOLLAR = {"input_tokens": 0, "output_tokens": 100_000}
"""What one call uses that costs a dollar."""


AMOUNTS = {
    "2.00": "lead: $2.00 in this run; $0.00 used, $2.00 left.",
    "$2": "lead: $2.00 in this run",
    "200k tokens": "lead: 200,000 tokens in this run",
    "200k": "lead: 200,000 tokens in this run",
    "1.5M tokens": "lead: 1,500,000 tokens",
    "50 calls": "lead: 50 model calls in this run",
    "50 turns": "lead: 50 model calls in this run",
    "10 min": "lead: 10 min in this run; 0 s used",
    "90s": "lead: 90 s in this run",
    "+1": "lead: $1.00 in this run",
    "off": "lead: no limit.",
    "off tokens": "lead: no limit on tokens.",
    "much": "'much' is not a valid amount: say for example 2.00 (dollars), 200k tokens, 50 calls, 10 min",
    "$3 calls": "is not a valid amount",
    "0": "is out of range",
    "-1": "is not a valid amount",
}
"""What is answered to each, for a lead that has used nothing."""


def spawn(name: str, **more: Any) -> Any:
    return tool("spawn_teammate", name=name, role="coder", prompt="do your part", **more)


def work(request: dict[str, Any], number: int) -> Any:
    """Endless, a dollar a call; slow enough for several to be under way at once."""
    return answer(tool("bash", command="true"), delay(0.1), usage=DOLLAR)


def run(program: Program, script: TeamScript, *arguments: str, code: int = 0) -> Ran:
    with program.against(script):
        ran = program.run("-p", "go", *BYPASS, *arguments)
    assert ran.code == code, ran.err
    return ran


def type_lines(program: Program, script: TeamScript, *lines: str) -> str:
    with program.against(script):
        return program.run(*BYPASS, stdin="\n".join(lines)).out


def member(program: Program, name: str = "alice") -> dict[str, Any]:
    config = json.loads((program.directory / ".team/config.json").read_text())
    found: dict[str, Any] = next(each for each in config["members"] if each["name"] == name)
    return found


class TestATeammate:
    def test_is_paused_at_its_limit_and_lead_and_user_are_notified(self, program: Program) -> None:
        program.settings(prices=PRICES, budgets={"teammate": {"usd": 3}})
        told: list[str] = []

        def lead(request: dict[str, Any], number: int) -> Any:
            if 'from="alice" type="error"' in said_by_user(request):
                told.append(said_by_user(request))
                return tool("send_message", to="alice", content="go on!")
            return text("well") if number else spawn("alice")

        script = TeamScript(lead=lead, alice=work)
        ran = run(program, script)
        assert len(script.requests["alice"]) == 3
        assert "alice: Its budget of $3.00 is used up ($3.00 used)" in ran.err
        assert len(told) == 1
        assert "is paused: its budget of $3.00 is used up" in told[0]
        alice = member(program)
        assert (alice["status"], alice["paused"]) == ("idle", True)
        assert "$3.00 is used up" in alice["error"]
        assert "paused: Its budget of $3.00" in program.run("team").out
        unread = program.run("inbox", "alice", "--unread", "--json").json_lines
        assert [mail["content"] for mail in unread] == ["go on!"]

    def test_continues_with_its_mail_when_its_budget_is_raised(self, program: Program) -> None:
        program.settings(prices=PRICES, budgets={"agents": {"alice": {"calls": 1}}})
        script = TeamScript(
            lead=[spawn("alice"), text("hired"), text("heard"), text("heard")],
            alice=[tool("bash", command="true"), text("done")],
        )
        lines = ("go", "/wait", "/resume alice", "@alice and more", "/budget alice 2 calls", "/wait", "/budget alice")
        out = type_lines(program, script, *lines)
        assert "'alice' stays paused: its budget of 1 model call is used up" in out
        assert "Sent message to alice, where it waits" in out
        assert "alice: 2 model calls in total; 1 model call used, 1 model call left. alice resumes." in out
        assert "and more" in said_by_user(script.requests["alice"][1])
        assert "2 calls  used up  2 calls" in out

    def test_is_not_given_more_by_a_restart_or_by_being_hired_again(self, program: Program) -> None:
        program.settings(prices=PRICES)
        first = TeamScript(lead=[spawn("alice"), text("hired"), text("heard")], alice=[answer(text("a"), usage=DOLLAR)])
        out = type_lines(program, first, "go", "/wait", "/budget alice $1", "/shutdown alice")
        assert "alice: $1.00 in total; $1.00 used, that is used up already." in out
        assert member(program)["budget"] == {"usd": 1.0}
        assert member(program)["used"]["usd"] == 1.0
        second = TeamScript(lead=[spawn("alice"), text("hired"), text("told")])
        ran = run(program, second)
        assert "alice: Its budget of $1.00 is used up" in ran.err
        assert member(program)["paused"]
        third = TeamScript(lead=[text("what now?")])
        assert "alice is paused: Its budget of $1.00 is used up" in run(program, third, "--continue").err

    def test_is_stopped_in_the_middle_of_a_command_when_its_time_is_up(self, program: Program) -> None:
        program.settings(budgets={"teammate": {"seconds": 3}})
        script = TeamScript(
            lead=[spawn("alice"), text("hired"), text("end")], alice=[tool("bash", command="sleep 600; echo late")]
        )
        ran = run(program, script)
        assert "alice: Its budget of 3 s is used up" in ran.err
        assert member(program)["paused"]
        (result,) = program.lines(".team/transcripts/alice.jsonl")[-1]["content"]
        assert result["type"] == "tool_result"
        assert "late" not in str(result["content"])

    def test_cannot_have_a_model_whose_price_is_unknown(self, program: Program) -> None:
        program.settings(prices=PRICES, budgets={"team": {"usd": 5}})
        script = TeamScript(lead=[spawn("alice", model="mystery"), text("end")])
        run(program, script)
        (result,) = tool_results(script.requests["lead"][1])
        assert result["is_error"]
        assert "no price is known for mystery" in result["content"]


class TestManyAtOnce:
    @pytest.mark.parametrize("whose", ["team", "session"])
    def test_exceed_a_shared_limit_by_no_more_than_one_call(self, program: Program, whose: str) -> None:
        program.settings(prices=PRICES, max_tokens=100_000, budgets={whose: {"usd": 7}})
        names = [f"mate{n}" for n in range(5)]
        script = TeamScript(
            lead=lambda request, n: answer(*map(spawn, names)) if n == 0 else text("heard"),
            **dict.fromkeys(names, work),
        )
        with program.against(script):
            program.run("-p", "go", *BYPASS)
        calls = sum(len(script.requests[name]) for name in names)
        assert 7 <= calls <= 8
        assert all(member(program, name)["paused"] for name in names)

    def test_sub_agents_count_for_the_teammate_that_started_them(self, program: Program) -> None:
        program.settings(prices=PRICES, max_tokens=100_000, budgets={"agents": {"alice": {"usd": 4}}})
        jobs = [tool("agent", prompt="dig", subagent_type="general") for _ in range(3)]
        subs = dict.fromkeys(("sa-1", "sa-2", "sa-3"), work)
        script = TeamScript(
            lead=[spawn("alice"), text("hired"), text("end")], alice=[answer(*jobs, usage=DOLLAR)], **subs
        )
        ran = run(program, script)
        assert 3 <= sum(len(script.requests[name]) for name in subs) <= 4
        assert "The budget of alice of $4.00 is used up" in ran.err
        assert "alice: Its budget of $4.00" in ran.err
        assert member(program)["used"]["usd"] >= 4
        assert member(program)["paused"]


class TestTheLead:
    @pytest.mark.parametrize(
        ("budgets", "subtype"),
        [
            ({"lead": {"calls": 2}}, "error_max_turns"),
            ({"session": {"tokens": 150_000}}, "error_max_budget"),
            ({"session": {"usd": 1.5}}, "error_max_budget"),
        ],
    )
    def test_at_a_limit_is_exit_3(self, program: Program, budgets: Any, subtype: str) -> None:
        program.settings(prices=PRICES, budgets=budgets)
        ran = run(program, TeamScript(lead=[work({}, 0), work({}, 0)]), "--output-format", "json", code=3)
        assert (ran.json["subtype"], ran.json["num_turns"]) == (subtype, 2)
        assert "used up" in ran.json["result"]

    def test_is_stopped_in_the_middle_of_an_answer_when_time_is_up(self, program: Program) -> None:
        program.settings(budgets={"session": {"seconds": 0.5}})
        script = TeamScript(lead=[answer(text("so far"), stall_after(3))])
        ran = run(program, script, "--output-format", "json", code=3)
        assert ran.json["subtype"] == "error_max_budget"
        assert "your time was used up" in str(program.transcript()[-1]["content"])

    def test_says_so_again_without_a_model_call_until_it_is_raised(self, program: Program) -> None:
        script = TeamScript(lead=[text("one"), text("two")])
        lines = (
            "/budget lead 1 call",
            "first",
            "second",
            "/team",
            "/budget lead +1 call",
            "third",
            "/budget session off",
        )
        out = type_lines(program, script, *lines)
        assert out.count("lead: Its budget of 1 model call is used up.") == 1
        assert "paused: Its budget of 1 model call is used up" in out
        assert "lead: 2 model calls in this run" in out
        assert "The lead resumes with your next line." in out
        assert "second" in said_by_user(script.requests["lead"][1])
        assert "third" in said_by_user(script.requests["lead"][1])
        assert "session: no limit." in out


class TestRunaways:
    def test_endless_wake_ups_stop_at_the_limit(self, program: Program) -> None:
        """A lead and a teammate that answer each other for ever, with new tasks and with messages."""
        program.settings(limits={"wakes": 5})
        wakes = iter([spawn("alice"), spawn("alice")])

        def lead(request: dict[str, Any], number: int) -> Any:
            if 'from="alice" type="error"' in said_by_user(request):
                return spawn("alice")
            if 'from="alice" type="result"' in said_by_user(request):
                return next(wakes, tool("send_message", to="alice", content="and?"))
            return text("well") if number else spawn("alice")

        script = TeamScript(lead=lead, alice=lambda request, number: text("nothing"))
        ran = run(program, script)
        assert "alice: Other agents have woken it 5 times in a row" in ran.err
        assert len(script.requests["alice"]) == 6
        assert member(program)["paused"]
        assert "'alice' cannot work: other agents have woken it 5 times" in str(script.requests["lead"][-1])
        later = TeamScript(lead=lambda request, number: text("well"), alice=[text("nothing")])
        typed = type_lines(program, later, "/budget lead 50 calls", "/resume alice", "/wait")
        assert "alice resumes" not in typed
        assert "'alice' resumes" in typed  # a budget is not what it waits for

    def test_endless_hiring_stops_at_the_limit(self, program: Program) -> None:
        program.settings(limits={"teammates": 3})
        hire = [spawn(f"mate{n}") for n in range(4)]
        script = TeamScript(
            lead=[answer(*hire), text("hired"), text("end")], **{f"mate{n}": [text("done")] for n in range(3)}
        )
        run(program, script)
        (refused,) = [each for each in tool_results(script.requests["lead"][1]) if each.get("is_error")]
        assert "there are 3 teammates, and `limits.teammates` allows no more" in refused["content"]

    def test_endless_sub_agents_stop_at_the_limit(self, program: Program) -> None:
        program.settings(limits={"subagents": 2})
        dig = tool("agent", prompt="dig", subagent_type="general", background=True)
        until_told = tool("bash", command="until [ -e go ]; do sleep 0.02; done")
        script = TeamScript(
            lead=[answer(dig, dig, dig), tool("bash", command="touch go"), text("a"), text("b"), text("c")],
            **{name: [until_told, text("done")] for name in ("sa-1", "sa-2")},
        )
        with program.against(script):
            program.run("-p", "go", *BYPASS)
        (refused,) = [each for each in tool_results(script.requests["lead"][1]) if each.get("is_error")]
        assert "`limits.subagents` allows no more" in refused["content"]

    def test_endless_calls_of_a_sub_agent_stop_at_its_budget(self, program: Program) -> None:
        program.settings(prices=PRICES, budgets={"subagent": {"usd": 2}})
        script = TeamScript(lead=[tool("agent", prompt="dig", subagent_type="general"), text("end")], **{"sa-1": work})
        run(program, script)
        (result,) = tool_results(script.requests["lead"][1])
        assert len(script.requests["sa-1"]) == 2
        assert "stopped: Its budget of $2.00 is used up" in result["content"]


class TestTheCommand:
    def test_shows_all_limits_and_what_is_used(self, program: Program) -> None:
        program.settings(prices=PRICES, budgets={"session": {"usd": 5, "tokens": 1_000_000}})
        out = type_lines(program, TeamScript(lead=[answer(text("hi"), usage=DOLLAR)]), "hello", "/budget", "/cost")
        rows = [line.split() for line in out.splitlines()]
        assert ["session", "$5.00", "$4.00", "$1.00"] in rows
        assert ["session", "1,000,000", "tokens", "900,000", "tokens", "100,000", "tokens"] in rows
        assert "in total, across restarts" in out
        assert "The built-in prices are of 20" in out

    def test_cost_says_what_is_left(self, program: Program) -> None:
        program.settings(prices=PRICES, budgets={"lead": {"usd": 5}})
        out = type_lines(program, TeamScript(lead=[answer(text("hi"), usage=DOLLAR)]), "hello", "/cost")
        assert "LEFT" in out
        assert "$4.00 of $5.00" in out

    def test_takes_amounts_as_people_write_them(self, program: Program) -> None:
        lines = [f"/budget lead {words}" for words in AMOUNTS]
        answers = program.run("--offline", stdin="\n".join(lines)).out.splitlines()
        told = dict(zip(AMOUNTS, answers, strict=True))
        assert {words: told[words] for words, said in AMOUNTS.items() if said not in told[words]} == {}

    def test_a_teammate_called_session_does_not_hide_the_session(self, program: Program) -> None:
        lines = "spawn session as x: run true\n/wait\n/budget session 9 calls\n"
        assert "session: 9 model calls in this run" in program.run("--offline", *BYPASS, stdin=lines).out

    def test_lists_the_names_of_all_agents(self, program: Program) -> None:
        out = type_lines(program, TeamScript(), "/budget nobody 2", "/help budget")
        assert "there is no budget for 'nobody'; there are: session, team, lead" in out
        assert "/budget alice 10 min" in out

    def test_refuses_dollars_if_no_price_is_known(self, program: Program) -> None:
        out = type_lines(program, TeamScript(), "/budget lead 2", "/budget session 2", "/budget team 2")
        assert out.count("no price is known for test-model, so dollars cannot be counted for") == 2
        assert "(/budget lead 200k tokens)" in out
        assert "team: $2.00 in this run" in out

    def test_moves_the_deadline_of_running_work(self, program: Program) -> None:
        script = TeamScript(
            lead=[spawn("alice"), text("hired"), text("heard")], alice=[tool("bash", command="touch on; sleep 600")]
        )
        with program.against(script), Running(program, *BYPASS) as repl:
            repl.type("go")
            wait_until(lambda: (program.directory / "on").exists())
            repl.type("/budget alice 0.1 s")
            repl.wait_for("alice: Its budget of 0.1 s is used up.")
            assert repl.leave() == 0
        assert member(program)["paused"]
        assert member(program)["budget"] == {"seconds": 0.1}


@pytest.mark.parametrize("name", ["session", "team", "lead", "teammate", "subagent"])
def test_dollars_in_the_settings_need_a_price(program: Program, name: str) -> None:
    program.settings(budgets={name: {"usd": 1}})
    with program.against([]):
        ran = program.run("-p", "x")
    assert ran.code == 2
    assert f"budgets.{name}.usd: no price is known for test-model" in ran.err
