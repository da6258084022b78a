"""Instructions as Claude Code reads them: which files, in which order, with what they import."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from teamcli.config.claude_memory import LIMIT, is_users
from teamcli.config.instructions import InstructionsBelow, find_instructions


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "above/project"
    directory.mkdir(parents=True)
    return directory


def write(directory: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def read(project: Path, *homes: Path) -> dict[str, str]:
    """What is found below the test's directory, by source."""
    above = str(project.parent.parent)
    found = find_instructions(project, homes).found
    return {source.replace(above, ""): text for source, text in found if not source.startswith("/") or above in source}


def test_all_files_are_read_from_the_user_and_from_above_down_to_the_project(project: Path, tmp_path: Path) -> None:
    names = ("CLAUDE.md", ".claude/CLAUDE.md", ".claude/rules/b/c.md", ".claude/rules/a.md", "CLAUDE.local.md")
    write(project, {name: f"project {name}" for name in (*names, "AGENTS.md")})
    write(project.parent, {name: f"above {name}" for name in names})
    write(tmp_path / "user/.claude", {"CLAUDE.md": "mine", "rules/x.md": "my rule"})
    assert list(read(project, tmp_path / "user/.claude")) == [
        "~/.claude/CLAUDE.md",
        "~/.claude/rules/x.md",
        "/above/CLAUDE.md",
        "/above/.claude/CLAUDE.md",
        "/above/.claude/rules/a.md",
        "/above/.claude/rules/b/c.md",
        "/above/CLAUDE.local.md",
        "AGENTS.md",
        "CLAUDE.md",
        ".claude/CLAUDE.md",
        ".claude/rules/a.md",
        ".claude/rules/b/c.md",
        "CLAUDE.local.md",
    ]


def test_a_directory_that_others_can_change_has_no_say(project: Path) -> None:
    write(project.parent, {"CLAUDE.md": "obey"})
    assert is_users(project.parent)
    project.parent.chmod(0o777)
    assert read(project) == {}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"CLAUDE.md": "a\n@b.md\nc", "b.md": "B"}, {"CLAUDE.md": "a\nB\nc"}),
        (
            {"CLAUDE.md": "see @docs/b.md, too", "docs/b.md": "B"},
            {"CLAUDE.md": "see @docs/b.md, too", "docs/b.md": "B"},
        ),
        ({"CLAUDE.md": "- @b.txt", "b.txt": "B"}, {"CLAUDE.md": "- @b.txt", "b.txt": "B"}),
        ({"CLAUDE.md": "@./b\\ c.md", "b c.md": "B"}, {"CLAUDE.md": "B"}),
        ({"CLAUDE.md": "`@b.md` and\n```\n@b.md\n```", "b.md": "B"}, {"CLAUDE.md": "`@b.md` and\n```\n@b.md\n```"}),
        ({"CLAUDE.md": "mail me@b.md or @nobody", "b.md": "B"}, {"CLAUDE.md": "mail me@b.md or @nobody"}),
        ({"CLAUDE.md": "@docs/b.md", "docs/b.md": "@c.md", "docs/c.md": "C"}, {"CLAUDE.md": "C"}),
        ({"CLAUDE.md": "@AGENTS.md", "AGENTS.md": "A"}, {"AGENTS.md": "A"}),
        ({"CLAUDE.md": "x @CLAUDE.md"}, {"CLAUDE.md": "x @CLAUDE.md"}),
        ({"CLAUDE.md": "@1", "1": "@2", "2": "@3", "3": "@4", "4": "@5", "5": "end"}, {"CLAUDE.md": "@5"}),
        ({"CLAUDE.md": "a\n<!-- note\nto us -->\nb"}, {"CLAUDE.md": "a\nb"}),
        ({"CLAUDE.md": "```\n<!-- kept -->\n```"}, {"CLAUDE.md": "```\n<!-- kept -->\n```"}),
        ({".claude/rules/a.md": "---\ndescription: x\n---\nRule."}, {".claude/rules/a.md": "Rule."}),
    ],
)
def test_imports_and_comments(project: Path, files: dict[str, str], found: dict[str, str]) -> None:
    write(project, files)
    assert read(project) == found


@pytest.mark.parametrize("paths", ['paths: "src/**/*.ts"', "paths:\n  - src/**/*.ts", "paths: [src/**/*.ts]"])
def test_rules_for_certain_files_are_named_so_that_agents_read_them_when_needed(project: Path, paths: str) -> None:
    write(project, {".claude/rules/ts.md": f"---\n{paths}\n---\nNo any.", ".claude/rules/all.md": "Be kind."})
    found = read(project)
    assert found[".claude/rules/all.md"] == "Be kind."
    assert "- src/**/*.ts: .claude/rules/ts.md" in found[".claude/rules"]
    assert "No any." not in str(found)


def test_what_is_imported_from_outside_is_left_out_and_named(project: Path) -> None:
    write(project, {"CLAUDE.md": "@../secret.md\n@/etc/hostname"})
    write(project.parent, {"secret.md": "hunter2"})
    instructions = find_instructions(project, ())
    assert "hunter2" not in str(instructions.found)
    assert "CLAUDE.md imports ../secret.md, which is outside and is left out" in instructions.problems


def test_the_user_may_keep_own_instructions_anywhere(project: Path, tmp_path: Path) -> None:
    write(tmp_path, {"dotfiles/me.md": "Mine.", "dotfiles/more.md": "More.", "user/.claude/x": ""})
    (tmp_path / "user/.claude/CLAUDE.md").symlink_to(tmp_path / "dotfiles/me.md")
    assert read(project, tmp_path / "user/.claude") == {"~/.claude/CLAUDE.md": "Mine."}


def test_settings_can_exclude_files(project: Path) -> None:
    write(project, {"CLAUDE.md": "no", "CLAUDE.local.md": "yes"})
    found = find_instructions(project, (), ["**/project/CLAUDE.md"]).found
    assert ("CLAUDE.local.md", "yes") in found
    assert ("CLAUDE.md", "no") not in found


class TestBelow:
    def test_a_directory_is_read_once_and_the_outer_one_first(self, project: Path) -> None:
        write(project, {"CLAUDE.md": "top", "a/CLAUDE.md": "outer", "a/b/CLAUDE.local.md": "inner", "a/b/c/x.py": ""})
        below = InstructionsBelow(project, (), lambda path: True)
        assert below.new_for(project / "a/b/c/x.py") == (
            "<note>\nInstructions for files in a/, from a/CLAUDE.md:\nouter\n</note>\n"
            "<note>\nInstructions for files in a/b/, from a/b/CLAUDE.local.md:\ninner\n</note>"
        )
        assert below.new_for(project / "a/y.py") == ""

    def test_a_file_is_not_repeated_to_one_who_reads_it(self, project: Path) -> None:
        write(project, {"a/CLAUDE.md": "outer"})
        assert InstructionsBelow(project, (), lambda path: True).new_for(project / "a/CLAUDE.md") == ""

    @pytest.mark.parametrize(
        ("excludes", "may_see"), [(["**/a/CLAUDE.md"], True), ([], False)], ids=["excluded", "not to be seen"]
    )
    def test_what_the_settings_close_is_left_out(self, project: Path, excludes: list[str], may_see: bool) -> None:
        write(project, {"a/CLAUDE.md": "outer"})
        assert InstructionsBelow(project, excludes, lambda path: may_see).new_for(project / "a/x") == ""

    def test_a_link_leads_nowhere_outside(self, project: Path) -> None:
        write(project.parent, {"secret.md": "hunter2"})
        write(project, {"a/x": ""})
        (project / "a/CLAUDE.md").symlink_to(project.parent / "secret.md")
        below = InstructionsBelow(project, (), lambda path: True)
        assert below.new_for(project / "a/x") == ""
        assert below.new_for(project.parent / "elsewhere/x") == ""


def test_a_long_file_is_cut(project: Path) -> None:
    write(project, {"CLAUDE.md": "x" * (LIMIT + 1)})
    assert read(project)["CLAUDE.md"].endswith("[... the rest of this file is left out ...]")


@pytest.mark.parametrize(
    "text", ["```\n" * 10_000, "~~~~" * 5_000 + "\n```x\n" * 3_000, "<!--\n" * 8_000, "@a " * 13_000, "`@" * 20_000]
)
def test_no_text_takes_long_to_read(project: Path, text: str) -> None:
    write(project, {"CLAUDE.md": text})
    started = time.process_time()
    read(project)
    assert time.process_time() - started < 2
