"""What is not visible from outside: snapshots, callbacks, races and the ledger."""

from __future__ import annotations

import gc
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from teamcli.agent.events import Notice
from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, StateError, ToolError
from teamcli.llm.types import OnEvent, Reply, Request, TextDelta
from teamcli.subagents.activity import EVENT_LIMIT, ActivityLog
from teamcli.subagents.ledger import Ledger
from teamcli.subagents.registry import KEPT
from teamcli.subagents.runner import Limits
from teamcli.subagents.slots import Slots
from teamcli.subagents.snapshot import AgentEvent, EventKind, Snapshot, State
from teamcli.subagents.subagent import Ending, SubAgent
from teamcli.subagents.updates import PAUSE_SECONDS
from teamcli.team.message import Message
from teamcli.tools.base.context import SubAgentTask
from tests.subagents.harness import Harness, Together, Unobserved, call, hang, said
from tests.support.waiting import DEADLINE_SECONDS, wait_until


def running(harness: Harness, id: str) -> bool:
    return harness.manager.snapshot(id).state is State.RUNNING


class TestConcurrency:
    def test_fifty_go_through_five_slots_and_none_is_lost(self, tmp_path: Path) -> None:
        together, met = Together(), threading.Barrier(5)

        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            with together:
                met.wait(DEADLINE_SECONDS)
            return said(str(request.messages[0].content[0]["text"]))

        harness = Harness(tmp_path, say)
        ids = [harness.start(str(number)) for number in range(50)]
        ended = [harness.manager.wait(id, DEADLINE_SECONDS) for id in ids]
        assert [snapshot.result for snapshot in ended] == [str(number) for number in range(50)]
        assert together.most == 5
        assert sorted(message.sender for message in harness.posted) == sorted(ids)
        assert harness.manager.running_detached() == []

    def test_waiters_for_a_slot_can_be_cancelled_and_are_served_in_order(self) -> None:
        slots, first, second, third = Slots(1), CancelScope(), CancelScope(), CancelScope()
        order: list[str] = []

        def take(name: str, scope: CancelScope) -> None:
            try:
                with slots.taken(scope):
                    order.append(name)
            except Cancelled:
                order.append(f"{name} cancelled")

        with slots.taken(first):
            threads = []
            for number, (name, scope) in enumerate((("second", second), ("third", third)), start=1):
                threads.append(threading.Thread(target=take, args=(name, scope)))
                threads[-1].start()
                wait_until(lambda number=number: len(slots._waiting) == number)
            second.cancel()
            threads[0].join()
        threads[1].join()
        assert order == ["second cancelled", "third"]

    def test_a_lent_slot_comes_back_and_none_is_made_or_lost(self) -> None:
        slots, mine, order = Slots(1), CancelScope(), []
        held = threading.Event()

        def take(name: str) -> None:
            with slots.taken(CancelScope()):
                order.append(name)
                held.wait(DEADLINE_SECONDS)

        with slots.taken(mine):
            slots.give()
            other = threading.Thread(target=take, args=("other",))
            other.start()
            wait_until(lambda: order)
            mine.cancel()
            slots.take_back(mine)  # at once, so that it can come to its end
        third = threading.Thread(target=take, args=("third",))
        third.start()
        wait_until(lambda: slots._waiting)
        assert order == ["other"]
        held.set()
        other.join()
        third.join()
        with slots.taken(CancelScope()):
            pass
        assert order == ["other", "third"]

    def test_one_that_is_cancelled_before_it_begins_never_asks_the_model(self, tmp_path: Path) -> None:
        harness = Harness(tmp_path, hang, Limits(max_concurrent=1))
        first, second = harness.start(), harness.start()
        wait_until(lambda: running(harness, first))
        assert harness.manager.snapshot(second).state is State.PENDING
        assert harness.manager.cancel_one(second)
        snapshot = harness.manager.wait(second, DEADLINE_SECONDS)
        assert (snapshot.state, snapshot.started_at, snapshot.result) == (State.CANCELLED, None, "")
        assert running(harness, first)
        harness.program.cancel()


class TestEndings:
    def test_a_final_state_stays(self) -> None:
        sub = SubAgent("sa-1", "lead", SubAgentTask("x"), CancelScope(), True, Unobserved())
        assert sub.finish(Ending(State.CANCELLED, "half", "stopped"))
        assert not sub.finish(Ending(State.COMPLETED, "whole"))
        assert (sub.snapshot().state, sub.snapshot().result) == (State.CANCELLED, "half")

    def test_a_parent_that_has_read_the_report_sees_the_final_state(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def ask() -> None:
            told.append(harness.manager.tools.status("lead", "sa-1", 0, CancelScope()))

        def post(message: Message, once: bool = False) -> None:
            asking.start()
            asking.join(0.2)  # time to be told that it runs

        told: list[str] = []
        asking = threading.Thread(target=ask)
        harness = Harness(tmp_path)
        monkeypatch.setattr(harness, "post", post)
        harness.manager.wait(harness.start(), DEADLINE_SECONDS)
        asking.join(DEADLINE_SECONDS)
        assert "completed" in told[0]

    def test_a_bug_makes_it_fail_and_releases_those_who_wait(self, tmp_path: Path, caplog: Any) -> None:
        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            raise KeyError("oops")

        harness = Harness(tmp_path, say)
        snapshot = harness.manager.wait(harness.start(), DEADLINE_SECONDS)
        assert snapshot.state is State.FAILED
        assert "oops" in snapshot.error
        assert harness.posted[0].fields["state"] == "failed"
        assert "oops" in harness.posted[0].content
        with pytest.raises(ToolError, match="oops"):
            harness.run()

    def test_the_timeout_counts_from_its_beginning(self, tmp_path: Path) -> None:
        harness = Harness(tmp_path, hang, Limits(timeout_seconds=1.5))
        snapshot = harness.manager.wait(harness.start(), DEADLINE_SECONDS)
        assert (snapshot.state, snapshot.error, snapshot.result) == (
            State.FAILED,
            "timed out after 1.5 s",
            "half of it",
        )

    def test_cancelling_keeps_what_it_had_said_and_twice_is_once(self, tmp_path: Path) -> None:
        harness = Harness(tmp_path, hang)
        ids = [harness.start() for _ in range(3)]
        wait_until(lambda: all(harness.manager.snapshot(id).activity.progress for id in ids))
        assert harness.manager.cancel_all() == 3
        assert [harness.manager.wait(id, DEADLINE_SECONDS).result for id in ids] == ["half of it"] * 3
        assert harness.manager.cancel_all() == 0
        assert not harness.manager.cancel_one(ids[0])
        assert all(message.fields["by_user"] for message in harness.posted)
        assert len(harness.posted) == 3

    def test_interrupting_the_call_ends_a_foreground_one_with_what_it_had_said(self, tmp_path: Path) -> None:
        harness, call_scope, caught = Harness(tmp_path, hang), CancelScope(), []

        def run() -> None:
            try:
                harness.run(cancel=call_scope)
            except Cancelled as e:
                caught.append(e)

        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: any(each.activity.progress for each in harness.manager.snapshots()))
        call_scope.cancel("interrupted by the user")
        thread.join(DEADLINE_SECONDS)
        assert caught[0].output == "half of it"
        assert harness.posted == []

    def test_one_under_a_cancelled_scope_is_born_cancelled(self, tmp_path: Path) -> None:
        harness, scope = Harness(tmp_path), CancelScope()
        scope.cancel("too late")
        with pytest.raises(Cancelled):
            harness.run(cancel=scope)
        assert harness.manager.snapshots()[0].started_at is None

    def test_when_its_parent_leaves_it_ends_and_nothing_is_reported(self, tmp_path: Path) -> None:
        harness = Harness(tmp_path, hang)
        id = harness.start()
        wait_until(lambda: running(harness, id))
        harness.lead_scope.cancel("shut down")
        assert harness.manager.wait(id, DEADLINE_SECONDS).state is State.CANCELLED
        assert harness.posted == []
        harness.restarted().report_lost()
        assert harness.posted == []


class TestSnapshots:
    def test_a_snapshot_says_what_it_is_doing(self, tmp_path: Path) -> None:
        go_on, answers = threading.Event(), iter([said("I poke.", call("c1", where="left")), said("done")])
        harness = Harness(tmp_path, lambda *_: next(answers), poke=lambda: go_on.wait(DEADLINE_SECONDS) and "poked")
        id = harness.start("poke it\nand tell")
        wait_until(lambda: harness.manager.snapshot(id).activity.current_tool)
        snapshot = harness.manager.snapshot(id)
        assert snapshot.activity._replace(events=()) == (
            "running tools", "poke", '{"where":"left"}', 1, (("poke", 1),), "I poke.", (), 0,
        )  # fmt: skip
        assert (snapshot.id, snapshot.parent, snapshot.task, snapshot.tools) == (
            id, "lead", "poke it\nand tell", ("poke",),
        )  # fmt: skip
        assert "\n" not in snapshot.display_task
        assert snapshot.ended_at is None
        assert snapshot.is_background
        assert snapshot.started_at
        assert snapshot.created_at <= snapshot.started_at
        assert "[in progress] I poke." in harness.manager.tools.status("lead", id, 0, CancelScope())
        go_on.set()
        after = harness.manager.wait(id, DEADLINE_SECONDS)
        assert (after.state, after.result, after.activity.current_tool) == (State.COMPLETED, "done", "")
        assert snapshot.state is State.RUNNING  # a copy
        kinds = [(event.kind, event.call_id) for event in after.activity.events]
        assert kinds == [
            (EventKind.TEXT, ""),
            (EventKind.TOOL_CALL, "c1"),
            (EventKind.TOOL_RESULT, "c1"),
            (EventKind.TEXT, ""),
        ]

    def test_snapshots_keep_the_newest_two_hundred_events_and_count_the_rest(self) -> None:
        log = ActivityLog()
        for number in range(EVENT_LIMIT + 50):
            log.add(AgentEvent(EventKind.TEXT, str(number)))
        activity = log.look()
        assert len(activity.events) == EVENT_LIMIT
        assert activity.events_dropped == 50
        assert (activity.events[0].text, activity.events[-1].text) == ("50", str(EVENT_LIMIT + 49))

    def test_waiting_for_one_returns_at_once_early_or_when_the_time_is_up(self, tmp_path: Path) -> None:
        harness = Harness(tmp_path, hang)
        id = harness.start()
        assert harness.manager.wait(id, 0).state in (State.PENDING, State.RUNNING)
        assert harness.manager.wait(id, 0.01).state in (State.PENDING, State.RUNNING)
        threading.Timer(0.01, harness.manager.cancel_one, (id,)).start()
        assert harness.manager.wait(id).state is State.CANCELLED
        with pytest.raises(ToolError, match="sa-1"):
            harness.manager.wait("ghost")

    def test_status_waits_for_an_end_and_can_be_interrupted(self, tmp_path: Path) -> None:
        harness, scope = Harness(tmp_path, hang), CancelScope()
        harness.start()
        threading.Timer(0.02, scope.cancel).start()
        with pytest.raises(Cancelled):
            harness.manager.tools.status("lead", "", DEADLINE_SECONDS, scope)
        assert harness.manager.tools.status("alice", "", DEADLINE_SECONDS, CancelScope()) == "(none)"
        harness.program.cancel()


class TestListeners:
    def test_update_listeners_are_called_at_most_ten_times_a_second_and_always_at_the_end(self, tmp_path: Path) -> None:
        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            for _ in range(2_000):
                on_event(TextDelta("."))
            return said("done")

        heard: list[tuple[float, Snapshot]] = []
        harness = Harness(tmp_path, say)
        harness.manager.on_update(lambda snapshot: heard.append((time.monotonic(), snapshot)))
        id = harness.start()
        harness.manager.wait(id, DEADLINE_SECONDS)
        wait_until(lambda: heard and heard[-1][1].state.is_final)
        times = [at for at, _ in heard]
        assert all(later - earlier >= PAUSE_SECONDS * 0.9 for earlier, later in pairwise(times))
        assert heard[-1][1].result == "done"

    def test_closing_delivers_the_last_update_and_a_failing_listener_blocks_no_one(self, tmp_path: Path) -> None:
        heard: list[Snapshot] = []
        harness = Harness(tmp_path)
        harness.manager.on_update(lambda snapshot: 1 // 0)
        harness.manager.on_update(heard.append)
        harness.run()
        harness.run()
        harness.manager.close()
        assert {snapshot.id: snapshot.state for snapshot in heard} == {
            "sa-1": State.COMPLETED,
            "sa-2": State.COMPLETED,
        }

    def test_end_listeners_hear_of_each_end_once_even_if_cancelled(self, tmp_path: Path) -> None:
        ends: list[Snapshot] = []
        harness = Harness(tmp_path, hang)
        harness.manager.on_end(lambda snapshot: 1 // 0)
        harness.manager.on_end(ends.append)
        id = harness.start()
        wait_until(lambda: running(harness, id))
        harness.manager.cancel_one(id)
        harness.manager.wait(id, DEADLINE_SECONDS)
        wait_until(lambda: harness.ended_count)
        assert [(end.id, end.state) for end in ends] == [(id, State.CANCELLED)]


class TestMessages:
    def test_messages_are_read_at_the_next_step_even_during_the_last_answer(self, tmp_path: Path) -> None:
        seen: list[str] = []

        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            seen.append(str(request.messages[-1].content[-1].get("text", "")))
            if len(seen) == 1:
                harness.manager.send("sa-1", "look <left>")
                return said("on my way", call("c1"))
            if len(seen) == 2:
                harness.manager.send("sa-1", "and right")
            return said(f"answer {len(seen)}")

        harness = Harness(tmp_path, say)
        assert harness.run() == "answer 3"
        assert "look &lt;left&gt;" in seen[1]
        assert 'from="user"' in seen[1]
        assert "and right" in seen[2]
        with pytest.raises(ToolError, match="has ended"):
            harness.manager.send("sa-1", "too late")

    def test_a_broadcast_reaches_those_that_have_not_ended(self, tmp_path: Path) -> None:
        harness = Harness(tmp_path, hang)
        ended, running_one = harness.start(), harness.start()
        harness.manager.cancel_one(ended)
        harness.manager.wait(ended, DEADLINE_SECONDS)
        assert harness.manager.broadcast("hello") == [running_one]
        harness.program.cancel()


class TestLedger:
    def test_only_the_usage_of_old_ended_sub_agents_is_kept(self, tmp_path: Path) -> None:
        harness = Harness(tmp_path)
        count = KEPT + 20
        scope = CancelScope()
        for _ in range(count):
            harness.run(cancel=scope)
        assert len(harness.manager.snapshots()) == KEPT
        meters = [agent.meter for agent in harness.manager.agents()]
        assert sum(meter.turns for meter in meters) == count
        assert sum(meter.cost_usd or 0 for meter in meters) == count * 0.5
        gc.collect()
        assert len(scope._children) == 0

    def test_what_an_earlier_program_left_is_reported_once(self, tmp_path: Path) -> None:
        harness = Harness(tmp_path, hang)
        id = harness.start()
        wait_until(lambda: running(harness, id))
        harness.program.cancel("teamcli is leaving")
        harness.manager.close()
        assert harness.posted == []
        for _ in range(2):
            harness.restarted().report_lost()
        (message,) = harness.posted
        assert (message.sender, message.to, message.fields["state"]) == (id, "lead", "cancelled")

    def test_nothing_is_reported_if_the_parent_is_gone_for_good(self, tmp_path: Path) -> None:
        harness = Harness(tmp_path, hang)
        id = harness.start()
        wait_until(lambda: running(harness, id))
        harness.program.cancel("teamcli is leaving")
        harness.manager.close()
        for harness.is_there in (False, True):
            harness.restarted().report_lost()
        assert harness.posted == []

    def test_an_end_that_could_not_be_reported_is_reported_by_the_next_program(self, tmp_path: Path) -> None:
        harness = Harness(tmp_path)
        harness.failure = StateError("the disk is full")
        id = harness.start()
        assert harness.manager.wait(id, DEADLINE_SECONDS).state is State.COMPLETED
        assert any(isinstance(event, Notice) and "disk is full" in event.text for event in harness.events)
        harness.failure = None
        harness.restarted().report_lost()
        (message,) = harness.posted
        assert (message.type, message.content) == ("result", "done")

    def test_a_sub_agent_that_cannot_be_recorded_is_not_started_and_leaves_nothing_open(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        harness = Harness(tmp_path)

        def fail(ledger: Ledger, entry: object) -> None:
            raise StateError("the disk is full")

        monkeypatch.setattr(Ledger, "add", fail)
        with pytest.raises(ToolError, match="the disk is full"):
            harness.start()
        assert harness.released == ["sa-1"]
        assert harness.manager.snapshots() == ()

    def test_a_damaged_ledger_is_reported_and_stops_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "subagents.json").write_text("{")
        harness = Harness(tmp_path)
        harness.manager.report_lost()
        assert any(isinstance(event, Notice) and "subagents.json" in event.text for event in harness.events)
        assert harness.manager.wait(harness.start(), DEADLINE_SECONDS).state is State.COMPLETED

    def test_a_very_long_last_text_reaches_its_parent_with_its_middle_cut_out(self, tmp_path: Path) -> None:
        harness = Harness(tmp_path, lambda *_: said("€" * 300_000))
        harness.manager.wait(harness.start(), DEADLINE_SECONDS)
        assert "characters left out" in harness.posted[0].content
        assert len(harness.posted[0].content) < 60_000
