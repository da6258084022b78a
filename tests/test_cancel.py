from __future__ import annotations

import gc
import threading
import weakref
from contextlib import ExitStack

import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled


def test_cancel_goes_down_and_not_up() -> None:
    program = CancelScope()
    agent = program.child()
    turn, other = agent.child(), program.child()
    agent.cancel("enough")
    assert (agent.cancelled, turn.cancelled, turn.reason) == (True, True, "enough")
    assert (program.cancelled, other.cancelled) == (False, False)


def test_a_child_of_a_cancelled_scope_starts_out_cancelled() -> None:
    scope = CancelScope()
    scope.cancel("over")
    assert scope.child().reason == "over"
    with pytest.raises(Cancelled, match="over"):
        scope.child().check()


def test_the_first_reason_stays_and_callbacks_run_once() -> None:
    scope = CancelScope()
    calls: list[str] = []
    with scope.on_cancel(lambda: calls.append("x")):
        scope.cancel("first")
        scope.cancel("second")
    assert (scope.reason, calls) == ("first", ["x"])


def test_a_callback_registered_too_late_runs_at_once_and_one_that_left_does_not_run() -> None:
    scope = CancelScope()
    calls: list[str] = []
    with scope.on_cancel(lambda: calls.append("gone")):
        pass
    scope.cancel()
    with scope.on_cancel(lambda: calls.append("late")):
        assert calls == ["late"]


def test_a_callback_that_raises_leaves_nothing_uncancelled(caplog: pytest.LogCaptureFixture) -> None:
    scope = CancelScope()
    child, calls = scope.child(), list[str]()
    callbacks = [lambda: 1 // 0, lambda: calls.append("called")]
    with ExitStack() as stack:
        for each in (scope, child):
            for callback in callbacks:
                stack.enter_context(each.on_cancel(callback))
        scope.cancel("enough")
    assert (child.cancelled, child.reason, calls) == (True, "enough", ["called", "called"])
    assert caplog.text.count("ZeroDivisionError") == 2


def test_wait_ends_when_another_thread_cancels() -> None:
    scope = CancelScope()
    threading.Thread(target=scope.cancel).start()
    assert scope.wait(30)


def test_100_000_finished_children_leave_nothing_behind() -> None:
    parent = CancelScope()
    last = None
    for _ in range(100_000):
        last = weakref.ref(parent.child())
    gc.collect()
    assert last is not None
    assert last() is None
    assert len(parent._children) == 0


def test_a_live_child_keeps_its_line_of_parents_alive() -> None:
    program = CancelScope()
    grandchild = program.child().child()
    gc.collect()
    program.cancel()
    assert grandchild.cancelled
