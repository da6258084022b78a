"""`teamcli store`, and looking at a team in a database from any directory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from teamcli.cli.main import SUBCOMMANDS
from teamcli.config.project import inspect_project
from teamcli.errors import TeamcliError
from teamcli.storage.team_dir import TeamDir
from teamcli.store.location import root_commit
from teamcli.store.postgres.events import EventRows
from teamcli.store.postgres.leases import Host
from teamcli.store.postgres.newest import Newest
from teamcli.store.postgres.team_rows import Fence, Team
from teamcli.store.postgres.teams import open_team
from teamcli.store.postgres.transcripts import TranscriptRows
from tests.support.answers import text, tool
from tests.support.file_team import KEY, git, make_team, repository
from tests.support.postgres import PASSWORD
from tests.support.program import Program
from tests.support.running import Running
from tests.support.waiting import wait_until

Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process. Returns what it prints; for an error, the sentence."""

    def run(name: str, *words: str) -> str:
        capsys.readouterr()
        try:
            SUBCOMMANDS[name](words)
        except TeamcliError as e:
            return f"teamcli: {e}"
        printed = capsys.readouterr()
        return printed.out + printed.err

    return run


@pytest.fixture
def here(tmp_path: Path, clean_environment: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str) -> Path:
    """A repository with a team in files, and a database that the environment names."""
    (clean_environment / ".teamcli").mkdir(0o700)
    (clean_environment / ".teamcli" / "key").write_bytes(KEY)
    directory = repository(tmp_path / "work")
    inspect_project(directory).claim()
    make_team(directory / ".team")
    monkeypatch.chdir(directory)
    monkeypatch.setenv("TEAMCLI_STORE", postgres_url)
    return directory


@pytest.fixture
def stored(here: Path, run: Run) -> Path:
    """The same, imported."""
    assert "Imported" in run("store", "import")
    return here


def opened(url: str, directory: Path) -> Team:
    return open_team(url, root_commit(directory), "", create=False)


def test_an_empty_database_is_migrated_once(empty_postgres_url: str, run: Run) -> None:
    first, second = (run("store", "migrate", "--store", empty_postgres_url) for _ in range(2))
    assert first.endswith(": migrated from version 0 to 2.\n")
    assert second.endswith(" is up to date (version 2).\n")


@pytest.mark.parametrize("words", [("store", "teams"), ("team",), ("store", "export")])
def test_a_database_without_tables_is_reported_with_the_remedy(
    empty_postgres_url: str, here: Path, run: Run, words: tuple[str, ...]
) -> None:
    assert "teamcli store migrate" in run(*words, "--store", empty_postgres_url)


def test_a_team_is_listed_with_its_repository_members_and_messages(stored: Path, run: Run) -> None:
    (line,) = run("store", "teams", "--json").splitlines()
    listed = json.loads(line)
    wanted = {"name": "default", "root": root_commit(stored), "members": 1, "messages": 7, "hosts": []}
    assert {name: listed[name] for name in wanted} == wanted


def test_the_team_looks_the_same_in_the_database_as_in_files(here: Path, run: Run, monkeypatch: Any) -> None:
    looks = [("inbox", "--json"), ("inbox", "alice", "--json"), ("log", "--json"), ("tasks", "--json")]
    with monkeypatch.context() as without:
        without.delenv("TEAMCLI_STORE")
        before = [run(*look) for look in looks]
    run("store", "import")
    assert [run(*look) for look in looks] == before


def test_a_team_is_found_by_its_name_from_any_directory(
    stored: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "alice" in run("team", "--team", "default")


def test_outside_of_a_repository_a_team_must_be_named(
    stored: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "first commit of its git repository" in run("team")


def test_of_several_teams_of_a_repository_one_must_be_named(stored: Path, run: Run) -> None:
    make_team(stored / ".team")
    run("store", "import", "--team", "second")
    assert "several teams" in run("team")
    assert "default, second; choose one with --team NAME" in run("team")


@pytest.fixture
def two_repositories(stored: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """With a team of the same name each. The current directory belongs to neither."""
    other = repository(tmp_path / "other", "another start")
    with monkeypatch.context() as there:
        there.chdir(other)
        inspect_project(other).claim()
        make_team(other / ".team")
        assert "Imported" in run("store", "import")
        run("send", "alice", "in the other one")
    monkeypatch.chdir(tmp_path)
    return [stored, other]


@pytest.mark.parametrize(
    "words", [("team",), ("inbox",), ("send", "alice", "x"), ("store", "export"), ("store", "delete", "--yes")]
)
def test_of_several_teams_of_one_name_the_error_shows_how_to_choose_one(
    two_repositories: list[Path], run: Run, words: tuple[str, ...]
) -> None:
    names = ", ".join(sorted(f"default@{root_commit(each)[:12]}" for each in two_repositories))
    wanted = f"several teams: {names}; choose one with --team NAME@ROOT"
    assert wanted in run(*words, "--team", "default")


def test_a_team_is_chosen_by_its_name_and_its_repository(two_repositories: list[Path], run: Run) -> None:
    mail = [run("inbox", "alice", "--team", f"default@{root_commit(each)[:12]}") for each in two_repositories]
    assert ["in the other one" in each for each in mail] == [False, True]


def test_a_clone_of_another_repository_does_not_matter_if_a_root_is_named(
    two_repositories: list[Path], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = two_repositories
    monkeypatch.chdir(first)
    assert "in the other one" in run("inbox", "alice", "--team", f"default@{root_commit(other)[:12]}")


def test_one_of_several_teams_of_a_name_is_sent_to_exported_and_deleted(
    two_repositories: list[Path], run: Run, tmp_path: Path
) -> None:
    name = f"default@{root_commit(two_repositories[1])[:12]}"
    assert "waits until it starts" in run("send", "alice", "for all to see", "--team", name)
    run("store", "export", str(tmp_path / "copy"), "--team", name)
    assert "for all to see" in (tmp_path / "copy/inbox/alice.jsonl").read_text()
    assert run("store", "delete", "--yes", "--team", name) == "Deleted the team 'default'.\n"
    (left,) = run("store", "teams", "--json").splitlines()
    assert json.loads(left)["root"] == root_commit(two_repositories[0])


@pytest.mark.parametrize("root", ["", "xyz", "25d", "DROP TABLE"])
def test_what_cannot_be_the_root_of_a_team_is_refused(stored: Path, run: Run, root: str) -> None:
    assert "after @, write the first digits" in run("team", "--team", f"default@{root}")


def test_a_root_that_no_team_has_is_named(stored: Path, run: Run) -> None:
    assert "the database has no team 'default@0123'" in run("team", "--team", "default@0123")


def test_a_team_must_be_in_a_database_to_be_named(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEAMCLI_STORE")
    assert "--store URL" in run("team", "--team", "x")


STATE = ("config.json", "inbox/lead.jsonl", "transcripts/lead.jsonl", "tasks/1.json")
IN_FILES = "holds a team in files: move it into the database with teamcli store import"


@pytest.mark.parametrize("words", [("-p", "list"), ("worker",)], ids=["lead", "worker"])
@pytest.mark.parametrize("name", STATE)
def test_nothing_starts_with_a_store_where_a_team_is_in_files(
    program: Program, postgres_url: str, name: str, words: tuple[str, ...]
) -> None:
    path = repository(program.directory) / ".team" / name
    path.parent.mkdir(parents=True)
    path.write_text("{}\n")
    ran = program.run(*words, "--store", postgres_url)
    assert (ran.code, IN_FILES in ran.err) == (2, True), ran.err


@pytest.mark.parametrize("words", [("tasks", "add", "test it"), ("send", "lead", "hello")], ids=["tasks", "send"])
def test_what_was_sent_in_files_is_not_hidden_by_a_store(
    program: Program, postgres_url: str, words: tuple[str, ...]
) -> None:
    (repository(program.directory) / ".team").mkdir()
    assert program.run(*words).code == 0
    ran = program.run("-p", "list", "--store", postgres_url)
    assert (ran.code, IN_FILES in ran.err) == (2, True), ran.err


@pytest.mark.parametrize("name", ["worktrees/alice/a.txt", "events.jsonl", "settings.json"])
def test_what_a_team_in_a_database_shares_is_no_team_in_files(program: Program, postgres_url: str, name: str) -> None:
    path = repository(program.directory) / ".team" / name
    path.parent.mkdir(parents=True)
    path.write_text("{}\n")
    ran = program.run("-p", "list", "--store", postgres_url)
    assert ran.code == 0, ran.err


CHANGES = [("send", "alice", "hello"), ("tasks", "add", "x"), ("tasks", "done", "1")]


@pytest.mark.parametrize("named", [(), ("--store",), ("--team", "default")], ids=["variable", "store", "team"])
@pytest.mark.parametrize("words", CHANGES, ids=" ".join)
def test_where_a_team_is_in_files_nothing_is_changed_in_a_database(
    stored: Path, run: Run, postgres_url: str, words: tuple[str, ...], named: tuple[str, ...]
) -> None:
    make_team(stored / ".team")
    before = [run(*look, "--store", postgres_url) for look in (("inbox", "alice", "--json"), ("tasks", "--json"))]
    assert IN_FILES in run(*words, *named, *([postgres_url] if named == ("--store",) else []))
    after = [run(*look, "--store", postgres_url) for look in (("inbox", "alice", "--json"), ("tasks", "--json"))]
    assert after == before


@pytest.mark.parametrize("look", ["inbox", "log", "tasks"])
def test_where_a_team_is_in_files_a_team_in_a_database_is_shown_only_if_it_is_named(
    stored: Path, run: Run, postgres_url: str, look: str
) -> None:
    shown = run(look, "--json")
    make_team(stored / ".team")
    named = [run(look, "--json", "--store", postgres_url), run(look, "--json", "--team", "default")]
    assert IN_FILES in run(look, "--json")
    assert named == [shown, shown]


def test_looking_leaves_nothing_behind(stored: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    for look in (("team",), ("inbox",), ("log",), ("tasks",)):
        run(*look)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_message_is_signed_with_the_key_of_the_team(stored: Path, run: Run) -> None:
    assert "waits until it starts" in run("send", "alice", "hello", "there")
    last = json.loads(run("inbox", "alice", "--json").splitlines()[-1])
    assert (last["content"], last["foreign"], last["read"]) == ("hello there", False, False)


def test_tasks_are_added_and_completed_in_the_database(stored: Path, run: Run) -> None:
    assert run("tasks", "add", "write", "docs") == "Added task 3: write docs\n"
    assert run("tasks", "done", "1") == "Task 1 is completed: first\n"
    statuses = {task["id"]: task["status"] for task in json.loads(run("tasks", "--json"))}
    assert statuses == {1: "completed", 2: "pending", 3: "pending"}


def test_changes_of_tasks_are_in_the_timeline(stored: Path, run: Run) -> None:
    run("tasks", "add", "write", "docs")
    assert "task 3 created: write docs" in run("log", "-n", "1")


def without_key(home: Path) -> bytes:
    (path,) = (home / ".teamcli" / "teams").glob("*.key")
    key = path.read_bytes()
    path.unlink()
    return key


def test_without_the_key_a_message_counts_as_one_from_outside(stored: Path, run: Run, clean_environment: Path) -> None:
    key = without_key(clean_environment)
    printed = run("send", "alice", "hello")
    (clean_environment / ".teamcli" / "teams").joinpath(_name(printed)).write_bytes(key)
    assert json.loads(run("inbox", "alice", "--json").splitlines()[-1])["foreign"]


def _name(printed: str) -> str:
    """The file of the key that a message asks for."""
    return next(word for word in printed.replace("/", " ").split() if word.endswith(".key"))


def test_without_the_key_mail_is_shown_with_a_warning_that_nothing_is_verified(
    stored: Path, run: Run, clean_environment: Path
) -> None:
    without_key(clean_environment)
    printed = run("inbox")
    assert "done" in printed
    assert f"from {os.uname().nodename} (scp " in printed


@pytest.mark.parametrize("command", ["team", "inbox", "log", "tasks"])
def test_without_the_key_a_command_warns_once(stored: Path, run: Run, clean_environment: Path, command: str) -> None:
    without_key(clean_environment)
    assert run(command).count("does not have the key of the team") == 1


def test_a_key_that_is_missing_can_be_copied_to_where_it_belongs(
    stored: Path, run: Run, clean_environment: Path
) -> None:
    without_key(clean_environment)
    keys = clean_environment / ".teamcli" / "teams"
    keys.rmdir()
    run("team")
    assert keys.stat().st_mode & 0o777 == 0o700


def test_without_the_key_nothing_is_exported(stored: Path, run: Run, clean_environment: Path) -> None:
    without_key(clean_environment)
    assert "does not have the key of the team: copy " in run("store", "export")
    assert not TeamDir(stored / ".team").has_state


def test_hosts_are_shown_with_what_they_run_and_whether_they_are_alive(
    stored: Path, run: Run, postgres_url: str
) -> None:
    team = opened(postgres_url, stored)
    host, gone = (Host(team, name, 4, Fence(team)) for name in ("build-1", "build-2"))
    host.join()
    gone.join()
    assert host.take("alice")
    gone.leave()
    printed = run("team")
    team.database.close()
    assert "alice  build-1" in printed
    assert ["Host build-1: runs 1 member" in printed, "Host build-2: not running" in printed] == [True, True]


def test_a_running_team_is_not_deleted(stored: Path, run: Run, postgres_url: str) -> None:
    team = opened(postgres_url, stored)
    Host(team, "build-1", 4, Fence(team)).join()
    printed = run("store", "delete", "--yes")
    team.database.close()
    assert "is running on build-1: stop teamcli there" in printed
    assert "alice" in run("team")


def test_a_team_is_deleted_only_after_a_question(stored: Path, run: Run) -> None:
    assert "nothing was deleted" in run("store", "delete")
    assert run("store", "delete", "--yes") == "Deleted the team 'default'.\n"
    assert "has no team" in run("team")


def test_a_team_that_was_deleted_can_be_created_again(stored: Path, run: Run) -> None:
    run("store", "export")
    run("store", "delete", "--yes")
    assert "Imported" in run("store", "import")
    assert "alice" in run("team")


def test_what_is_exported_is_known_as_the_users_own(stored: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("store", "export") == f"Exported to {stored}/.team.\n"
    monkeypatch.delenv("TEAMCLI_STORE")
    assert "alice" in run("team")
    assert TeamDir(stored / ".team").read_owner_token()


def test_a_team_that_someone_else_has_made_is_not_imported(here: Path, run: Run) -> None:
    (here / ".team" / ".owner").unlink()
    assert "was made by someone else" in run("store", "import")
    assert TeamDir(here / ".team").has_state


def test_what_is_exported_to_a_new_clone_is_known_as_the_users_own(
    stored: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "clone", "-q", str(stored), "clone")
    monkeypatch.chdir(tmp_path / "clone")
    run("store", "export")
    assert inspect_project(tmp_path / "clone").may_use_state


def test_a_directory_without_a_team_is_not_imported(here: Path, run: Run, tmp_path: Path) -> None:
    assert "has no team to import" in run("store", "import", str(tmp_path / "nothing"))


@pytest.mark.parametrize("verb", ["teams", "export", "import", "delete", "migrate"])
def test_a_command_without_a_database_says_how_to_name_one(
    here: Path, run: Run, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.delenv("TEAMCLI_STORE")
    assert "--store postgresql://" in run("store", verb)


def test_a_project_cannot_choose_the_database(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEAMCLI_STORE")
    (here / ".team" / "settings.json").write_text(json.dumps({"store": "postgresql://example.org/x"}))
    assert "name the database" in run("store", "teams")


def test_a_wrong_password_is_never_printed(program: Program, postgres_url: str) -> None:
    url = postgres_url.replace("postgres@", f"guarded:{PASSWORD.replace(' ', '%20')}-wrong@")
    repository(program.directory)
    ran = program.run("team", "--store", url)
    assert (ran.code, PASSWORD in ran.err, "check the user and the password" in ran.err) == (2, False, True)


def test_the_doctor_checks_the_database_the_team_and_its_key(stored: Path, run: Run, clean_environment: Path) -> None:
    (line,) = [line for line in run("doctor").splitlines() if "  store  " in line]
    assert line.startswith("ok ")
    without_key(clean_environment)
    (line,) = [line for line in run("doctor").splitlines() if "  store  " in line]
    assert line.startswith("BAD")


def test_without_a_store_the_doctor_says_nothing_about_one(
    here: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEAMCLI_STORE")
    assert "  store  " not in run("doctor")


def test_a_team_works_in_files_then_in_a_database_then_in_files_again(program: Program, postgres_url: str) -> None:
    repository(program.directory)
    store = {"TEAMCLI_STORE": postgres_url}

    def work(line: str, **variables: str) -> None:
        done = program.run("--permission-mode", "bypassPermissions", stdin=f"{line}\n/wait\n", env=variables)
        assert done.code == 0, done.err

    work("spawn alice as coder: tell lead: one")
    assert program.run("store", "import", env=store).code == 0
    work("@alice tell lead: two", **store)
    assert program.run("store", "export", env=store).code == 0
    work("@alice tell lead: three")
    mail = [each for each in program.run("inbox", "--json").json_lines if each["type"] == "message"]
    assert [each["content"] for each in mail] == ["one", "two", "three"]
    assert [(each["read"], each["foreign"]) for each in mail] == [(True, False), (False, False), (False, False)]


def followed(program: Program, *words: str) -> Any:
    """A command that prints until it is ended, as lines."""
    return program.start(*words, stderr=None)


@pytest.mark.parametrize("words", [("log", "--follow"), ("watch", "alice")])
def test_a_follower_shows_what_other_machines_do(
    stored: Path, postgres_url: str, clean_environment: Path, words: tuple[str, ...]
) -> None:
    program = Program(stored, clean_environment, variables={"TEAMCLI_STORE": postgres_url})
    team = opened(postgres_url, stored)
    fence = Fence(team)
    host = Host(team, "build-1", 4, fence)
    host.join()
    assert host.take("alice")
    timeline = EventRows(team, Newest(), "build-1", stored / "events")
    conversation = TranscriptRows(team, fence, Newest(), "alice", 2, stored / "alice")
    process = followed(program, *words)
    os.set_blocking(process.stdout.fileno(), False)
    printed = b""

    def shows(text: bytes) -> bool:
        nonlocal printed
        printed += process.stdout.read() or b""
        return text in printed

    try:
        for text in ("first words", "second words"):
            timeline.append({"ts": 5.0, "agent": "alice", "event": "notice", "text": text})
            conversation.append({"kind": "assistant", "ts": 5.0, "content": [{"type": "text", "text": text}]})
            wait_until(lambda text=text: shows(text.encode()))  # type: ignore[misc]
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()
        timeline.close()
        conversation.close()
        team.database.close()
    assert printed.count(b"first words") == 1


@pytest.fixture
def lead(program: Program, postgres_url: str) -> Program:
    """A repository whose team is in a database, that a lead has worked for once."""
    repository(program.directory)
    program.variables["TEAMCLI_STORE"] = postgres_url
    assert program.run("-p", "read it all").code == 0
    return program


@pytest.fixture
def other_clone(lead: Program, tmp_path: Path) -> Program:
    git(tmp_path, "clone", "-q", str(lead.directory), "other")
    return Program(tmp_path / "other", lead.home, lead.url, variables=lead.variables)


@contextmanager
def working(program: Program) -> Iterator[None]:
    """A lead that works until the end of the block."""
    first = program.start("-p", "one", "--permission-mode", "bypassPermissions")
    try:
        wait_until(lambda: (program.directory / "on").exists())
        yield
    finally:
        (program.directory / "off").touch()
        said = first.communicate(timeout=60)[0]
    assert said == b"first\n"


ONE, TWO = tool("bash", command="touch on; until [ -e off ]; do sleep 0.05; done"), text("second")


def test_a_second_run_works_alone_next_to_the_lead(lead: Program, postgres_url: str) -> None:
    with lead.against([ONE, TWO, text("first")]), working(lead):
        ran = lead.run("-p", "two")
        assert (ran.code, ran.out) == (0, "second\n"), ran.err
        assert "this run will not join its team" in ran.err
    assert "two" not in lead.run("log", "--json").out


@pytest.mark.parametrize("words", [(), ("--host", "other")])
def test_a_second_run_in_another_clone_works_alone_too(
    lead: Program, other_clone: Program, words: tuple[str, ...]
) -> None:
    with lead.against([ONE, TWO, text("first")]) as api, working(lead):
        other_clone.url = api.url
        ran = other_clone.run("-p", "two", *words)
        assert (ran.code, ran.out) == (0, "second\n"), ran.err
        assert "The lead of this team runs on '" in ran.err
        assert "; this run will not join its team." in ran.err
        # Nothing of it is left that would keep another one away.
        assert "Host other: runs" not in lead.run("team").out


def test_a_second_prompt_is_refused_and_says_what_to_do(lead: Program, other_clone: Program) -> None:
    with lead.against([ONE, text("first")]), working(lead):
        here, there = lead.run(stdin="x\n"), other_clone.run(stdin="x\n")
    assert (here.code, there.code) == (2, 2)
    assert "leave it, or use --no-team" in here.err
    assert "the lead of this team runs on '" in there.err
    assert "choose --team NAME, or wait 30 seconds if it has just died" in there.err


def test_a_lead_whose_name_a_worker_has_chooses_another_with_host(lead: Program, postgres_url: str) -> None:
    team = opened(postgres_url, lead.directory)
    Host(team, "box", 4, Fence(team)).join()
    for words in ((), ("-p", "two")):
        ran = lead.run(*words, "--host", "box", stdin="x\n")
        assert (ran.code, "choose another name with --host" in ran.err) == (2, True)
    team.database.close()


def team_file(program: Program, more: str = "") -> None:
    (program.directory / ".team/team.toml").write_text(f'[[member]]\nname = "alice"\nrole = "coder"\n{more}')


def test_up_brings_the_members_of_the_team_file_into_the_database(lead: Program) -> None:
    team_file(lead)
    assert (ran := lead.run("up", "--trust")).code == 0, ran.err
    assert (ran.out, ran.err) == ("alice: joined\n", "")
    assert [member["name"] for member in lead.run("team", "--json").json["members"]] == ["alice"]
    assert lead.run("up").out == "alice: unchanged\n"


def test_a_lead_works_with_the_members_that_up_has_brought(lead: Program) -> None:
    team_file(lead)
    lead.run("up", "--trust")
    ran = lead.run("--permission-mode", "bypassPermissions", stdin="@alice run echo good morning\n/wait\n")
    assert (ran.code, "good morning" in ran.out) == (0, True), ran.err
    assert not TeamDir(lead.directory / ".team").has_state


def test_a_member_of_the_team_file_that_up_has_brought_waits_for_its_host(lead: Program) -> None:
    team_file(lead, 'host = "box"\n')
    assert lead.run("up", "--trust").out == "alice: joined\n"
    (alice,) = lead.run("team", "--json").json["members"]
    assert (alice["host"], alice["worktree"]) == ("box", True)
    assert "box (not there)" in lead.run("team").out


def test_up_names_its_team_like_the_lead(lead: Program, postgres_url: str) -> None:
    team_file(lead)
    words = ("--store", postgres_url, "--team", "shop")
    assert lead.run("up", "--trust", *words, env={"TEAMCLI_STORE": ""}).out == "alice: joined\n"
    shown = lead.run("team", "--json", *words, env={"TEAMCLI_STORE": ""}).json
    assert [member["name"] for member in shown["members"]] == ["alice"]


def test_up_waits_for_no_lead_that_runs(lead: Program) -> None:
    team_file(lead)
    with Running(lead) as running:
        running.type("list")
        running.wait_for("No teammates")
        ran = lead.run("up", "--trust")
    assert (ran.code, f"teamcli runs in this directory (process {running.process.pid})" in ran.err) == (2, True), (
        ran.err
    )


def test_up_is_refused_where_a_team_is_in_files(program: Program, postgres_url: str) -> None:
    repository(program.directory)
    program.run("-p", "list")
    team_file(program)
    ran = program.run("up", "--trust", "--store", postgres_url)
    assert (ran.code, IN_FILES in ran.err) == (2, True), ran.err


def test_merge_says_that_only_the_lead_merges_and_leaves_nothing_behind(lead: Program) -> None:
    ran = lead.run("merge", "alice")
    assert ran.code == 2
    assert ran.err == (
        "teamcli: the team is in a database, where only its lead merges: type /merge alice at its prompt\n"
    )
    assert not TeamDir(lead.directory / ".team").has_state


@pytest.mark.parametrize("words", [("sessions",), ("-r",)], ids=["sessions", "resume"])
def test_sessions_of_a_lead_are_listed_from_any_clone(lead: Program, tmp_path: Path, words: tuple[str, ...]) -> None:
    git(tmp_path, "clone", "-q", str(lead.directory), "clone")
    clone = Program(tmp_path / "clone", lead.home, variables=lead.variables)
    listed = [each.run(*words).out for each in (lead, clone)]
    assert "read it all" in listed[0]
    assert listed[1] == listed[0]
    (id,) = [line.split()[0] for line in listed[0].splitlines()]
    assert clone.run("-p", "list", "--resume", id).code == 0


def test_sessions_are_those_of_the_team_that_is_named(lead: Program) -> None:
    assert lead.run("-p", "read the shop", "--team", "shop").code == 0
    assert "read the shop" in lead.run("sessions", "--team", "shop").out
    assert "read it all" in lead.run("-r", "--team", "default").out


def lines_of_doctor(program: Program) -> dict[str, str]:
    return {
        line.split()[1]: line for line in program.run("doctor").out.splitlines() if line.startswith(("ok", "?", "BAD"))
    }


def test_the_doctor_counts_the_sessions_in_the_database(lead: Program) -> None:
    found = lines_of_doctor(lead)
    assert "0 sessions" not in found[".team"]
    assert "the team 'default' and its key are there, with 1 session" in found["store"]


def test_the_doctor_names_the_hosts_that_have_worked_here(lead: Program) -> None:
    assert f"hosts that have worked here: {os.uname().nodename}-lead" in lines_of_doctor(lead)[".team"]


def test_the_doctor_knows_whose_worktrees_are_here(lead: Program) -> None:
    spawn = "spawn alice as coder in a worktree: tell lead: here"
    assert lead.run("-p", spawn, "--permission-mode", "bypassPermissions").code == 0
    git(lead.directory, "worktree", "add", "-q", ".team/worktrees/bob", "-b", "team/bob")
    found = lines_of_doctor(lead)
    assert "worktrees of nobody: bob (" in found["store"]
    assert "worktrees of nobody" not in found[".team"]


def test_the_doctor_refuses_files_next_to_a_store(lead: Program) -> None:
    (lead.directory / ".team/tasks").mkdir()
    (line,) = [line for line in lead.run("doctor").out.splitlines() if IN_FILES in line]
    assert line.startswith("BAD  .team")


@pytest.mark.parametrize(
    "words",
    [
        ("-p", "list", "--team", "shop"),
        ("-p", "list", "--host", "box"),
        ("-r", "--team", "shop"),
        ("sessions", "--team", "shop"),
        ("up", "--trust", "--team", "shop"),
        ("doctor", "--team", "shop"),
    ],
    ids=" ".join,
)
def test_options_for_a_team_in_a_database_need_one(program: Program, words: tuple[str, ...]) -> None:
    (program.directory / ".team").mkdir()
    team_file(program)
    ran = program.run(*words)
    assert (ran.code, "is for a team in a database: name that with --store URL" in ran.err) == (2, True), ran.err
    assert not TeamDir(program.directory / ".team").has_state
