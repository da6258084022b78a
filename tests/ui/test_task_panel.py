"""The board above the status bar: what matters first, live, at every width."""

from __future__ import annotations

import json
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import pytest

from teamcli.commands.reports.tasks import by_urgency
from teamcli.session.session import Session
from teamcli.tasks.board import Task, TaskChange, TaskStatus
from teamcli.tasks.stored_board import StoredBoard
from teamcli.tasks.task_files import TaskFiles
from teamcli.ui.terminal.fragments import width_of
from teamcli.ui.terminal.task_panel import FEWEST_LINES, MOST_LINES, TaskPanel
from tests.support.fake_api import answer, stall_after, text, tool
from tests.support.program import Program
from tests.support.screen import Screen
from tests.support.team_script import After, TeamScript
from tests.support.waiting import DEADLINE_SECONDS

PENDING, IN_PROGRESS, DONE = TaskStatus.PENDING, TaskStatus.IN_PROGRESS, TaskStatus.COMPLETED
CTRL_T = "\x14"


def task(id: int, status: TaskStatus, *blocked_by: int) -> Task:
    return Task(id, f"task {id}", "", status, None, blocked_by, "lead", 0.0, 0.0)


def test_what_is_in_progress_comes_first_then_ready_then_blocked_then_done() -> None:
    tasks = [task(1, DONE), task(2, PENDING, 5), task(3, DONE), task(4, PENDING, 1), task(5, IN_PROGRESS)]
    assert [each.id for each in by_urgency(tasks)] == [5, 4, 2, 3, 1]


class TestRoom:
    @pytest.fixture
    def board(self, tmp_path: Path) -> StoredBoard:
        board = StoredBoard(TaskFiles(tmp_path / "tasks"), lambda: ["alice"])
        for number in range(1, 13):
            board.create("lead", f"Step {number} " + "of a long subject " * 8, owner="alice" if number == 12 else None)
        board.update("alice", 12, TaskChange(status=IN_PROGRESS))
        return board

    @pytest.fixture
    def drawings(self) -> SimpleQueue[bool]:
        """One entry for each."""
        return SimpleQueue()

    @pytest.fixture
    def panel(self, board: StoredBoard, drawings: SimpleQueue[bool]) -> TaskPanel:
        source = SimpleNamespace(exists=True, open=lambda: board)
        team = SimpleNamespace(roster=SimpleNamespace(members=list))
        panel = TaskPanel(
            cast(Session, cast(Any, SimpleNamespace(board=source, team=team))), lambda: drawings.put(True)
        )
        panel.toggle()
        drawings.get(timeout=DEADLINE_SECONDS)
        return panel

    @pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
    @pytest.mark.parametrize("room", [0, 3, 5, 10, 50])
    def test_it_fits_and_says_how_many_more_there_are(self, panel: TaskPanel, width: int, room: int) -> None:
        lines = panel.lines(width, room)
        assert len(lines) == max(FEWEST_LINES, min(room, MOST_LINES))
        assert all(width_of(line) <= width for line in lines)
        words = ["".join(text for text, _ in line) for line in lines]
        assert words[1].startswith("  ● 12 Step")
        assert words[-1] == f"    … {12 - (len(lines) - 2)} more (/tasks)"[:width]

    @pytest.mark.parametrize("width", [40, 60, 80, 120])
    def test_the_subject_is_shortened_and_owner_and_blockers_are_not(
        self, panel: TaskPanel, board: StoredBoard, drawings: SimpleQueue[bool], width: int
    ) -> None:
        board.update("user", 1, TaskChange(owner="alice", blocked_by=tuple(range(2, 12))))
        for number in range(2, 12):
            board.update("user", number, TaskChange(blocked_by=(12,)))
        for _ in range(2):
            panel.toggle()
            drawings.get(timeout=DEADLINE_SECONDS)
        working, blocked = ("".join(text for text, _ in line) for line in panel.lines(width)[1:3])
        assert working.endswith("…  alice  stalled")
        assert "…  alice  blocked by " in blocked


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_board_is_live_with_owners_and_blockers(program: Program, columns: int) -> None:
    script = TeamScript(
        lead=[
            tool("task_create", subject="Build the parser"),
            tool("task_create", subject="Test the parser", blocked_by=[1]),
            tool("spawn_teammate", name="alice", role="coder", prompt="x"),
            text("planned"),
            text("fine"),
        ],
        alice=[tool("task_update", id=1, status="in_progress"), After(4, tool("bash", command="sleep 300")), text("x")],
    )
    bypass = ("--permission-mode", "bypassPermissions")
    with program.against(script), Screen(program, *bypass, columns=columns, lines=24) as screen:
        screen.wait_for("team >>")
        screen.type(CTRL_T)
        screen.wait_for("Tasks: none yet")
        screen.type("go\r")
        screen.wait_for_all("● 1 Build the parser  alice", "○ 2 Test the parser  blocked by 1")
        assert program.run("tasks", "add", "Write it down").code == 0
        screen.wait_for_all("Tasks: 2 pending, 1 in progress", "○ 3 Write it down", "○ 2 Test the parser  blocked by 1")
        assert screen.text.index("○ 3 Write") < screen.text.index("○ 2 Test")  # it is ready, the other is blocked
        path = program.directory / ".team/tasks/3.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"subject": "Draw it"}))  # in place
        screen.wait_for("○ 3 Draw it")
        path.unlink()
        screen.wait_for("Tasks: 1 pending, 1 in progress")
        screen.type(CTRL_T)
        screen.type("/tasks add last\r")
        screen.wait_for("Added task 4: last")
        assert "Tasks: " not in screen.text


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_question_and_a_streaming_lead_leave_room_for_the_board_on_24_lines(program: Program, columns: int) -> None:
    words = "".join(f"line {number} of a long paragraph\n" for number in range(30))
    command = "touch made && " + " && ".join(f"echo part {number} of a long command" for number in range(8))
    script = TeamScript(
        lead=[
            *(tool("task_create", subject=f"Step {number}") for number in range(12)),
            tool("spawn_teammate", name="alice", role="coder", prompt="x"),
            answer(text(words, pieces=30), stall_after(32)),
        ],
        alice=[After(14, tool("bash", command=command)), text("x")],
    )
    with program.against(script), Screen(program, columns=columns, lines=24) as screen:
        screen.wait_for("team >>")
        screen.type(CTRL_T)
        screen.type("go\r")
        screen.wait_for_all("alice wants to use bash", "allow? >>", "Tasks: 12 pending", "more (/tasks)", "alice asks")
        screen.wait_for_all("test-model · default", "line 29 of a long paragraph")
