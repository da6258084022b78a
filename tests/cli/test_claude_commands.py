"""Commands, skills and plugins made for Claude Code, in the whole program."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.answers import result_text, said_by_user, tool_results
from tests.support.fake_api import text, tool
from tests.support.program import Program
from tests.support.screen import Screen
from tests.support.team_script import TeamScript

SCOUT = "---\nname: scout\ndescription: d\nskills: maps, none\n---\nYou are a scout."


def write(directory: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def said(request: dict[str, object]) -> str:
    return said_by_user(request).partition("\n<environment>")[0]


def test_commands_in_the_text_run_under_the_users_rules_and_are_shown(program: Program) -> None:
    granted = "---\nallowed-tools: Bash(touch:*), Bash(printf:*), Bash(false)\n---\n"
    files = {
        "granted.md": f"{granted}Made: !`touch one && printf '%s' \"$1\"`.\n\n```!\nprintf two\n```\n",
        "refused.md": "Made: !`touch two`.",
        "failed.md": f"{granted}Made: !`printf oh; false`.",
    }
    write(program.directory / ".claude/commands", files)
    with program.against([text("ok"), text("ok")]) as api:
        ran = program.run("--trust", stdin="/granted it\n/refused\n/failed\nlast\n")
    assert [said(request) for request in api.requests] == ["Made: it.\n\ntwo", "last"]
    assert (program.directory / "one").exists()
    assert not (program.directory / "two").exists()
    assert "> bash: it\n> bash: two\nok" in ran.out
    assert "`touch two` was not run" in ran.out
    assert "/failed was not sent: `printf oh; false` failed" in ran.out


def test_what_only_reads_needs_no_rule_in_a_text_of_claude_code(program: Program) -> None:
    write(
        program.home / ".claude/commands",
        {"look.md": "${CLAUDE_SESSION_ID}: !`ls no 2>/dev/null || echo none | wc -l`"},
    )
    with program.against([text("ok")]) as api:
        ran = program.run("-p", "/look", "--output-format", "json")
    assert said(api.requests[0]) == f"{ran.json['session_id']}: 1"


def test_a_rule_that_denies_counts_for_what_only_reads(program: Program) -> None:
    write(program.home / ".claude/commands", {"look.md": "Look: !`cat x`"})
    ran = program.run("-p", "/look", "--disallowedTools", "Bash(cat:*)", "--offline")
    assert (ran.code, "was not run" in ran.err) == (2, True)


def test_a_headless_command_whose_text_runs_something_becomes_the_task(program: Program) -> None:
    granted = "---\nallowed-tools: Bash(printf:*)\n---\n"
    write(program.directory / ".claude/commands", {"made.md": f"{granted}Made: !`printf it`."})
    with program.against([text("ok")]) as api:
        ran = program.run("-p", "/made", "--trust")
    assert (ran.code, ran.out) == (0, "ok\n")
    assert said(api.requests[0]) == "Made: it."


def test_allowed_tools_are_granted_for_the_turn(program: Program) -> None:
    write(program.directory / ".claude/commands/my", {"make.md": "---\nallowed-tools: Bash(touch:*)\n---\nMake it."})
    make = [tool("bash", command="touch one"), text("ok"), tool("bash", command="touch two"), text("ok")]
    with program.against(make) as api:
        program.run("--trust", stdin="/my:make\nagain\n")
    assert (program.directory / "one").exists()
    assert not (program.directory / "two").exists()
    assert "nobody can be asked" in result_text(tool_results(api.requests[3])[0])


def test_a_command_may_use_another_model_for_its_turn(program: Program) -> None:
    write(program.home / ".claude/commands", {"cheap.md": "---\nmodel: other-model\n---\nThink little."})
    with program.against([text("ok"), text("ok")]) as api:
        assert program.run(stdin="/cheap\nplain\n").code == 0
    assert [request["model"] for request in api.requests] == ["other-model", "test-model"]


def test_a_command_may_run_in_a_sub_agent(program: Program) -> None:
    write(program.directory / ".claude/skills/look", {"SKILL.md": "---\ncontext: fork\nagent: scout\n---\nLook at $1."})
    write(program.directory / ".claude/agents/x/y", {"s.md": SCOUT})
    write(program.directory / ".claude/skills/maps", {"SKILL.md": "---\ndescription: m\n---\nNorth is up."})
    with program.against([text("found it"), text("ok")]) as api:
        ran = program.run("--trust", stdin="/look here\nand now?\n")
    sub, lead = api.requests
    assert "You are a scout." in str(sub["system"])
    assert "North is up." in str(sub["system"])
    assert "Look at here." in said(sub)
    assert "found it" in ran.out
    assert "The user called /look. A sub-agent has answered:\nfound it" in said_by_user(lead)


def test_a_plugin_brings_commands_roles_skills_and_hooks(program: Program) -> None:
    guard = {"matcher": "Bash", "hooks": [{"type": "command", "command": "sh ${CLAUDE_PLUGIN_ROOT}/guard.sh"}]}
    plugin = program.directory / ".claude/plugins/forge"
    files = {
        "guard.sh": "echo no forging >&2; exit 2\n",
        "hooks/hooks.json": json.dumps({"hooks": {"PreToolUse": [guard]}}),
        "commands/make.md": "Make it.",
        "agents/smith.md": "---\nname: smith\ndescription: Use when it glows.\n---\nForge.",
        "skills/weld/SKILL.md": "---\ndescription: how to weld\n---\nWeld.",
    }
    write(plugin, files)
    script = [tool("bash", command="touch made"), text("ok")]
    with program.against(script) as api:
        ran = program.run("--trust", "--permission-mode", "bypassPermissions", stdin="/forge:make\n/help\n/hooks\n")
    checked = program.run("doctor")
    system = str(api.requests[0]["system"])
    assert said(api.requests[0]) == "Make it."
    assert "- forge:smith: Use when it glows." in system
    assert "- forge:weld: how to weld (.claude/plugins/forge/skills/weld/SKILL.md)" in system
    assert "no forging" in result_text(tool_results(api.requests[1])[0])
    assert not (program.directory / "made").exists()
    assert "/forge:weld" in ran.out
    assert "Roles of agents\n" in ran.out
    assert "Use when it glows." in ran.out
    assert "sh ${CLAUDE_PLUGIN_ROOT}/guard.sh  plugin forge" in ran.out
    assert "forge:smith" in checked.out
    assert "1 for PreToolUse" in checked.out


def test_names_that_clash_mean_what_they_mean_there(program: Program) -> None:
    skill = "---\ndescription: {0}\n---\nThe skill {0}."
    here = {".claude/skills/both/SKILL.md": skill.format("project"), ".claude/commands/both.md": "The command both."}
    mine = {".claude/skills/both/SKILL.md": skill.format("mine"), ".claude/commands/mine.md": "My command."}
    built_in = {".claude/commands/merge.md": "Our merge of $1.", ".claude/commands/clear.md": "Our clear."}
    write(program.directory, {**here, **built_in, ".claude/commands/mine.md": "Not mine."})
    write(program.home, mine)
    with program.against([text("ok")] * 5) as api:
        ran = program.run("--trust", stdin="/both\n/mine\n/project:merge x\n/user:clear\n/help\n")
        program.run("-p", "/merge y")
    assert [said(each).partition("\n")[0] for each in api.requests] == [
        "The skill mine.",
        *("My command.", "Our merge of x.", "Our clear.", "Our merge of y."),
    ]
    assert "- both: mine (~/.claude/skills/both/SKILL.md)" in str(api.requests[0]["system"])
    assert ".claude/commands/both.md is not used: /both is a skill." in ran.out
    assert ".claude/commands/merge.md is not used: /merge is built in; call it as /project:merge." in ran.out


def test_a_plugin_is_given_on_the_command_line(program: Program) -> None:
    plugin = program.home / "forge"
    note = {"hooks": [{"type": "command", "command": "touch ${CLAUDE_PLUGIN_ROOT}/began"}]}
    files = {
        ".claude-plugin/plugin.json": '{"name": "smithy"}',
        "hooks/hooks.json": json.dumps({"hooks": {"SessionStart": [note]}}),
        "commands/make.md": "Make $1 in ${CLAUDE_PLUGIN_ROOT}.",
        "agents/smith.md": "---\nname: smith\ndescription: Use when it glows.\n---\nForge.",
        "skills/weld it/SKILL.md": "---\ndescription: how to weld\n---\nWeld.",
    }
    write(plugin, files)
    with program.against([text("ok")]) as api:
        ran = program.run("-p", "/smithy:make it", "--plugin-dir", str(plugin))
    system = str(api.requests[0]["system"])
    assert said(api.requests[0]) == f"Make it in {plugin}."
    assert "- smithy:smith: Use when it glows." in system
    assert "- smithy:weld-it: how to weld" in system
    assert (plugin / "began").exists()
    assert ran.code == 0


def test_more_roles_than_the_prompt_describes_are_counted_and_named(program: Program) -> None:
    for number in range(40):
        front = f"---\nname: role-{number:02}\ndescription: d\ntools: Read, WebFetch\n---\nx"
        write(program.home / ".claude/agents", {f"{number:02}.md": front})
    script = TeamScript(lead=[text("ok")])
    with program.against(script):
        ran = program.run("-p", "go")
    system = str(script.requests["lead"][0]["system"][0]["text"])
    assert "- role-29: d" in system
    assert "- 14 more: role-30, role-31" in system
    assert ran.err.count("1 role tool (WebFetch)") == 1


def test_skills_and_commands_of_the_repository_count_in_a_folder_of_it(program: Program) -> None:
    write(program.directory, {".git/HEAD": "ref: refs/heads/main\n", "part/x": ""})
    write(
        program.directory, {".claude/skills/weld/SKILL.md": "---\ndescription: w\n---\nWeld.", "CLAUDE.md": "Be safe."}
    )
    with program.against([text("ok")]) as api:
        ran = program.run("--trust", "--cwd", "part", stdin="/weld\n")
    assert "Weld." in said(api.requests[0])
    assert "Be safe." in str(api.requests[0]["system"])
    assert "../.claude/skills/weld/SKILL.md" in str(api.requests[0]["system"])
    assert ran.code == 0


def test_at_the_terminal_a_command_in_the_text_asks_first(program: Program) -> None:
    write(program.home / ".claude/commands", {"look.md": "Seen: !`touch seen; printf it`"})
    with program.against([text("Thank you.")]) as api, Screen(program) as screen:
        screen.wait_for("team >>")
        screen.type("/look\r")
        screen.wait_for("touch seen; printf it")
        screen.wait_for("y once")
        screen.type("y\r")
        screen.wait_for("Thank you.")
        screen.type("\x03q\r")
        assert screen.wait_for_end() == 0
    assert said(api.requests[0]) == "Seen: it"
