"""The sub-agents of this run by id: the limit per parent, waiting for their end, and what forgotten ones have used."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from teamcli.agent.loop import Agent
from teamcli.cancel import CancelScope
from teamcli.errors import ToolError
from teamcli.subagents.subagent import SubAgent

KEPT = 200
"""How many ended ones are remembered. Of older ones only their usage is kept."""
EARLIER = "earlier sub-agents"


class SubAgentRegistry:
    def __init__(self, transcripts: Path, max_unfinished: int) -> None:
        """`max_unfinished` is how many of one parent may be running or pending."""
        self._transcripts = transcripts
        self._max_unfinished = max_unfinished
        self._all: dict[str, SubAgent] = {}
        self._reserved: dict[str, str] = {}
        """The ids of those that are being built, with their parents."""
        self._ended: deque[str] = deque()
        self._earlier: Agent | None = None
        self._last_number: int | None = None
        self._changed = threading.Condition()

    @contextmanager
    def reserved_id(self, parent: str) -> Iterator[str]:
        """A new id, which counts toward the limit of `parent` inside the block.

        Raises: ToolError, if the limit is reached
        """
        with self._changed:
            unfinished = [sub.parent for sub in self._all.values() if not sub.state.is_final]
            count = [*unfinished, *self._reserved.values()].count(parent)
            if count >= self._max_unfinished:
                raise ToolError(
                    f"{count} of your sub-agents are running or pending, and `limits.subagents` allows no more: "
                    "wait for some to end, or stop some with agent_stop"
                )
            if self._last_number is None:  # ids of earlier runs are taken: their transcripts are kept
                numbers = (path.stem.partition("-")[2] for path in self._transcripts.glob("sa-*.jsonl"))
                self._last_number = max((int(number) for number in numbers if number.isdecimal()), default=0)
            self._last_number += 1
            id = f"sa-{self._last_number}"
            self._reserved[id] = parent
        try:
            yield id
        finally:
            with self._changed:
                del self._reserved[id]

    def add(self, sub: SubAgent) -> None:
        with self._changed:
            self._all[sub.id] = sub

    def get(self, id: str) -> SubAgent | None:
        return self._all.get(id)

    def all(self, parent: str | None = None) -> list[SubAgent]:
        """All, or those of one parent, in the order in which they were started."""
        with self._changed:
            found = [sub for sub in self._all.values() if parent in (None, sub.parent)]
        return sorted(found, key=lambda sub: int(sub.id.partition("-")[2]))

    def find(self, id: str, parent: str | None = None) -> SubAgent:
        """Raises: ToolError, listing the ids there are."""
        by_id = {sub.id: sub for sub in self.all(parent)}
        if id not in by_id:
            raise ToolError(f"id: there is no sub-agent '{id}'; there are: {', '.join(by_id) or 'none'}")
        return by_id[id]

    def agents(self) -> list[Agent]:
        """The agents of all sub-agents of this run. Forgotten ones are summed up in one."""
        earlier = [self._earlier] if self._earlier else []
        return [*earlier, *(sub.built.agent for sub in self.all() if sub.built)]

    def wait_for_any(self, subs: Iterable[SubAgent], seconds: float, cancel: CancelScope) -> None:
        """Raises: Cancelled."""
        running = [sub for sub in subs if not sub.state.is_final]
        if seconds <= 0 or not running:
            return
        with cancel.notifying(self._changed), self._changed:
            self._changed.wait_for(lambda: cancel.cancelled or any(sub.state.is_final for sub in running), seconds)
        cancel.check()

    def wait_for_all(self, subs: Iterable[SubAgent], seconds: float | None) -> None:
        subs = tuple(subs)
        with self._changed:
            self._changed.wait_for(lambda: all(sub.state.is_final for sub in subs), seconds)

    def retire(self, sub: SubAgent) -> None:
        """It has ended: wake those who wait for it, and forget the oldest ended one if there are too many."""
        with self._changed:
            self._ended.append(sub.id)
            if len(self._ended) > KEPT:
                self._forget(self._all.pop(self._ended.popleft()))
            self._changed.notify_all()

    def _forget(self, sub: SubAgent) -> None:
        if sub.built is None:
            return
        agent = sub.built.agent
        if self._earlier is None:
            self._earlier = replace(agent, toolset=agent.toolset._replace(agent=EARLIER))
        else:
            self._earlier.meter.absorb(agent.meter)
