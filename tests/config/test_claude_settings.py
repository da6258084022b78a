"""Claude Code's settings files in our words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamcli.config.claude_settings import LOCAL, PROJECT, ClaudeSettings, read_claude_settings
from teamcli.config.project import inspect_project
from teamcli.config.settings import HookCommand, load_settings, settings_problem


def write_settings(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def read(tmp_path: Path, project: Any = None, user: Any = None, local: Any = None) -> ClaudeSettings:
    files = {
        tmp_path / "work" / PROJECT: project,
        tmp_path / "work" / LOCAL: local,
        tmp_path / "home/.claude/settings.json": user,
    }
    for path, value in files.items():
        if value is not None:
            write_settings(path, value)
    return read_claude_settings(tmp_path / "work", tmp_path / "home/.claude")


def test_a_directory_without_them_has_nothing(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert (found.user, found.project, found.rules, found.problems, bool(found.unused)) == (
        {},
        {},
        frozenset(),
        (),
        False,
    )


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (
            {"permissions": {"allow": ["Bash", "Bash"], "ask": ["x"]}},
            {"permissions": {"allow": ["Bash"], "ask": ["x"]}},
        ),
        ({"permissions": {"defaultMode": "acceptEdits"}}, {"permissions": {"mode": "acceptEdits"}}),
        ({"permissions": {"defaultMode": "manual"}}, {"permissions": {"mode": "default"}}),
        ({"permissions": {"defaultMode": "dontAsk"}}, {"permissions": {"mode": "default"}}),
        ({"permissions": {"defaultMode": "auto"}}, {"permissions": {"mode": "default"}}),
        (
            {"permissions": {"additionalDirectories": ["../x"]}},
            {"permissions": {}, "additional_directories": ["../x"]},
        ),
        ({"additionalDirectories": ["../x"]}, {"additional_directories": ["../x"]}),
        ({"env": {"A": "b", "C": 1, "D": True}}, {"env": {"A": "b", "C": "1", "D": "true"}}),
        ({"model": "opus"}, {"model": "opus"}),
        ({"model": "default"}, {}),
        ({"sandbox": {"enabled": True}, "description": "x"}, {}),
        ({"hooks": {"Stop": [{"hooks": [{"type": "prompt"}]}]}}, {"hooks": {}}),
        ({"disableAllHooks": True, "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "x"}]}]}}, {}),
    ],
)
def test_a_setting_is_one_of_ours(tmp_path: Path, theirs: Any, ours: Any) -> None:
    assert read(tmp_path, theirs).project[PROJECT] == ours


def test_a_hook_keeps_all_its_fields_and_says_where_it_is_from(tmp_path: Path) -> None:
    handler = {"type": "command", "command": "x", "timeout": 5, "async": True, "if": "Bash(git *)", "args": ["y"]}
    raw = read(tmp_path, {"hooks": {"PreToolUse": [{"matcher": "Edit, Write", "hooks": [handler]}]}}).project[PROJECT]
    (group,) = load_settings(tmp_path / "none", [raw]).hooks["PreToolUse"]
    assert (group.matcher, group.source) == ("Edit, Write", PROJECT)
    assert group.hooks == (HookCommand("x", 5.0, "command", handler),)


def test_hooks_of_all_files_run(tmp_path: Path) -> None:
    hooks = [{"hooks": {"PermissionRequest": [{"hooks": [{"type": "command", "command": each}]}]}} for each in "ab"]
    found = read(tmp_path, project=hooks[0], local=hooks[1]).project
    groups = load_settings(tmp_path / "none", found.values()).hooks["PermissionRequest"]
    assert [hook.command for group in groups for hook in group.hooks] == ["a", "b"]


HOOK = {"Stop": [{"hooks": [{"type": "command", "command": "x"}]}]}


def test_a_project_switches_off_its_own_hooks_and_not_the_users(tmp_path: Path) -> None:
    found = read(tmp_path, project={"hooks": HOOK}, local={"disableAllHooks": True}, user={"hooks": HOOK})
    assert (found.project[PROJECT], found.disables_hooks) == ({}, False)
    assert found.user["hooks"].keys() == {"Stop"}


def test_the_user_switches_off_all_of_them(tmp_path: Path) -> None:
    assert read(tmp_path, project={"hooks": HOOK}, user={"disableAllHooks": True}).disables_hooks


def test_the_local_file_of_the_repository_applies_in_directories_below(tmp_path: Path) -> None:
    below = tmp_path / "app"
    write_settings(tmp_path / LOCAL, {"env": {"A": "root"}})
    write_settings(tmp_path / PROJECT, {"env": {"B": "root"}})
    below.mkdir()
    found = read_claude_settings(below, tmp_path / "home", tmp_path).project
    assert found == {PROJECT: {}, LOCAL: {"env": {"A": "root"}}}
    write_settings(below / LOCAL, {"env": {"A": "below"}})
    assert read_claude_settings(below, tmp_path / "home", tmp_path).project[LOCAL] == {"env": {"A": "below"}}


def test_in_the_users_file_a_slash_means_its_own_directory(tmp_path: Path) -> None:
    rules = ["Edit(/notes/**)", "Read(//etc/x)", "Read(~/x)", "Bash(/bin/ls *)"]
    allow = read(tmp_path, user={"permissions": {"allow": rules}}).user["permissions"]["allow"]
    assert allow == [f"Edit(/{tmp_path}/home/.claude/notes/**)", *rules[1:]]


def test_the_users_home_as_a_project_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / ".claude/settings.json"
    path.parent.mkdir()
    path.write_text('{"env": {"A": "b"}}')
    found = read_claude_settings(tmp_path, tmp_path / ".claude")
    assert (found.user, found.project) == ({"env": {"A": "b"}}, {})


@pytest.mark.parametrize(
    ("theirs", "problem"),
    [
        ({"permissions": []}, "permissions is not used: permissions: should be an object"),
        ({"permissions": {"allow": "Bash"}}, "permissions.allow is not used: it should be a list"),
        ({"permissions": {"allow": ["Bash", 3]}}, "1 of permissions.allow is not used"),
        ({"permissions": {"additionalDirectories": "x"}}, "additional_directories is not used"),
        ({"env": {"A": []}}, "env.A is not used"),
        ({"env": {"A B": "x"}}, "env.A B is not used"),
        ({"model": 3}, "model is not used: model: should be a text"),
        ({"hooks": {"Stop": {}}}, "hooks.Stop is not used"),
        ({"hooks": {"Stop": [{"hooks": [{"type": "command"}]}]}}, "a hook of Stop is not used"),
        ({"hooks": {"Stop": [{"matcher": 3, "hooks": []}]}}, "hooks.Stop is not used"),
    ],
)
def test_a_bad_entry_is_dropped_with_a_line(tmp_path: Path, theirs: Any, problem: str) -> None:
    (line,) = read(tmp_path, {**theirs, "cleanupPeriodDays": 3}).problems
    assert line.startswith(f".claude/settings.json: {problem}")


def test_the_rest_of_a_file_with_a_bad_entry_counts(tmp_path: Path) -> None:
    found = read(tmp_path, {"env": 3, "permissions": {"deny": ["Bash(rm *)", None]}, "model": "opus"})
    assert found.project[PROJECT] == {"permissions": {"deny": ["Bash(rm *)"]}, "model": "opus"}


@pytest.mark.parametrize(
    ("theirs", "detail"),
    [
        (
            {"permissions": {"defaultMode": "delegate"}},
            "setting permissions.defaultMode delegate: there is no such mode",
        ),
        ({"hooks": {"Stop": [{"hooks": [{"type": "http", "url": "x"}]}]}}, "hook Stop of type http"),
        ({"hooks": {"Setup": [{"hooks": [{"type": "command", "command": "x"}]}]}}, "hook Setup `x`: there is no such"),
        ({"hooks": {"Stop": [{"matcher": "(", "hooks": []}]}}, "hook Stop (: its matcher"),
        ({"env": {"LD_PRELOAD": "x"}}, "variable LD_PRELOAD"),
        ({"sandbox": {"enabled": True}}, "setting sandbox"),
    ],
)
def test_what_means_nothing_here_is_listed(tmp_path: Path, theirs: Any, detail: str) -> None:
    (line,) = read(tmp_path, theirs).unused.details
    assert line.startswith(detail)


def test_a_folder_that_leads_out_of_the_project_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/settings.json").write_text('{"model": "opus"}')
    (tmp_path / "work/.claude").symlink_to(tmp_path / "elsewhere")
    found = read(tmp_path)
    assert found.project == {PROJECT: {}, LOCAL: {}}
    assert "a link that leads out of the project" in found.problems[0]


def test_agreed_hooks_stay_agreed_if_the_project_has_no_files_of_claude_code(tmp_path: Path) -> None:
    path = tmp_path / "work/.team/settings.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "x"}]}]}}')
    digest = inspect_project(tmp_path / "work", tmp_path / "home/.teamcli").trust().trusted.hooks
    assert digest == "9d035e78cfd17c78ba30a3ea853f88feedab5befd0ef9d9b04951d254b3d56b0"  # as in earlier versions


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["hooks", "matcher", "type", "command", "timeout", "allow", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)
KEYS = st.sampled_from(["permissions", "hooks", "env", "model", "additionalDirectories", "sandbox", "disableAllHooks"])


@given(st.dictionaries(KEYS, JSON | st.dictionaries(st.sampled_from(["Stop", "allow", "deny", "A"]), JSON, max_size=3)))
def test_no_file_breaks_the_settings(tmp_path_factory: pytest.TempPathFactory, theirs: Any) -> None:
    found = read(tmp_path_factory.mktemp("x"), theirs)
    assert settings_problem(found.project[PROJECT]) == ""
