"""Where a watcher gets its events if there is no channel: from the transcripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamcli.agent.conversation import text_block
from teamcli.agent.events import Event
from teamcli.session import watch_source
from teamcli.session.follower import Follower
from teamcli.session.watch_client import Snapshots
from teamcli.session.watch_source import Remark, TeamSource
from teamcli.storage.team_dir import LeadLock
from tests.session.test_watching import ALICE, Scene, answer, words


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_lead_without_a_channel_is_followed_by_its_transcripts(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_source, "CHANNEL_SECONDS", 0.0)
    scene.write(ALICE, answer(text_block("one")))
    lock = LeadLock.take(scene.state.lock)
    assert lock is not None
    # What happens at each pause of the watcher.
    happens = iter([lambda: scene.write(ALICE, answer(text_block("two"))), lambda: None, lock.release, lambda: None])
    source = TeamSource(scene.state, ALICE, lambda client: next(happens)())
    remarks: list[str] = []
    shown: list[Event] = []
    follower = Follower(ALICE)
    for item in source.items():
        if isinstance(item, Snapshots):
            shown += follower.begin(item.snapshots)
        elif isinstance(item, Remark):
            remarks.append(item.text)
            if "has left" in item.text:
                break
    assert [each for each in words(shown) if each != "recorded"] == ["text:one", "text:two"]
    assert "has no live channel here" in remarks[0]


def test_everyone_means_the_lead_and_who_is_in_the_roster(scene: Scene) -> None:
    members = [{"name": "alice", "role": "coder", "status": "shutdown"}, {"name": "bob", "role": "x", "status": "idle"}]
    scene.state.config.write_text(f'{{"members": {members}}}'.replace("'", '"'))
    first = next(TeamSource(scene.state, "", lambda client: None).items())
    assert isinstance(first, Snapshots)
    assert [snapshot.agent for snapshot in first.snapshots] == ["lead", "alice", "bob"]
