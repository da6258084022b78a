from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from teamcli.agent.events import Notice, TextArrived
from teamcli.session.timeline import Timeline
from teamcli.storage.files import read_lines
from tests.support.logs import ENGINES, OpenLog, timelines_in
from tests.support.waiting import wait_until


@pytest.fixture(params=ENGINES)
def opened(request: pytest.FixtureRequest) -> Iterator[OpenLog]:
    with timelines_in(request.param, request) as open_log:
        yield open_log


def journal(opened: OpenLog, path: Path) -> Timeline:
    return Timeline(opened(path), lambda text: None)


def texts(path: Path) -> list[str]:
    return [row["text"] for _, row in read_lines(path) if row is not None]


def test_closing_writes_all_that_happened_in_order(tmp_path: Path, opened: OpenLog) -> None:
    timeline = journal(opened, tmp_path / "events.jsonl")
    for number in range(500):
        timeline(Notice("lead", str(number)))
        timeline(TextArrived("lead", "merely streams past"))
    timeline.close()
    assert texts(tmp_path / "events.jsonl") == [str(number) for number in range(500)]


def test_a_line_is_there_soon_without_closing(tmp_path: Path, opened: OpenLog) -> None:
    timeline = journal(opened, tmp_path / "events.jsonl")
    for number in range(3):
        timeline(Notice("lead", str(number)))
        wait_until(lambda number=number: texts(tmp_path / "events.jsonl")[-1:] == [str(number)])
    timeline.close()


def test_a_timeline_in_which_nothing_happened_is_closed_at_once(tmp_path: Path, opened: OpenLog) -> None:
    journal(opened, tmp_path / "events.jsonl").close()
    assert texts(tmp_path / "events.jsonl") == []


def test_a_gap_is_reported_once(tmp_path: Path, opened: OpenLog) -> None:
    complaints: list[str] = []
    log = opened(tmp_path / "events.jsonl")
    timeline = Timeline(log, complaints.append)
    log.close()
    timeline(Notice("lead", "one"))
    wait_until(lambda: bool(complaints))
    timeline(Notice("lead", "two"))
    timeline.close()
    assert len(complaints) == 1
    assert "The timeline has a gap" in complaints[0]
