from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from teamcli.agent.conversation import INTERRUPTED_CALL
from teamcli.cancel import CancelScope
from teamcli.errors import TeamError, UnknownTeammate
from teamcli.tools.base.context import SpawnRequest
from teamcli.tools.catalog import ALL_TOOLS, BASE_TOOLS, LEAD_TOOLS, SOLO_TOOLS, TEAMMATE_TOOLS
from tests.support.waiting import DEADLINE_SECONDS
from tests.tools.fake_team import FakeTeam, TeamAgent

EVERY_CALL: dict[str, dict[str, Any]] = {
    "spawn_teammate": {"name": "alice", "role": "coder", "prompt": "Write a parser."},
    "list_teammates": {},
    "send_message": {"to": "alice", "content": "hello"},
    "read_inbox": {},
    "broadcast": {"content": "hello"},
    "wait_for_message": {},
    "shutdown_request": {"teammate": "alice"},
    "merge_teammate": {"name": "alice"},
    "plan_review": {"request_id": "r1", "approve": True},
    "submit_plan": {"plan": "1. look 2. change"},
    "shutdown_response": {"request_id": "r2", "approve": False},
}


@pytest.fixture
def team() -> FakeTeam:
    return FakeTeam()


@pytest.fixture
def lead(tmp_path: Path, team: FakeTeam) -> TeamAgent:
    return TeamAgent(tmp_path, LEAD_TOOLS, team)


@pytest.fixture
def alice(tmp_path: Path, team: FakeTeam) -> TeamAgent:
    return TeamAgent(tmp_path, TEAMMATE_TOOLS, team, name="alice")


class TestWhoHasWhat:
    def test_a_lead_has_the_nine_of_its_ancestor_first(self) -> None:
        first = "bash read_file write_file edit_file spawn_teammate list_teammates send_message read_inbox broadcast"
        assert [tool.name for tool in LEAD_TOOLS][:9] == first.split()

    def test_teammates_can_neither_spawn_nor_broadcast(self) -> None:
        names = {tool.name for tool in TEAMMATE_TOOLS}
        assert not names & {"spawn_teammate", "broadcast", "shutdown_request", "plan_review"}
        assert names >= {"send_message", "read_inbox", "wait_for_message", "submit_plan", "shutdown_response"}

    def test_an_agent_in_a_team_has_every_tool_of_one_without_a_team(self) -> None:
        assert set(SOLO_TOOLS) < set(LEAD_TOOLS)
        assert set(SOLO_TOOLS) < set(TEAMMATE_TOOLS)

    def test_no_agent_has_two_tools_with_the_same_name(self) -> None:
        for tools in (BASE_TOOLS, LEAD_TOOLS, TEAMMATE_TOOLS, ALL_TOOLS):
            assert len({tool.name for tool in tools}) == len(tools)

    def test_these_are_all_the_team_tools(self) -> None:
        task_tools = {"task_create", "task_update", "task_list"}
        assert {tool.name for tool in set(ALL_TOOLS) - set(SOLO_TOOLS)} - task_tools == set(EVERY_CALL)


class TestWhatReachesTheTeam:
    def test_a_spawn_needs_only_name_role_and_prompt(self, lead: TeamAgent, team: FakeTeam) -> None:
        lead.says("spawn_teammate", name="alice", role="coder", prompt="Write a parser.")
        assert team.calls == [("spawn", SpawnRequest("alice", "coder", "Write a parser."))]

    def test_a_spawn_passes_on_model_tools_and_plan(self, lead: TeamAgent, team: FakeTeam) -> None:
        more: dict[str, Any] = {"model": "claude-haiku-5", "tools": ["bash", "grep"], "plan": True}
        lead.says("spawn_teammate", name="bob", role="tester", prompt="Test it.", **more)
        assert team.calls == [
            ("spawn", SpawnRequest("bob", "tester", "Test it.", "claude-haiku-5", ("bash", "grep"), plan=True))
        ]

    @pytest.mark.parametrize("left_out", [None, []])
    def test_null_and_an_empty_list_of_tools_mean_all(
        self, lead: TeamAgent, team: FakeTeam, left_out: list[str] | None
    ) -> None:
        lead.says("spawn_teammate", name="alice", role="coder", prompt="Go.", tools=left_out, model=None, plan=None)
        assert team.calls == [("spawn", SpawnRequest("alice", "coder", "Go."))]

    def test_messages_carry_who_calls_and_which_call_it_is(
        self, lead: TeamAgent, alice: TeamAgent, team: FakeTeam
    ) -> None:
        alice.answer(("send_message", {"to": "lead", "content": "done", "summary": "parser"}))
        lead.answer(("list_teammates", {}), ("broadcast", {"content": "stop"}))
        assert team.calls == [
            ("send", "alice", "lead", "done", "parser", "0"),
            ("describe",),
            ("broadcast", "lead", "stop", "1"),
        ]

    def test_several_recipients_each_get_it_once(self, lead: TeamAgent, team: FakeTeam) -> None:
        lead.says("send_message", to=["alice", "bob", "alice"], content="hi")
        lead.says("send_message", to='["alice", "bob"]', content="hi")
        lead.says("send_message", to=["alice"], content="hi")
        lead.says("send_message", to="alice, bob,alice,", content="hi")
        lead.says("send_message", to=" alice ", content="hi")
        assert [call[2] for call in team.calls] == [
            ("alice", "bob"),
            ("alice", "bob"),
            ("alice",),
            ("alice", "bob"),
            "alice",
        ]

    def test_the_content_arrives_as_it_was_written(self, lead: TeamAgent, team: FakeTeam) -> None:
        content = "  an indented line\n\n<message from='user'>é 漢 🙂</message>\n"
        lead.says("send_message", to="alice", content=content)
        assert team.calls[0][3] == content

    def test_reading_and_waiting_name_the_reader(self, lead: TeamAgent, alice: TeamAgent, team: FakeTeam) -> None:
        alice.says("read_inbox")
        alice.says("wait_for_message")
        lead.says("wait_for_message", timeout_seconds=600)
        waits = [call for call in team.calls if call != ("waited",)]
        assert waits == [("read_inbox", "alice"), ("wait_for_message", "alice", 60), ("wait_for_message", "lead", 600)]

    def test_shutdowns_and_plans_name_both_sides(self, lead: TeamAgent, alice: TeamAgent, team: FakeTeam) -> None:
        lead.says("shutdown_request", teammate="alice", reason="all done")
        alice.says("shutdown_response", request_id="r1", approve=False, reason="tests still run")
        alice.says("submit_plan", plan="1. look")
        lead.says("plan_review", request_id="r2", approve=False, feedback="and test")
        assert team.calls == [
            ("request_shutdown", "lead", "alice", "all done"),
            ("answer_shutdown", "alice", "r1", False, "tests still run"),
            ("submit_plan", "alice", "1. look"),
            ("review_plan", "lead", "r2", False, "and test"),
        ]


class TestWhatComesBack:
    @pytest.mark.parametrize("name", EVERY_CALL)
    def test_the_teams_words_are_the_result(self, tmp_path: Path, name: str) -> None:
        agent = TeamAgent(tmp_path, ALL_TOOLS, FakeTeam("Spawned 'alice' (role: coder)"))
        assert agent.says(name, **EVERY_CALL[name]) == "Spawned 'alice' (role: coder)"

    @pytest.mark.parametrize("name", EVERY_CALL)
    def test_what_the_team_refuses_is_an_error_result(
        self, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        refusal = UnknownTeammate("Nobody is called 'carol'; there are: alice, bob")
        agent = TeamAgent(tmp_path, ALL_TOOLS, FakeTeam(refusal=refusal))
        with caplog.at_level(logging.WARNING):
            assert agent.refuses(name, **EVERY_CALL[name]) == f"Error: {refusal}"
        assert caplog.records == []

    def test_an_error_of_the_teams_is_not_prefixed_twice(self, tmp_path: Path) -> None:
        agent = TeamAgent(tmp_path, LEAD_TOOLS, FakeTeam(refusal=TeamError("Error: 'alice' is currently working")))
        said = agent.refuses("spawn_teammate", **EVERY_CALL["spawn_teammate"])
        assert said == "Error: 'alice' is currently working"

    @pytest.mark.parametrize(("name", "position"), [("read_inbox", 7), ("wait_for_message", 8)])
    def test_how_far_mail_is_read_goes_to_the_transcript(self, lead: TeamAgent, name: str, position: int) -> None:
        assert lead.call(name).marks == {"inbox": position}

    @pytest.mark.parametrize("name", EVERY_CALL)
    def test_an_agent_without_a_team_gets_an_error(self, tmp_path: Path, name: str) -> None:
        said = TeamAgent(tmp_path, ALL_TOOLS, team=None).refuses(name, **EVERY_CALL[name])
        assert said.startswith("Error: There is no team")


class TestBadInput:
    @pytest.mark.parametrize("name", EVERY_CALL)
    def test_every_required_field_is_missed_by_name(self, tmp_path: Path, name: str) -> None:
        team = FakeTeam()
        agent = TeamAgent(tmp_path, ALL_TOOLS, team)
        schema = agent.tools[name].spec.input_schema
        assert set(schema.get("required", [])) == set(EVERY_CALL[name])
        for field in EVERY_CALL[name]:
            given = {key: value for key, value in EVERY_CALL[name].items() if key != field}
            assert f"{name}: {field}: Field required" in agent.refuses(name, **given)
        assert team.calls == []

    @pytest.mark.parametrize("name", EVERY_CALL)
    def test_a_model_cannot_choose_the_sender(self, tmp_path: Path, name: str) -> None:
        team = FakeTeam()
        agent = TeamAgent(tmp_path, ALL_TOOLS, team)
        assert agent.tools[name].spec.input_schema["additionalProperties"] is False
        for field in ("from", "agent", "type", "id", "sig"):
            assert f"{field}: Extra inputs" in agent.refuses(name, **EVERY_CALL[name], **{field: "user"})
        assert team.calls == []

    @pytest.mark.parametrize(
        ("name", "field"),
        [
            ("spawn_teammate", "role"),
            ("spawn_teammate", "prompt"),
            ("send_message", "content"),
            ("broadcast", "content"),
            ("submit_plan", "plan"),
        ],
    )
    def test_words_that_say_nothing_are_refused(self, tmp_path: Path, name: str, field: str) -> None:
        agent = TeamAgent(tmp_path, ALL_TOOLS, FakeTeam())
        said = agent.refuses(name, **{**EVERY_CALL[name], field: " \n"})
        assert said == f"Error: Invalid input for {name}: {field}: must not be empty"

    @pytest.mark.parametrize("to", [5, [], "", ["alice", 5], {"name": "alice"}, "[]"])
    def test_recipients_are_a_name_or_a_list_of_names(self, lead: TeamAgent, to: object) -> None:
        said = lead.refuses("send_message", to=to, content="hi")
        assert said == "Error: Invalid input for send_message: to: must be a name or a list of names"

    @pytest.mark.parametrize("seconds", [0, 601, "soon"])
    def test_a_wait_has_bounds(self, lead: TeamAgent, seconds: object) -> None:
        assert "timeout_seconds: Input should be" in lead.refuses("wait_for_message", timeout_seconds=seconds)


class TestTogether:
    def test_team_tools_of_one_answer_keep_their_order(self, lead: TeamAgent, team: FakeTeam) -> None:
        contents = [f"message {number}" for number in range(20)]
        lead.answer(*(("send_message", {"to": "alice", "content": content}) for content in contents))
        assert [call[3] for call in team.calls] == contents

    def test_what_is_asked_after_a_wait_happens_after_it(self, lead: TeamAgent, team: FakeTeam) -> None:
        overtaken = []
        team.on_wait = lambda cancel: overtaken.append(lead.finished["call_3"].wait(0.2))
        spawn, wait, message = (EVERY_CALL[name] for name in ("spawn_teammate", "wait_for_message", "send_message"))
        lead.answer(("spawn_teammate", spawn), ("wait_for_message", wait), ("send_message", message))
        assert [call[0] for call in team.calls] == ["spawn", "wait_for_message", "waited", "send"]
        assert overtaken == [False]

    def test_a_wait_blocks_nothing_else(self, lead: TeamAgent, team: FakeTeam, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("buy milk\n")
        others: list[tuple[str, dict[str, Any]]] = [
            ("read_file", {"path": "notes.txt"}),
            ("glob", {"pattern": "*"}),
            ("bash_output", {"id": "bg-1"}),
        ]
        team.on_wait = lambda cancel: all_set([lead.finished[f"call_{n}"] for n in (2, 3, 4)])
        results = lead.answer(("wait_for_message", {}), *others)
        assert ("waited",) in team.calls
        assert "buy milk" in results.blocks[1]["content"]

    def test_cancelling_the_turn_ends_a_wait(self, lead: TeamAgent, team: FakeTeam) -> None:
        def interrupt(cancel: CancelScope) -> None:
            lead.cancel.cancel("interrupted by the user")
            assert cancel.wait(DEADLINE_SECONDS)

        team.on_wait = interrupt
        assert INTERRUPTED_CALL in lead.refuses("wait_for_message")


def all_set(events: list[threading.Event]) -> None:
    for event in events:
        assert event.wait(DEADLINE_SECONDS), "held up by the wait"


class TestOnTheScreen:
    @pytest.mark.parametrize(
        ("name", "more", "title"),
        [
            ("spawn_teammate", {}, "spawn alice (coder)"),
            ("list_teammates", {}, "list teammates"),
            ("send_message", {}, "message to alice: hello"),
            ("send_message", {"to": ["alice", "bob"]}, "message to alice, bob: hello"),
            ("send_message", {"summary": "a greeting"}, "message to alice: a greeting"),
            ("read_inbox", {}, "read inbox"),
            ("broadcast", {}, "broadcast: hello"),
            ("wait_for_message", {}, "wait for messages (up to 60 s)"),
            ("shutdown_request", {}, "ask alice to shut down"),
            ("shutdown_request", {"reason": "all done"}, "ask alice to shut down: all done"),
            ("plan_review", {}, "approve plan r1"),
            ("plan_review", {"approve": False, "feedback": "and test"}, "reject plan r1: and test"),
            ("submit_plan", {}, "submit plan: 1. look 2. change"),
            ("shutdown_response", {}, "refuse to shut down"),
            ("shutdown_response", {"approve": True}, "agree to shut down"),
        ],
    )
    def test_a_title_says_what_happens(self, tmp_path: Path, name: str, more: dict[str, object], title: str) -> None:
        agent = TeamAgent(tmp_path, ALL_TOOLS, FakeTeam())
        assert agent.tools[name].prepare({**EVERY_CALL[name], **more}).display.title == title

    @pytest.mark.parametrize(
        ("name", "field"), [("send_message", "content"), ("broadcast", "content"), ("submit_plan", "plan")]
    )
    def test_long_words_are_shortened_in_the_title_and_complete_in_a_question(
        self, tmp_path: Path, name: str, field: str
    ) -> None:
        agent = TeamAgent(tmp_path, ALL_TOOLS, FakeTeam())
        words = "one line\n" + "and many more " * 50
        display = agent.tools[name].prepare({**EVERY_CALL[name], field: words}).display
        assert len(display.title) <= 100
        assert display.title.endswith("…")
        assert "one line and many" in display.title
        assert words in display.text

    def test_a_summary_hides_nothing_in_a_question(self, lead: TeamAgent) -> None:
        call = {"to": "alice", "content": "delete it all", "summary": "a greeting"}
        assert lead.tools["send_message"].prepare(call).display.text == "message to alice: delete it all"

    def test_a_question_about_a_spawn_shows_all_of_it(self, lead: TeamAgent) -> None:
        call = {**EVERY_CALL["spawn_teammate"], "model": "claude-haiku-5", "tools": ["bash", "grep"], "plan": True}
        display = lead.tools["spawn_teammate"].prepare(call).display
        assert display.text == "spawn alice (coder), model claude-haiku-5, only bash, grep, plan first: Write a parser."
