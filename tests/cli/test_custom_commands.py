"""Commands that users write themselves, over a pipe."""

from __future__ import annotations

import os
from pathlib import Path

from teamcli.config.custom_commands import CustomCommands
from teamcli.config.front_matter import Folder
from tests.support.fake_api import said_by_user, text
from tests.support.program import Program

BYPASS = ("--permission-mode", "bypassPermissions")


def write(directory: Path, name: str, content: str | bytes) -> Path:
    path = directory / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_the_text_goes_to_the_lead_with_the_arguments_filled_in(program: Program) -> None:
    project = program.directory / ".team/commands"
    write(project, "all", "Look at: $ARGUMENTS!")
    write(project, "each", "$2 before $1, not $3 nor $10; $HOME stays")
    write(project, "none", "Just do it.")
    write(project, "git/push", "---\ndescription: x\n---\n\nPush.\n")
    lines = ("/all this $1 'and that'", "/each 'a b' c", "/each it's", "/none", "/none at once", "/git:push")
    with program.against([text("ok")] * len(lines)) as api:
        assert program.run("--trust", stdin="\n".join(lines)).code == 0
    said = [said_by_user(request).partition("\n<environment>")[0] for request in api.requests]
    assert said == [
        "Look at: this $1 'and that'!",
        "c before a b, not  nor $10; $HOME stays",
        " before it's, not  nor $10; $HOME stays",
        "Just do it.",
        "Just do it.\n\nat once",
        "Push.",
    ]


def test_commands_of_a_project_need_trust_and_the_users_own_do_not(program: Program) -> None:
    write(program.directory / ".team/commands", "fix", "write by-team.txt: x")
    write(program.directory / ".claude/commands/deep", "er", "write by-claude.txt: x")
    write(program.home / ".teamcli/commands", "fix", "write by-user.txt: x")
    made = lambda: sorted(path.name for path in program.directory.glob("*.txt"))  # noqa: E731 - shorter than its name
    ran = program.run(*BYPASS, stdin="/fix\n/deep:er\n")
    assert "command in .team/commands/fix.md, new; command in .claude/commands/deep/er.md, new" in ran.err
    assert made() == ["by-user.txt"]
    assert "unknown command /deep:er" in ran.out
    ran = program.run(*BYPASS, "--trust", stdin="/fix\n/deep:er\n")
    assert made() == ["by-claude.txt", "by-team.txt", "by-user.txt"]
    assert "not trusted" not in ran.err


def test_help_lists_custom_commands_and_the_problems_of_others(program: Program) -> None:
    own = program.home / ".teamcli/commands"
    write(own, "fix", "---\ndescription: Mend an issue\x1b[2J\nargument-hint: [issue] [why]\n---\nMend $1")
    write(own, "plain", "# Say hello\n\nHello.")
    write(own, "team", "never")
    write(own, "two words", "x")
    write(own, "bytes", b"\xff")
    write(own, "empty", "---\ndescription: x\n---\n")
    write(own, "open", "---\ndescription: x\n")
    (own / "gone.md").symlink_to("nowhere")
    os.mkfifo(own / "pipe.md")
    out = program.run(stdin="/help\n/fxi\n/team\n/help fix\n").out
    assert "\nYour own\n  /fix [issue] [why] " in out
    assert "Mend an issue␛[2J" in out
    assert "\x1b" not in out
    assert "Say hello" in out
    assert "did you mean /fix?" in out
    assert "No teammates yet." in out
    for name in ("two words", "bytes", "empty", "open", "gone", "pipe"):
        assert out.count(f"{name}.md is not used") == 1, name
    assert "team.md is not used: /team is built in" in out
    assert "fix.md; its text goes to the lead:\n\nMend $1" in out


def test_calling_a_broken_command_reports_its_problem(program: Program) -> None:
    write(program.home / ".teamcli/commands", "fix", b"\xff")
    out = program.run(stdin="/fix\n/fix\n").out
    assert out.count("fix.md is not used: line 1: it is not UTF-8") == 1
    assert out.count("unknown command /fix") == 2


def test_changed_files_are_noticed_while_the_program_runs(tmp_path: Path) -> None:
    commands = CustomCommands((Folder(tmp_path),), tmp_path)
    assert commands.find().commands == ()
    path = write(tmp_path, "a", "one")
    first = commands.find()
    assert [command.text for command in first.commands] == ["one"]
    assert commands.find() is first
    path.write_text("three")
    assert [command.text for command in commands.find().commands] == ["three"]
    path.unlink()
    assert commands.find().commands == ()
