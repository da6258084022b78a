"""The board and the team: assigned tasks reach their owners, idle members claim free ones, nothing gets stuck."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from teamcli import CancelScope, Hook, HookEvent, HookResult, ModelError, Reply, Request, Session, TeamError
from teamcli.commands.budget import budget
from teamcli.llm.types import OnEvent
from teamcli.tasks.board import Task, TaskChange, TaskStatus
from teamcli.tasks.stored_board import StoredBoard
from teamcli.tasks.task_files import TaskFiles
from teamcli.team.agent_thread import ThreadState
from teamcli.team.roster import Member, Roster
from tests.sdk.models import Model, call, results, said, who_asks
from tests.support.fake_api import answer, text, tool
from tests.support.program import Program
from tests.support.team_script import TeamScript
from tests.support.waiting import DEADLINE_SECONDS, wait_until
from tests.team.test_team import spawn, told

TASK = re.compile(r'<message from="team" type="task" id="(\w+)"[^>]* task="(\d+)"')
Say = Callable[[Request], Reply | None]


def tasks_in(request: Request) -> list[int]:
    """The tasks that the newest message gives."""
    return [int(id) for _, id in messages_in(request)]


def messages_in(request: Request) -> list[tuple[str, str]]:
    texts = [str(block["text"]) for block in request.messages[-1].content if block["type"] == "text"]
    return [found for text in texts for found in TASK.findall(text)]


def complete(*ids: int) -> Reply:
    return said("", *(call("task_update", id=id, status="completed") for id in ids))


class Team:
    """A session whose members complete each task that they are given, unless `say` has another answer for them."""

    def __init__(self, place: Path, say: Say = lambda request: None, **options: Any) -> None:
        self.given: list[tuple[str, int]] = []
        """Who was given which task, in order."""
        self.calls: Counter[str] = Counter()
        self._seen: set[tuple[str, str]] = set()
        self._say = say
        self.session = Session(place, llm=lambda: Model(self._answer), **options)
        self.tasks = self.session.tasks

    def _answer(self, request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        name, ids = who_asks(request), tasks_in(request)
        self.calls[name] += 1
        for message, id in messages_in(request):
            if (name, message) not in self._seen:  # what a failed call has not answered is sent again
                self._seen.add((name, message))
                self.given.append((name, int(id)))
        return self._say(request) or (complete(*ids) if ids else said("done"))

    def hire(self, *names: str, **terms: Any) -> None:
        for name in names:
            self.session.spawn(name, "coder", "hello", **terms)
        self.wait()

    def wait(self) -> None:
        assert self.session.wait(DEADLINE_SECONDS)

    def task(self, id: int) -> tuple[str, str | None]:
        task = self.tasks.get(id)
        return str(task.status), task.owner

    def results(self) -> list[str]:
        return [mail.message.content for mail in self.session.inbox("lead")]


Open = Callable[..., AbstractContextManager[Team]]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def opened(place: Path) -> Open:
    @contextmanager
    def open_one(say: Say = lambda request: None, **options: Any) -> Iterator[Team]:
        team = Team(place, say, **options)
        with team.session:
            yield team

    return open_one


@pytest.fixture
def outside(place: Path) -> StoredBoard:
    """The board as another process has it."""
    return StoredBoard(TaskFiles(place / ".team/tasks"), lambda: ("lead", "alice", "bob"))


def leave_unfinished(request: Request) -> Reply | None:
    return said("I give up") if tasks_in(request) else None


def finish(request: Request) -> Reply | None:
    """Complete the first task, also if the newest message does not give it."""
    return None if "completed" in str(results(request)) else complete(1)


@pytest.fixture
def interrupted(opened: Open) -> Open:
    """Opens a team again that was left while alice, who claims, worked on a task."""
    reached = threading.Event()

    def hang(request: Request) -> Reply | None:
        if tasks_in(request):
            reached.set()
            return said("", call("bash", command="sleep 60"))
        return None

    with opened(hang, permission_mode="bypassPermissions") as team:
        team.hire("alice", claims=True)
        team.tasks.create("x")
        assert reached.wait(DEADLINE_SECONDS)
    return opened


class TestAssigning:
    def test_gives_the_owner_a_signed_message_and_the_task_is_in_progress_once_it_is_read(
        self, opened: Open, place: Path
    ) -> None:
        states = []

        def look(request: Request) -> None:
            states.extend(team.task(id) for id in tasks_in(request))

        with opened(look) as team:
            team.hire("alice")
            team.tasks.create("Write it", "in C", owner="alice")
            team.wait()
            assert team.task(1) == ("completed", "alice")
        assert states == [("in_progress", "alice")]
        assert team.given == [("alice", 1)]
        (line,) = (place / ".team/inbox/alice.jsonl").read_text().splitlines()
        message = json.loads(line)
        assert (message["type"], message["from"], message["task"]) == ("task", "team", 1)
        assert message["content"] == "Write it\n\nin C"
        assert message["sig"]

    @pytest.mark.parametrize("ending", ["completed", "cancelled"])
    def test_waits_for_the_last_blocker(self, opened: Open, ending: str) -> None:
        with opened() as team:
            team.hire("alice")
            for subject in ("first", "second"):
                team.tasks.create(subject)
            team.tasks.create("third", blocked_by=[1, 2], owner="alice")
            team.tasks.update(1, status="completed")
            team.wait()
            assert team.given == []
            team.tasks.update(2, status=ending)
            team.wait()
            assert team.given == [("alice", 3)]

    def test_is_delivered_to_the_new_owner_and_again_to_the_old_one(self, opened: Open) -> None:
        with opened(leave_unfinished) as team:
            team.hire("alice", "bob")
            team.tasks.create("x", owner="alice")
            for owner in ("bob", "alice"):
                team.wait()
                team.tasks.update(1, owner=owner)
            team.wait()
            assert team.given == [("alice", 1), ("bob", 1), ("alice", 1)]

    def test_by_another_process_wakes_the_owner(self, opened: Open, outside: StoredBoard) -> None:
        with opened() as team:
            team.hire("alice")
            outside.create("user", "first")
            outside.create("user", "second", blocked_by=[1], owner="alice")
            outside.update("user", 1, TaskChange(status=TaskStatus.COMPLETED))
            wait_until(lambda: team.task(2) == ("completed", "alice"))

    def test_while_nothing_runs_is_delivered_at_the_next_start_once(self, opened: Open, outside: StoredBoard) -> None:
        with opened(leave_unfinished) as team:
            team.hire("alice")
        outside.create("user", "x", owner="alice")
        for given in ([("alice", 1)], []):
            with opened(leave_unfinished) as team:
                team.session.run("hello")
                assert team.given == given
                assert team.calls["lead"] == 1

    def test_to_one_who_is_paused_waits_for_the_user(self, opened: Open) -> None:
        with opened() as team:
            team.hire("alice")
            team.session.pause("alice")
            team.tasks.create("x", owner="alice")
            team.wait()
            assert team.task(1) == ("pending", "alice")
            team.session.resume("alice")
            team.wait()
            assert team.task(1) == ("completed", "alice")

    def test_giving_one_to_a_paused_member_says_that_it_is_read_later(self, opened: Open) -> None:
        answers = []

        def assign(request: Request) -> Reply | None:
            answers.extend(results(request))
            is_asked = who_asks(request) == "lead" and len(request.messages) == 1
            return said("", call("task_create", subject="x", owner="alice")) if is_asked else None

        with opened(assign) as team:
            team.hire("alice")
            team.session.pause("alice")
            team.session.run("go")
        paused = "alice is paused and reads it when the user resumes it"
        assert answers[-1] == f"Created task 1 (pending, owner alice): x ({paused})"

    def test_that_was_taken_back_before_it_was_read_gives_the_old_owner_nothing_to_do(self, opened: Open) -> None:
        heard = []

        def listen(request: Request) -> None:
            if who_asks(request) == "alice":
                heard.append(str(request.messages[-1].content))

        with opened(listen) as team:
            team.hire("alice", "bob")
            team.session.pause("alice")
            team.tasks.create("secret plan", owner="alice")
            team.tasks.update(1, owner="bob")
            team.session.resume("alice")
            team.wait()
            assert "someone else has it" in heard[1]
            assert "secret plan" not in heard[1]
            assert team.task(1) == ("completed", "bob")

    @pytest.mark.parametrize("name", ["nobody", "gone"])
    def test_to_one_who_is_not_there_is_refused(self, opened: Open, name: str) -> None:
        with opened() as team:
            team.hire("alice", "gone")
            team.session.shutdown("gone")
            with pytest.raises(TeamError, match=rf"'{name}'.*there are: lead, alice"):
                team.tasks.create("x", owner=name)

    def test_to_the_lead_wakes_it_like_mail(self, opened: Open) -> None:
        with opened() as team:
            team.session.run("hello")
            team.tasks.create("x", owner="lead")
            team.wait()
            assert team.given == [("lead", 1)]
            assert team.task(1) == ("completed", "lead")

    def test_by_the_user_does_not_wake_the_lead_with_the_result(self, opened: Open) -> None:
        with opened() as team:
            team.session.run("hello")
            team.hire("alice")
            team.tasks.create("x", owner="alice")
            team.wait()
            assert team.calls["lead"] == 1
            assert team.task(1) == ("completed", "alice")

    def test_delivers_a_task_of_a_new_board_that_uses_the_number_of_a_deleted_one(
        self, opened: Open, place: Path
    ) -> None:
        with opened() as team:
            team.hire("alice")
            team.tasks.create("old", owner="alice")
            team.wait()
        shutil.rmtree(place / ".team/tasks")
        with opened() as team:
            team.tasks.create("new", owner="alice")
            team.wait()
            assert team.task(1) == ("completed", "alice")

    def test_survives_a_crash_between_reading_the_message_and_the_change_of_the_file(
        self, opened: Open, place: Path
    ) -> None:
        with opened(leave_unfinished) as team:
            team.hire("alice")
            team.tasks.create("x", owner="alice")
            team.wait()
        path = place / ".team/tasks/1.json"
        path.write_text(path.read_text().replace('"in_progress"', '"pending"'))
        with opened() as team:
            assert team.task(1) == ("in_progress", "alice")
            team.wait()
            assert team.given == []

    def test_cuts_a_description_that_no_inbox_would_take(self, opened: Open) -> None:
        with opened() as team:
            team.hire("alice")
            team.tasks.create("x", "\N{SMILING FACE WITH SUNGLASSES}" * 100_000, owner="alice")
            team.wait()
            assert team.task(1) == ("completed", "alice")


class TestClaiming:
    def test_takes_the_lowest_free_task_by_number(self, opened: Open) -> None:
        with opened() as team:
            for number in range(1, 12):
                team.tasks.create(f"task {number}", blocked_by=[10] if number > 10 else [])
            team.tasks.update(3, owner="lead")
            team.hire("alice", claims=True)
            assert [id for _, id in team.given] == [1, 2, 4, 5, 6, 7, 8, 9, 10, 11]

    def test_of_several_members_gives_each_task_to_one(self, opened: Open) -> None:
        with opened() as team:
            team.hire("alice", "bob", "carol", claims=True)
            for number in range(15):
                team.tasks.create(f"task {number}")
            team.wait()
            assert sorted(id for _, id in team.given) == list(range(1, 16))
            assert {task.status for task in team.tasks.list()} == {"completed"}

    def test_reads_mail_first(self, opened: Open) -> None:
        heard = []

        def listen(request: Request) -> None:
            heard.append(str(request.messages[-1].content))

        with opened(listen) as team:
            team.hire("alice", claims=True)
            team.session.pause("alice")
            team.tasks.create("the task")
            team.session.send("alice", "the mail")
            team.wait()
            assert "the mail" in heard[1]
            assert "the task" not in heard[1]
            assert team.given == [("alice", 1)]

    def test_costs_no_model_call_without_a_free_task_and_begins_when_one_becomes_free(
        self, opened: Open, outside: StoredBoard
    ) -> None:
        with opened() as team:
            team.hire("alice", claims=True)
            outside.create("user", "blocker", owner="user")
            outside.create("user", "blocked", blocked_by=[1])
            outside.create("user", "taken", owner="lead")
            outside.create("user", "over")
            outside.update("user", 4, TaskChange(status=TaskStatus.CANCELLED))
            wait_until(lambda: team.tasks.get(4).status == "cancelled")
            outside.update("user", 1, TaskChange(status=TaskStatus.COMPLETED))  # unblocks 2
            wait_until(lambda: team.given == [("alice", 2)])
            outside.update("user", 3, TaskChange(owner=""))  # releases it
            wait_until(lambda: team.given[1:] == [("alice", 3)])
            outside.update("user", 4, TaskChange(status=TaskStatus.PENDING))  # reopens it
            wait_until(lambda: team.given[2:] == [("alice", 4)])
            team.wait()
            assert team.calls["alice"] == 1 + 3 * 2

    def test_does_not_repeat_what_was_left_unfinished_and_the_result_says_so(self, opened: Open) -> None:
        with opened(leave_unfinished) as team:
            team.hire("alice", claims=True)
            for subject in ("first: a < b", "second"):
                team.tasks.create(subject)
            team.wait()
            assert team.given == [("alice", 1), ("alice", 2)]
            assert team.task(1) == ("in_progress", "alice")
            assert team.results()[1] == "I give up\n\nStill in progress: task 1 (first: a < b)"
            team.tasks.update(1, status="pending")
            team.wait()
            assert team.given == [("alice", 1), ("alice", 2)]

    def test_ends_with_the_first_failure_until_someone_writes(self, opened: Open) -> None:
        def fail(request: Request) -> None:
            if tasks_in(request) == [1] and "try again" not in str(request.messages[-1]):
                raise ModelError("the model is gone")

        with opened(fail) as team:
            team.hire("alice", claims=True)
            for subject in ("first", "second"):
                team.tasks.create(subject)
            team.wait()
            assert team.given == [("alice", 1)]
            assert team.task(2) == ("pending", None)
            team.session.send("alice", "try again")
            team.wait()
            assert team.given == [("alice", 1), ("alice", 2)]

    @pytest.mark.parametrize("stop", ["pause", "stop", "shutdown"])
    def test_is_not_done_by_one_who_was_stopped_and_the_team_counts_as_idle(self, opened: Open, stop: str) -> None:
        reached, may_end = threading.Event(), threading.Event()

        def work(request: Request) -> None:
            reached.set()
            may_end.wait(DEADLINE_SECONDS)

        with opened(work) as team:
            team.session.spawn("alice", "coder", "hello", claims=True)
            assert reached.wait(DEADLINE_SECONDS)
            if stop == "shutdown":
                team.session.shutdown("alice")
            getattr(team.session, stop)("alice")
            may_end.set()
            team.tasks.create("x")
            team.wait()
            assert team.given == []
            if stop == "shutdown":
                return
            team.session.resume("alice")
            team.wait()
            assert team.given == [("alice", 1)]

    def test_is_not_done_at_a_limit_until_the_user_raises_it(self, opened: Open) -> None:
        with opened(settings={"budgets": {"teammate": {"calls": 1}}}) as team:
            team.hire("alice", claims=True)
            team.tasks.create("x")
            team.wait()
            assert team.given == []
            budget.run(team.session._session, "alice 5 calls")
            team.wait()
            assert team.given == [("alice", 1)]

    def test_is_not_done_while_a_plan_waits_for_its_review(self, opened: Open) -> None:
        def plan(request: Request) -> Reply | None:
            return said("", call("submit_plan", plan="1. think")) if len(request.messages) == 1 else None

        with opened(plan) as team:
            team.hire("alice", claims=True, plan=True)
            team.tasks.create("x")
            team.wait()
            assert team.given == []
            team.session.approve(team.session.plans[0].id)
            team.wait()
            assert team.given == [("alice", 1)]

    def test_is_refused_for_a_member_that_can_change_nothing(self, opened: Open) -> None:
        with opened() as team, pytest.raises(TeamError, match=r"none of bash, write_file, edit_file"):
            team.session.spawn("alice", "coder", "hello", tools=["read_file"], claims=True)

    def test_is_only_done_by_those_who_were_told_to(self, opened: Open) -> None:
        with opened() as team:
            team.tasks.create("x")
            team.hire("alice")
            assert team.given == []


class TestNothingGetsStuck:
    @pytest.mark.parametrize("also", ["nothing", "forget", "spawn"])
    def test_the_tasks_of_one_who_leaves_are_free_again(self, opened: Open, also: str) -> None:
        with opened(leave_unfinished) as team:
            team.hire("alice")
            team.tasks.create("begun", owner="alice")
            team.wait()
            team.session.pause("alice")
            team.tasks.create("not read yet", owner="alice")
            team.session.shutdown("alice")
            if also == "forget":
                team.session._session.team.forget("alice")
            if also == "spawn":
                team.hire("alice")
            assert (team.task(1), team.task(2)) == (("pending", None), ("pending", None))
            assert team.given == [("alice", 1)]

    def test_they_are_claimed_by_another(self, opened: Open) -> None:
        def alice_gives_up(request: Request) -> Reply | None:
            return leave_unfinished(request) if who_asks(request) == "alice" else None

        with opened(alice_gives_up) as team:
            team.hire("alice", "bob", claims=True)
            team.tasks.create("x", owner="alice")
            team.wait()
            team.session.shutdown("alice")
            team.wait()
            assert team.given == [("alice", 1), ("bob", 1)]
            assert team.task(1) == ("completed", "bob")

    def test_one_who_is_just_claiming_a_task_is_not_idle_for_a_shutdown(
        self, opened: Open, outside: StoredBoard
    ) -> None:
        with opened() as team, ThreadPoolExecutor() as pool:
            team.hire("alice", claims=True)
            alice = team.session._session.team.agents.active("alice")

            def while_locked() -> Future[bool]:
                outside._write(Task(1, "x", created_by="user"))
                wait_until(lambda: alice._state is ThreadState.REPORTING)
                is_leaving = pool.submit(alice.leave_if_idle)
                assert not wait([is_leaving], timeout=0.1).done
                return is_leaving

            is_leaving = outside._storage.change("user", while_locked)
            team.wait()
            if is_leaving.result():
                team.session.shutdown("alice")
            assert team.task(1) == ("completed", "alice")

    def test_a_new_owner_keeps_its_task_when_the_old_one_leaves(self, opened: Open) -> None:
        with opened(leave_unfinished) as team:
            team.hire("alice", "bob")
            team.tasks.create("x", owner="alice")
            team.wait()
            team.tasks.update(1, owner="bob")
            team.wait()
            team.session.shutdown("alice")
            assert team.task(1) == ("in_progress", "bob")

    def test_the_owner_that_a_crash_left_behind_loses_its_task_at_the_next_start(
        self, opened: Open, place: Path
    ) -> None:
        with opened(leave_unfinished) as team:
            team.hire("alice")
            team.tasks.create("x", owner="alice")
            team.wait()
            before = (place / ".team/tasks/1.json").read_text()
            team.session.shutdown("alice")
        (place / ".team/tasks/1.json").write_text(before)  # as if the program had been killed before the release
        with opened() as team:
            assert team.task(1) == ("pending", None)

    def test_an_unfinished_task_is_given_to_its_claiming_owner_once_per_start(self, opened: Open) -> None:
        with opened(leave_unfinished) as team:
            team.hire("alice", claims=True)
            team.tasks.create("x")
            team.wait()
        for _ in range(2):
            with opened(leave_unfinished) as team:
                team.wait()
                assert team.given == [("alice", 1)]
                assert team.task(1) == ("in_progress", "alice")

    def test_it_is_also_given_to_one_who_has_mail_first(self, opened: Open) -> None:
        with opened(leave_unfinished) as team:
            team.hire("alice", claims=True)
            team.tasks.create("x")
            team.wait()
            team.session.pause("alice")
            team.tasks.create("y", owner="alice")
        with opened(leave_unfinished) as team:
            team.session.send("alice", "hello again")
            team.wait()
            assert team.given == [("alice", 2), ("alice", 1)]

    def test_an_interrupted_member_keeps_its_task_and_continues_when_it_is_resumed(
        self, interrupted: Open, place: Path
    ) -> None:
        with interrupted(finish) as team:
            team.wait()
            assert (team.task(1), team.calls["alice"]) == (("in_progress", "alice"), 0)
            team.session.resume("alice")
            team.wait()
            assert team.task(1) == ("completed", "alice")
        assert (place / ".team/transcripts/alice.jsonl").read_text().count('type=\\"task') == 1

    @pytest.mark.parametrize("moment", [1, 2, 3])
    def test_one_who_is_resumed_while_it_looks_for_a_task_is_not_given_its_own_again(
        self, interrupted: Open, place: Path, monkeypatch: pytest.MonkeyPatch, moment: int
    ) -> None:
        with interrupted(finish) as team:
            team.wait()
            alice = team.session._session.team.agents.get("alice")
            assert alice is not None
            get, looks = Roster.get, count(1)

            def resume_meanwhile(roster: Roster, name: str) -> Member:
                if threading.current_thread().name == "alice" and next(looks) == moment:
                    alice.resume()
                return get(roster, name)

            monkeypatch.setattr(Roster, "get", resume_meanwhile)
            alice.wake()
            wait_until(lambda: team.task(1) == ("completed", "alice"))
        assert (place / ".team/transcripts/alice.jsonl").read_text().count('type=\\"task') == 1


class TestHeadless:
    def test_a_run_ends_when_its_members_have_done_all_tasks(self, program: Program) -> None:
        create = [tool("task_create", subject=f"task {n}", blocked_by=[n - 1] if n > 1 else []) for n in range(1, 6)]

        def member(request: dict[str, Any], n: int) -> Any:
            (*_, last) = request["messages"][-1]["content"]
            ids = [int(id) for _, id in TASK.findall(last.get("text", ""))]
            return tool("task_update", id=ids[0], status="completed") if ids else text("done")

        hire = (spawn("alice", claims=True), spawn("bob", claims=True))
        script = TeamScript(lead=[*create, answer(*hire), text("hired"), text("all done")], alice=member, bob=member)
        with program.against(script):
            ran = program.run("-p", "go", "--output-format", "json")
        assert (ran.code, ran.json["result"]) == (0, "all done")
        tasks = [json.loads(path.read_text()) for path in (program.directory / ".team/tasks").glob("*.json")]
        assert {task["status"] for task in tasks} == {"completed"}
        done = [row["task"] for row in program.lines(".team/events.jsonl") if row.get("change") == "completed"]
        assert done == [1, 2, 3, 4, 5]
        assert len(told(script, "lead").split("Spawned 'bob'")[1].split('type="result"')) == 1 + 2 + 5

    def test_tasks_that_nobody_can_take_do_not_hold_it(self, program: Program) -> None:
        script = TeamScript(
            lead=[tool("task_create", subject="x"), spawn("alice"), text("hired"), text("end")], alice=[text("done")]
        )
        with program.against(script):
            assert program.run("-p", "go").code == 0
        assert not any("task" in str(request["messages"]) for request in script.requests["alice"])

    def test_the_embedded_model_works_from_a_board(self, program: Program) -> None:
        lines = ["task write a.txt: A", "task run false", "task write b.txt: B"]
        lines += [f"spawn {name} as coder who claims tasks: run true" for name in ("alice", "bob")]
        ran = program.run("--offline", "-p", "\n".join(lines), "--permission-mode", "bypassPermissions")
        assert ran.code == 0
        assert [(program.directory / f"{name}.txt").read_text() for name in "ab"] == ["A", "B"]
        board = [json.loads((program.directory / f".team/tasks/{id}.json").read_text()) for id in (1, 2, 3)]
        assert [task["status"] for task in board] == ["completed", "in_progress", "completed"]


class TestGates:
    @pytest.mark.parametrize("event", ["TaskCreated", "TaskCompleted"])
    def test_a_hook_refuses_with_its_reason(self, opened: Open, event: str, outside: StoredBoard) -> None:
        asked: list[HookEvent] = []

        def refuse(happened: HookEvent) -> HookResult:
            asked.append(happened)
            outside.create("user", "no lock is held while a hook runs")
            return HookResult("write a test first")

        answers: list[str] = []

        def create(request: Request) -> Reply | None:
            answers.extend(results(request))
            if len(request.messages) == 1:
                return said("", call("task_create", subject="x", description="y", owner="alice"))
            return said("", call("task_update", id=1, status="completed")) if len(answers) == 1 else None

        with opened(create, hooks=[Hook(event, refuse)]) as team:
            team.hire("alice")
        assert answers[event == "TaskCompleted"] == "Error: write a test first"
        (happened,) = asked
        assert happened.agent == "alice"
        about = {"task_subject": "x", "task_description": "y", "teammate_name": "alice", "team_name": "default"}
        assert about.items() <= dict(happened.fields).items()
        assert happened.fields["task_id"] == "1"
        assert [task.subject for task in outside.tasks() if task.created_by == "alice"] == (
            [] if event == "TaskCreated" else ["x"]
        )

    def test_hooks_read_the_name_that_the_team_file_gives_the_team(self, opened: Open, place: Path) -> None:
        names: list[object] = []

        def note(happened: HookEvent) -> HookResult:
            names.append(happened.fields["team_name"])
            return HookResult()

        (place / ".team").mkdir()
        (place / ".team/team.toml").write_text('name = "shop"\n')
        with opened(hooks=[Hook("TaskCreated", note)], trust=True) as team:
            team.tasks.create("x")
        assert names == ["shop"]

    def test_a_refused_task_stays_in_progress(self, opened: Open) -> None:
        with opened(hooks=[Hook("TaskCompleted", lambda event: HookResult("no"))]) as team:
            team.hire("alice", claims=True)
            task: Task = team.tasks.create("x")
            team.wait()
            assert team.task(task.id) == ("in_progress", "alice")
            with pytest.raises(TeamError, match=r"^no$"):
                team.tasks.update(task.id, status="completed")
