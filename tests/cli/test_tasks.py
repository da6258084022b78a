"""The task board from the outside: tools, slash commands, and `teamcli tasks` from another shell."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from teamcli.tasks.board import TaskChange
from teamcli.tasks.stored_board import StoredBoard
from teamcli.tasks.task_files import TaskFiles
from teamcli.tasks.tool_port import BoardTools
from tests.support.fake_api import text, tool
from tests.support.prepared import Prepared
from tests.support.program import MakeProgram, Program
from tests.support.running import Running
from tests.support.screen import Screen
from tests.support.team_script import TeamScript

BYPASS = ("--permission-mode", "bypassPermissions")


def stored(program: Program, id: int) -> dict[str, Any]:
    return json.loads((program.directory / f".team/tasks/{id}.json").read_bytes())  # type: ignore[no-any-return]


def events(program: Program) -> list[dict[str, Any]]:
    lines = (program.directory / ".team/events.jsonl").read_text().splitlines()
    return [row for line in lines if (row := json.loads(line))["event"] == "task"]


def results(request: dict[str, Any]) -> list[str]:
    return [block["content"] for block in request["messages"][-1]["content"] if block["type"] == "tool_result"]


class TestTools:
    def test_the_lead_keeps_a_board_that_stays_in_files(self, program: Program) -> None:
        script = TeamScript(
            lead=[
                tool("task_create", subject="Build it", description="with care"),
                tool("task_create", subject="Test it", blocked_by=[1]),
                tool("task_update", id=2, status="in_progress"),
                tool("task_update", id=1, status="in_progress"),
                tool("task_update", id=1, status="completed", result="built"),
                tool("task_list"),
                tool("task_list", id=1),
                text("done"),
            ]
        )
        with program.against(script):
            ran = program.run("-p", "plan", "--output-format", "stream-json")
        assert [result for request in script.requests["lead"][1:] for result in results(request)] == [
            "Created task 1 (pending): Build it",
            "Created task 2 (pending, blocked by 1): Test it",
            "Error: blocked by 1",
            "Task 1 (in_progress, owner lead): Build it",
            "Task 1 (completed, owner lead): Build it",
            "2 (pending): Test it\n1 completed",
            "Task 1: Build it\ncompleted; owner lead; blocks 2; created by lead\n\nwith care\n\nResult: built",
        ]
        assert (stored(program, 1)["status"], stored(program, 1)["result"]) == ("completed", "built")
        changes = ["created", "created", "claimed", "completed"]
        assert [(row["agent"], row["change"]) for row in events(program)] == [("lead", change) for change in changes]
        streamed = [row for row in map(json.loads, ran.out.splitlines()) if row.get("event") == "task"]
        assert streamed[2] == {
            "type": "team",
            "event": "task",
            "agent": "lead",
            "change": "claimed",
            "task": 1,
            "subject": "Build it",
            "status": "in_progress",
            "owner": "lead",
        }

    def test_a_teammate_has_the_task_tools_whatever_its_spawn_allows_and_a_sub_agent_has_none(
        self, program: Program
    ) -> None:
        script = TeamScript(
            lead=[
                tool("spawn_teammate", name="bob", role="reader", prompt="read", tools=["read_file"]),
                tool("agent", prompt="look", subagent_type="general"),
                text("done"),
                text("noted"),
            ],
            bob=[tool("task_create", subject="Mine", owner="bob"), text("ok")],
            **{"sa-1": [text("ok")]},
        )
        with program.against(script):
            program.run("-p", "go")
        assert stored(program, 1)["owner"] == "bob"
        names = [each["name"] for each in script.requests["sa-1"][0]["tools"]]
        assert [name for name in names if name.startswith("task_")] == []

    def test_without_a_team_there_is_no_board(self, program: Program) -> None:
        with program.against([text("hi")]) as api:
            program.run("-p", "--no-team", "hi")
        assert "task_create" not in [each["name"] for each in api.requests[0]["tools"]]

    def test_what_a_large_board_sends_is_bounded(self, tmp_path: Path) -> None:
        board = StoredBoard(TaskFiles(tmp_path), lambda: ("lead", "alice"))
        board.create("user", "x" * 500)
        document = stored_text(tmp_path, 1)
        for id in range(2, 1001):
            status = "completed" if id % 5 == 0 else "pending"
            (tmp_path / f"{id}.json").write_text(json.dumps({**document, "id": id, "status": status}))
        board.update("user", 990 + 1, TaskChange(owner="alice"))
        listed = BoardTools(board).describe("alice", None)
        assert len(listed) < 10_000
        assert listed.splitlines()[0].startswith("991 (pending, owner alice)")
        assert listed.splitlines()[-2:] == ["… and 750 more that are open", "200 completed"]


def stored_text(directory: Path, id: int) -> dict[str, Any]:
    return json.loads((directory / f"{id}.json").read_bytes())  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory, forked: MakeProgram) -> Prepared:
    def prepare(program: Program) -> None:
        assert program.run(*BYPASS, stdin="spawn alice as coder: run true\n/wait\n").code == 0
        assert program.run("tasks", "add", "Build", "it").out == "Added task 1: Build it\n"

    return Prepared(tmp_path_factory.mktemp("tasks"), prepare, forked)


@pytest.fixture
def team(prepared: Prepared) -> Program:
    """A directory with alice, who is idle, and a task; nothing runs."""
    return prepared.program()


class TestFromAnotherShell:
    def test_a_task_is_added_shown_and_completed(self, team: Program) -> None:
        added = team.run("tasks", "add", "Test", "it", "--owner", "ALICE", "--blocked-by", "1")
        assert added.out == (
            "Added task 2 for alice: Test it; teamcli is not running here, so alice gets it when it starts\n"
        )
        row = team.run("tasks").out.splitlines()[-1]
        assert re.fullmatch(r"2  Test it   pending  alice +\d+ (s|min)  blocked by 1", row)
        assert team.run("tasks", "done", "1").out == "Task 1 is completed: Build it\n"
        assert "\npending, owner alice; created by user; changed" in team.run("tasks", "2").out

    def test_the_first_task_may_come_before_the_first_session(self, program: Program) -> None:
        assert program.run("tasks", "add", "Begin here").out == "Added task 1: Begin here\n"
        ran = program.run("-p", "--offline", "tasks")
        assert "Begin here" in ran.out
        assert "not made here" not in ran.err

    def test_json_is_an_array_of_what_the_files_hold(self, team: Program) -> None:
        path = team.directory / ".team/tasks/1.json"
        path.write_text(json.dumps({**stored(team, 1), "color": "red"}))
        assert json.loads(team.run("tasks", "--json").out) == [stored(team, 1)]
        assert json.loads(team.run("tasks", "1", "--json").out) == [stored(team, 1)]

    def test_every_change_is_on_the_timeline(self, team: Program) -> None:
        team.run("tasks", "done", "1")
        assert [(row["agent"], row["change"], row["task"]) for row in events(team)] == [
            ("user", "created", 1),
            ("user", "completed", 1),
        ]
        assert "user      task 1 completed: Build it" in team.run("log").out

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            (("done", "9"), "no task 9 (there is 1)"),
            (("9",), "no task 9 (there is 1)"),
            (("add", "x", "--owner", "zed"), "there is no 'zed' who could own a task (there are: lead, alice)"),
            (("add", "x", "--blocked-by", "7"), "no task 7 (there is 1)"),
            (("add", "x", "--blocked-by", "one"), "'one' is not the number of a task; give one such as 3"),
            (("add", " "), "say what is to be done: teamcli tasks add TEXT"),
            (("done",), "use teamcli tasks [N], teamcli tasks add TEXT or teamcli tasks done N"),
            (("1", "2"), "use teamcli tasks [N], teamcli tasks add TEXT or teamcli tasks done N"),
            (("1", "--owner", "bob"), "--owner and --blocked-by go with teamcli tasks add TEXT"),
        ],
    )
    def test_a_mistake_is_one_line_and_exit_2(self, team: Program, arguments: tuple[str, ...], problem: str) -> None:
        ran = team.run("tasks", *arguments)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"teamcli: {problem}")
        assert ran.err.count("\n") == 1

    def test_without_a_task_nothing_is_left_behind(self, program: Program) -> None:
        assert program.run("tasks").out == "No tasks yet. Add one with teamcli tasks add TEXT.\n"
        assert program.run("tasks", "add").code == 2
        assert not (program.directory / ".team").exists()

    def test_a_damaged_file_is_named_and_the_rest_is_shown(self, team: Program) -> None:
        (team.directory / ".team/tasks/2.json").write_text("{")
        ran = team.run("tasks")
        assert "Build it" in ran.out
        assert "tasks/2.json does not hold a task" in ran.err
        assert (team.directory / ".team/tasks/2.json").exists()

    @pytest.mark.parametrize("arguments", [(), ("1",), ("--json",)])
    def test_no_text_in_a_file_controls_the_terminal(self, team: Program, arguments: tuple[str, ...]) -> None:
        hostile = {name: f"{name} \x1b[2J\x07" for name in ("subject", "description", "result", "owner", "created_by")}
        (team.directory / ".team/tasks/1.json").write_text(json.dumps({**stored(team, 1), **hostile}))
        ran = team.run("tasks", *arguments)
        assert "subject" in ran.out
        assert re.search(r"[\x1b\x07]", ran.out + ran.err) is None

    @pytest.mark.parametrize("below", [".", "src/deep"])
    def test_inside_a_checkout_all_commands_use_the_main_directory(self, team: Program, below: str) -> None:
        checkout = team.directory / ".team/worktrees/alice"
        (checkout / below).mkdir(parents=True)
        (checkout / ".team").mkdir(exist_ok=True)
        inside = Program(checkout / below, team.home)
        assert json.loads(inside.run("tasks", "--json").out) == [stored(team, 1)]
        assert inside.run("team", "--json").json["members"][0]["name"] == "alice"
        assert inside.run("inbox", "--json").out == team.run("inbox", "--json").out
        assert inside.run("log", "--json").out == team.run("log", "--json").out
        assert "Sent message to alice" in inside.run("send", "alice", "hi").out
        assert "hi" in (team.directory / ".team/inbox/alice.jsonl").read_text()

    def test_a_running_lead_notices_a_new_task(self, team: Program) -> None:
        with Running(team, *BYPASS) as repl:
            repl.type("/tasks")
            repl.wait_for("Build it")
            assert team.run("tasks", "add", "From outside").code == 0
            repl.wait_for("user: task 2 created: From outside")
            assert repl.leave() == 0
        assert [row["task"] for row in events(team)] == [1, 2]


class TestSlashCommands:
    def test_tasks_are_added_assigned_completed_and_cancelled(self, team: Program) -> None:
        lines = ("add Test it", "assign 2 @Alice", "done 1", "cancel 2", "2", "9", "done", "assign 2", "foo")
        out = team.run(*BYPASS, stdin="".join(f"/tasks {line}\n" for line in lines) + "/tasks\n").out
        for shown in (
            "Added task 2: Test it",
            "Task 2 is assigned to alice: Test it",
            "Task 1 is completed: Build it",
            "Task 2 is cancelled: Test it",
            "Task 2: Test it\ncancelled, owner alice; created by user",
        ):
            assert shown in out
        assert stored(team, 2)["status"] == "cancelled"

    def test_a_task_in_progress_whose_owner_is_idle_is_stalled(self, team: Program) -> None:
        document = {**stored(team, 1), "status": "in_progress", "owner": "alice"}
        (team.directory / ".team/tasks/1.json").write_text(json.dumps(document))
        shown = team.run(*BYPASS, stdin="/tasks\n").out
        assert re.search(r"1 +Build it +in_progress +alice .*stalled", shown)

    def test_a_lead_that_starts_over_is_reminded_of_its_task(self, team: Program) -> None:
        team.run("-p", "claim 1", *BYPASS)
        team.run("-p", "list", *BYPASS)
        asked = [row["content"] for row in team.transcript() if row["kind"] == "user"]
        assert "Your tasks in progress:\n  1: Build it\nTeam: default" in asked[-2][-1]["text"]


class TestAtTheTerminal:
    def test_ctrl_t_shows_the_board_live_and_hides_it(self, team: Program) -> None:
        with Screen(team, *BYPASS) as screen:
            screen.wait_for("team >>")
            screen.type("\x14")
            screen.wait_for_all("Tasks: 1 pending", "○ 1 Build it")
            assert team.run("tasks", "add", "From outside", "--blocked-by", "1").code == 0
            screen.wait_for_all(
                "Tasks: 2 pending", "○ 2 From outside  blocked by 1", "user task 2 created: From outside"
            )
            screen.type("/tasks done 1\r")
            screen.wait_for_all("Tasks: 1 pending, 1 completed", "✓ 1 Build it")
            assert screen.text.index("Tasks: 1 pending") < screen.text.rindex("○ alice")  # the status bar
            screen.type("\x14")
            screen.type("/tasks add last\r")
            screen.wait_for("Added task 3: last")
            assert "Tasks: " not in screen.text

    def test_tab_completes_what_tasks_can_do(self, team: Program) -> None:
        with Screen(team, *BYPASS) as screen:
            screen.wait_for("team >>")
            screen.type("/tasks assi\t 1 ali\t\r")
            screen.wait_for("Task 1 is assigned to alice: Build it")
