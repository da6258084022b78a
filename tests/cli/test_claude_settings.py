"""Settings for Claude Code apply here, below our own, and what does not is named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.fake_api import answer, tool
from tests.support.program import Program

HOOK = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "touch hooked"}]}]}
BYPASS = ("--permission-mode", "bypassPermissions")


def write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


def user(program: Program, value: object) -> None:
    write(program.home / ".claude/settings.json", value)


def project(program: Program, value: object, name: str = "settings.json") -> None:
    write(program.directory / ".claude" / name, value)


def test_rules_of_the_user_apply(program: Program) -> None:
    user(program, {"permissions": {"allow": ["Bash(touch *)"], "deny": ["Bash(touch secret*)"]}})
    ran = program.run("-p", "run touch made then run touch secret.txt")
    assert (program.directory / "made").exists()
    assert not (program.directory / "secret.txt").exists()
    assert "The rule Bash(touch secret*) denies this call" in ran.out


def test_a_denied_file_cannot_be_mentioned(program: Program) -> None:
    write(program.directory / ".env", "SECRET=abc")
    user(program, {"permissions": {"deny": ["Read(./.env)"]}})
    with program.against(["hi"]) as api:
        program.run("-p", "look at @.env")
    assert "SECRET=abc" not in json.dumps(api.requests)


def test_a_rule_that_means_several_is_listed_once(program: Program) -> None:
    user(program, {"permissions": {"deny": ["Read(./.env)"]}})
    assert program.run(stdin="/permissions\n").out.count("deny   Read(./.env)") == 1


def test_claude_config_dir_says_where_the_users_files_are(program: Program) -> None:
    write(program.home / "elsewhere/settings.json", {"permissions": {"allow": ["Bash(touch *)"]}})
    program.run("-p", "run touch made", env={"CLAUDE_CONFIG_DIR": str(program.home / "elsewhere")})
    assert (program.directory / "made").exists()


def test_what_a_project_denies_applies_at_once_and_what_it_allows_once_it_is_trusted(program: Program) -> None:
    project(program, {"permissions": {"allow": ["Bash(touch *)"], "deny": ["Read(./.env)"]}})
    ran = program.run("-p", "run touch made then run cat .env")
    assert ran.code == 4
    assert "settings in .claude/settings.json that loosen or redirect: permissions.allow: Bash(touch *)" in ran.err
    assert "The rule Read(./.env) denies this call" in ran.out
    assert not (program.directory / "made").exists()
    assert program.run("-p", "--trust", "run touch made").code == 0
    assert (program.directory / "made").exists()


def test_a_changed_rule_is_not_used_until_it_is_trusted_again(program: Program) -> None:
    project(program, {"permissions": {"allow": ["Bash(touch a)"]}}, "settings.local.json")
    program.run("-p", "--trust", "run touch a")
    project(program, {"permissions": {"allow": ["Bash(touch a)", "Bash(touch b)"]}}, "settings.local.json")
    assert program.run("-p", "run touch a").code == 0
    assert program.run("-p", "run touch b").code == 4


def test_our_own_settings_of_the_same_scope_win(program: Program) -> None:
    user(program, {"permissions": {"defaultMode": "bypassPermissions"}})
    assert program.run("-p", "run touch made").code == 0
    write(program.home / ".teamcli/settings.json", {"permissions": {"mode": "default"}})
    assert program.run("-p", "run touch more").code == 4


def test_hooks_run_once_they_are_trusted(program: Program) -> None:
    project(program, {"hooks": HOOK})
    ran = program.run("-p", "run true", *BYPASS)
    assert "hooks in .claude/settings.json, which run commands on their own: `touch hooked`" in ran.err
    assert not (program.directory / "hooked").exists()
    program.run("-p", "--trust", "run true", *BYPASS)
    assert (program.directory / "hooked").exists()


def test_hooks_of_the_user_run(program: Program) -> None:
    user(program, {"hooks": HOOK})
    program.run("-p", "run true", *BYPASS)
    assert (program.directory / "hooked").exists()


def test_variables_reach_commands_and_name_neither_endpoint_nor_key(program: Program) -> None:
    env = {
        "GREETING": "hi there",
        "COUNT": 3,
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
        "ANTHROPIC_API_KEY": "k" * 20,
    }
    user(program, {"env": env})
    ran = program.run("-p", 'run "printenv GREETING COUNT ANTHROPIC_BASE_URL ANTHROPIC_API_KEY"', *BYPASS)
    assert "hi there\n3\n" in ran.out
    assert "k" * 20 not in ran.out
    assert "2 variables (ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY)" in ran.err


def test_variables_of_a_project_wait_for_trust(program: Program) -> None:
    project(program, {"env": {"GREETING": "hi there"}})
    assert "hi there" not in program.run("-p", "run printenv GREETING", *BYPASS).out
    assert "hi there" in program.run("-p", "--trust", "run printenv GREETING", *BYPASS).out


def test_further_directories_belong_to_the_workspace(program: Program, tmp_path: Path) -> None:
    write(tmp_path / "other/a.txt", "far away")
    directories = [str(tmp_path / "other"), str(tmp_path / "missing")]
    user(program, {"permissions": {"additionalDirectories": directories}})
    assert "far away" in program.run("-p", f"read {tmp_path}/other/a.txt").out


@pytest.mark.parametrize(
    ("arguments", "settings", "model"),
    [
        (("--model", "sonnet"), {}, "claude-sonnet-5-5"),
        ((), {"model": "haiku"}, "claude-haiku-4-5"),
        ((), {"model": "opus[1m]"}, "claude-opus-5-5"),
        ((), {"model": "default"}, "claude-opus-5-5"),
    ],
)
def test_a_model_may_be_named_by_its_alias(
    program: Program, arguments: tuple[str, ...], settings: object, model: str
) -> None:
    user(program, settings)
    program.variables["MODEL_ID"] = ""
    with program.against(["hi"]) as api:
        program.run("-p", "hello", *arguments)
    assert api.requests[0]["model"] == model


def test_one_line_names_what_is_not_used(program: Program) -> None:
    rules = ["Bash:*", "WebFetch(domain:x.org)", "Write(src/**)", "mcp__*", "Bash(ls:*)"]
    prompt = {
        "Stop": [{"hooks": [{"type": "prompt", "prompt": "x"}]}],
        "Nonsense": [{"hooks": [{"type": "command", "command": "y"}]}],
    }
    user(program, {"permissions": {"allow": rules}, "hooks": prompt, "statusLine": {"type": "command"}})
    ran = program.run("-p", "run true", *BYPASS)
    (line,) = [line for line in ran.err.splitlines() if "Not used" in line]
    assert line == (
        "teamcli: Not used of what Claude Code would use: 2 hooks (Stop of type prompt, Nonsense `y`); "
        "1 setting (statusLine); 4 permission rules (Bash:*, mcp__*, WebFetch(domain:x.org), …)."
    )
    assert ran.err.count("Nonsense") == 1
    doctor = program.run("doctor").out
    assert "permission rule Write(src/**): Claude Code matches no path with Write; write Edit(…)" in doctor


def test_rules_of_the_command_line_may_be_in_their_form(program: Program) -> None:
    ran = program.run("-p", "--allowedTools", "Bash(touch *) Read", "--disallowedTools", "Bash(touch b)", "run touch a")
    assert ran.code == 0
    denied = program.run("-p", "--allowedTools", "Bash(touch *),Read", "--disallowedTools=Bash(touch b)", "run touch b")
    assert "The rule Bash(touch b) denies this call" in denied.out


@pytest.mark.parametrize(
    "value",
    [
        "{",
        "[]",
        "[" * 100_000,
        '{"permissions": 3, "hooks": [], "env": 1, "model": {}}',
        '{"permissions":{"allow":[1]}}',
    ],
)
def test_nothing_in_them_stops_the_start(program: Program, value: str) -> None:
    project(program, value)
    ran = program.run("-p", "run true", *BYPASS)
    assert ran.code == 0
    assert "teamcli: .claude/settings.json: " in ran.err


def test_a_file_that_is_none_stops_nothing(program: Program) -> None:
    (program.directory / ".claude").mkdir()
    os.mkfifo(program.directory / ".claude/settings.json")
    ran = program.run("-p", "run true", *BYPASS)
    assert (ran.code, "it is not used: not a regular file" in ran.err) == (0, True)


def test_settings_without_a_meaning_here_are_not_mentioned(program: Program) -> None:
    project(program, {"$schema": "x", "cleanupPeriodDays": 3, "includeCoAuthoredBy": False, "hooks": {}})
    ran = program.run("-p", "run true", *BYPASS)
    assert ".claude" not in ran.err
    assert "nothing of Claude Code's settings is ignored" in program.run("doctor").out


def test_instructions_below_arrive_with_the_first_file_that_is_read_there(program: Program) -> None:
    for name, content in (("app/CLAUDE.md", "Use tabs here."), ("app/a.py", "1"), ("app/b.py", "2")):
        write(program.directory / name, content)
    calls = [tool("read_file", path=f"app/{name}.py") for name in "ab"]
    with program.against([*calls, "done"]) as api:
        program.run("-p", "go")
    assert ["Use tabs here." in json.dumps(request["messages"][-1]) for request in api.requests] == [False, True, False]
    assert "Use tabs here." not in json.dumps(api.requests[0]["system"])


def test_sub_agents_teammates_and_the_prompt_know_aliases(program: Program) -> None:
    write(program.home / ".teamcli/agents/quick.md", "---\nname: quick\ndescription: x\nmodel: haiku\n---\nBe quick.")
    calls = [
        tool("agent", prompt="a", subagent_type="quick"),
        tool("agent", prompt="b", subagent_type="general", model="sonnet"),
        tool("spawn_teammate", name="al", role="coder", prompt="c", model="best"),
        tool("agent", prompt="d", subagent_type="general", model="inherit"),
    ]
    program.variables["MODEL_ID"] = "opus"
    with program.against(lambda request, number: answer(*calls) if number == 0 else "done") as api:
        program.run("-p", "go")
    models = {request["model"] for request in api.requests}
    assert models == {"claude-opus-5-5", "claude-haiku-4-5", "claude-sonnet-5-5", "claude-fable-5-1"}


def test_with_a_model_of_another_maker_an_alias_means_that_model(program: Program) -> None:
    call = tool("agent", prompt="b", subagent_type="general", model="sonnet")
    with program.against(lambda request, number: answer(call) if number == 0 else "done") as api:
        program.run("-p", "go")
    assert {request["model"] for request in api.requests} == {"test-model"}
