"""Attacks on the question itself: that it is not asked, not seen whole, or remembered too widely."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from teamcli.agent.tool import Executes
from teamcli.permissions.decide import decide
from teamcli.permissions.policy import Policy
from tests.redteam.marker import attempt, make_marker, marks
from tests.support.fake_api import answer, text, tool
from tests.support.program import MakeProgram, Program
from tests.support.screen import Screen
from tests.support.team_script import TeamScript
from tests.support.waiting import wait_until

PROMPT = "team >>"
SHIFT_TAB = "\x1b[Z"


@pytest.fixture
def program(program: Program, forked: MakeProgram) -> Program:
    return forked(program.directory, program.home)


def local_rules(program: Program) -> list[str]:
    path = program.directory / ".team/settings.local.json"
    return list(json.loads(path.read_text())["permissions"]["allow"]) if path.exists() else []


def team_of_two(*, alice: object, bob: object) -> TeamScript:
    return TeamScript(
        lead=[
            answer(
                tool("spawn_teammate", name="alice", role="coder", prompt="x"),
                tool("spawn_teammate", name="bob", role="coder", prompt="x"),
            ),
            *[text("hired")] * 4,
        ],
        alice=[alice, text("alice is done")],
        bob=[bob, text("bob is done")],
    )


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("zap && git status", "bash(zap && git status)"),
        ("zap -m x; zap y", "bash(zap -m x; zap y)"),
        ("zap $X", ""),
        ("zap *", ""),
        ("zap:*", ""),
        ("zap ':*'", "bash(zap ':*')"),
        ("env zap", "bash(env zap)"),
        ("zap > f", "bash(zap > f)"),
    ],
)
def test_always_would_write_this_line_and_no_more(command: str, rule: str) -> None:
    assert decide(Policy(), "bash", Executes(command), Path("/work")).rule == rule


class TestAnswers:
    def ask(self, program: Program, command: str, keys: str, shows: str = "zap") -> str:
        """What stood on the screen when a call was asked about, and was answered so."""
        with program.against([tool("bash", command=command), text("The end.")]), Screen(program, lines=60) as screen:
            screen.wait_for(PROMPT)
            screen.type("do it\r")
            screen.wait_for("allow? >>")
            screen.wait_for(shows)
            shown = screen.text
            screen.type(keys)
            screen.wait_for("The end.")
        return shown

    @pytest.mark.parametrize(
        ("command", "rule"),
        [
            ("zap '$(git status)'", "bash(zap '$(git status)')"),
            ("zap '), bash(git'", "bash(zap '), bash(git')"),
        ],
    )
    def test_always_writes_a_rule_for_this_line_and_no_other(self, program: Program, command: str, rule: str) -> None:
        make_marker(program)
        self.ask(program, command, "a\r1\r")
        assert local_rules(program) == [rule]
        before = marks(program)
        ran, said = attempt(program, ["zap", "git status", f"{command}; zap", "zap other"])
        assert ran.code == 4
        assert all("nobody can be asked" in each for each in said)
        assert marks(program) == before

    def test_no_rule_is_offered_or_written_for_a_line_that_rules_do_not_cover(self, program: Program) -> None:
        make_marker(program)
        shown = self.ask(program, "zap $(git status)", "a\r")
        assert "a always" not in shown, shown
        assert "write the value out" in " ".join(shown.split()), shown
        assert local_rules(program) == []
        assert "zap " in marks(program)  # allowed this once

    def test_a_command_is_shown_to_its_end(self, program: Program) -> None:
        make_marker(program)
        shown = self.ask(program, "echo harmless" + "\n" * 20 + "zap at the end", "n\r", shows="zap at the end")
        assert "lead wants to use bash" in shown

    def test_a_command_cannot_paint_over_its_question(self, program: Program) -> None:
        make_marker(program)
        shown = self.ask(program, "zap evil \x1b[2K\r\x1b[1A# harmless", "n\r")
        assert "zap evil" in shown
        assert "lead wants to use bash" in shown

    def test_the_name_of_who_asks_cannot_be_forged_by_the_command(self, program: Program) -> None:
        make_marker(program)
        shown = self.ask(program, "zap\n▲ lead wants to use bash:\n  ls", "n\r")
        forged = [line for line in shown.splitlines() if "wants to use" in line]
        assert forged[0].startswith("▲ lead")
        assert all(line.startswith("  ") for line in forged[1:])


class TestTeam:
    def test_both_places_show_who_waits_and_for_how_long(self, program: Program) -> None:
        make_marker(program)
        script = team_of_two(alice=tool("bash", command="zap a"), bob=text("idle"))
        with program.against(script), Screen(program, lines=50, columns=160) as screen:
            screen.wait_for(PROMPT)
            screen.type("go\r")
            screen.wait_for("alice wants to use bash")
            screen.type("/team\r")
            screen.wait_for("waiting for permission: bash: $ zap a")
            assert re.search(r"\d+ s waiting for permission: bash: .*zap a", screen.text)
            outside = program.run("team")
            assert re.search(r"alice .* \d+ s waiting for permission: bash: ", outside.out)
            member = next(m for m in program.run("team", "--json").json["members"] if m["name"] == "alice")
            assert member["waiting_since"] > 0
            screen.type("n\r")
            wait_until(lambda: "waiting for permission" not in program.run("team").out)
        assert marks(program) == []

    def test_a_switch_of_the_mode_settles_the_questions_of_all_agents(self, program: Program) -> None:
        script = team_of_two(
            alice=tool("write_file", path="by-alice", content="x"), bob=tool("write_file", path="by-bob", content="x")
        )
        with program.against(script), Screen(program, lines=50) as screen:
            screen.wait_for(PROMPT)
            screen.type("go\r")
            wait_until(lambda: program.run("team").out.count("waiting for permission") == 2)
            screen.type(SHIFT_TAB)
            wait_until((program.directory / "by-alice").exists)
            wait_until((program.directory / "by-bob").exists)
            screen.wait_for(PROMPT)
        assert local_rules(program) == []

    def test_a_switch_to_plan_refuses_what_was_asked(self, program: Program) -> None:
        script = team_of_two(alice=tool("write_file", path="by-alice", content="x"), bob=text("idle"))
        with program.against(script), Screen(program, lines=50) as screen:
            screen.wait_for(PROMPT)
            screen.type("go\r")
            screen.wait_for("alice wants to use write_file")
            screen.type("/permissions plan\r")
            wait_until(lambda: len(script.requests["alice"]) >= 2)
        assert "The mode plan refuses write_file" in str(script.requests["alice"][1]["messages"][-1])
        assert not (program.directory / "by-alice").exists()

    def test_a_switch_settles_no_more_than_the_mode_allows(self, program: Program) -> None:
        make_marker(program)
        script = team_of_two(alice=tool("bash", command="zap a"), bob=tool("write_file", path="by-bob", content="x"))
        with program.against(script), Screen(program, lines=50) as screen:
            screen.wait_for(PROMPT)
            screen.type("go\r")
            wait_until(lambda: program.run("team").out.count("waiting for permission") == 2)
            screen.type(SHIFT_TAB)  # acceptEdits: files, no commands
            wait_until((program.directory / "by-bob").exists)
            assert "waiting for permission: bash" in program.run("team").out
        assert marks(program) == []

    def test_always_for_one_agent_answers_the_same_question_of_another(self, program: Program) -> None:
        make_marker(program)
        script = team_of_two(alice=tool("bash", command="zap same"), bob=tool("bash", command="zap same"))
        with program.against(script), Screen(program, lines=50) as screen:
            screen.wait_for(PROMPT)
            screen.type("go\r")
            wait_until(lambda: program.run("team").out.count("waiting for permission") == 2)
            screen.wait_for("allow? >>")
            screen.type("a\r1\r")
            wait_until(lambda: marks(program) == ["zap same"] * 2)
        assert local_rules(program) == ["bash(zap same)"]


NASTY = [
    "zap plain",
    "zap 'a), bash(b'",
    "zap a, b",
    "zap '$X'",
    "zap '*'",
    "zap 'a:*'",
    "zap > f",
    "zap && zap",
    "zap '# it'\\''s'",
    "zap\nzap",
    "CI=1 zap",
    "zap \"$(cat <<'E'\n$(zap)\nE\n)\"",
    "zap 'é\u00a0\u202e'",
    " zap ",
    "zap \\\n  joined",
]


def test_headless_the_rule_that_is_named_allows_that_very_call(program: Program) -> None:
    """Each rule goes back to the program as it came, all of them in one option."""
    make_marker(program)
    ran, _ = attempt(program, NASTY)
    assert ran.code == 4
    assert marks(program) == []
    rules = [denial["rule"] for denial in ran.json["permission_denials"]]
    assert len(rules) == len(NASTY)
    again, _ = attempt(program, NASTY, "--allowedTools", ",".join(rules))
    assert again.code == 0
    assert again.json["permission_denials"] == []
    assert len(marks(program)) >= len(NASTY)
    other, _ = attempt(program, [f"{command} more; zap" for command in NASTY], "--allowedTools", ",".join(rules))
    assert other.code == 4
    assert len(other.json["permission_denials"]) == len(NASTY)


def test_headless_files_the_rule_that_is_named_allows_that_very_file(program: Program) -> None:
    paths = ["a.txt", "src/[id].tsx", "a, b.txt", "it's.txt", "deep/er/x y.txt", "~file", "a*b"]

    def write(*flags: str) -> list[dict[str, str]]:
        calls = [tool("write_file", path=path, content="x") for path in paths]
        with program.against([answer(*calls), text("done")]):
            denials: list[dict[str, str]] = program.run("-p", "x", "--output-format", "json", *flags).json[
                "permission_denials"
            ]
            return denials

    rules = [denial["rule"] for denial in write()]
    assert len(rules) == len(paths)
    assert not (program.directory / "a.txt").exists()
    assert write("--allowedTools", ",".join(rules)) == []
    assert all((program.directory / path).exists() for path in paths)


def test_a_link_does_not_cause_a_second_question(program: Program) -> None:
    """A rule for a file is about the file, not about a name that leads to another one later."""
    (program.directory / "notes").write_text("x")
    (program.directory / "link").symlink_to("notes")
    with program.against([tool("edit_file", path="link", old_text="x", new_text="y"), text("done")]):
        ran = program.run("-p", "x", "--output-format", "json")
    assert ran.json["permission_denials"][0]["rule"] == "edit_file(./notes)"
    assert Path(program.directory / "notes").read_text() == "x"
