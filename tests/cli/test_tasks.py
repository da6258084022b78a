"""The task board from the outside: tools, slash commands, and `teamcli tasks` from another shell."""

from __future__ import annotations

import json
from typing import Any

from tests.support.fake_api import text, tool
from tests.support.program import Program
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
