"""Plugins made for Claude Code, in the shapes that people publish them in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from teamcli.config.custom_commands import CustomCommands, command_dirs
from teamcli.config.plugins import Plugins
from teamcli.config.project import Project, inspect_project
from teamcli.config.roles import load_roles, role_dirs
from teamcli.config.skills import find_skills, skill_dirs

HOOKS = {
    "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "${CLAUDE_PLUGIN_ROOT}/x"}]}]}
}
AGENT = "---\nname: smith\ndescription: d\n---\nBe a smith."


def write(directory: Path, files: dict[str, object]) -> Path:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return directory


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


def inspect(directory: Path) -> Project:
    return inspect_project(directory, directory.parent / "home/.teamcli")


def names(project: Project, plugins: Plugins) -> dict[str, list[str]]:
    """What comes from plugins, by kind."""
    covers, home = project.agreement.covers, project.home
    roles = load_roles(role_dirs(project.directory, home, covers, plugins.folders("agents"))).found.values()
    commands = CustomCommands(
        command_dirs(project.directory, home, covers, plugins.folders("commands")), project.directory
    )
    skills = find_skills(skill_dirs(project.directory, home, project.agreement, plugins.folders("skills")))
    return {
        "roles": [role.name for role in roles if ":" in role.name],
        "commands": [command.name for command in commands.find().commands],
        "skills": [skill.name for skill in skills.found],
    }


WHOLE = {
    ".claude-plugin/plugin.json": {"name": "forge", "version": "1.0"},
    "agents/smith.md": AGENT,
    "agents/README.md": "# Agents",
    "commands/make.md": "Make it with ${CLAUDE_PLUGIN_ROOT}/tool.sh.",
    "commands/git/push.md": "Push.",
    "skills/weld/SKILL.md": "---\nname: The Welder\ndescription: d\n---\nWeld.",
    "hooks/hooks.json": {"description": "Guards", **HOOKS},
    ".mcp.json": {"mcpServers": {"db": {"command": "db"}}},
}
ALL_NAMES = {"roles": ["forge:smith"], "commands": ["forge:git:push", "forge:make"], "skills": ["forge:weld"]}


def test_a_given_plugin_is_used_without_a_question(directory: Path, tmp_path: Path) -> None:
    root = write(tmp_path / "given", WHOLE)
    project = inspect(directory)
    plugins = project.plugins((root,))
    assert names(project, plugins) == ALL_NAMES
    assert project.plugins() is plugins


def test_a_plugin_of_the_project_is_used_once_the_user_has_agreed_to_all_of_it(directory: Path) -> None:
    root = write(directory / ".claude/plugins/any", WHOLE)
    project = inspect(directory)
    assert "plugin in .claude/plugins/any, new" in project.offers[0]
    assert project.plugins().found == ()
    project = project.trust()
    assert names(project, project.plugins()) == ALL_NAMES
    (root / "commands/make.md").write_text("Make something else.")
    changed = inspect(directory)
    assert changed.plugins().found == ()


def test_hooks_know_where_their_plugin_is(directory: Path, tmp_path: Path) -> None:
    root = write(tmp_path / "given", WHOLE)
    [settings] = inspect(directory).plugins((root,)).settings
    [group] = settings["hooks"]["PreToolUse"]
    assert group["plugin"] == str(root)
    assert group["source"] == "plugin forge"
    assert group["matcher"] == "Bash"


def test_servers_of_a_plugin_have_names_that_contain_its_own(directory: Path, tmp_path: Path) -> None:
    project = inspect(directory)
    [plugin] = project.plugins((write(tmp_path / "given", WHOLE),)).found
    assert list(plugin.servers) == ["plugin_forge_db"]
    assert "MCP server" not in project.claude.unused.line


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (None, {"roles": ["given:smith"], "commands": ["given:make"], "skills": ["given:weld"]}),
        ({"name": "p", "commands": "./extra"}, {"roles": ["p:smith"], "commands": ["p:more"], "skills": ["p:weld"]}),
        (
            {"name": "p", "commands": ["./extra/more.md"]},
            {"roles": ["p:smith"], "commands": ["p:more"], "skills": ["p:weld"]},
        ),
        (
            {"name": "p", "agents": ["./agents/smith.md"]},
            {"roles": ["p:smith"], "commands": ["p:make"], "skills": ["p:weld"]},
        ),
        (
            {"name": "p", "skills": "./own"},
            {"roles": ["p:smith"], "commands": ["p:make"], "skills": ["p:weld", "p:cut"]},
        ),
        (
            {"name": "p", "skills": ["./own/cut", "./skills/weld"]},
            {"roles": ["p:smith"], "commands": ["p:make"], "skills": ["p:weld", "p:cut"]},
        ),
    ],
)
def test_the_manifest_may_say_where_parts_are(
    directory: Path, tmp_path: Path, manifest: dict[str, object] | None, expected: dict[str, list[str]]
) -> None:
    files: dict[str, object] = {
        "agents/smith.md": AGENT,
        "commands/make.md": "Make.",
        "extra/more.md": "More.",
        "skills/weld/SKILL.md": "Weld.",
        "own/cut/SKILL.md": "Cut.",
    }
    root = write(tmp_path / "given", files | ({".claude-plugin/plugin.json": manifest} if manifest else {}))
    project = inspect(directory)
    assert names(project, project.plugins((root,))) == expected


def test_hooks_may_be_in_the_manifest(directory: Path, tmp_path: Path) -> None:
    root = write(tmp_path / "given", {".claude-plugin/plugin.json": {"name": "p", "hooks": HOOKS["hooks"]}})
    assert inspect(directory).plugins((root,)).settings[0]["hooks"].keys() == {"PreToolUse"}


def test_a_plugin_may_be_one_skill(directory: Path, tmp_path: Path) -> None:
    root = write(tmp_path / "weld", {"SKILL.md": "Weld.", "notes/SKILL.md": "Not one."})
    project = inspect(directory)
    assert names(project, project.plugins((root,)))["skills"] == ["weld:weld"]


def test_hooks_are_joined_from_all_files(directory: Path, tmp_path: Path) -> None:
    files = {
        ".claude-plugin/plugin.json": {"name": "p", "hooks": ["./a.json", "hooks/hooks.json", HOOKS]},
        "a.json": HOOKS,
        "hooks/hooks.json": HOOKS,
    }
    [settings] = inspect(directory).plugins((write(tmp_path / "given", files),)).settings
    assert len(settings["hooks"]["PreToolUse"]) == 3 * len(HOOKS["hooks"]["PreToolUse"])


def test_a_marketplace_brings_the_plugins_in_its_folder(directory: Path, tmp_path: Path) -> None:
    market = {
        "name": "m",
        "metadata": {"pluginRoot": "./more"},
        "plugins": [
            *({"name": "one", "source": "./one"}, {"name": "two", "source": "two"}),
            *({"name": "far", "source": {"source": "github"}}, {"name": "out", "source": "../../out"}),
        ],
    }
    files = {"one/commands/do.md": "Do.", "more/two/commands/do.md": "Do."}
    root = write(tmp_path / "market", {".claude-plugin/marketplace.json": market, **files})
    assert [plugin.name for plugin in inspect(directory).plugins((root,)).found] == ["one", "two"]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({".claude-plugin/plugin.json": "{"}, "plugin.json cannot be read"),
        ({".claude-plugin/plugin.json": {"name": "p", "commands": "../../etc"}}, "is outside of it"),
        ({"hooks/hooks.json": "{"}, "hooks.json cannot be read"),
    ],
)
def test_a_broken_plugin_is_reported_and_stops_nothing(
    directory: Path, tmp_path: Path, files: dict[str, object], reason: str
) -> None:
    good, bad = write(tmp_path / "good", {"commands/do.md": "Do."}), write(tmp_path / "bad", files)
    plugins = inspect(directory).plugins((bad, good, tmp_path / "missing"))
    assert [plugin.name for plugin in plugins.found] == ["good"]
    assert reason in plugins.problems[0]
    assert "it is not a folder" in plugins.problems[1]
