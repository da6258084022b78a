"""Hooks of one event that run at the same time. One may say that nothing needs to wait for it any longer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial

from teamcli.agent.hooks import HookResult

Release = Callable[[HookResult], None]
Work = Callable[[Release], HookResult]
"""Runs a hook. It may call its argument, and nothing waits for it from then on."""
OnLate = Callable[[HookResult], None]


def run_together(works: Sequence[Work], on_late: Callable[[int, HookResult], None]) -> list[HookResult]:
    """The results, in the order of `works`. What a hook says when nothing waits for it goes to `on_late`.

    Raises: what one of them raises, when all have ended
    """
    started = [_start(work, partial(on_late, position)) for position, work in enumerate(works)]
    wait(started)
    return [each.result() for each in started]


def _start(work: Work, on_late: OnLate) -> Future[HookResult]:
    done: Future[HookResult] = Future()
    try:
        threading.Thread(target=_run, args=(work, on_late, done), name="hook", daemon=True).start()
    except RuntimeError:  # the system has no thread left
        _run(work, on_late, done)
    return done


def _run(work: Work, on_late: OnLate, done: Future[HookResult]) -> None:
    try:
        result = work(lambda now: None if done.done() else done.set_result(now))
    except BaseException as e:  # noqa: BLE001 - raised again in the thread that waits, if there is one
        if not done.done():
            done.set_exception(e)
        return
    if done.done():
        on_late(result)
    else:
        done.set_result(result)
