"""Events as JSON: every kind survives the way there and back, and nothing else gets through."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from teamcli.agent import events
from teamcli.agent.conversation import text_block
from teamcli.agent.events import Event, Outcome, Severity
from teamcli.agent.tool import Display
from teamcli.errors import TeamcliError
from teamcli.llm.types import Message, Usage
from teamcli.session.event_codec import decode_event, encode_event

EVENTS: list[Event] = [
    events.TurnStarted("alice"),
    events.LineTaken("lead", "say hi"),
    events.TextArrived("alice", "hé\n"),
    events.ThinkingArrived("alice", "hm"),
    events.CallStarted("alice", "bash"),
    events.StillArriving("alice"),
    events.RetryScheduled("alice", 1.5, 2, 60.0, "rate limit reached (429)", False),
    events.Answered("alice", "model", "end_turn", Usage(1, 2, 3, 4), None),
    events.Recorded("alice", Message("user", (text_block("x"),)), 120, {"mail": ["msg_1"]}),
    events.ToolStarted("alice", "1", "bash", Display("$ ls", "", "$ ls -l")),
    events.ToolProgress("alice", "1", "out"),
    events.ToolFinished("alice", "1", "bash", Display("$ ls"), "out", True, 0.25),
    events.ToolFinished("alice", "2", "bash", Display("$ rm"), "no", True, 0.0, events.Refusal("you", "too risky")),
    events.PermissionAsked("alice", "bash", "$ rm"),
    events.PermissionGiven("alice", "1", "bash", 2.5),
    events.PermissionDenied("alice", "bash", "$ rm", "no", "bash(rm:*)", True),
    events.Notice("lead", "careful", Severity.WARNING),
    events.MailSent("alice", "lead", "result", "done", {"by_user": True}),
    events.StatusChanged("alice", "working", {"role": "coder"}),
    events.TaskChanged("alice", 3, "claimed", "fix it", "in_progress", None),
    events.MergeEnded("alice", "main", "merged", "Merged", ("1a2b",), ("a.py", "b.py"), True),
    events.Compacted("alice", 1000, 100, True),
    events.LimitHit("alice", "too many", "max_turns", True),
    events.TurnEnded("alice", Outcome.DONE, "done", 2.5),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_survives_the_way_there_and_back(event: Event) -> None:
    back = decode_event(json.loads(json.dumps(encode_event(event))))
    assert (type(back), back) == (type(event), event)


def test_every_kind_of_event_is_tried() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))


def test_an_error_arrives_as_its_text() -> None:
    failed = events.TurnEnded("alice", Outcome.FAILED, "", 1.0, OSError("the disk is full"))
    back = decode_event(json.loads(json.dumps(encode_event(failed))))
    assert isinstance(back, events.TurnEnded)
    assert (type(back.error), str(back.error)) == (TeamcliError, "the disk is full")


def test_a_field_of_a_newer_version_is_left_out() -> None:
    assert decode_event({"event": "TurnStarted", "agent": "a", "mood": "good"}) == events.TurnStarted("a")


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"event": "SomethingNew", "agent": "a"},
        {"event": "TextArrived", "agent": "a"},
        {"event": "TextArrived", "agent": "a", "text": 7},
        {"event": ["TextArrived"], "agent": "a", "text": "x"},
        {"event": "Recorded", "agent": "a", "message": {"role": "root", "content": []}},
        {"event": "Notice", "agent": "a", "text": "x", "severity": "loud"},
        {"event": "ToolStarted", "agent": "a", "call_id": "1", "tool": "bash", "display": "ls"},
        {"event": "MergeEnded", "agent": "a", "target": "m", "outcome": "merged", "text": "x", "files": [7]},
    ],
)
def test_what_is_not_an_event_is_ignored(value: object) -> None:
    assert decode_event(value) is None
