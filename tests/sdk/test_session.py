"""A session in the hands of another program: what it yields, how it ends, and that it leaves its host alone."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest

import teamcli
from teamcli import ConfigError, Hook, HookEvent, Outcome, Session, TeamError, UsageError, events
from teamcli.cancel import CancelScope
from teamcli.llm.types import OnEvent, Reply, Request, TextDelta
from teamcli.team.agent_thread import AgentThread
from teamcli.team.lead import Lead
from teamcli.team.message import Message
from teamcli.team.outbox import Outbox
from teamcli.team.roster import Roster, Status
from teamcli.team.teammate_work import TeammateWork
from teamcli.tools.base.context import SpawnRequest
from tests.sdk.conftest import Open
from tests.sdk.models import Gate, Model, call, results, said, scripted, who_asks
from tests.support.fake_api import FakeAPI, answer, stall_after, text, tool, tool_results
from tests.support.program import PATIENCE_SECONDS, ROOT
from tests.support.team_script import After, TeamScript
from tests.support.waiting import wait_until

BYPASS = {"permission_mode": "bypassPermissions"}


def kinds(happened: list[Any], agent: str = "lead") -> list[str]:
    return [type(event).__name__ for event in happened if event.agent == agent]


class TestSubmit:
    def test_submit_yields_events_as_they_happen_and_the_end_last(self, opened: Open) -> None:
        gate = Gate()
        session = opened(llm=Model(gate.wait))
        happened = []
        for event in session.submit("hello"):
            happened.append(event)
            if isinstance(event, events.TextArrived):
                assert gate.reached.wait(30)
                assert not session.wait(0)  # the answer is still on its way
                gate.open()
        assert kinds(happened)[:2] == ["LineTaken", "TurnStarted"]
        assert kinds(happened)[-1] == "TurnEnded"
        assert happened[-1].text == "the whole of it"
        assert happened[-1].outcome is Outcome.DONE
        with pytest.raises(AttributeError):
            happened[-1].text = "another"

    def test_submit_works_over_a_socket_with_a_strict_api_and_a_history(self, opened: Open) -> None:
        script = [answer(text("first"), tool("bash", command="echo out")), "second", "third"]
        with FakeAPI(script) as api:
            session = opened(api, **BYPASS)
            happened = list(session.submit("one"))
            assert [event.content for event in happened if isinstance(event, events.ToolFinished)] == ["out"]
            assert happened[-1].text == "second"
            assert list(session.submit("two"))[-1].text == "third"
            session.close()
            assert tool_results(api.requests[1])[0]["content"] == "out"
            assert "one" in str(api.requests[2]["messages"])
            assert "two" in str(api.requests[2]["messages"][-1])
            api.assert_prefix_stable()

    def test_a_line_is_sent_before_anyone_iterates(self, opened: Open) -> None:
        model = scripted(lead=["done"])
        session = opened(llm=model)
        listening = session.submit("hello")
        assert session.wait(30)
        assert len(model.requests) == 1
        assert [event.text for event in listening if isinstance(event, events.TextArrived)] == ["done"]

    def test_events_name_teammates_and_sub_agents(self, opened: Open) -> None:
        spawned = call("spawn_teammate", name="alice", role="coder", prompt="say hi")
        helper = call("agent", prompt="look", subagent_type="general")
        session = opened(llm=scripted(lead=[said("", spawned, helper), "over"], alice=["hi"], **{"sa-1": ["seen"]}))
        names = {event.agent for event in session.submit("go")}
        session.wait(30)
        assert {"lead", "sa-1"} <= names
        assert [member.name for member in session.team] == ["alice"]

    def test_a_teammate_that_has_just_reported_takes_new_work(
        self, opened: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def hire_again() -> None:
            answers.append(session._session.team.spawn(SpawnRequest("alice", "coder", "two")))

        def rest_slowly(self: Roster, name: str, status: Status, **fields: Any) -> object:
            if status is Status.IDLE and hiring.ident is None:  # her report has been sent
                hiring.start()
                hiring.join(0.3)  # time to be refused
            return transition(self, name, status, **fields)

        answers: list[str] = []
        hiring = threading.Thread(target=hire_again)
        transition = Roster.transition
        monkeypatch.setattr(Roster, "transition", rest_slowly)
        hire = call("spawn_teammate", name="alice", role="coder", prompt="one")
        model = scripted(lead=[said("", hire)], alice=["first", "second"])
        session = opened(llm=model)
        session.run("go")
        hiring.join(30)
        assert answers == ["Spawned 'alice' (role: coder)"]
        assert session.wait(30)
        assert sum(who_asks(request) == "alice" for request in model.requests) == 2

    def test_a_run_does_not_end_before_the_lead_knows_who_is_paused(
        self, opened: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def post_slowly(self: Outbox, message: Message, once: bool = False) -> None:
            if "is paused" in message.content:
                were_all_idle.append(session._session.team.quiescence.wait_until_idle(CancelScope(), 0))
            post(self, message, once)

        were_all_idle: list[bool] = []
        post = Outbox.post
        monkeypatch.setattr(Outbox, "post", post_slowly)
        hire = call("spawn_teammate", name="alice", role="coder", prompt="one")
        write = [said("", call("send_message", to="alice", content="and?")) for _ in range(2)]
        model = scripted(lead=[said("", hire), "hired", write[0], "well", write[1], "well", "I see"])
        session = opened(llm=model, settings={"limits": {"wakes": 1}})
        session.run("go")
        asked_by_lead = [request for request in model.requests if who_asks(request) == "lead"]
        assert "is paused: other agents have woken it" in str(asked_by_lead[-1].messages[-1].content).lower()
        assert were_all_idle == [False]

    def test_a_listener_that_hears_the_end_of_a_wait_blocks_no_one(self, opened: Open) -> None:
        def look(event: events.StatusChanged) -> None:
            if asked and event.status == "working" and not event.details.get("waiting_for"):
                looking = threading.Thread(target=session.wait, args=(0,))
                looking.start()
                looking.join(5)
                were_held_up.append(looking.is_alive())

        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            if who_asks(request) == "alice":
                asked.append(request)
                return said("", call("wait_for_message", timeout_seconds=60)) if len(asked) == 1 else said("done")
            is_new = "spawn" not in str(request.messages)
            return said("", call("spawn_teammate", name="alice", role="coder", prompt="x")) if is_new else said("ok")

        asked: list[Request] = []
        were_held_up: list[bool] = []
        session = opened(llm=Model(say))
        session._session.events.subscribe(look, events.StatusChanged)  # in the thread of the agent
        session.run("go")
        assert were_held_up
        assert not any(were_held_up)

    def test_a_lead_that_is_leaving_is_idle_whatever_mail_it_has(self, opened: Open) -> None:
        session = opened(llm=scripted(lead=["done"]))
        session.run("go")
        running = session._session
        running.cancel.cancel("leaving")
        running.team.mail.say("lead", "too late")
        assert running.team.quiescence.wait_until_idle(CancelScope(), 10)

    def test_what_needs_an_idle_lead_is_not_refused_just_after_its_last_text(self, opened: Open) -> None:
        def clear() -> None:
            session._session.conversation.clear()
            cleared.set()

        def at_the_end(_: events.TurnEnded) -> None:
            clearing.start()
            clearing.join(0.1)  # time to be refused

        session = opened(llm=scripted(lead=["done", "again"]))
        cleared, clearing = threading.Event(), threading.Thread(target=clear)
        session._session.events.subscribe(at_the_end, events.TurnEnded)  # in the thread of the lead
        list(session.submit("hello"))
        clearing.join(30)
        assert cleared.is_set()

    def test_a_late_signal_of_mail_from_before_a_stop_wakes_no_one(self, opened: Open) -> None:
        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            if who_asks(request) == "alice":
                asked.append(request)
                return gate.wait(request, on_event, cancel) if len(asked) == 1 else said("done")
            is_new = "spawn" not in str(request.messages)
            return said("", call("spawn_teammate", name="alice", role="coder", prompt="x")) if is_new else said("ok")

        asked: list[Request] = []
        gate = Gate()
        session = opened(
            llm=lambda: Model(say)
        )  # each has its own: one alone would serve nobody while alice's call waits
        list(session.submit("go"))
        assert gate.reached.wait(30)
        team = session._session.team
        team.mail.say("alice", "before")
        team.stop("alice")
        assert session.wait(30)
        team._mail_arrived("alice")  # as the thread does that watches the inboxes
        assert session.wait(30)
        assert len(asked) == 1
        team.mail.say("alice", "after")
        wait_until(lambda: len(asked) == 2)
        assert all(word in str(asked[1].messages[-1]) for word in ("before", "after"))

    def test_leaving_the_loop_interrupts_the_turn_and_the_session_continues(self, opened: Open) -> None:
        gate = Gate()
        session = opened(llm=Model(gate.wait))
        for event in session.submit("hello"):
            if isinstance(event, events.TextArrived):
                break
        del event
        assert session.wait(30)
        gate.open()
        assert session.run("again").text == "the whole of it"

    def test_an_exception_of_the_consumer_loses_nothing(self, opened: Open) -> None:
        session = opened(llm=scripted(lead=["one", "two", "three"]))
        with pytest.raises(ZeroDivisionError):
            for _ in session.submit("hello"):
                1 / 0  # noqa: B018
        assert session.wait(30)
        assert session.run("again").is_done

    def test_a_slow_consumer_blocks_no_one(self, opened: Open) -> None:
        def chatter(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            for _ in range(5_000):
                on_event(TextDelta("."))
            return said("done")

        session = opened(llm=Model(chatter))
        listening = session.submit("hello")
        next(listening)
        assert session.wait(30)  # the agent is through, though nobody has taken what it said
        assert sum(isinstance(event, events.TextArrived) for event in listening) == 5_000

    def test_a_line_in_between_is_read_by_the_same_turn(self, opened: Open) -> None:
        gate = Gate()

        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            if len(model.requests) == 1:
                gate.wait(request, on_event, cancel)
                return said("", call("bash", command="true"))
            return said("both")

        model = Model(say)
        session = opened(llm=model, **BYPASS)
        first = session.submit("one")
        assert gate.reached.wait(30)
        second = session.submit("two")
        gate.open()
        assert [list(each)[-1].text for each in (first, second)] == ["both", "both"]
        assert "two" in str(model.requests[1].messages[-1])

    def test_abandoning_an_unread_line_takes_it_back(self, opened: Open) -> None:
        gate = Gate()
        model = Model(gate.wait)
        session = opened(llm=model)
        first = session.submit("one")
        assert gate.reached.wait(30)
        second = session.submit("two")
        session.send("lead", "a sign")  # something to be told of
        next(second)
        second.close()
        gate.open()
        assert list(first)[-1].text == "the whole of it"
        assert "two" not in str([request.messages for request in model.requests])

    def test_a_closed_session_says_that_it_is_closed(self, opened: Open) -> None:
        session = opened(offline=True)
        session.close()
        for use in (session.submit, session.run, lambda text: session.send("alice", text)):
            with pytest.raises(UsageError, match="closed"):
                use("hello")

    def test_an_empty_text_is_refused(self, opened: Open) -> None:
        session = opened(offline=True)
        for use in (session.submit, session.run):
            with pytest.raises(UsageError, match="empty"):
                use(" \n")

    def test_closing_ends_a_stream_that_is_being_read(self, opened: Open) -> None:
        gate = Gate()
        session = opened(llm=Model(gate.wait))
        listening = session.submit("hello")
        assert gate.reached.wait(30)
        session.close()
        assert list(listening)[-1].outcome is Outcome.INTERRUPTED


class TestRun:
    def test_run_waits_until_everyone_is_idle(self, opened: Open) -> None:
        script = TeamScript(
            lead=[tool("spawn_teammate", name="alice", role="coder", prompt="work"), "hired", "alice is done"],
            alice=[tool("bash", command="echo made"), After(2, "made it")],
        )
        with FakeAPI(script) as api:
            session = opened(api, **BYPASS)
            result = session.run("go")
            session.close()
        assert (result.text, result.outcome, result.is_done) == ("alice is done", Outcome.DONE, True)
        assert [member.status for member in session.team] == ["idle"]

    def test_a_result_counts_the_usage_and_refusals_of_its_task(self, opened: Open) -> None:
        model = scripted(lead=[said("", call("bash", command="ls")), "refused", "next"])
        session = opened(llm=model, model="mine", settings={"prices": {"mine": {"input": 1.0, "output": 2.0}}})
        first, second = session.run("one"), session.run("two")
        assert first.usage.input_tokens == 20
        assert second.usage.input_tokens == 10
        assert first.cost_usd == pytest.approx(2 * 20e-6)
        assert session.cost_usd == pytest.approx(3 * 20e-6)
        assert [(denied.tool, denied.rule) for denied in first.denials] == [("bash", "bash(ls)")]
        assert second.denials == ()
        assert session.usage.output_tokens == 15

    def test_a_limit_is_an_outcome(self, opened: Open) -> None:
        model = scripted(lead=[said("", call("bash", command="true")) for _ in range(3)])
        assert opened(llm=model, max_turns=2, **BYPASS).run("go").outcome is Outcome.MAX_TURNS

    def test_it_is_interrupted_from_another_thread(self, opened: Open) -> None:
        gate = Gate()
        session = opened(llm=Model(gate.wait))
        threading.Thread(target=lambda: gate.reached.wait(30) and session.interrupt()).start()
        assert session.run("hello").outcome is Outcome.INTERRUPTED


def test_a_result_that_comes_with_the_end_of_the_last_work_is_still_read(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results wait for those who work. A look at whether everyone is idle may see one agent before a report, and
    another one after it."""
    has_told, looked = threading.Event(), threading.Event()
    turn_idle, is_idle = TeammateWork.turn_idle, AgentThread.is_idle.fget
    assert is_idle is not None

    def turn_idle_late(work: TeammateWork, **fields: Any) -> None:
        has_told.set()
        session._session.team.quiescence.notify()  # a wait until everyone is idle looks now
        assert looked.wait(30)
        turn_idle(work, **fields)

    def look_early(lead: Lead) -> bool:
        was_idle = is_idle(lead)
        if was_idle and has_told.is_set() and not looked.is_set():
            assert lead.mailbox.has_unread
            looked.set()
            wait_until(lambda: session.team[0].status == "idle" and not session._session.team.quiescence.is_working)
        return was_idle

    monkeypatch.setattr(TeammateWork, "turn_idle", turn_idle_late)
    monkeypatch.setattr(Lead, "is_idle", property(look_early))
    spawned = call("spawn_teammate", name="alice", role="coder", prompt="say hi")
    answers = iter([said("", spawned), said("hired"), said("heard of it")])

    def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        if who_asks(request) == "lead":
            return next(answers)
        wait_until(lambda: sum(who_asks(each) == "lead" for each in model.requests) == 2)  # not before she is hired
        return said("hi")

    model = Model(say)
    session = opened(llm=lambda: model)  # else one call at a time, and hers may come first
    assert session.run("go").text == "heard of it"


class TestFromInside:
    """What a tool or a hook does with the session that calls it."""

    @pytest.mark.parametrize("way", ["run", "wait", "run_async", "wait_async"])
    def test_a_function_cannot_wait_for_the_agents_that_wait_for_it(
        self, opened: Open, tmp_path: Path, way: str
    ) -> None:
        def delegate() -> str:
            """Have the others do it."""
            (tmp_path / "other").mkdir()
            done = opened(directory=tmp_path / "other", llm=scripted(lead=["by another"])).run("go").text
            try:
                given = ["go"] if way.startswith("run") else []
                waited = getattr(session, way)(*given)
                asyncio.run(waited) if asyncio.iscoroutine(waited) else None
            except UsageError as e:
                return f"{done}; {e}"
            return done

        model = scripted(lead=[said("", call("delegate")), "over"])
        session = opened(llm=model, tools=[delegate], **BYPASS)
        assert session.run("go").text == "over"
        assert results(model.requests[1])[0].startswith("by another; an agent of this session waits for this function")

    @pytest.mark.parametrize("event", ["PreToolUse", "Stop"])
    def test_it_can_be_closed(self, opened: Open, event: str) -> None:
        closed = threading.Event()

        def close(event: HookEvent) -> None:
            session.close()
            closed.set()

        session = opened(llm=scripted(lead=[said("", call("glob", pattern="*")), "over"]), hooks=[Hook(event, close)])
        list(session.submit("go"))
        session.close()
        assert closed.wait(30)


class TestAsync:
    def test_submit_async_yields_the_same_and_never_blocks_the_loop(self, opened: Open) -> None:
        gate = Gate()
        session = opened(llm=Model(gate.wait))

        async def listen() -> list[Any]:
            return [event async for event in session.submit_async("hello")]

        async def main() -> list[Any]:
            listening = asyncio.create_task(listen())
            while not gate.reached.is_set():  # the loop turns while the model works
                await asyncio.sleep(0)
            gate.open()
            return await listening

        happened = asyncio.run(main())
        gate.open()
        assert kinds(happened) == kinds(list(session.submit("hello")))
        assert happened[-1].text == "the whole of it"

    def test_cancelling_the_task_interrupts_the_turn_at_once(self, opened: Open) -> None:
        gate = Gate()
        session = opened(llm=Model(gate.wait))
        took: list[float] = []

        async def main() -> None:
            task = asyncio.create_task(session.run_async("hello"))
            while not gate.reached.is_set():
                await asyncio.sleep(0)
            started = time.monotonic()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            took.append(time.monotonic() - started)

        asyncio.run(main())
        assert session.wait(30)
        assert took[0] < 15  # the model would take a minute
        gate.open()
        assert session.run("again").is_done

    def test_an_endpoint_that_hangs_is_left_at_once(self, opened: Open) -> None:
        async def main(session: Session, api: FakeAPI) -> None:
            async with aclosing(session.submit_async("hello")) as listening:
                async for event in listening:
                    if isinstance(event, events.TextArrived):
                        break

        with FakeAPI([answer(text("half of it"), stall_after(4))]) as api:
            session = opened(api)
            asyncio.run(main(session, api))
            api.wait_for_disconnect()
            assert session.wait(30)

    def test_it_works_to_the_end_and_closes_in_an_async_with(self, place: Path) -> None:
        async def main() -> str:
            async with Session(place, offline=True, **BYPASS) as session:
                return (await session.run_async("run echo hi")).text

        assert "hi" in asyncio.run(main())

    def test_several_sessions_run_in_one_loop(self, tmp_path: Path, opened: Open) -> None:
        async def main() -> list[str]:
            directories = [tmp_path / name for name in ("a", "b", "c")]
            for directory in directories:
                directory.mkdir()
                (directory / "name.txt").write_text(directory.name)
            sessions = [opened(directory=directory, offline=True, **BYPASS) for directory in directories]
            return [each.text for each in await asyncio.gather(*(s.run_async("run cat name.txt") for s in sessions))]

        assert [text[-1] for text in asyncio.run(main())] == ["a", "b", "c"]


class TestQuestions:
    def test_no_question_is_asked_unless_the_program_can_answer(self, opened: Open) -> None:
        result = opened(llm=scripted(lead=[said("", call("bash", command="ls")), "over"])).run("go")
        assert result.denials[0].unanswered

    @pytest.mark.parametrize(
        ("given", "ran"),
        [
            (True, True),
            (False, False),
            (teamcli.Consent.ONCE, True),
            (teamcli.Answer(teamcli.Consent.NO, "use the other one"), False),
            ("yes", False),
        ],
    )
    def test_a_function_answers_questions(self, opened: Open, place: Path, given: Any, ran: bool) -> None:
        asked: list[teamcli.Question] = []

        def ask(question: teamcli.Question) -> Any:
            asked.append(question)
            return given

        model = scripted(lead=[said("", call("bash", command="touch made")), "over"])
        opened(llm=model, ask=ask).run("go")
        assert (place / "made").exists() == ran
        assert [(each.agent, each.tool, each.rule) for each in asked] == [("lead", "bash", "bash(touch made)")]
        if isinstance(given, teamcli.Answer):
            assert "use the other one" in results(model.requests[1])[0]

    def test_always_allows_all_later_calls(self, opened: Open) -> None:
        asked: list[str] = []
        twice = [said("", call("bash", command="date")), said("", call("bash", command="date")), "over"]
        opened(
            llm=scripted(lead=twice), ask=lambda question: asked.append(question.rule) or teamcli.Consent.ALWAYS
        ).run("go")
        assert asked == ["bash(date)"]

    def test_a_function_that_raises_has_not_said_yes(self, opened: Open, place: Path) -> None:
        model = scripted(lead=[said("", call("bash", command="touch made")), "over"])
        assert opened(llm=model, ask=lambda question: 1 // 0).run("go").is_done
        assert not (place / "made").exists()
        assert "ZeroDivisionError" in results(model.requests[1])[0]

    def test_an_interruption_does_not_wait_for_the_answer(self, opened: Open) -> None:
        asked, answered = threading.Event(), threading.Event()

        def ask(question: teamcli.Question) -> bool:
            asked.set()
            return answered.wait(60)

        session = opened(llm=scripted(lead=[said("", call("bash", command="date"))]), ask=ask)
        listening = session.submit("go")
        assert asked.wait(30)
        assert session.interrupt()
        assert list(listening)[-1].outcome is Outcome.INTERRUPTED
        answered.set()


class TestTeam:
    def test_a_message_to_a_teammate_wakes_it(self, opened: Open) -> None:
        spawned = call("spawn_teammate", name="alice", role="coder", prompt="say hi")
        model = scripted(lead=[said("", spawned), "hired", "heard"], alice=["hi", "hello to you"])
        session = opened(llm=model)
        session.run("go")
        session.send("alice", "hello <there>")
        assert session.wait(30)
        asked = [request for request in model.requests if who_asks(request) == "alice"]
        assert "hello &lt;there&gt;" in str(asked[-1].messages[-1])
        assert 'from="user"' in str(asked[-1].messages[-1])
        with pytest.raises(TeamError, match="alice"):
            session.send("ghost", "boo")

    def test_listeners_receive_events_outside_of_turns(self, opened: Open) -> None:
        spawned = call("spawn_teammate", name="alice", role="coder", prompt="say hi")
        session = opened(llm=scripted(lead=[said("", spawned), "hired"], alice=["hi", "again"]))
        session.run("go")
        heard: list[events.Event] = []
        end = session.subscribe(heard.append, events.TurnEnded)
        session.send("alice", "hello")
        assert session.wait(30)
        end()
        session.send("alice", "hello")
        assert session.wait(30)
        assert [(event.agent, type(event)) for event in heard] == [("alice", events.TurnEnded)]

    def test_without_a_team_no_state_is_kept(self, opened: Open, place: Path) -> None:
        model = scripted(lead=["hi"])
        session = opened(llm=model, team=False)
        assert session.run("go").text == "hi"
        session.close()
        assert not (place / ".team").exists()
        assert "spawn_teammate" not in [tool.name for tool in model.requests[0].preamble.tools]

    def test_a_session_can_be_resumed(self, opened: Open) -> None:
        first = opened(llm=scripted(lead=["one"]))
        first.run("the first")
        first.close()
        for how in ({"continue_": True}, {"resume": first.id}):
            model = scripted(lead=["two"])
            session = opened(llm=model, **how)
            assert session.run("the second").text == "two"
            assert session.id == first.id
            session.close()
            assert "the first" in str(model.requests[0].messages)


class TestMistakes:
    OPTIONS: tuple[tuple[dict[str, Any], str], ...] = (
        ({"directory": Path("/nowhere/at/all")}, "/nowhere/at/all is not a directory"),
        ({"permission_mode": "yolo"}, "permission_mode: 'yolo' is not one of default"),
        ({"allowed_tools": "bush"}, "did you mean bash"),
        ({"max_turns": 0}, "max_turns: must be at least 1"),
        ({"max_budget_usd": -1}, "max_budget_usd: must be an amount above 0"),
        ({"settings": {"retries": "many"}}, "settings: retries: should be a whole number"),
        ({"llm": 7}, "llm: int has no stream"),
        ({"llm": lambda: 7}, "llm: the factory returned int"),
        ({"api_key": "two words"}, "ANTHROPIC_API_KEY contains a space"),
        ({"resume": "ghost", "offline": True}, "ghost"),
        ({"resume": "x", "continue_": True}, "exclude each other"),
    )

    def test_wrong_arguments_are_explained_and_leave_nothing_behind(self, opened: Open) -> None:
        threads, files = set(threading.enumerate()), open_files()
        for options, words in self.OPTIONS:
            with pytest.raises((ConfigError, UsageError), match=words):
                opened(**options)
            opened(offline=True).close()  # the directory is free
        wait_until(lambda: set(threading.enumerate()) <= threads)  # those of earlier tests may end meanwhile
        assert open_files() <= files

    def test_two_leads_in_one_directory_are_refused(self, opened: Open) -> None:
        opened(offline=True)
        with pytest.raises(ConfigError, match=rf"process {os.getpid()}.*team=False"):
            opened(offline=True)
        assert opened(offline=True, team=False).run("help").text

    def test_a_team_that_came_with_the_directory_waits_for_trust(self, opened: Open, place: Path) -> None:
        (place / ".team").mkdir()
        (place / ".team" / "config.json").write_text('{"members": []}')
        with pytest.raises(ConfigError, match="trust=True"):
            opened(offline=True)
        assert opened(offline=True, trust=True).run("list").is_done


def open_files() -> int:
    gc.collect()
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def child_processes() -> list[str]:
    """Of whichever thread."""
    lists = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
    return sorted(pid for pids in lists for pid in pids)


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks into /proc")


@needs_proc
class TestClosing:
    def test_closing_ends_every_thread_file_and_process_and_frees_the_directory(self, opened: Open) -> None:
        def once_alice_works(request: Any) -> Any:
            wait_until(lambda: script.requests["alice"])
            return tool("shutdown_request", teammate="alice")

        script = TeamScript(
            lead=[
                answer(
                    tool("spawn_teammate", name="alice", role="coder", prompt="work"),
                    tool("agent", prompt="look", subagent_type="general", background=True),
                    tool("bash", command="sleep 60", background=True),
                ),
                once_alice_works,
                answer(text("half of it"), stall_after(4)),
            ],
            alice=[tool("bash", command="sleep 60")],
            **{"sa-1": [tool("bash", command="sleep 60")]},
        )
        threads, files, processes = set(threading.enumerate()), open_files(), child_processes()
        with FakeAPI(script, key=None) as api:
            served = set(threading.enumerate()) - threads
            files_of_api = open_files() - files
            session = opened(api, **BYPASS)
            heard: list[Any] = []
            session.agents.on_update(heard.append)
            listening = session.submit("go")
            api.wait_for_stall()
            wait_until(lambda: len(child_processes()) > len(processes))
            assert any(thread.name.startswith("deadline") for thread in threading.enumerate())
            for _ in range(2):
                session.close()
            list(listening)

            def left() -> list[threading.Thread]:
                new = set(threading.enumerate()) - threads - served
                return [thread for thread in new if "process_request" not in str(thread)]

            wait_until(lambda: left() == [])  # on a machine that is full, closing waits for so long and no longer
            wait_until(lambda: set(child_processes()) <= set(processes))
            api.release()
            wait_until(lambda: open_files() <= files + files_of_api)  # the API gives up its ends of the connections
            opened(offline=True)
        del listening

    def test_an_exception_in_the_block_closes_the_session(self, place: Path) -> None:
        threads = set(threading.enumerate())
        with pytest.raises(ZeroDivisionError), Session(place, offline=True) as session:
            session.run("help")
            1 / 0  # noqa: B018
        wait_until(lambda: set(threading.enumerate()) <= threads)

    def test_a_session_without_references_is_closed(self, place: Path) -> None:
        threads = set(threading.enumerate())
        session = Session(place, offline=True)
        gone = weakref.ref(session)
        session.run("help")
        del session
        gc.collect()
        assert gone() is None
        wait_until(lambda: set(threading.enumerate()) <= threads)
        Session(place, offline=True).close()

    def test_a_session_is_not_closed_while_someone_iterates(self, place: Path) -> None:
        happened = list(Session(place, offline=True, **BYPASS).submit("run echo hi"))
        assert "hi" in happened[-1].text

    def test_a_listener_may_close_what_it_listens_to(self, opened: Open) -> None:
        spawned = call("spawn_teammate", name="alice", role="coder", prompt="say hi")
        helper = call("agent", prompt="look", subagent_type="general", background=True)
        for kind in (events.TurnStarted, events.TurnEnded, events.StatusChanged, "update", "end"):
            threads = set(threading.enumerate())
            session = opened(llm=scripted(lead=[said("", spawned, helper), "over"]))
            closed = threading.Event()

            def close(_: object, session: Session = session, closed: threading.Event = closed) -> None:
                session.close()
                closed.set()

            if isinstance(kind, type):
                session.subscribe(close, kind)
            else:
                getattr(session.agents, f"on_{kind}")(close)
            list(session.submit("go"))
            assert closed.wait(30)
            wait_until(lambda threads=threads: set(threading.enumerate()) <= threads)

    def test_closing_from_many_threads_happens_once(self, opened: Open) -> None:
        ends: list[Any] = []
        session = opened(offline=True, hooks=[teamcli.Hook("SessionEnd", lambda event: ends.append(event))])
        closers = [threading.Thread(target=session.close) for _ in range(5)]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join()
        assert len(ends) == 1

    def test_a_program_that_forgets_it_ends_and_leaves_nothing(self, place: Path, clean_environment: Path) -> None:
        code = f"""
from teamcli import Session
session = Session({str(place)!r}, offline=True, team=False, permission_mode="bypassPermissions")
print(session.run("run echo hi").text)
print(session._session.state.root)
"""
        ran = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_SECONDS, cwd=ROOT
        )
        said_first, private = ran.stdout.splitlines()
        assert (ran.returncode, said_first, ran.stderr) == (0, "run echo hi → hi", "")
        assert not Path(private).exists()


class TestTheHostProgram:
    def test_the_host_program_keeps_its_directory_environment_signals_log_and_collector(
        self, opened: Open, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "the-host-programs-own-key")
        (place / ".env").write_text("MODEL_ID=x\nthis is no line\n")
        gc.unfreeze()  # what the tests have frozen may end, which would change the count
        before = self.state()
        session = opened(offline=True, **BYPASS)
        session.run("run env")
        session.close()
        assert self.state() == before
        # what the host starts by itself still has its environment, also in C
        seen = subprocess.run(["env"], capture_output=True, text=True, env=None).stdout
        assert "ANTHROPIC_API_KEY=the-host-programs-own-key" in seen

    def state(self) -> tuple[object, ...]:
        loggers = [logging.getLogger(name) for name in ("", "teamcli", "dotenv.main")]
        return (
            Path.cwd(),
            dict(os.environ),
            [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)],
            [(logger.level, logger.propagate, list(logger.handlers)) for logger in loggers],
            (gc.isenabled(), gc.get_freeze_count()),
            (sys.stdout, sys.stderr, sys.excepthook, threading.excepthook),
        )

    def test_the_host_program_keeps_its_ctrl_c(self, place: Path, clean_environment: Path) -> None:
        code = f"""
from teamcli import Session, events
with Session({str(place)!r}, offline=True, permission_mode="bypassPermissions") as session:
    ended = []
    session.subscribe(ended.append, events.TurnEnded)
    session.subscribe(lambda event: print("runs", flush=True), events.ToolProgress)
    try:
        session.run("run echo begun; sleep 60")
    except KeyboardInterrupt:
        session.wait()
        print(ended[0].outcome)
"""
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout
            assert process.stdout.readline() == "runs\n"
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert (out, errors, process.returncode) == ("interrupted\n", "", 0)

    def test_the_host_program_decides_where_the_log_goes(self, opened: Open, caplog: pytest.LogCaptureFixture) -> None:
        session = opened(llm=scripted(lead=["hi"]))
        session.subscribe(lambda event: 1 // 0, events.TurnStarted)
        session.run("go")
        assert "failed and was removed" in caplog.text

    def test_the_host_program_can_have_many_sessions_in_any_thread(self, tmp_path: Path) -> None:
        said_there: dict[str, str] = {}

        def work(name: str) -> None:
            directory = tmp_path / name
            directory.mkdir()
            (directory / "name.txt").write_text(name)
            with Session(directory, offline=True, **BYPASS) as session:
                said_there[name] = session.run("spawn bob as reader: run cat name.txt").text

        threads = [threading.Thread(target=work, args=(f"place{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(said_there) == sorted(name for name, text in said_there.items() if f"→ {name}" in text)
        assert len(said_there) == 4


class TestNames:
    def test_all_public_names_exist_and_are_loaded_late(self) -> None:
        assert all(getattr(teamcli, name) is not None for name in teamcli.__all__)
        assert set(dir(teamcli)) == set(teamcli.__all__)

    def test_an_old_public_name_still_works_and_warns(self) -> None:
        with pytest.warns(DeprecationWarning, match="teamcli.Ruling is now teamcli.HookResult"):
            assert teamcli.Ruling is teamcli.HookResult
        with pytest.raises(AttributeError, match="no attribute 'sesion'"):
            teamcli.sesion  # noqa: B018
        code = "import sys, teamcli; print(*sys.modules)"
        loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout.split()
        assert [name for name in loaded if name.startswith("teamcli.")] == []
        assert "importlib.metadata" not in loaded

    def test_a_session_without_tools_of_its_own_loads_no_pydantic(self, place: Path, clean_environment: Path) -> None:
        use = f"from teamcli import Session; Session({str(place)!r}, offline=True).close()"
        code = f"import sys; {use}; print(*sys.modules)"
        loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout.split()
        assert "teamcli.sdk.session" in loaded
        assert not set(loaded) & {"pydantic", "anthropic", "httpx2", "prompt_toolkit", "rich"}
