"""`teamcli team`, `inbox`, `send` and `log`: the team from another shell, whether it runs or not."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.support.prepared import Prepared
from tests.support.program import PATIENCE_SECONDS, MakeProgram, Program
from tests.support.running import Running
from tests.support.waiting import wait_until

BYPASS = ("--permission-mode", "bypassPermissions")
LOOKS = (
    ("team",),
    ("team", "--json"),
    ("inbox",),
    ("inbox", "bob", "--unread"),
    ("inbox", "--json"),
    ("inbox", "nobody"),
    ("log",),
    ("log", "--json", "--agent", "alice"),
    ("log", "-n", "2"),
    ("tasks",),
    ("tasks", "--json"),
)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory, forked: MakeProgram) -> Prepared:
    lines = (
        "spawn bob as writer: read a.txt\nspawn alice as coder: write notes.txt: hello then tell bob: read notes.txt"
    )

    def prepare(program: Program) -> None:
        assert program.run(*BYPASS, stdin=lines + "\n").code == 0

    return Prepared(tmp_path_factory.mktemp("team"), prepare, forked)


@pytest.fixture
def team(prepared: Prepared) -> Program:
    """A directory in which alice has written to bob and both rest; nothing runs."""
    return prepared.program()


@pytest.fixture
def running(program: Program) -> Iterator[Running]:
    """A REPL in which alice works until there is a file `go`."""
    with Running(program, *BYPASS) as repl:
        repl.type("spawn alice as coder: run until [ -e go ]; do sleep 0.05; done")
        wait_until(lambda: '"tool":"bash"' in read(program, "events.jsonl"))
        yield repl


def read(program: Program, name: str) -> str:
    path = program.directory / ".team" / name
    return path.read_text() if path.exists() else ""


def add_line(program: Program, name: str, line: str | dict[str, Any]) -> None:
    text = line if isinstance(line, str) else json.dumps(line)
    with (program.directory / ".team" / name).open("a") as file:
        file.write(text + "\n")


def contents(root: Path) -> dict[str, tuple[int, bytes]]:
    paths = [root, *root.rglob("*")]
    return {str(path): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in paths}


class TestLooking:
    @pytest.mark.parametrize("arguments", LOOKS, ids=" ".join)
    def test_looking_changes_nothing(self, team: Program, arguments: tuple[str, ...]) -> None:
        add_line(team, "inbox/bob.jsonl", "torn {")
        before = contents(team.directory), contents(team.home)
        team.run(*arguments)
        assert (contents(team.directory), contents(team.home)) == before

    @pytest.mark.parametrize("arguments", LOOKS, ids=" ".join)
    def test_looking_creates_nothing_if_there_is_no_team(self, program: Program, arguments: tuple[str, ...]) -> None:
        ran = program.run(*arguments)
        assert ran.code == (2 if {"bob", "nobody", "alice"} & set(arguments) else 0)
        assert list(program.directory.iterdir()) == []
        assert list(program.home.iterdir()) == []

    def test_a_command_takes_another_directory(self, team: Program) -> None:
        elsewhere = Program(team.home, team.home)
        assert "alice" in elsewhere.run("team", "--cwd", str(team.directory)).out
        assert "alice" in elsewhere.run("--cwd", str(team.directory), "team", "--json").json["members"][1]["name"]
        assert "alice" in elsewhere.run(f"--cwd={team.directory}", "team").out
        assert elsewhere.run("inbox", "--cwd", "missing").code == 2

    @pytest.mark.parametrize("name", ["team", "inbox", "send", "log", "tasks", "demo"])
    def test_every_command_has_help(self, program: Program, name: str) -> None:
        ran = program.run(name, "--help")
        assert ran.code == 0
        assert f"teamcli {name}" in ran.out
        assert program.run(name, "--bogus").err.count("\n") == 1

    @pytest.mark.parametrize("arguments", [("team",), ("team", "--json"), ("inbox",), ("inbox", "--json"), ("log",)])
    def test_a_closed_pipe_is_not_an_error(self, team: Program, arguments: tuple[str, ...]) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        process = team.start(*arguments, stdout=writing)
        os.close(writing)
        assert process.communicate(timeout=PATIENCE_SECONDS)[1] == b""
        assert process.returncode == 141

    def test_state_behind_a_link_is_refused(self, team: Program) -> None:
        (team.directory / ".team").rename(team.home / "moved")
        (team.directory / ".team").symlink_to(team.home / "moved")
        for arguments in (("team",), ("log",), ("send", "bob", "x")):
            ran = team.run(*arguments)
            assert ran.code == 2
            assert "symbolic link" in ran.err


class TestTeam:
    def test_team_says_that_teamcli_is_not_running_and_shows_the_roster(self, team: Program) -> None:
        ran = team.run("team")
        assert ran.code == 0
        assert "teamcli is not running in" in ran.out
        row = next(line for line in ran.out.splitlines() if line.startswith("alice"))
        assert row.split()[1:3] == ["coder", "idle"]

    def test_team_works_without_a_team(self, program: Program) -> None:
        assert "teamcli is not running in" in program.run("team").out
        assert program.run("team", "--json").json["members"] == []

    def test_team_prints_one_json_object(self, team: Program) -> None:
        shown = team.run("team", "--json").json
        assert (shown["team_name"], shown["running"], shown["pid"], shown["requests"]) == ("default", False, None, [])
        members = {member["name"]: member for member in shown["members"]}
        stored = {member["name"]: member for member in json.loads(read(team, "config.json"))["members"]}
        assert members == {name: {**member, "unread": 0} for name, member in stored.items()}
        assert shown["lead"]["unread"] == 0
        assert shown["lead"]["status"] == "not running"

    def test_team_shows_a_running_team(self, program: Program, running: Running) -> None:
        shown = program.run("team", "--json").json
        (alice,) = shown["members"]
        assert shown["pid"] == running.process.pid
        assert alice["status"] == "working"
        text = program.run("team").out
        assert f"process {running.process.pid}" in text
        assert "working" in text
        wait_until(lambda: program.run("team", "--json").json["lead"]["status"] == "idle")

    def test_a_member_that_was_killed_at_work_is_idle_and_interrupted(self, program: Program, running: Running) -> None:
        running.process.kill()
        running.process.wait(PATIENCE_SECONDS)
        shown = program.run("team", "--json").json
        (alice,) = shown["members"]
        assert (alice["status"], alice["interrupted"], shown["running"]) == ("idle", True, False)

    @pytest.mark.parametrize(
        ("damage", "commands"),
        [
            ("{", [("team",), ("team", "--json"), ("send", "alice", "x"), ("log", "--agent", "carol")]),
            ("[]", [("team",)]),
            ('{"members":[{"name":"bob","role":"x","status":"gone"}]}', [("team", "--json")]),
        ],
    )
    def test_a_damaged_roster_is_reported_in_one_sentence(
        self, team: Program, damage: str, commands: list[tuple[str, ...]]
    ) -> None:
        (team.directory / ".team/config.json").write_text(damage)
        for arguments in commands:
            ran = team.run(*arguments)
            assert ran.code == 2
            assert ran.err.count("\n") == 1
            assert "config.json is damaged" in ran.err
            assert "rebuilds" in ran.err
        assert "read notes.txt" in team.run("inbox", "bob").out
        assert read(team, "config.json") == damage

    def test_the_readable_part_of_a_damaged_roster_is_shown(self, team: Program) -> None:
        config = json.loads(read(team, "config.json"))
        config["members"][0]["status"] = "asleep"
        (team.directory / ".team/config.json").write_text(json.dumps(config))
        ran = team.run("team")
        assert ran.code == 2
        assert "alice" in ran.out
        assert "asleep" in ran.err

    def test_a_newer_roster_is_refused(self, team: Program) -> None:
        (team.directory / ".team/config.json").write_text('{"v": 99}')
        ran = team.run("team")
        assert ran.code == 2
        assert "newer teamcli" in ran.err


def at_terminal(team: Program, *arguments: str, columns: int = 80, env: Mapping[str, str] | None = None) -> str:
    """What a subcommand prints on a terminal of that width."""
    full = {**team.env(), "TERM": "xterm", "LANG": "C.UTF-8", **(env or {})}
    program, *rest = team.command(list(arguments))
    child = pexpect.spawn(
        program, rest, cwd=str(team.directory), env=full, timeout=PATIENCE_SECONDS, dimensions=(24, columns)
    )
    out: bytes = child.read()
    child.close()
    return out.decode()


class TestInbox:
    def test_inbox_shows_the_leads_unless_a_name_is_given(self, team: Program) -> None:
        assert "result" in team.run("inbox").out
        ran = team.run("inbox", "BOB")
        assert ran.code == 0
        assert "1 message for bob, 0 unread" in ran.out
        assert "read notes.txt" in ran.out

    def test_inbox_marks_read_and_unread_messages(self, team: Program) -> None:
        add_line(team, "inbox/bob.jsonl", {"type": "message", "from": "a shell", "content": "new\x1b[2J"})
        add_line(team, "inbox/bob.jsonl", "no message")
        first, second = team.run("inbox", "bob", "--json").json_lines
        assert (first["from"], first["to"], first["type"], first["content"]) == (
            "alice",
            "bob",
            "message",
            "read notes.txt",
        )
        assert first["read"]
        assert not first["foreign"]
        assert first["id"].startswith("msg_")
        assert first["timestamp"] > 0
        assert not second["read"]
        assert second["foreign"]
        assert second["from"] == "a shell"
        assert team.run("inbox", "bob", "--unread", "--json").json_lines == [second]
        text = team.run("inbox", "bob").out
        assert text.index("read") < text.index("UNREAD")
        assert "2 messages for bob, 1 unread from outside:" in text
        assert "outside, claims to be a shell" in text
        assert "\x1b" not in text

    @pytest.mark.parametrize("columns", [60, 80, 120])
    def test_the_inbox_fits_the_terminal(self, team: Program, columns: int) -> None:
        team.run("send", "bob", "many words " * 30)
        out = at_terminal(team, "inbox", "bob", columns=columns)
        assert "many words" in out
        assert max(map(len, out.splitlines())) < columns

    def test_the_inbox_of_an_unknown_name_lists_the_names(self, team: Program) -> None:
        for name in ("carol", "../config", "user"):
            ran = team.run("inbox", name)
            assert ran.code == 2, name
            assert "lead, bob, alice" in ran.err, name

    def test_an_empty_inbox_is_shown_as_empty(self, team: Program) -> None:
        assert team.run("inbox", "alice").out == "No messages for alice.\n"
        assert team.run("inbox", "bob", "--unread").out == "No unread messages for bob.\n"


class TestSend:
    def test_a_message_waits_until_the_next_start_if_teamcli_is_not_running(self, team: Program) -> None:
        ran = team.run("send", "bob", "write", "done.txt: by bob")
        assert ran.code == 0
        assert "Sent message to bob" in ran.out
        assert "teamcli is not running here" in ran.out
        message = team.lines(".team/inbox/bob.jsonl")[-1]
        assert (message["type"], message["from"], message["to"]) == ("message", "user", "bob")
        assert message["content"] == "write done.txt: by bob"
        assert message["sig"]
        assert team.run("inbox", "bob", "--unread", "--json").json_lines[0]["foreign"] is False
        team.run(*BYPASS, stdin="/wait\n")
        assert (team.directory / "done.txt").read_text() == "by bob"
        assert "0 unread" in team.run("inbox", "bob").out

    def test_a_message_wakes_a_running_team(self, program: Program) -> None:
        with Running(program, *BYPASS) as repl:
            repl.type("spawn bob as writer: read a.txt")
            wait_until(lambda: '"idle"' in read(program, "config.json"))
            ran = program.run("send", "Bob", "write done.txt: by bob")
            assert ran.out == "Sent message to bob\n"
            wait_until(lambda: (program.directory / "done.txt").exists())

    def test_a_message_to_the_lead_is_read_with_its_next_turn(self, team: Program) -> None:
        assert team.run("send", "lead", "write seen.txt: yes").code == 0
        team.run(*BYPASS, stdin="list\n")
        assert "0 unread" in team.run("inbox").out

    def test_the_same_text_twice_is_two_messages(self, team: Program) -> None:
        for _ in range(2):
            team.run("send", "bob", "again")
        assert "2 unread" in team.run("inbox", "bob").out

    def test_a_message_to_an_unknown_name_lists_the_names_and_writes_nothing(self, team: Program) -> None:
        assert team.run(stdin="/shutdown alice\n").code == 0
        before = contents(team.directory)
        for name, problem in (("carol", "no teammate 'carol'"), ("alice", "'alice' is shut down"), ("user", "'user'")):
            ran = team.run("send", name, "x")
            assert ran.code == 2
            assert problem in ran.err
            assert "there are: lead, bob" in ran.err
        assert contents(team.directory) == before

    def test_send_needs_a_team_and_a_text_that_fits_an_inbox(self, team: Program) -> None:
        ran = Program(team.home, team.home).run("send", "lead", "x")
        assert ran.code == 2
        assert "no team" in ran.err
        assert not (team.home / ".team").exists()
        assert team.run("send", "bob", " ").code == 2
        assert team.run("send", "bob").code == 2
        words = ["x" * 100_000] * 3  # Linux takes no argument above 128 KB
        ran = team.run("send", "bob", *words)
        assert ran.code == 2
        assert "write it to a file" in ran.err


class TestLog:
    def test_log_prints_readable_lines(self, team: Program) -> None:
        out = team.run("log").out
        for told in (
            "bob       spawned as writer",
            "alice     ▸ write_file: write notes.txt",
            "alice     → bob: read notes.txt",
            "bob       ✓ read_file",
            "bob       idle",
            "lead      model call: 0 tokens in",
        ):
            assert told in out, told
        assert len(out.splitlines()) == len(team.lines(".team/events.jsonl"))

    def test_log_prints_json_lines(self, team: Program) -> None:
        assert team.run("log", "--json").json_lines == team.lines(".team/events.jsonl")

    def test_log_can_be_limited_to_the_last_events_and_to_one_agent(self, team: Program) -> None:
        every = team.run("log").out.splitlines()
        assert team.run("log", "-n", "3").out.splitlines() == every[-3:]
        rows = team.run("log", "--agent", "BOB", "--json").json_lines
        assert rows == [row for row in team.lines(".team/events.jsonl") if "bob" in (row["agent"], row.get("to"))]
        assert team.run("log", "-n", "9" * 18).out.splitlines() == every
        assert team.run("log", "-n", "0").code == 2

    def test_the_log_of_an_unknown_agent_lists_the_names(self, team: Program) -> None:
        ran = team.run("log", "--agent", "carol")
        assert ran.code == 2
        assert "lead, user, bob, alice" in ran.err

    def test_the_log_is_empty_if_nothing_happened(self, program: Program) -> None:
        assert program.run("log").out == "Nothing has happened here yet.\n"
        assert program.run("log", "--json").out == ""

    def test_any_row_of_the_timeline_makes_a_harmless_line(self, team: Program) -> None:
        rows: list[Any] = [
            {"ts": "x", "agent": "\x1b[31mme", "event": "message", "to": 5, "content": "a\nb\x1b]0;t\x07"},
            {"ts": 1e300, "event": "tool_finished", "seconds": "long"},
            {"event": ["?"], "usage": 3, "agent": None},
            {"event": "answer", "usage": 3, "cost_usd": "dear"},
            {"event": "new_kind", "what": {"a": 1}},
        ]
        before = len(team.run("log").out.splitlines())
        for row in [*rows, "garbage", [1]]:
            add_line(team, "events.jsonl", row if isinstance(row, str) else json.dumps(row))
        ran = team.run("log")
        assert ran.code == 0
        assert len(ran.out.splitlines()) == before + len(rows)
        assert "\x1b" not in ran.out
        assert "new_kind what={" in ran.out

    @pytest.mark.parametrize(
        ("env", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
    )
    def test_the_log_is_colored_on_a_terminal_unless_the_user_objects(
        self, team: Program, env: dict[str, str], is_coloured: bool
    ) -> None:
        out = at_terminal(team, "log", env=env)
        assert ("\x1b[" in out) == is_coloured
        assert "spawned" in out


class TestFollowing:
    def test_following_shows_events_as_they_happen(self, program: Program) -> None:
        with Follow(program) as follow:
            assert program.run(*BYPASS, stdin="write a.txt: x\n").code == 0
            follow.wait_for("lead      ✓ write_file")
            assert program.run(*BYPASS, stdin="write b.txt: x\n").code == 0
            follow.wait_for("write b.txt")
            assert follow.end(signal.SIGINT) == 130

    def test_following_one_agent_works_before_it_exists(self, program: Program) -> None:
        with Follow(program, "--agent", "bob", "--json") as follow:
            wait_until(lambda: "waiting for it" in follow.err)
            program.run(*BYPASS, stdin="spawn bob as writer: read a.txt\n")
            follow.wait_for('"status": "idle"')
            assert follow.end(signal.SIGTERM) == 143
        assert {json.loads(line)["agent"] for line in follow.out.splitlines()} == {"bob"}

    def test_following_continues_over_rotation_truncation_and_torn_lines(self, team: Program) -> None:
        events = team.directory / ".team/events.jsonl"
        notice = {"ts": 1, "agent": "lead", "event": "notice"}
        with Follow(team, "-n", "1") as follow:
            follow.wait_for("\n")
            line = json.dumps({**notice, "text": "in two pieces"})
            with events.open("a") as file:
                file.write(line[:20])
            add_line(team, "events.jsonl", line[20:])
            follow.wait_for("in two pieces")
            events.rename(events.with_name("events.1.jsonl"))
            add_line(team, "events.1.jsonl", {**notice, "text": "late in the old file"})
            add_line(team, "events.jsonl", {**notice, "text": "first in the new file"})
            follow.wait_for("late in the old file")
            follow.wait_for("first in the new file")
            os.truncate(events, 0)
            add_line(team, "events.jsonl", {**notice, "text": "short"})
            follow.wait_for("short")
            assert follow.end(signal.SIGINT) == 130
        assert follow.out.count("late in the old file") == follow.out.count("in two pieces") == 1

    def test_following_ends_when_the_reader_has_gone(self, team: Program) -> None:
        process = team.start("log", "-f", "-n", "1")
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE_SECONDS) == 141
        assert process.stderr.read() == b""
        process.stderr.close()


class Follow:
    """`teamcli log -f`, whose output can be waited for."""

    def __init__(self, program: Program, *arguments: str) -> None:
        self._out = program.home / "followed"
        self._err = program.home / "complaints"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = program.start("log", "-f", *arguments, stdout=out, stderr=err)

    def __enter__(self) -> Follow:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.out or self._process.poll() is not None)
        assert text in self.out, self.out + self.err

    def end(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        return self._process.wait(PATIENCE_SECONDS)
