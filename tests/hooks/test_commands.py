"""Hooks as processes: what they are given, and that nothing of them stays."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from teamcli.agent.events import Notice
from teamcli.agent.hooks import HookEvent, HookResult
from teamcli.cancel import CancelScope
from teamcli.config.settings import HookCommand, HookGroup
from teamcli.errors import Cancelled
from teamcli.exec.command_host import CommandHost
from teamcli.hooks.commands import Ports, command_hooks
from teamcli.hooks.runner import HookRunner, combine
from tests.tools.shell import needs_proc, new_mark, processes_with, wait_until


@pytest.fixture
def host() -> Iterator[CommandHost]:
    host = CommandHost(os.environ)
    yield host
    host.close()


class Hooked:
    def __init__(self, host: CommandHost, root: Path, *hooks: HookCommand) -> None:
        self.notices: list[str] = []
        groups = {"PreToolUse": (HookGroup(hooks),)}
        self._hooks = HookRunner(command_hooks(groups, Ports(host, root, self._note)), self._note, lambda agent: {})
        self.cancel = CancelScope()

    def _note(self, event: Any) -> None:
        assert isinstance(event, Notice)
        self.notices.append(event.text)

    def call(self, **tool_input: object) -> HookResult:
        event = HookEvent("PreToolUse", "lead", {"tool_name": "bash", "tool_input": tool_input}, "bash")
        return self._hooks.run(event, self.cancel)


@needs_proc
def test_nothing_outlives_a_hook_that_takes_too_long_or_is_cancelled(host: CommandHost, tmp_path: Path) -> None:
    mark = new_mark()
    endless = f"export MARK={mark}; setsid sleep 100 & (sleep 100 &) ; touch began; sleep 100"
    slow = Hooked(host, tmp_path, HookCommand(endless, timeout=0.3))
    assert slow.call() == HookResult()
    assert processes_with(mark) == []
    assert len(slow.notices) == 1
    assert "took too long" in slow.notices[0]

    (tmp_path / "began").unlink(missing_ok=True)
    hooked = Hooked(host, tmp_path, HookCommand(endless))
    caught: list[Exception] = []

    def run() -> None:
        try:
            hooked.call()
        except Cancelled as e:
            caught.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until((tmp_path / "began").exists)
    hooked.cancel.cancel()
    thread.join()
    assert caught
    assert processes_with(mark) == []
    assert hooked.notices == []


def test_unread_input_and_endless_output_block_nothing(host: CommandHost, tmp_path: Path) -> None:
    ignores = HookCommand("exit 0")
    reads = HookCommand("wc -c > size")
    floods = HookCommand("head -c 3000000 /dev/zero | tr '\\0' x | tee /dev/stderr; exit 2")
    result = Hooked(host, tmp_path, ignores, reads, floods).call(command="y" * 2_000_000)
    assert int((tmp_path / "size").read_text()) > 2_000_000
    assert result.objection is not None
    assert 1000 < len(result.objection) < 40_000


def test_concurrent_hooks_each_get_their_own_input(host: CommandHost, tmp_path: Path) -> None:
    hooked = Hooked(host, tmp_path, HookCommand("grep -o 'n[0-9]*-' >&2; exit 2"))
    said: dict[int, str | None] = {}
    threads = [
        threading.Thread(target=lambda n=n: said.update({n: hooked.call(command=f"n{n}-").objection})) for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {n: f"n{n}-" for n in range(6)}


def test_objections_add_up_and_ask_wins_over_allow() -> None:
    assert combine(HookResult("a"), HookResult("b")).objection == "a\nb"
    assert combine(HookResult(), HookResult("")).objection == ""
    assert combine(HookResult(wish="ask", reason="why"), HookResult(wish="allow")) == HookResult(
        wish="ask", reason="why"
    )
    assert combine(HookResult(changed_input={"a": 1}), HookResult()).changed_input == {"a": 1}
    assert combine(HookResult(changed_input={"a": 1}), HookResult(changed_input={})).changed_input == {}
