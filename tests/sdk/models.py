"""Models for sessions that need no endpoint."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

from teamcli import CancelScope, Reply, Request, Usage
from teamcli.llm.types import OnEvent, TextDelta
from tests.support.team_script import agent_of

Say = Callable[[Request, OnEvent, CancelScope], Reply]
_ids = count(1)


def said(text: str, *calls: dict[str, Any]) -> Reply:
    return Reply(({"type": "text", "text": text}, *calls), "tool_use" if calls else "end_turn", Usage(10, 5))


def call(name: str, /, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"call_{next(_ids)}", "name": name, "input": given}


def who_asks(request: Request) -> str:
    return agent_of(request.to_dict())


def results(request: Request) -> list[str]:
    """What the newest calls of an agent have returned."""
    return [str(block["content"]) for block in request.messages[-1].content if block["type"] == "tool_result"]


class Model:
    """Says what a function says; remembers what it was asked, agent by agent."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.requests: list[Request] = []
        self.is_closed = False

    def stream(self, request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        self.requests.append(request)
        return self._say(request, on_event, cancel)

    def warm_up(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


def scripted(**answers: list[Any]) -> Model:
    """`scripted(lead=[…], alice=[…])`: each agent's answers in turn, `Reply` or text; then it has nothing to say."""
    left = {name: iter(each) for name, each in answers.items()}

    def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        answer = next(left.get(who_asks(request), iter(())), "nothing more")
        reply = answer if isinstance(answer, Reply) else said(answer)
        on_event(TextDelta(reply.text))
        return reply

    return Model(say)


class Gate:
    """A model that waits, until it is let go or cancelled, and says when it has begun to."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._is_open = False
        self._waiting: list[threading.Event] = []

    def wait(self, request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        on_event(TextDelta("half of it"))
        mine = threading.Event()
        self._waiting.append(mine)
        self.reached.set()
        if not self._is_open:
            with cancel.on_cancel(mine.set):
                mine.wait(60)
        cancel.check()
        return said("the whole of it")

    def open(self) -> None:
        self._is_open = True
        for each in self._waiting:
            each.set()
