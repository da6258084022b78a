"""`session.tasks`: the board as a program uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from teamcli import Task, TaskStatus, TeamError, UsageError
from teamcli.events import TaskChanged
from tests.sdk.conftest import Open
from tests.sdk.models import scripted


def test_a_program_lists_gets_creates_and_updates_tasks(opened: Open, place: Path) -> None:
    session = opened(llm=scripted())
    first = session.tasks.create("Build it", "with care")
    second = session.tasks.create("Test it", blocked_by=[first.id], owner="lead")
    assert session.tasks.list() == (first, second)
    changed = session.tasks.update(1, status="completed", result="built", subject="Build all")
    assert (changed.status, changed.result, changed.subject) == (TaskStatus.COMPLETED, "built", "Build all")
    assert isinstance(session.tasks.get(1), Task)
    assert session.tasks.get(1) == changed
    assert session.tasks.update(2, owner="", blocked_by=[]).is_free
    assert json.loads((place / ".team/tasks/1.json").read_bytes())["created_by"] == "user"


def test_refusals_are_explained(opened: Open) -> None:
    session = opened(llm=scripted())
    with pytest.raises(TeamError, match=r"^no task 1 \(there are none\)$"):
        session.tasks.get(1)
    with pytest.raises(TeamError, match=r"^there is no 'bob' who could own a task \(there are: lead\)$"):
        session.tasks.create("x", owner="bob")
    session.tasks.create("x")
    with pytest.raises(UsageError, match=r"^there is no status 'done' for a task"):
        session.tasks.update(1, status="done")


def test_a_closed_session_changes_nothing(opened: Open) -> None:
    session = opened(llm=scripted())
    tasks = session.tasks
    session.close()
    with pytest.raises(UsageError, match="closed"):
        tasks.create("x")
    assert tasks.list() == ()


def test_every_change_is_an_event(opened: Open) -> None:
    session = opened(llm=scripted())
    seen: list[TaskChanged] = []
    session.subscribe(seen.append, TaskChanged)
    session.tasks.create("x")
    session.tasks.update(1, status="in_progress")
    session.wait()
    assert [(event.agent, event.text, event.owner) for event in seen] == [
        ("user", "task 1 created: x", None),
        ("user", "task 1 claimed: x", "user"),
    ]
