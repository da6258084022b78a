"""Settings for Claude Code are not used, and the start and the doctor say so."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.support.program import Program

HOOK = {"PreToolUse": [{"hooks": [{"type": "command", "command": "touch hooked"}]}]}


def write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


def test_one_line_names_what_is_not_used(program: Program) -> None:
    write(program.home / ".claude/settings.json", {"hooks": HOOK, "permissions": {"deny": ["Bash(rm:*)"]}})
    write(program.directory / ".claude/settings.json", {"hooks": HOOK})
    write(program.directory / ".claude/settings.local.json", {"permissions": {"allow": ["Bash"]}})
    ran = program.run("-p", "run true", "--permission-mode", "bypassPermissions")
    (line,) = [line for line in ran.err.splitlines() if "Not used" in line]
    assert "hooks and permission rules in ~/.claude/settings.json, hooks in .claude/settings.json," in line
    assert "permission rules in .claude/settings.local.json. teamcli reads .team/settings.json" in line
    assert line in f"teamcli: {program.run('doctor').out}".replace("ok   claude     ", "teamcli: ")
    assert not (program.directory / "hooked").exists()


def test_nothing_in_them_stops_the_start_or_is_said_without_need(program: Program) -> None:
    for value in ("{", "[]", {"model": "opus", "hooks": {}}, "[" * 100_000):
        write(program.directory / ".claude/settings.json", value)
        assert "Not used" not in program.run("-p", "run true", "--permission-mode", "bypassPermissions").err
    (program.directory / ".claude/settings.json").unlink()
    os.mkfifo(program.directory / ".claude/settings.json")
    assert "Not used" not in program.run("-p", "run true", "--permission-mode", "bypassPermissions").err
    assert "no hooks or permission rules of Claude Code are ignored" in program.run("doctor").out
