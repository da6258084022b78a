"""Members of a session that work in checkouts: how their work begins, also if that fails, and how it ends."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from teamcli import Member, Session
from tests.support.waiting import DEADLINE_SECONDS, wait_until
from tests.worktrees.conftest import git

SLOW_SETUP = {"worktree": {"setup": "touch started; test -e ../../fast || sleep 600"}}
Open = Callable[..., Session]


@pytest.fixture
def opened(repository: Path, clean_environment: Path) -> Iterator[Open]:
    """Sessions with the embedded model."""
    sessions: list[Session] = []

    def open_one(settings: dict[str, Any] | None = None, **options: Any) -> Session:
        given = {"sandbox": "off", **(settings or {})}
        sessions.append(
            Session(repository, offline=True, permission_mode="bypassPermissions", settings=given, **options)
        )
        return sessions[-1]

    yield open_one
    for session in sessions:
        session.close()


@pytest.fixture
def checkout(repository: Path) -> Path:
    return repository / ".team/worktrees/alice"


def alice(session: Session) -> Member:
    (member,) = session.team
    return member


def spawn(session: Session, prompt: str = "run true", **terms: Any) -> None:
    session.spawn("alice", "coder", prompt, worktree=True, **terms)
    wait(session)


def wait(session: Session) -> None:
    assert session.wait(DEADLINE_SECONDS)


class TestWorkThatCannotBegin:
    @pytest.fixture
    def session(self, opened: Open, checkout: Path) -> Session:
        """Alice takes tasks, and its checkout is broken."""
        session = opened()
        spawn(session, claims=True)
        shutil.rmtree(checkout / ".git")
        session.tasks.create("run echo done > task.txt")
        wait_until(lambda: bool(alice(session).error))
        wait(session)
        return session

    def test_its_task_is_free_again(self, session: Session) -> None:
        task = session.tasks.get(1)
        assert (str(task.status), task.owner) == ("pending", None)
        assert session.inbox("lead")[-1].message.content.startswith(".team/worktrees/alice has no .git anymore: ")

    @pytest.mark.parametrize("wake", ["mail", "resume"])
    def test_it_takes_the_task_again_when_the_user_has_repaired_it(
        self, session: Session, checkout: Path, wake: str
    ) -> None:
        shutil.rmtree(checkout)
        session.send("alice", "run true") if wake == "mail" else session.resume("alice")
        wait_until(lambda: str(session.tasks.get(1).status) == "completed")
        wait(session)
        assert (checkout / "task.txt").exists()
        assert not alice(session).error


class TestWithoutASandbox:
    def test_a_member_of_the_team_file_is_shown_as_not_enforced(self, opened: Open, repository: Path) -> None:
        (repository / ".team").mkdir()
        (repository / ".team/team.toml").write_text('[[member]]\nname = "alice"\nrole = "coder"\nworktree = true\n')
        session = opened(trust=True)
        session.send("alice", "run true")
        wait(session)
        assert alice(session).branch == "team/alice (not enforced)"

    def test_the_library_spawns_a_member_in_a_worktree(self, opened: Open, repository: Path, checkout: Path) -> None:
        spawn(opened(), "write new.txt: hi")
        assert (checkout / "new.txt").exists()
        assert not (repository / "new.txt").exists()


class TestASetupThatTakesLong:
    def test_the_user_can_stop_the_lead_that_hires(self, opened: Open, repository: Path, checkout: Path) -> None:
        session = opened(SLOW_SETUP)
        asking = threading.Thread(target=session.run, args=("spawn alice as coder in a worktree: run true",))
        asking.start()
        wait_until((checkout / "started").exists)
        session.interrupt()
        asking.join(DEADLINE_SECONDS)
        assert not asking.is_alive()
        assert not session.team
        assert not checkout.exists()
        assert git(repository, "branch", "--list", "team/*") == ""

    def test_the_user_can_stop_a_member_that_begins(self, opened: Open, repository: Path, checkout: Path) -> None:
        session = opened()
        spawn(session)
        session.close()
        shutil.rmtree(checkout)
        session = opened(SLOW_SETUP)
        session.send("alice", "run echo hi > hi.txt")
        wait_until((checkout / "started").exists)
        assert session.stop("alice")
        wait(session)
        assert alice(session).interrupted
        (repository / ".team/fast").touch()
        session.resume("alice")
        wait(session)
        assert (checkout / "hi.txt").exists()
