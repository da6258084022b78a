"""Command lines written for Claude Code, as options of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from teamcli.claude_code.flags import WITHOUT_EFFECT
from teamcli.cli.main import parse_options
from teamcli.errors import UsageError

ROOT = Path(__file__).parents[2]
SCHEMA = '{"type":"object"}'


@pytest.mark.parametrize(
    "line, expected",
    [
        (["-p", "hi", "--dangerously-skip-permissions"], {"permission_mode": "bypassPermissions"}),
        (["--dangerously-skip-permissions", "-p", "hi"], {"permission_mode": "bypassPermissions", "prompt": "hi"}),
        (["-p", "hi", "--permission-mode", "dontAsk"], {"permission_mode": "default"}),
        (["-p", "hi", "--permission-mode=manual"], {"permission_mode": "default"}),
        (["-p", "--allowedTools", "Bash", "Read", "do it"], {"allowed_tools": ("Bash", "Read"), "prompt": "do it"}),
        (["-p", "--allowed-tools", "Bash,Read", "do it"], {"allowed_tools": ("Bash,Read",), "prompt": "do it"}),
        (["-p", "--allowedTools=Bash", "Read it"], {"allowed_tools": ("Bash",), "prompt": "Read it"}),
        (
            ["-p", "fix", "--allowedTools", "Bash(git log:*)", "Bash(npm run test:*) Edit", "mcp__github__get_pr"],
            {"allowed_tools": ("Bash(git log:*)", "Bash(npm run test:*) Edit", "mcp__github__get_pr")},
        ),
        (["-p", "--disallowed-tools", "WebFetch", "WebSearch", "go"], {"disallowed_tools": ("WebFetch", "WebSearch")}),
        (["-p", "--allowedTools", "bash(ls)", "read_file", "go"], {"allowed_tools": ("bash(ls)", "read_file")}),
        (["-p", "x", "--tools", "Bash,Read"], {"tools": ("bash", "read_file")}),
        (["-p", "--tools", "Bash", "Edit", "go on"], {"tools": ("bash", "edit_file"), "prompt": "go on"}),
        (["-p", "x", "--tools", ""], {"tools": ()}),
        (["-p", "x", "--tools", "default"], {"tools": None}),
        (["-p", "x", "--system-prompt", ""], {"system_prompt": ""}),
        (["-p", "x", "--model", "sonnet", "--effort", "high"], {"model": "sonnet", "effort": "high"}),
        (["-p", "x", "--setting-sources=user,project"], {"setting_sources": ("user", "project")}),
        (["-p", "x", "--setting-sources", ""], {"setting_sources": ()}),
        (["-p", "x", "--session-id=4f0c"], {"session_id": "4f0c"}),
        (["-p", "x", "--resume=4f0c", "--fork-session"], {"resume": "4f0c", "fork_session": True}),
        (["-p", "x", "--no-session-persistence"], {"no_team": True}),
        (["-p", "x", "--json-schema", SCHEMA], {"json_schema": SCHEMA}),
        (["-p", "x", "--plugin-dir", "a", "--plugin-dir", "b"], {"plugin_dirs": (Path("a"), Path("b"))}),
        (["-p", "x", "--bare", "--verbose", "--max-turns", "3"], {"bare": True, "verbose": True, "max_turns": 3}),
        (["-p", "x", "--fallback-model", "haiku,sonnet"], {"fallback_models": ("haiku", "sonnet")}),
        (["-p", "x", "--ide", "--betas=b"], {"without_effect": ("--ide", "--betas")}),
        (["-p", "x", "--permission-prompt-tool", "mcp__a__b"], {"permission_prompt_tool": "mcp__a__b"}),
        (["-p", "x", "--permission-prompt-tool", "stdio"], {"without_effect": ("--permission-prompt-tool",)}),
        (["-p", "--debug", "api,hooks", "go"], {"debug": True, "prompt": "go"}),
        (["-p", "-d", "debug the parser"], {"debug": True, "prompt": "debug the parser"}),
        (["-p", "go", "-n", "nightly"], {"without_effect": ("--name",), "prompt": "go"}),
        (["-p", "--", "--betas", "--x"], {"prompt": "--betas --x", "without_effect": ()}),
        (
            ["--output-format", "stream-json", "--verbose", "--input-format", "stream-json"],
            {"is_controlled": True, "headless": True, "output_format": "stream-json"},
        ),
        (["--add-dir", "/", str(ROOT), "look"], {"add_dirs": (Path("/"), ROOT), "prompt": "look"}),
    ],
)
def test_a_command_line_of_claude_code_means_the_same_here(line: list[str], expected: dict[str, Any]) -> None:
    options = parse_options(line)
    assert {name: getattr(options, name) for name in expected} == expected


@pytest.mark.parametrize("flag, values", WITHOUT_EFFECT.items())
def test_a_flag_without_effect_takes_its_values_with_it(flag: str, values: int) -> None:
    options = parse_options(["-p", flag, *["value"] * values, "the task"])
    assert (options.without_effect, options.prompt) == ((flag,), "the task")


def test_every_flag_without_effect_is_documented() -> None:
    page = (ROOT / "docs/claude-code.md").read_text()
    assert [flag for flag in WITHOUT_EFFECT if f"`{flag}`" not in page] == []


@pytest.mark.parametrize(
    "line, problem",
    [
        (["--modle", "x"], "unrecognized arguments: --modle; did you mean --model?"),
        (["--dangerously-skip-permission"], "did you mean --dangerously-skip-permissions?"),
        (["--quux"], "unrecognized arguments: --quux (try teamcli --help)"),
        (["-p", "x", "--allowedTools"], "expected one argument"),
        (["-p", "x", "--setting-sources", "team"], "'team' is not one of user, project, local"),
        (["-p", "x", "--fork-session"], "--fork-session requires --continue or --resume ID"),
        (["-p", "--input-format", "stream-json"], "requires --output-format stream-json"),
        (["x", "--input-format=stream-json", "--output-format=stream-json"], "takes the prompt from standard input"),
        (["-p", "x", "--system-prompt-file", "/missing"], "/missing cannot be read: No such file or directory"),
        (["-p", "x", "--permission-mode", "wild"], "invalid choice: 'wild'"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(line: list[str], problem: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_options(line)
    assert problem in str(raised.value)


def test_prompts_can_come_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "system").write_text("Be brief.")
    (tmp_path / "more").write_text("Be kind.")
    files = ("--system-prompt-file", "system", "--append-system-prompt-file", "more", "--append-system-prompt", "Hm.")
    monkeypatch.chdir(tmp_path)
    options = parse_options(["-p", "x", *files])
    assert (options.system_prompt, options.append_system_prompt) == ("Be brief.", "Hm.\n\nBe kind.")
