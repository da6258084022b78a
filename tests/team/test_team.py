"""A team from the outside: real program, real threads and inboxes, the strict API."""

from __future__ import annotations

import json
from typing import Any

from tests.support.fake_api import answer, said_by_user, status, text, tool, tool_results
from tests.support.program import Program, Ran
from tests.support.team_script import After, TeamScript
from tests.support.waiting import wait_until

BYPASS = ("--permission-mode", "bypassPermissions")


def spawn(name: str, prompt: str = "do your part", **more: Any) -> Any:
    return tool("spawn_teammate", name=name, role="coder", prompt=prompt, **more)


def run(program: Program, script: TeamScript, *arguments: str, prompt: str = "go", code: int = 0) -> Ran:
    with program.against(script):
        ran = program.run("-p", prompt, *BYPASS, *arguments)
    assert ran.code == code, ran.err
    return ran


def told(script: TeamScript, name: str) -> str:
    """All that an agent was told, up to its last request."""
    messages = script.requests[name][-1]["messages"]
    return "\n".join(str(message["content"]) for message in messages if message["role"] == "user")


def members(program: Program) -> dict[str, dict[str, Any]]:
    config = json.loads((program.directory / ".team/config.json").read_text())
    return {member["name"]: member for member in config["members"]}


def inbox(program: Program, name: str) -> list[dict[str, Any]]:
    return program.lines(f".team/inbox/{name}.jsonl")


def test_a_teammates_result_reaches_the_lead_by_itself(program: Program) -> None:
    script = TeamScript(lead=[spawn("alice"), text("hired"), text("alice is done")], alice=[text("42")])
    ran = run(program, script, "--output-format", "json")
    assert set(ran.json["agents"]) == {"lead", "alice"}
    assert tool_results(script.requests["lead"][1])[0]["content"] == "Spawned 'alice' (role: coder)"
    assert said_by_user(script.requests["alice"][0]) == "do your part"
    assert 'from="alice" type="result"' in told(script, "lead")
    assert ">42<" in told(script, "lead")
    member = members(program)["alice"]
    assert (member["role"], member["status"], member["turns"]) == ("coder", "idle", 1)
    (message,) = inbox(program, "lead")
    assert message["type"] == "result"
    assert message["from"] == "alice"
    assert message["to"] == "lead"
    assert message["sig"]
    assert message["id"]
    assert message["timestamp"] > 0


def test_the_lead_is_not_blocked_and_results_wait_for_each_other(program: Program) -> None:
    script = TeamScript(
        lead=[answer(spawn("alice"), spawn("bob")), text("hired both"), text("both are done")],
        alice=[tool("bash", command="until [ -e go ]; do sleep 0.02; done"), text("A")],
        bob=[tool("bash", command="touch go"), text("B")],
    )
    run(program, script)
    assert ">A<" in told(script, "lead")
    assert ">B<" in told(script, "lead")
    assert len(script.requests["lead"]) <= 3


def test_teammates_talk_to_each_other_and_an_idle_one_wakes_with_its_memory(program: Program) -> None:
    ask = tool("send_message", to="bob", content="which colour?")
    script = TeamScript(
        lead=[answer(spawn("bob", "remember: blue"), spawn("alice")), text("hired"), text("end")],
        bob=[text("noted"), text("blue")],
        alice=[lambda request: _when_idle(program, "bob", ask), text("asked bob")],
    )
    run(program, script)
    second = script.requests["bob"][1]["messages"]
    assert [message["role"] for message in second] == ["user", "assistant", "user"]
    assert 'from="alice"' in said_by_user(script.requests["bob"][1])


def _when_idle(program: Program, name: str, answer: Any) -> Any:
    wait_until(lambda: members(program).get(name, {}).get("status") == "idle")
    return answer


def test_unknown_recipients_are_named_and_nothing_is_written(program: Program) -> None:
    calls = answer(
        tool("send_message", to="ghost", content="x"),
        tool("send_message", to="../../etc", content="x"),
        tool("send_message", to=["alice", "ghost"], content="x"),
        tool("send_message", to="user", content="x"),
    )
    script = TeamScript(lead=[spawn("alice"), calls, text("end"), text("end")], alice=[text("1"), text("2"), text("3")])
    run(program, script)
    told = [str(block["content"]) for block in tool_results(script.requests["lead"][2])]
    assert "ghost" in told[0]
    assert "alice" in told[0]
    assert told[2] == "delivered to [alice]; unknown: [ghost]"
    assert "text" in told[3]
    assert sorted(path.name for path in (program.directory / ".team/inbox").glob("*.jsonl")) == [
        "alice.jsonl",
        "lead.jsonl",
    ]


def test_names_that_are_refused_make_no_file(program: Program) -> None:
    names = ["lead", "user", "team", "all", "../x", "1abc", "a b", "x" * 33, ""]
    script = TeamScript(lead=[answer(*map(spawn, names)), text("end")])
    run(program, script)
    results = tool_results(script.requests["lead"][1])
    assert [name for name, result in zip(names, results, strict=True) if not result.get("is_error")] == []
    assert [path.name for path in (program.directory / ".team/transcripts").iterdir()] == ["lead.jsonl"]


def test_names_are_unique_without_regard_to_case(program: Program) -> None:
    script = TeamScript(lead=[spawn("alice"), spawn("Alice"), text("end"), text("end")], alice=[text("x")])
    run(program, script)
    assert "alice" in str(tool_results(script.requests["lead"][2])[0]["content"])
    assert list(members(program)) == ["alice"]


def test_respawn_rules(program: Program) -> None:
    work = tool("bash", command="until [ -e go ]; do sleep 0.02; done")
    script = TeamScript(
        lead=[
            spawn("alice", "first"),
            spawn("alice", "while it works"),
            tool("bash", command="touch go"),
            text("waiting"),
            spawn("alice", "second"),
            text("waiting"),
            tool("shutdown_request", teammate="alice"),
            spawn("alice", "third"),
            text("waiting"),
            text("end"),
        ],
        alice=[work, After(4, text("one")), After(6, text("two")), After(9, text("three"))],
    )
    run(program, script)
    assert tool_results(script.requests["lead"][2])[0]["content"] == "Error: 'alice' is currently working"
    assert len(script.requests["alice"][2]["messages"]) == 5  # the second task sees the first
    assert said_by_user(script.requests["alice"][3]) == "third"
    assert len(script.requests["alice"][3]["messages"]) == 1  # a new incarnation begins empty
    assert members(program)["alice"]["incarnation"] == 2
    assert len(list((program.directory / ".team/transcripts/archive").iterdir())) == 1


class TestNextTask:
    """A spawn on an idle teammate."""

    def test_brings_role_model_and_tools_at_once(self, program: Program) -> None:
        run(program, TeamScript(lead=[text("hello")]))
        role = program.directory / ".team/agents/reviewer.md"
        role.parent.mkdir()
        role.write_text("---\nname: reviewer\n---\nYou trust nobody.\n")
        again = tool("spawn_teammate", name="alice", role="reviewer", prompt="2", model="other", tools=["read_file"])
        script = TeamScript(
            lead=[spawn("alice"), text("waiting"), again, text("waiting"), text("end")],
            alice=[After(2, text("one")), tool("bash", command="touch made"), After(4, text("two"))],
        )
        run(program, script, "--trust")
        first, second, third = script.requests["alice"]
        assert (first["model"], second["model"]) == ("test-model", "other")
        assert "You trust nobody." in second["system"][0]["text"]
        assert len(second["messages"]) == 3
        assert {"bash", "read_file"} & {each["name"] for each in second["tools"]} == {"read_file"}
        assert "Unknown tool" in str(tool_results(third)[0]["content"])
        member = members(program)["alice"]
        assert (member["role"], member["model"], member["tools"]) == ("reviewer", "other", ["read_file"])

    def test_leaves_the_cached_prefix_alone_where_nothing_changes(self, program: Program) -> None:
        script = TeamScript(
            lead=[spawn("alice"), text("waiting"), spawn("alice", "2"), text("waiting"), text("end")],
            alice=[After(2, text("one")), After(4, text("two"))],
        )
        run(program, script)
        first, second = script.requests["alice"]
        assert all(first[part] == second[part] for part in ("model", "system", "tools"))

    def test_can_need_a_plan_and_an_old_plan_does_not_count_for_it(self, program: Program) -> None:
        def approve_the_old(request: dict[str, Any]) -> Any:
            request_id = str(request["messages"]).split('request_id="')[1].split('"')[0]
            return tool("plan_review", request_id=request_id, approve=True)

        write = tool("write_file", path="a.txt", content="x")
        script = TeamScript(
            lead=[
                spawn("alice", plan=True),
                text("waiting"),
                lambda request: _when_idle(program, "alice", spawn("alice", "2", plan=True)),
                approve_the_old,
                text("waiting"),
                text("end"),
            ],
            alice=[After(2, tool("submit_plan", plan="a plan")), text("submitted"), write, After(5, text("may not"))],
        )
        run(program, script)
        assert "is void" in str(tool_results(script.requests["lead"][4])[0]["content"])
        assert "submit_plan" in str(tool_results(script.requests["alice"][3])[0]["content"])
        assert not (program.directory / "a.txt").exists()

    def test_with_a_tool_that_nobody_has_changes_nothing(self, program: Program) -> None:
        script = TeamScript(
            lead=[spawn("alice"), text("waiting"), spawn("alice", "2", tools=["fly"]), text("end")],
            alice=[After(2, text("one"))],
        )
        run(program, script)
        assert "no tool 'fly'" in str(tool_results(script.requests["lead"][3])[0]["content"])
        assert (members(program)["alice"]["status"], members(program)["alice"]["tools"]) == ("idle", None)


def test_an_error_of_a_teammate_is_reported_and_the_name_stays_usable(program: Program) -> None:
    program.settings(retries=0)
    script = TeamScript(
        lead=[spawn("alice"), text("hired"), spawn("alice", "again"), text("waiting"), text("end")],
        alice=[After(2, status(529)), After(4, text("fine now"))],
    )
    ran = run(program, script)
    assert 'type="error"' in told(script, "lead")
    assert ran.err.startswith("teamcli: alice: ")
    assert members(program)["alice"]["status"] == "idle"
    assert not members(program)["alice"].get("error")


def test_broadcast_counts_honestly(program: Program) -> None:
    script = TeamScript(
        lead=[
            answer(spawn("alice"), spawn("bob")),
            text("waiting"),
            tool("shutdown_request", teammate="bob"),
            tool("broadcast", content="hello all"),
            text("waiting"),
            text("end"),
        ],
        alice=[After(2, text("a")), After(5, text("heard"))],
        bob=[After(2, text("b"))],
    )
    run(program, script)
    assert tool_results(script.requests["lead"][4])[0]["content"] == "Broadcast to 1 teammates"
    assert 'type="broadcast"' in said_by_user(script.requests["alice"][1])


def test_mail_comes_after_the_tool_results_of_the_same_message(program: Program) -> None:
    script = TeamScript(
        lead=[
            spawn("alice", "wait"),
            tool("bash", command="until [ -e working ]; do sleep 0.02; done"),
            answer(tool("send_message", to="alice", content="news </message> <b>")),
            tool("bash", command="touch go"),
            text("waiting"),
            text("end"),
        ],
        alice=[tool("bash", command="touch working; until [ -e go ]; do sleep 0.02; done"), text("end")],
    )
    run(program, script)
    message = script.requests["alice"][1]["messages"][-1]
    assert [block["type"] for block in message["content"]] == ["tool_result"]
    result, mail = message["content"][0]["content"]
    assert 'from="lead"' not in result["text"]
    assert mail["text"].startswith('\n\n<user_turn>\n<message from="lead"')
    assert mail["text"].count("</message>") == 1


def test_read_inbox_and_wait_return_mail_in_their_own_result(program: Program) -> None:
    script = TeamScript(
        lead=lambda request, n: (
            [spawn("alice"), tool("wait_for_message", timeout_seconds=30)][n] if n < 2 else text("end")
        ),
        alice=[After(2, tool("send_message", to="lead", content="hello lead")), text("done")],
    )
    ran = run(program, script, "--output-format", "json")
    assert "hello lead" in str(tool_results(script.requests["lead"][2])[0]["content"])
    rows = program.transcript()
    delivered = [message_id for row in rows for message_id in row.get("marks", {}).get("mail", ())]
    assert len(delivered) == len(set(delivered)) == len(inbox(program, "lead"))
    assert ran.code == 0


def test_when_only_waiters_are_left_their_waits_end(program: Program) -> None:
    script = TeamScript(
        lead=[spawn("alice"), text("hired"), text("end")],
        alice=[tool("wait_for_message", timeout_seconds=600), text("nobody wrote")],
    )
    run(program, script)
    assert "nobody is left" in str(tool_results(script.requests["alice"][1])[0]["content"])


def test_teammates_have_their_own_tools(program: Program) -> None:
    script = TeamScript(lead=[spawn("alice", tools=["read_file"]), text("x"), text("x")], alice=[text("x")])
    run(program, script)
    lead = {each["name"] for each in script.requests["lead"][0]["tools"]}
    alice = {each["name"] for each in script.requests["alice"][0]["tools"]}
    assert {"spawn_teammate", "broadcast", "plan_review"} <= lead
    assert "submit_plan" not in lead
    assert "read_file" in alice
    assert "send_message" in alice
    assert not alice & {"bash", "spawn_teammate", "broadcast"}


def test_a_teammate_stops_at_its_limit_and_lead_and_user_learn_it(program: Program) -> None:
    program.settings(limits={"teammate_turns": 3})
    script = TeamScript(
        lead=[spawn("alice"), text("hired"), text("end")], alice=lambda request, n: tool("bash", command="true")
    )
    ran = run(program, script)
    assert len(script.requests["alice"]) == 3
    assert "limit of 3" in ran.err
    assert 'type="error"' in told(script, "lead")


def test_max_turns_reached_by_a_teammate_is_exit_3(program: Program) -> None:
    script = TeamScript(
        lead=[spawn("alice"), text("hired"), text("end")], alice=lambda request, n: tool("bash", command="true")
    )
    assert run(program, script, "--max-turns", "4", code=3).code == 3


class TestPlans:
    def test_writing_waits_for_an_approved_plan(self, program: Program) -> None:
        def review(approve: bool, feedback: str = "") -> Any:
            def answer_plan(request: dict[str, Any]) -> Any:
                request_id = said_by_user(request).split('request_id="')[1].split('"')[0]
                return tool("plan_review", request_id=request_id, approve=approve, feedback=feedback)

            return answer_plan

        write = tool("write_file", path="a.txt", content="x")
        script = TeamScript(
            lead=[
                spawn("alice", plan=True),
                text("waiting"),
                review(False, "smaller"),
                text("waiting"),
                review(True),
                text("waiting"),
                text("end"),
            ],
            alice=[
                write,
                After(2, tool("submit_plan", plan="big plan")),
                text("submitted"),
                write,
                After(4, tool("submit_plan", plan="small plan")),
                text("submitted"),
                write,
                text("done"),
            ],
        )
        run(program, script)
        requests = script.requests["alice"]
        assert "submit_plan" in str(tool_results(requests[1])[0]["content"])
        assert "smaller" in said_by_user(requests[3])
        assert tool_results(requests[4])[0]["is_error"]
        assert (program.directory / "a.txt").read_text() == "x"

    def test_an_open_plan_does_not_hold_the_end_and_is_named(self, program: Program) -> None:
        script = TeamScript(
            lead=[spawn("alice", plan=True), text("waiting"), *[text("later")] * 2],  # to the plan, and to her result
            alice=[tool("submit_plan", plan="the plan"), text("submitted")],
        )
        ran = run(program, script, "--output-format", "json")
        assert "alice" in ran.json["waiting"][0]
        assert "alice" in ran.err
        assert members(program)["alice"]["waiting_for"] == "plan review"


class TestShutdown:
    def test_a_working_one_answers_for_itself(self, program: Program) -> None:
        def approve(request: dict[str, Any]) -> Any:
            request_id = str(request["messages"][-1]["content"]).split('request_id="')[1].split('"')[0]
            return tool("shutdown_response", request_id=request_id, approve=True)

        script = TeamScript(
            lead=[
                spawn("alice"),
                tool("bash", command="until [ -e working ]; do sleep 0.02; done"),
                tool("shutdown_request", teammate="alice", reason="enough"),
                tool("bash", command="touch go"),
                text("waiting"),
                text("end"),
            ],
            alice=[tool("bash", command="touch working; until [ -e go ]; do sleep 0.02; done"), approve],
        )
        run(program, script)
        assert members(program)["alice"]["status"] == "shutdown"
        assert 'type="shutdown_response"' in told(script, "lead")

    def test_a_teammate_cannot_order_another_to_shut_down(self, program: Program) -> None:
        script = TeamScript(
            lead=[answer(spawn("bob"), spawn("alice")), text("hired"), text("end")],
            bob=[text("idle")],
            alice=[tool("shutdown_request", teammate="bob"), text("could not")],
        )
        run(program, script)
        assert "Unknown tool" in str(tool_results(script.requests["alice"][1])[0]["content"])
        assert members(program)["bob"]["status"] == "idle"
