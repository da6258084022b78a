"""Scripts for a whole team: each agent has its own list of answers. The system prompt tells who is asking."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.support.answers import user_texts
from tests.support.waiting import wait_until


def agent_of(request: dict[str, Any]) -> str:
    """Whose request this is. A fork has its parent's system prompt; a message says who it is."""
    told = [words for message in request["messages"] if message["role"] == "user" for words in user_texts(message)]
    forked = [found[1] for text in told if (found := re.match(r"<fork>You are (sa-\d+), a sub-agent", text))]
    if forked:
        return forked[-1]
    found = re.match(r"You are ([\w-]+), (?:(.*?) in a team|a sub-agent)", request["system"][0]["text"])
    return found[1] if found else "lead"


class After(NamedTuple):
    """An answer that waits until the lead has made so many requests. A faster teammate would be heard in the middle of
    the lead's turn, and would not wake it afterwards."""

    lead_requests: int
    answer: Any


class TeamScript:
    """`TeamScript(lead=[...], alice=[...])`; an answer may be a function of the request. More requests are breaches."""

    def __init__(self, **answers: Sequence[Any] | Callable[[dict[str, Any], int], Any]) -> None:
        self._answers: Mapping[str, Any] = answers
        self._counts: dict[str, int] = defaultdict(int)
        self._lock = threading.Lock()
        self.requests: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def __call__(self, request: dict[str, Any], n: int) -> Any:
        name = agent_of(request)
        with self._lock:
            number = self._counts[name]
            self._counts[name] += 1
            self.requests[name].append(request)
        answers = self._answers.get(name, ())
        if callable(answers):
            return answers(request, number)
        answer = answers[number] if number < len(answers) else None
        if isinstance(answer, After):
            wanted, answer = answer
            wait_until(lambda: len(self.requests["lead"]) >= wanted)
        return answer(request) if callable(answer) and not hasattr(answer, "blocks") else answer
