"""Who can merge and how: the lead and its permission, `/merge`, `teamcli merge`, library, embedded model."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from teamcli import Answer, Consent, Merged, Question, Session, TeamError
from teamcli.events import MergeEnded
from tests.redteam.conftest import need_sandbox
from tests.support.program import Program
from tests.worktrees.conftest import git

SPAWN = "spawn alice as coder in a worktree: write new.txt: hi"
ACCEPT = {"permission_mode": "acceptEdits"}
BYPASS = ("--permission-mode", "bypassPermissions")
Open = Callable[..., Session]


@pytest.fixture
def project(repository: Path) -> Path:
    (repository / ".team").mkdir()
    (repository / ".team/.gitignore").write_text("*\n")
    return repository


@pytest.fixture
def opened(project: Path, clean_environment: Path) -> Iterator[Open]:
    """Sessions with the embedded model, in which alice has written a file in its checkout."""
    sessions: list[Session] = []

    def open_one(**options: Any) -> Session:
        settings = {"sandbox": "off", **options.pop("settings", {})}
        session = Session(project, offline=True, settings=settings, **{**ACCEPT, **options})
        sessions.append(session)
        session.run(SPAWN)
        return session

    yield open_one
    for session in sessions:
        session.close()


class TestTheLead:
    def test_acceptedits_allows_it(self, opened: Open, project: Path) -> None:
        result = opened().run("merge alice")
        assert "Merged team/alice into main: 1 commit, 1 file, no gate is set." in result.text
        assert (project / "new.txt").read_text().strip() == "hi"

    @pytest.mark.parametrize("consent", [Consent.ONCE, Consent.NO])
    def test_default_asks_once_and_shows_branch_and_files(self, opened: Open, project: Path, consent: Consent) -> None:
        asked: list[Question] = []

        def ask(question: Question) -> Answer:
            asked.append(question)
            return Answer(Consent.ONCE if question.tool != "merge_teammate" else consent)

        opened(permission_mode="default", ask=ask).run("merge alice")
        (question,) = (each for each in asked if each.tool == "merge_teammate")
        assert question.rule == "merge_teammate(alice)"
        assert "team/alice into main: 1 file\n  new.txt (uncommitted)" in question.display.text
        assert (project / "new.txt").exists() == (consent is Consent.ONCE)

    @pytest.mark.parametrize("rule", ["merge_teammate(alice)", "merge_teammate(ALICE)", "merge_teammate"])
    def test_a_rule_allows_it(self, opened: Open, rule: str) -> None:
        session = opened(permission_mode="default", allowed_tools=[rule, "write_file"])
        assert "Merged team/alice" in session.run("merge alice").text

    def test_a_rule_for_another_member_does_not(self, opened: Open) -> None:
        session = opened(permission_mode="default", allowed_tools=["merge_teammate(bob)", "write_file"])
        (denial,) = session.run("merge alice").denials
        assert "merge_teammate(alice)" in denial.reason

    def test_a_rule_denies_it_in_every_mode(self, opened: Open, project: Path) -> None:
        session = opened(permission_mode="bypassPermissions", disallowed_tools=["merge_teammate(alice)"])
        assert "The rule merge_teammate(alice) denies this call" in session.run("merge alice").text
        assert not (project / "new.txt").exists()

    def test_plan_refuses_it(self, opened: Open, project: Path) -> None:
        opened().close()
        with Session(project, offline=True, permission_mode="plan", settings={"sandbox": "off"}) as session:
            assert "The mode plan refuses merge_teammate" in session.run("merge alice").text
        assert not (project / "new.txt").exists()

    def test_the_gate_of_the_settings_runs(self, opened: Open, project: Path) -> None:
        session = opened(settings={"worktree": {"gate": "test ! -e new.txt || (echo no new files; exit 3)"}})
        assert "failed (exit code 3)" in session.run("merge alice").text
        assert not (project / "new.txt").exists()
        assert "no new files" in session.inbox("alice")[-1].message.content
        assert session.inbox("alice")[-1].message.sender == "lead"

    def test_nothing_gets_past_a_gate_that_is_not_trusted(self, opened: Open, project: Path) -> None:
        opened().close()
        (project / ".team/settings.json").write_text('{"worktree": {"gate": "true"}}')
        session = opened()
        assert "the project's gate is not trusted" in session.run("merge alice").text
        assert not (project / "new.txt").exists()
        session.close()
        assert "gate passed (`true`)" in opened(trust=True).run("merge alice").text


class TestTheLibrary:
    def test_it_returns_what_was_merged(self, opened: Open) -> None:
        merged = opened().merge("alice", "Say hi")
        assert isinstance(merged, Merged)
        assert (merged.member, merged.branch, merged.target) == ("alice", "team/alice", "main")
        assert merged.files == ("new.txt",)
        assert merged.commits[0].endswith(" Say hi")

    def test_a_refusal_is_raised(self, opened: Open) -> None:
        with pytest.raises(TeamError, match="there is no teammate 'bob'"):
            opened().merge("bob")

    def test_an_event_reports_it(self, opened: Open, project: Path) -> None:
        session = opened()
        seen: list[MergeEnded] = []
        session.subscribe(seen.append, MergeEnded)
        session.merge("alice")
        session.close()
        assert [event.outcome for event in seen] == ["merged"]
        rows = map(json.loads, (project / ".team/events.jsonl").read_text().splitlines())
        (row,) = (row for row in rows if row["event"] == "merge")
        assert (row["agent"], row["target"], row["files"]) == ("alice", "main", ["new.txt"])

    def test_a_member_that_was_forgotten_can_still_be_merged(self, opened: Open, project: Path) -> None:
        session = opened()
        session.shutdown("alice")
        session._session.team.forget("alice")
        session.merge("alice")
        assert (project / "new.txt").exists()

    def test_a_merge_that_was_cut_off_is_reported_at_the_start(self, opened: Open, project: Path) -> None:
        opened().close()
        alice = project / ".team/worktrees/alice"
        journal = {"v": 1, "member": "alice", "head": git(alice, "rev-parse", "HEAD")}
        (project / ".team/merge-work.json").write_text(json.dumps(journal))
        Session(project, offline=True, settings={"sandbox": "off"}).close()
        rows = map(json.loads, (project / ".team/events.jsonl").read_text().splitlines())
        seen = [row["text"] for row in rows if row["event"] == "notice"]
        assert "The merge of alice was cut off in its checkout, which is as it was before. Merge again." in seen


class TestTheProgram:
    """Whole programs, in the real sandbox."""

    @pytest.fixture
    def program(self, program: Program, repository_to_copy: Path) -> Program:
        need_sandbox()
        shutil.copytree(repository_to_copy, program.directory, dirs_exist_ok=True, symlinks=True)
        return program

    def test_a_lead_hires_and_merges_and_a_script_can_follow_it(self, program: Program) -> None:
        program.run("-p", SPAWN, "--permission-mode", "acceptEdits")
        ran = program.run("-p", "merge alice", "--permission-mode", "acceptEdits", "--output-format", "stream-json")
        assert ran.code == 0
        (merge,) = (line for line in ran.json_lines if line.get("event") == "merge")
        assert merge.items() >= {"type": "team", "agent": "alice", "target": "main", "outcome": "merged"}.items()
        assert merge["files"] == ["new.txt"]
        assert git(program.directory, "status", "--porcelain") == ""

    def test_headless_the_refusal_names_the_rule(self, program: Program) -> None:
        program.run("-p", SPAWN, "--permission-mode", "acceptEdits")
        ran = program.run("-p", "merge alice")
        assert ran.code == 4
        assert "the rule that would allow it: merge_teammate(alice)" in ran.err

    def test_the_user_merges_at_the_prompt_and_from_another_shell(self, program: Program) -> None:
        program.run("-p", SPAWN, "--permission-mode", "acceptEdits")
        ran = program.run(
            "--permission-mode", "acceptEdits", stdin="/merge alice Say hi\n@alice write two.txt: x\n/wait\n"
        )
        assert "Merged team/alice into main: 1 commit, 1 file" in ran.out
        ran = program.run("merge", "alice", "-m", "Count")
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith("Merged team/alice into main: 1 commit, 1 file, no gate is set.\n")
        assert git(program.directory, "log", "-1", "--format=%s") == "Count"
        again = program.run("merge", "alice")
        assert again.out == "Nothing to merge: main has everything of team/alice.\n"

    def test_from_another_shell_a_conflict_is_reported_and_waits_for_the_member(self, program: Program) -> None:
        program.run(
            "-p",
            "spawn alice as coder in a worktree: run echo hi > README.md",
            "--permission-mode",
            "bypassPermissions",
        )
        (program.directory / "README.md").write_text("mine\n")
        git(program.directory, "commit", "--quiet", "--all", "-m", "Mine")
        ran = program.run("merge", "alice")
        assert ran.code == 1
        assert "main and team/alice are in conflict: README.md; main is as it was" in ran.err
        assert "README.md" in program.run("inbox", "alice", "--unread").out

    def test_from_another_shell_a_member_that_works_is_refused(self, program: Program) -> None:
        program.run("-p", SPAWN, "--permission-mode", "acceptEdits")
        config = program.directory / ".team/config.json"
        config.write_text(config.read_text().replace('"status": "idle"', '"status": "working"'))
        with (program.directory / ".team/lead.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write("1\n")
            lock.flush()
            ran = program.run("merge", "alice")
        assert (ran.code, ran.out) == (1, "")
        assert "'alice' is currently working; merge when it is idle" in ran.err
        assert program.run("merge", "alice").code == 0  # killed with the program, so it does not work

    def test_inside_a_checkout_the_team_of_the_main_directory_is_meant(self, program: Program) -> None:
        program.run("-p", SPAWN, "--permission-mode", "acceptEdits")
        inside = replace(program, directory=program.directory / ".team/worktrees/alice/src")
        ran = inside.run("merge", "alice")
        assert ran.out.startswith("Merged team/alice into main: 1 commit, 1 file")
        assert (program.directory / "new.txt").exists()

    def test_the_next_start_completes_a_merge_that_was_cut_off_and_says_so(self, program: Program) -> None:
        program.run("-p", "spawn alice as coder in a worktree: run touch a && git add a && git commit -qm A", *BYPASS)
        root = program.directory
        old, new = (git(root, "rev-parse", name) for name in ("main", "team/alice"))
        journal = {"v": 1, "member": "alice", "branch": "refs/heads/main", "old": old, "new": new}
        (root / ".team/merge.json").write_text(json.dumps(journal))
        (root / ".git/index.lock").write_text(f"teamcli merge alice {old} {new}\n")
        git(root, "update-ref", "refs/heads/main", new)
        ran = program.run("-p", "list")
        assert "The merge of alice into main was cut off, and is complete now." in ran.err
        assert (root / "a").exists()
        assert git(root, "status", "--porcelain") == ""

    def test_an_unknown_name_is_a_usage_error(self, program: Program) -> None:
        ran = program.run("merge", "bob")
        assert (ran.code, ran.out) == (2, "")
        assert "there is no teammate 'bob'; there are: none" in ran.err
