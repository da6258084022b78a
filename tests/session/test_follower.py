"""A watcher that loses the stream and continues from the transcript: each step is shown once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from teamcli.agent import events
from teamcli.agent.conversation import Conversation, text_block
from teamcli.agent.events import Event
from teamcli.agent.tool import Display
from teamcli.session.follower import Follower
from teamcli.session.watching import AgentSnapshot
from teamcli.storage.tail import file_identity
from tests.session.test_watching import ALICE, Scene, call, reply, result, words


class Watcher:
    """A watcher of alice, with a stream that can be cut off."""

    def __init__(self, scene: Scene, agent: str = ALICE) -> None:
        self._scene = scene
        self._follower = Follower(agent)
        self.shown: list[Event] = []

    def attach(self) -> None:
        self._scene.bus.subscribe(self._see)
        self.shown += self._follower.begin([self._scene.snapshot()])

    def detach(self) -> None:
        self._scene.bus.unsubscribe(self._see)

    def look_at_files(self) -> None:
        path = self._scene.path(ALICE)
        self.shown += self._follower.begin([AgentSnapshot(ALICE, path, *file_identity(path))])

    def _see(self, event: Event) -> None:
        self.shown += self._follower.follow(event)

    @property
    def words(self) -> list[str]:
        return words(self.shown)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
def watcher(scene: Scene) -> Watcher:
    return Watcher(scene)


def restarted(scene: Scene) -> tuple[Scene, Conversation]:
    """The same directory, led by a new process."""
    again = Scene.__new__(Scene)
    again.__dict__.update(scene.__dict__)
    return again, again.open()


def mail(text: str, id: str = "m1") -> dict[str, Any]:
    frame = f'<message from="bob" type="message" id="{id}" time="t">{text}</message>'
    return {"content": [text_block(frame)], "marks": {"mail": [id]}}


def test_an_answer_of_which_half_was_shown_continues_where_it_stopped(scene: Scene, watcher: Watcher) -> None:
    scene.open()
    watcher.attach()
    scene.bus(events.TextArrived(ALICE, "one "))
    watcher.detach()
    scene.bus(events.TextArrived(ALICE, "two "))
    watcher.attach()
    scene.bus(events.TextArrived(ALICE, "three"))
    assert watcher.words == ["text:one two three"]


def test_an_answer_that_was_recorded_meanwhile_is_completed(scene: Scene, watcher: Watcher) -> None:
    conversation = scene.open()
    watcher.attach()
    scene.bus(events.TextArrived(ALICE, "one two th"))
    watcher.detach()
    conversation.add_reply(reply(text_block("one "), text_block("two three")), None)
    watcher.attach()
    assert watcher.words == ["text:one two three", "recorded"]


def test_an_answer_that_was_lost_with_the_lead_stays_as_it_is(scene: Scene, watcher: Watcher) -> None:
    conversation = scene.open()
    watcher.attach()
    scene.bus(events.TextArrived(ALICE, "lost"))
    watcher.detach()
    conversation.close()
    scene, conversation = restarted(scene)
    conversation.add_reply(reply(text_block("another answer")), None)
    watcher.attach()
    assert watcher.words == ["text:lostanother answer", "recorded"]


def test_a_call_that_was_shown_is_not_shown_again_with_its_recorded_result(scene: Scene, watcher: Watcher) -> None:
    conversation = scene.open()
    conversation.add_user(**mail("go"))
    conversation.add_reply(reply(call("1", "bash", command="ls"), call("2", "bash", command="pwd")), None)
    watcher.attach()
    scene.bus(events.ToolFinished(ALICE, "1", "bash", Display("$ ls"), "x", False, 0.1))
    watcher.detach()
    conversation.add_user([result("1", "x"), result("2", "y")])
    watcher.attach()
    assert [each for each in watcher.words if each.startswith("call")] == ["call:1:$ ls", "call:2:$ pwd"]


def test_a_report_that_was_shown_is_not_shown_again(scene: Scene, watcher: Watcher) -> None:
    conversation = scene.open()
    watcher.attach()
    conversation.note({"kind": "end", "type": "result", "text": "done"})
    scene.bus(events.MailSent(ALICE, "lead", "result", "done", {}))
    watcher.detach()
    conversation.add_user(**mail("thanks"))
    watcher.attach()
    assert watcher.words == ["mail:alice>lead:done", "mail:bob>alice:thanks"]


def test_what_was_recorded_while_nobody_led_is_shown_from_the_file(scene: Scene, watcher: Watcher) -> None:
    conversation = scene.open()
    watcher.attach()
    conversation.add_user(**mail("one"))
    watcher.detach()
    conversation.add_user(**mail("two", "m2"))
    watcher.look_at_files()
    watcher.look_at_files()
    scene, conversation = restarted(scene)
    watcher.attach()
    conversation.add_user(**mail("three", "m3"))
    assert watcher.words == ["mail:bob>alice:one", "mail:bob>alice:two", "mail:bob>alice:three"]


def test_a_new_incarnation_is_shown_from_its_beginning(scene: Scene, watcher: Watcher) -> None:
    conversation = scene.open()
    watcher.attach()
    conversation.add_user(**mail("old"))
    watcher.detach()
    conversation.close()
    scene.path(ALICE).rename(scene.path("archived"))
    scene, conversation = restarted(scene)
    conversation.add_user([text_block("new work")], marks={"work": {"number": 1, "began": 8.0}})
    watcher.attach()
    assert watcher.words == ["mail:bob>alice:old", "mail:lead>alice:new work"]


def test_a_retry_shows_the_new_answer_whole(scene: Scene, watcher: Watcher) -> None:
    scene.open()
    watcher.attach()
    scene.bus(events.TextArrived(ALICE, "half"))
    watcher.detach()
    scene.bus(events.RetryScheduled(ALICE, 1.0, 1, 60.0, "server error (500)"))
    scene.bus(events.TextArrived(ALICE, "whole"))
    watcher.attach()
    assert words(watcher.shown[-1:]) == ["text:whole"]


def test_a_watcher_of_everyone_sees_a_message_between_agents_once(scene: Scene) -> None:
    conversation = scene.open()
    conversation.add_user(**mail("from bob"))
    outside = '<message from="outside" claims="me" type="message" id="x" time="t">hi</message>'
    conversation.add_user([text_block(outside)], marks={"mail": ["x"]})
    watcher = Watcher(scene, agent="")
    watcher.attach()
    scene.bus(events.MailSent("bob", ALICE, "message", "again from bob", {}))
    conversation.add_user(**mail("again from bob", "m3"))
    assert watcher.words == ["mail:outside>alice:(claims to be me) hi", "mail:bob>alice:again from bob"]


def test_a_watcher_of_everyone_sees_steps_in_the_order_of_time(scene: Scene) -> None:
    for name, at in (("lead", 1.0), (ALICE, 2.0), ("lead", 3.0)):
        scene.write(name, {"kind": "assistant", "ts": at, "content": [text_block(f"{name} {at}")]})
    snapshots = [scene.snapshot("lead"), scene.snapshot(ALICE)]
    assert [each for each in words(Follower().begin(snapshots)) if each != "recorded"] == [
        "text:lead 1.0",
        "text:alice 2.0",
        "text:lead 3.0",
    ]
