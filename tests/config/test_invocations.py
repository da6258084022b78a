"""Calling commands and skills that were made for Claude Code: arguments, variables, and what the front matter wants."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamcli.config.custom_commands import read_command
from teamcli.config.descriptions import shortened
from teamcli.config.front_matter import Folder
from teamcli.config.invocations import Invocation, command_of, shell_lines, with_claudes_arguments


@pytest.mark.parametrize(
    ("text", "arguments", "filled"),
    [
        ("Fix $ARGUMENTS now.", "a 'b c'", "Fix a 'b c' now."),
        ("Fix it.", "a b", "Fix it.\n\nARGUMENTS: a b"),
        ("Fix it.", "", "Fix it."),
        ("Fix $ARGUMENTS.", "", "Fix ."),
        ("$1 then $2", "'a b' c", "a b then c"),
        ("$1 then $2", "a", "a then $2"),
        ("$0 then $1", "a b", "a then b"),
        ("$ARGUMENTS[0] then $ARGUMENTS[1]", "a b", "a then b"),
        ("$ARGUMENTS[3]", "a", "$ARGUMENTS[3]"),
        (r"\$1 costs \$ARGUMENTS, $1", "a", "$1 costs $ARGUMENTS, a"),
        ("$HOME and ${X} and $10 stay", "a", "$HOME and ${X} and $10 stay\n\nARGUMENTS: a"),
        ("$issue on $branch, $other", "12 main", "12 on main, $other"),
    ],
)
def test_placeholders_are_filled(text: str, arguments: str, filled: str) -> None:
    assert with_claudes_arguments(text, arguments, ("issue", "branch")) == filled


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("!`git status`", ["git status"]),
        ("- Status: !`git status`, branch: !`git branch`", ["git status", "git branch"]),
        ("x!`no`", []),
        ("`!` and `no`", []),
        ("```!\ngit log\ngit diff\n```\nrest", ["git log\ngit diff"]),
        ("```sh\n! no\n```", []),
    ],
)
def test_commands_in_a_text_are_found(text: str, commands: list[str]) -> None:
    assert [command_of(found) for found in shell_lines(text)] == commands


def command(tmp_path: Path, front: str, body: str = "Do it.") -> Invocation:
    path = tmp_path / "c.md"
    path.write_text(f"---\n{front}\n---\n{body}\n")
    folder = Folder(tmp_path, is_claudes=True, plugin_root=tmp_path / "plugin")
    return read_command(path, folder, "c.md", tmp_path / "project").invoke("x")


@pytest.mark.parametrize(
    "written",
    [
        "Bash(git add:*), Bash(git status:*), Read",
        "Bash(git add:*) Bash(git status:*) Read",
        '["Bash(git add:*)", "Bash(git status:*)", "Read"]',
        "\n  - Bash(git add:*)\n  - Bash(git status:*)\n  - Read",
    ],
)
def test_allowed_tools_can_be_written_in_many_ways(tmp_path: Path, written: str) -> None:
    invocation = command(tmp_path, f"allowed-tools: {written}")
    assert invocation.grants == ("Bash(git add:*)", "Bash(git status:*)", "Read")


@pytest.mark.parametrize(
    ("front", "field", "value"),
    [
        ("model: haiku", "model", "haiku"),
        ("model: inherit", "model", ""),
        ("context: fork", "agent", "general-purpose"),
        ("context: fork\nagent: Explore", "agent", "Explore"),
        ("agent: Explore", "agent", ""),
        ("requires: [x]\norigin: y\nhooks:\n  Stop:\n    - x", "grants", ()),
    ],
)
def test_the_front_matter_says_how_it_runs(tmp_path: Path, front: str, field: str, value: object) -> None:
    assert getattr(command(tmp_path, front), field) == value


def test_variables_are_replaced(tmp_path: Path) -> None:
    body = "${CLAUDE_PLUGIN_ROOT}/a ${CLAUDE_PROJECT_DIR}/b ${CLAUDE_SKILL_DIR}/c ${OTHER} $ARGUMENTS"
    text = command(tmp_path, "model: x", body).text
    assert text == f"{tmp_path}/plugin/a {tmp_path}/project/b {tmp_path}/c ${{OTHER}} x"


def test_variables_are_replaced_in_rules(tmp_path: Path) -> None:
    written = '["Bash(${CLAUDE_PLUGIN_ROOT}/scripts/setup.sh:*)"]'
    assert command(tmp_path, f"allowed-tools: {written}").grants == (f"Bash({tmp_path}/plugin/scripts/setup.sh:*)",)


def test_a_broken_front_matter_of_claude_code_is_text(tmp_path: Path) -> None:
    path = tmp_path / "c.md"
    path.write_text("---\nno end")
    assert read_command(path, Folder(tmp_path, is_claudes=True), "c.md", tmp_path).text == "---\nno end"


@pytest.mark.parametrize(
    ("file", "text", "name", "described"),
    [
        ("a/SKILL.md", "---\ndescription: x\n---\nDo it.", "a", "x"),
        ("a/b/SKILL.md", "Do it.", "a:b", "Do it."),
        ("SKILL.md", "Do it.", "SKILL", "Do it."),
        ("only.md", "---\ndescription: a text is not needed\n---\n", "only", "a text is not needed"),
        ("long.md", f"---\ndescription: {'word ' * 200}\n---\nDo it.", "long", ("word " * 200).strip()),
    ],
)
def test_commands_of_claude_code_are_called_and_described_as_there(
    tmp_path: Path, file: str, text: str, name: str, described: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    found = read_command(path, Folder(tmp_path, is_claudes=True), "x", tmp_path)
    assert (found.name, found.description) == (name, described)


@pytest.mark.parametrize("name", ["speckit.plan", "a/b", "über", "a_b-1"])
def test_names_may_be_those_that_people_give(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
    assert read_command(path, Folder(tmp_path), "x", tmp_path).name == name.replace("/", ":")


def test_a_long_description_keeps_the_words_that_say_when_to_use_it() -> None:
    text = "Designs databases. " * 20 + "Use PROACTIVELY when a schema changes. " + "And more. " * 50
    short = shortened(text, 300)
    assert len(short) <= 300
    assert short.startswith("Designs databases.")
    assert "Use PROACTIVELY when a schema changes." in short
    assert shortened("short\ntext", 300) == "short text"
