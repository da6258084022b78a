from __future__ import annotations

from pathlib import Path

from teamcli.agent.events import Notice, TextArrived
from teamcli.session.timeline import Timeline
from teamcli.storage.files import AppendLog, read_lines
from tests.support.waiting import wait_until


def journal(path: Path, complaints: list[str]) -> Timeline:
    return Timeline(AppendLog(path, durable=False, is_shared=False), complaints.append)


def texts(path: Path) -> list[str]:
    return [row["text"] for _, row in read_lines(path) if row is not None]


def test_closing_writes_all_that_happened_in_order(tmp_path: Path) -> None:
    timeline = journal(tmp_path / "events.jsonl", [])
    for number in range(500):
        timeline(Notice("lead", str(number)))
        timeline(TextArrived("lead", "merely streams past"))
    timeline.close()
    assert texts(tmp_path / "events.jsonl") == [str(number) for number in range(500)]


def test_a_line_is_there_soon_without_closing(tmp_path: Path) -> None:
    timeline = journal(tmp_path / "events.jsonl", [])
    for number in range(3):
        timeline(Notice("lead", str(number)))
        wait_until(lambda number=number: texts(tmp_path / "events.jsonl")[-1:] == [str(number)])
    timeline.close()


def test_a_timeline_in_which_nothing_happened_is_closed_at_once(tmp_path: Path) -> None:
    journal(tmp_path / "events.jsonl", []).close()
    assert texts(tmp_path / "events.jsonl") == []


def test_a_gap_is_told_once(tmp_path: Path) -> None:
    complaints: list[str] = []
    log = AppendLog(tmp_path / "events.jsonl", durable=False, is_shared=False)
    timeline = Timeline(log, complaints.append)
    log.close()
    timeline(Notice("lead", "one"))
    wait_until(lambda: bool(complaints))
    timeline(Notice("lead", "two"))
    timeline.close()
    assert len(complaints) == 1
    assert "The timeline has a gap" in complaints[0]
