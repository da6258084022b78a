"""Sub-agents through the library: snapshots, waiting, callbacks, messages, cancelling."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from teamcli import (
    CancelScope,
    EventKind,
    Outcome,
    Reply,
    Request,
    Session,
    Snapshot,
    State,
    TeamError,
    Usage,
    UsageError,
    tool,
)
from teamcli.llm.types import OnEvent, TextDelta
from teamcli.subagents.updates import PAUSE_SECONDS
from tests.sdk.conftest import Open
from tests.sdk.models import Gate, Model, Say, call, results, said, scripted, who_asks
from tests.support.waiting import DEADLINE_SECONDS, wait_until


def poke(where: str) -> str:
    """Poke something."""
    return f"poked {where}"


def task(prompt: str = "do it", background: bool = True) -> dict[str, Any]:
    return call("agent", prompt=prompt, subagent_type="general", background=background, description="a job")


def opened_with(opened: Open, say: Say, count: int = 1, background: bool = True, **options: Any) -> Session:
    """A session whose lead starts so many sub-agents with its first line, and whose sub-agents speak as `say` says."""

    def speak(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        if who_asks(request) != "lead":
            return say(request, on_event, cancel)
        if len(request.messages) == 1:
            return said("", *(task(background=background) for _ in range(count)))
        return said("over")

    given = {"tools": [tool(poke, harmless=True)], **options}
    return opened(llm=lambda: Model(speak), **given)


def start(session: Session) -> list[str]:
    """Their ids, once the lead has started them."""
    list(session.submit("go"))
    return [each.id for each in session.agents.snapshots()]


def done(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
    return said("done")


class TestSnapshots:
    def test_snapshots_are_complete_and_never_change(self, opened: Open) -> None:
        began, go_on = threading.Event(), threading.Event()

        def hold(where: str) -> str:
            """Hold something."""
            began.set()
            go_on.wait(DEADLINE_SECONDS)
            return f"held {where}"

        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            return said("I hold it.", call("hold", where="left")) if len(request.messages) == 1 else said("done")

        session = opened_with(opened, say, tools=[tool(hold, harmless=True)])
        (id,) = start(session)
        assert began.wait(DEADLINE_SECONDS)
        now = session.agents.snapshot(id)
        assert (now.id, now.name, now.parent, now.task, now.display_task) == ("sa-1", "a job", "lead", "do it", "do it")
        assert (now.state, now.is_background, now.result, now.error) == (State.RUNNING, True, "", "")
        assert now.tools[-1] == "hold"
        assert now.tools[0] == "bash"
        assert now.started_at is not None
        assert now.created_at <= now.started_at
        assert now.ended_at is None
        doing = now.activity
        assert (doing.phase, doing.current_tool, doing.current_args) == ("running tools", "hold", '{"where":"left"}')
        assert (doing.tool_calls, doing.tool_counts, doing.progress) == (1, (("hold", 1),), "I hold it.")
        assert (len(doing.events), doing.events_dropped) == (2, 0)
        with pytest.raises(AttributeError):
            now.state = State.FAILED  # type: ignore[misc]
        go_on.set()
        after = session.agents.wait(id, DEADLINE_SECONDS)
        assert (after.state, after.result, after.activity.current_tool) == (State.COMPLETED, "done", "")
        assert after.ended_at is not None
        assert (now.state, len(now.activity.events)) == (State.RUNNING, 2)

    def test_snapshots_keep_the_newest_two_hundred_events_and_count_the_rest(self, opened: Open) -> None:
        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            number = len(request.messages) // 2
            calls = tuple(call("poke", where=f"{number}-{each}") for each in range(5))
            return Reply(calls, "tool_use", Usage()) if number < 25 else said("done")

        session = opened_with(opened, say)
        (id,) = start(session)
        activity = session.agents.wait(id, DEADLINE_SECONDS).activity
        assert activity.tool_calls == 125
        assert (len(activity.events), activity.events_dropped) == (200, 51)  # 125 calls, 125 results, the last words
        assert activity.events[-1].text == "done"
        assert '"0-' not in str(activity.events)

    def test_events_are_of_five_kinds_and_pair_calls_with_their_results(self, opened: Open) -> None:
        def fail() -> str:
            """Fail."""
            raise ValueError("no")

        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            if len(request.messages) > 1:
                raise ValueError("out of words")
            thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
            calls = (call("poke", where="a"), call("poke", where="b"), call("fail"))
            return Reply((thought, {"type": "text", "text": "I poke."}, *calls), "tool_use", Usage())

        session = opened_with(opened, say, tools=[tool(poke, harmless=True), tool(fail, harmless=True)])
        (id,) = start(session)
        ended = session.agents.wait(id, DEADLINE_SECONDS)
        happened = ended.activity.events
        assert {event.kind for event in happened} == set(EventKind)
        results = {event.call_id: event for event in happened if event.kind is EventKind.TOOL_RESULT}
        for made in (event for event in happened if event.kind is EventKind.TOOL_CALL):
            assert results[made.call_id].args == made.args
            assert results[made.call_id].tool == made.tool
        by_args = {event.args: (event.result, event.is_error) for event in results.values()}
        assert by_args['{"where":"a"}'] == ("poked a", False)
        assert by_args['{"where":"b"}'] == ("poked b", False)
        assert by_args["{}"] == ("Error: ValueError: no", True)
        assert ended.state is State.FAILED
        assert "out of words" in happened[-1].text
        assert happened[-1].is_error

    def test_waiting_returns_at_once_when_the_time_is_up_or_when_it_has_ended(self, opened: Open) -> None:
        gate = Gate()
        session = opened_with(opened, gate.wait)
        (id,) = start(session)
        assert gate.reached.wait(DEADLINE_SECONDS)
        for seconds in (-1, 0, 0.01):
            assert session.agents.wait(id, seconds).state is State.RUNNING
        threading.Timer(0.02, gate.open).start()
        assert session.agents.wait(id).result == "the whole of it"
        assert session.agents.wait(id, 0).state is State.COMPLETED
        with pytest.raises(TeamError, match=r"no sub-agent 'ghost'; there are: sa-1"):
            session.agents.wait("ghost")

    def test_there_are_no_snapshots_before_the_first_sub_agent(self, opened: Open) -> None:
        session = opened(offline=True)
        assert session.agents.snapshots() == ()
        assert session.agents.cancel_all() == 0
        assert session.agents.broadcast("hello") == []
        with pytest.raises(TeamError, match="there are: none"):
            session.agents.snapshot("sa-1")


class TestListeners:
    def test_listeners_are_called_at_most_ten_times_a_second_and_always_at_the_end(self, opened: Open) -> None:
        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            for _ in range(2_000):
                on_event(TextDelta("."))
            return said("done")

        session = opened_with(opened, say)
        heard: list[tuple[float, Snapshot]] = []
        ends: list[Snapshot] = []
        session.agents.on_update(lambda snapshot: heard.append((time.monotonic(), snapshot)))
        session.agents.on_end(ends.append)  # both before there is any sub-agent
        (id,) = start(session)
        session.agents.wait(id, DEADLINE_SECONDS)
        session.close()
        times = [at for at, _ in heard]
        assert all(later - earlier >= PAUSE_SECONDS * 0.9 for earlier, later in pairwise(times[:-1]))
        assert (heard[-1][1].state, heard[-1][1].result) == (State.COMPLETED, "done")
        assert [(end.id, end.state) for end in ends] == [(id, State.COMPLETED)]

    def test_listeners_hear_of_cancelled_ones_and_one_that_raises_blocks_no_one(self, opened: Open) -> None:
        gate, heard = Gate(), []
        session = opened_with(opened, gate.wait)
        for listen in (session.agents.on_update, session.agents.on_end):
            listen(lambda snapshot: 1 // 0)
            listen(heard.append)
        (id,) = start(session)
        assert gate.reached.wait(DEADLINE_SECONDS)
        assert session.agents.cancel(id)
        session.agents.wait(id, DEADLINE_SECONDS)
        session.close()
        assert [snapshot.state for snapshot in heard if snapshot.state.is_final] == [State.CANCELLED] * 2

    def test_listeners_are_removed_by_the_returned_function(self, opened: Open) -> None:
        def once(snapshot: Snapshot) -> None:
            heard.append(("once", snapshot.id))
            leave()

        heard: list[tuple[str, str]] = []
        session = opened_with(opened, done, count=2)
        leave = session.agents.on_update(once)
        for name, listen in (("update", session.agents.on_update), ("end", session.agents.on_end)):
            same = lambda snapshot, name=name: heard.append((name, snapshot.id))  # noqa: E731
            stop, _ = listen(same), listen(same)  # the same function twice: only one of the two is removed
            stop()
            stop()
        ids = start(session)
        for id in ids:
            session.agents.wait(id, DEADLINE_SECONDS)
        session.close()
        assert sorted(each for each in heard if each[0] == "end") == [("end", id) for id in ids]
        assert {id for name, id in heard if name == "update"} == set(ids)
        assert [name for name, _ in heard].count("once") == 1

    def test_listeners_cannot_wait_for_the_agent_that_waits_for_them(self, opened: Open) -> None:
        def wait(snapshot: Snapshot) -> None:
            with pytest.raises(UsageError, match="waits for this function"):
                session.wait()
            refused.append(snapshot.id)

        refused: list[str] = []
        session = opened_with(opened, done, background=False)
        session.agents.on_end(wait)
        assert start(session) == refused == ["sa-1"]


class TestMessages:
    @pytest.mark.parametrize("to_all", [False, True])
    def test_messages_are_read_at_the_next_step(self, opened: Open, to_all: bool) -> None:
        told: list[str] = []
        gate = Gate()

        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            told.append(str(request.messages[-1].content[-1].get("text", "")))
            if len(request.messages) > 1:
                return said("done")
            gate.wait(request, on_event, cancel)
            return said("", call("poke", where="left"))

        session = opened_with(opened, say)
        (id,) = start(session)
        assert gate.reached.wait(DEADLINE_SECONDS)
        if to_all:
            assert session.agents.broadcast("look <there>") == [id]
        else:
            session.send(id, "look <there>")
        gate.open()
        assert session.agents.wait(id, DEADLINE_SECONDS).state is State.COMPLETED
        assert 'from="user"' in told[1]
        assert "look &lt;there&gt;" in told[1]

    def test_a_message_to_an_unknown_id_is_an_error(self, opened: Open) -> None:
        session = opened_with(opened, done)
        (id,) = start(session)
        session.agents.wait(id, DEADLINE_SECONDS)
        with pytest.raises(TeamError, match=f"{id} has ended"):
            session.send(id, "too late")
        with pytest.raises(TeamError, match="no sub-agent 'sa-9'"):
            session.agents.send("sa-9", "hello")
        assert session.agents.broadcast("hello") == []


class TestEndings:
    def test_all_are_cancelled_once_and_what_they_had_said_is_kept(self, opened: Open) -> None:
        gate = Gate()
        session = opened_with(opened, gate.wait, count=7)
        ids = start(session)
        agents = session.agents
        wait_until(lambda: [each.state for each in agents.snapshots()].count(State.RUNNING) == 5)
        wait_until(lambda: all(each.activity.progress for each in agents.snapshots() if each.state is State.RUNNING))
        assert agents.cancel_all() == 7
        ended = [agents.wait(id, DEADLINE_SECONDS) for id in ids]
        assert [each.state for each in ended] == [State.CANCELLED] * 7
        assert sorted(each.result for each in ended) == [""] * 2 + ["half of it"] * 5
        assert agents.cancel_all() == 0
        assert not agents.cancel(ids[0])
        assert agents.snapshot(ids[0]).state is State.CANCELLED

    def test_a_final_state_stays_whatever_its_model_says_later(self, opened: Open) -> None:
        began, go_on, spoke = threading.Event(), threading.Event(), threading.Event()

        def deaf(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            began.set()
            go_on.wait(DEADLINE_SECONDS)
            spoke.set()
            return said("done after all")

        session = opened_with(opened, deaf)
        (id,) = start(session)
        assert began.wait(DEADLINE_SECONDS)
        assert session.agents.cancel(id)
        ended = session.agents.wait(id, DEADLINE_SECONDS)
        go_on.set()
        assert spoke.wait(DEADLINE_SECONDS)
        assert session.agents.snapshot(id) == ended
        assert ended.state is State.CANCELLED

    @pytest.mark.parametrize("way", ["failure", "limit", "refusal"])
    def test_an_error_is_recorded_once(self, opened: Open, way: str) -> None:
        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            match way:
                case "failure":
                    raise KeyError("oops")
                case "limit":
                    return said("", call("poke", where="left"))
                case _:
                    return said("No.")._replace(stop_reason="refusal")

        session = opened_with(opened, say, settings={"subagents": {"turns": 1}})
        (id,) = start(session)
        ended = session.agents.wait(id, DEADLINE_SECONDS)
        errors = [event.text for event in ended.activity.events if event.kind is EventKind.ERROR]
        assert (ended.state, errors) == (State.FAILED, [ended.error])

    def test_a_bug_makes_it_fail_and_releases_those_who_wait(self, opened: Open) -> None:
        def broken(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            raise KeyError("oops")

        session = opened_with(opened, broken)
        (id,) = start(session)
        ended = session.agents.wait(id)
        assert ended.state is State.FAILED
        assert "KeyError: 'oops'" in ended.error

    def test_the_timeout_ends_it(self, opened: Open) -> None:
        gate = Gate()
        session = opened_with(opened, gate.wait, settings={"subagents": {"timeout_seconds": 0.05}})
        (id,) = start(session)
        ended = session.agents.wait(id, DEADLINE_SECONDS)
        assert (ended.state, ended.error) == (State.FAILED, "timed out after 0.05 s")

    def test_cancelling_goes_down_the_tree_and_not_up(self, opened: Open) -> None:
        gate = Gate()
        session = opened_with(opened, gate.wait, background=False)
        listening = session.submit("go")
        assert gate.reached.wait(DEADLINE_SECONDS)
        assert session.agents.cancel("sa-1")
        assert list(listening)[-1].outcome is Outcome.DONE  # the lead goes on without it

    def test_interrupting_the_lead_ends_what_it_waits_for_and_not_what_runs_in_the_background(
        self, opened: Open
    ) -> None:
        gates = {"sa-1": Gate(), "sa-2": Gate()}

        def speak(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            name = who_asks(request)
            if name in gates:
                return gates[name].wait(request, on_event, cancel)
            if len(request.messages) == 1:
                return said("", task(background=True))
            return said("", task(background=False)) if len(request.messages) == 3 else said("over")

        session = opened(llm=lambda: Model(speak))
        listening = session.submit("go")
        assert all(gate.reached.wait(DEADLINE_SECONDS) for gate in gates.values())
        assert session.interrupt()
        assert list(listening)[-1].outcome is Outcome.INTERRUPTED
        assert session.agents.wait("sa-2", DEADLINE_SECONDS).state is State.CANCELLED
        assert session.agents.snapshot("sa-1").state is State.RUNNING
        gates["sa-1"].open()
        assert session.agents.wait("sa-1", DEADLINE_SECONDS).state is State.COMPLETED

    def test_closing_ends_all(self, opened: Open) -> None:
        gate = Gate()
        session = opened_with(opened, gate.wait, count=3)
        start(session)
        session.close()
        assert {each.state for each in session.agents.snapshots()} == {State.CANCELLED}


def test_a_copy_of_a_copy_reaches_the_memory_of_the_first(opened: Open, clean_environment: Path) -> None:
    """It is in the system prompt that all three have."""
    notes = clean_environment / ".teamcli" / "memory" / "lead" / "MEMORY.md"
    notes.parent.mkdir(parents=True)
    notes.write_text("Tests are slow.")
    ask = {name: [said("", call("agent", prompt="look"))] for name in ("lead", "sa-1")}
    model = scripted(**ask, **{"sa-2": [said("", call("read_file", path=str(notes)))]})
    opened(llm=model, trust=True, settings={"subagents": {"depth": 2}}).run("go")
    assert any("Tests are slow." in result for request in model.requests for result in results(request))
