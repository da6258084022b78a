"""Role files: the part of YAML that people write, and one bad file never costs the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamcli.claude_code.unused import Unused
from teamcli.config.front_matter import MAX_BYTES, Folder, Nested, parse
from teamcli.config.options import Mode
from teamcli.config.project_files import find_files
from teamcli.config.roles import BUILTIN_ROLES, Role, Roles, load_roles, read_role, role_dirs


def role_file(directory: Path, name: str, front: str, body: str = "Be good.") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.md"
    path.write_text(f"---\n{front}\n---\n{body}\n", encoding="utf-8")
    return path


def test_the_built_in_roles_load() -> None:
    roles = load_roles([Folder(BUILTIN_ROLES)])
    assert roles.problems == []
    assert sorted(roles.found) == ["coder", "researcher", "reviewer", "tester"]
    for role in roles.found.values():
        assert role.description
        assert role.prompt.startswith("You are a ")
        # "reviewer" is also a word that people use freely: a built-in role advises, and takes no tool away.
        assert role.tools is None
        assert role.disallowed_tools == ()


def test_a_new_project_has_the_built_in_roles(tmp_path: Path) -> None:
    roles = load_roles(role_dirs(tmp_path / "project", tmp_path / "home", lambda path, content: False))
    assert roles == load_roles([Folder(BUILTIN_ROLES)])


@pytest.mark.parametrize("directory", ["project/.team/agents", "project/.claude/agents", "home/agents"])
def test_a_role_of_the_project_or_the_user_replaces_a_built_in_one(tmp_path: Path, directory: str) -> None:
    role_file(tmp_path / directory, "x", "name: Coder\ndescription: mine")
    roles = load_roles(role_dirs(tmp_path / "project", tmp_path / "home", lambda path, content: True))
    assert roles.found["coder"].description == "mine"
    assert sorted(roles.found) == ["coder", "researcher", "reviewer", "tester"]
    assert roles.problems == []


def test_a_whole_role_is_read(tmp_path: Path) -> None:
    front = "name: Data-Smith\ndescription: Shapes data.\ntools: bash, read_file\ndisallowedTools: [grep]\nmodel: big-1"
    body = "\nFirst line.\n\n---\nLast line.\n"
    assert read_role(role_file(tmp_path, "x", front, body)) == Role(
        "Data-Smith", "Shapes data.", "First line.\n\n---\nLast line.", ("bash", "read_file"), ("grep",), "big-1"
    )


def test_fields_that_are_left_out_have_defaults(tmp_path: Path) -> None:
    assert read_role(role_file(tmp_path, "helper", "# nothing")) == Role("helper", "", "Be good.", None, (), "")
    assert read_role(role_file(tmp_path, "helper", "model: inherit\ntools: []")) == Role("helper", "", "Be good.", ())


@pytest.mark.parametrize(
    "written",
    [
        "tools: bash, read_file",
        "tools: bash,read_file  # both",
        'tools: "bash, read_file"',
        "tools: [bash, read_file]",
        "tools: [ 'bash' ,\"read_file\", ]  # list",
        "tools:\n  - bash\n  - read_file",
        "tools:   # these\n- bash\n\n# in between\n  # and here\n- 'read_file' # too",
        "tools:\n\t- bash\n\t- read_file",
        "tools: Bash, Read",
        "tools: [Bash, bash, Read]",
        "tools: Bash Read",
        "tools: [Bash,\n  Read]",
        "tools: Bash,\n  Read",
        "tools: Bash(git log:*), Bash(git add:*), Read(./src/**)",
        "tools: Bash, Read, WebFetch, TodoWrite, NoSuchTool",
        '"tools": [Bash, Read]',
    ],
)
def test_tools_can_be_written_in_many_ways(tmp_path: Path, written: str) -> None:
    front = f"name: x\n{written}\nmodel: m"
    role = read_role(role_file(tmp_path, "x", front))
    assert role
    assert role.tools == ("bash", "read_file")
    assert role.model == "m"
    crlf = tmp_path / "crlf.md"
    crlf.write_bytes(f"\ufeff---\n{front}\n---\nBody\n".replace("\n", "\r\n").encode())
    assert load_roles([Folder(tmp_path)]).found["x"].tools == ("bash", "read_file")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("plain text", "plain text"),
        ("with: a colon, and [brackets]", "with: a colon, and [brackets]"),
        ("cut here # comment", "cut here"),
        ("kept#here", "kept#here"),
        ("it's fine", "it's fine"),
        ("'single ''quotes'' # kept'", "single 'quotes' # kept"),
        (r'"a \"double\" \u00fc \\ # kept" # not this', 'a "double" ü \\ # kept'),
        ("''", ""),
        ("ünïcödé 日本", "ünïcödé 日本"),
        ("|\n  first\n    indented # kept\n\n  last", "first\n  indented # kept\n\nlast"),
        (">-\n  one\n  two\n\n  three", "one two\n\nthree"),
        ("|2-\n  first\n  second", "first\nsecond"),
        ("one\n  two", "one two"),
        ("one\n  two # comment\n\n  three", "one two\nthree"),
        ("\n  one\n  two", "one two"),
        ("\n  one: two\n  three", Nested("  one: two\n  three")),
        ("'one\n  it''s two'", "one it's two"),
        ('"one\n  two"', "one two"),
        ('"x" y', '"x" y'),
        ("'it's", "'it's"),
        (r'"\q"', r"\q"),
        ("*x", "*x"),
        ("@name and `code`", "@name and `code`"),
        ("Use it: fix issue #12", "Use it: fix issue #12"),
        ("[WIP] not a list", "[WIP] not a list"),
        ("a text\nwhose next line is not indented", "a text whose next line is not indented"),
        ("null", ""),
        ("first\ndescription: second", "second"),
        (
            'Use it. Examples:\n<example>\nContext: a test\nuser: "go"\n</example>',
            'Use it. Examples: <example> Context: a test user: "go" </example>',
        ),
        ('"\\U0001F680 \\x41\\_b\\\n  joined"', "🚀 A\xa0b joined"),
        ("\n  |-\n  one\n  two", "one\ntwo"),
    ],
)
def test_texts_mean_what_yaml_says(written: str, meant: str) -> None:
    matter = parse(f"---\ndescription: {written}\nmodel: m\n---\nbody", ("description", "model"))
    assert matter.fields == {"description": meant, "model": "m"}
    assert matter.body == "body"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("*", None),
        ("[Read, '*']", None),
        ("Agent(reviewer), Task", ("agent",)),
        ("mcp__github, mcp__db__query", ("mcp__github", "mcp__db__query")),
        ("WebSearch", ()),
        ("", ()),
        ("\n  write: false", ()),
        ("my_own_tool", ("my_own_tool",)),
    ],
)
def test_tools_of_claude_code_are_translated(tmp_path: Path, written: str, meant: tuple[str, ...] | None) -> None:
    role = read_role(role_file(tmp_path, "x", f"name: x\ntools: {written}"))
    assert role
    assert role.tools == meant


def test_what_of_a_role_is_not_used_is_noted(tmp_path: Path) -> None:
    front = "name: x\ntools: Read, WebFetch\ndisallowedTools: WebFetch\neffort: high\ncolor: red\nmemory: user"
    role_file(tmp_path, "x", front)
    unused = Unused()
    roles = load_roles([Folder(tmp_path, is_claudes=True)], unused)
    assert roles.problems == []
    assert "1 role tool (WebFetch)" in unused.line
    assert "1 role field (effort)" in unused.line
    assert "color" not in unused.line


@pytest.mark.parametrize(
    ("front", "mode", "turns"),
    [
        ("permissionMode: acceptEdits\nmaxTurns: 5", Mode.ACCEPT_EDITS, 5),
        ("permissionMode: dontAsk\nmaxTurns: many", Mode.DEFAULT, 0),
        ("permissionMode: unheard-of", Mode.DEFAULT, 0),
        ("", Mode.DEFAULT, 0),
    ],
)
def test_a_role_may_have_a_mode_and_a_number_of_turns(tmp_path: Path, front: str, mode: Mode, turns: int) -> None:
    role = read_role(role_file(tmp_path, "x", f"name: x\n{front}"))
    assert role
    assert (role.mode, role.max_turns) == (mode, turns)


HOOKS = """\
name: x
hooks:
  PreToolUse:
    - matcher: "Bash"
      hooks:
        - type: command
          command: "check \\"it\\""
          timeout: 5
  Stop:
  - hooks:
    - type: command
      command: |
        if true; then
          echo end
        fi
"""


def test_a_role_may_have_hooks(tmp_path: Path) -> None:
    role = read_role(role_file(tmp_path, "x", HOOKS))
    assert role
    assert {event: groups[0].role for event, groups in role.hooks.items()} == dict.fromkeys(
        ("PreToolUse", "SubagentStop", "TeammateIdle"), "x"
    )
    (group,) = role.hooks["PreToolUse"]
    assert (group.matcher, group.hooks[0].command, group.hooks[0].timeout) == ("Bash", 'check "it"', 5)
    assert role.hooks["TeammateIdle"][0].hooks[0].command == "if true; then\n  echo end\nfi"


@pytest.mark.parametrize(
    "handler",
    [
        "{type: command, command: 'a, b'}",
        '{"type": "command", "command": "a, b"}',
        "command: >\n        a,\n        b",
    ],
)
def test_hooks_may_be_written_in_several_ways(tmp_path: Path, handler: str) -> None:
    role = read_role(role_file(tmp_path, "x", f"name: x\nhooks:\n  PreToolUse:\n  - hooks:\n    - {handler}"))
    assert role
    assert role.hooks["PreToolUse"][0].hooks[0].command == "a, b"


@pytest.mark.parametrize("front", ["hooks: x", "hooks:\n  Stop: x", "hooks:\n    a: 1\n  b: 2", "hooks: [1]"])
def test_hooks_of_a_role_that_cannot_be_read_break_nothing(tmp_path: Path, front: str) -> None:
    unused = Unused()
    role = read_role(role_file(tmp_path, "x", f"name: x\n{front}"), unused=unused)
    assert role
    assert role.hooks == {}


def test_a_plugins_role_has_neither_hooks_nor_a_mode(tmp_path: Path) -> None:
    unused = Unused()
    folder = Folder(tmp_path, is_claudes=True, plugin="p")
    role = read_role(role_file(tmp_path, "x", f"{HOOKS}permissionMode: plan"), folder, unused)
    assert role
    assert (role.hooks, role.mode) == ({}, Mode.DEFAULT)
    assert "2 role fields (permissionMode, hooks)" in unused.line


@pytest.mark.parametrize("name", ["code.reviewer", "Frontend Developer", "prüfer", "c++ pro", "a_b-c"])
def test_names_may_be_those_that_people_give(tmp_path: Path, name: str) -> None:
    role_file(tmp_path, "x", f"name: {name}")
    assert load_roles([Folder(tmp_path)]).match(name)


@pytest.mark.parametrize("name", ["a/b", "🚀 rocket", "_private", "c#"])
def test_names_of_claude_codes_roles_may_be_any_but_with_a_colon(tmp_path: Path, name: str) -> None:
    role_file(tmp_path, "x", f'name: "{name}"')
    role_file(tmp_path, "y", "name: a:b")
    assert list(load_roles([Folder(tmp_path, is_claudes=True)]).found) == [name]


def test_a_role_of_claude_code_need_not_be_utf_8(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_bytes("---\nname: x\ndescription: Prüft – alles\n---\nKörper".encode("cp1252"))
    role = load_roles([Folder(tmp_path, is_claudes=True)]).found["x"]
    assert (role.description, role.prompt) == ("Prüft – alles", "Körper")


def test_roles_in_a_linked_folder_are_found(tmp_path: Path) -> None:
    role_file(tmp_path / "shared/deep", "x", "name: x")
    (tmp_path / "shared/deep/loop").symlink_to(tmp_path / "shared")
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents/linked").symlink_to(tmp_path / "shared")
    (tmp_path / "agents/again.md").symlink_to(tmp_path / "shared/deep/x.md")
    roles = load_roles([Folder(tmp_path / "agents")])
    assert (list(roles.found), roles.problems) == (["x"], [])


def test_roles_of_claude_code_are_found_in_subfolders_and_above_up_to_the_repository(tmp_path: Path) -> None:
    repository, home = tmp_path / "repository", tmp_path / "user/.teamcli"
    project = repository / "packages/one"
    (repository / ".git").mkdir(parents=True)
    role_file(project / ".claude/agents/deep/er", "a", "name: near\ndescription: near")
    role_file(repository / "packages/.claude/agents", "a", "name: between\ndescription: between")
    role_file(repository / ".claude/agents", "a", "name: top\ndescription: top")
    role_file(repository / ".claude/agents", "b", "name: near\ndescription: far")
    role_file(tmp_path / ".claude/agents", "a", "name: outside\ndescription: outside")
    role_file(tmp_path / "user/.claude/agents/mine", "a", "name: mine\ndescription: mine")
    (repository / ".claude/agents/README.md").write_text("# About these agents")
    roles = load_roles(role_dirs(project, home, lambda path, content: True))
    expected = {name: name for name in ("near", "between", "top", "mine")}
    assert own_roles(roles) == expected
    assert roles.problems == []
    trusted = {file.name for file in find_files(project)}
    assert trusted == {
        ".claude/agents/deep/er/a.md",
        "../.claude/agents/a.md",
        "../../.claude/agents/a.md",
        "../../.claude/agents/b.md",
        "../../.claude/agents/README.md",
    }


def test_unknown_fields_are_skipped_whatever_they_contain(tmp_path: Path) -> None:
    front = "color: {a: b\nhooks:\n  PreToolUse:\n    - matcher: x\nname: x\nmcpServers: [a,\n  b]"
    role_file(tmp_path, "y", front)
    assert list(load_roles([Folder(tmp_path)]).found) == ["x"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1: the file must begin with ---"),
        ("just a prompt", "line 1: the file must begin with ---"),
        ("---\nname: x\nno end", "line 3: the front matter has no closing ---"),
        ("---\nname: a/b\n---", "line 2: 'a/b' is not a valid name"),
        ("---\nname: ..\n---", "line 2: '..' is not a valid name"),
        ("---\nname: a:b\n---", "line 2: 'a:b' is not a valid name"),
        ("---\nname:\n  a: b\n---", "line 2: name must be a text"),
        ("---\nname: {a: b}\n---", "line 2: name must be a text"),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_does_not_stop_the_other_roles(
    tmp_path: Path, text: str, problem: str
) -> None:
    bad = tmp_path / "bad.md"
    bad.write_text(text)
    role_file(tmp_path, "good", "name: good")
    roles = load_roles([Folder(tmp_path)])
    assert list(roles.found) == ["good"]
    [told] = roles.problems
    assert told.startswith(f"the role in {bad} is not used: {problem}")
    assert "\n" not in told


def test_files_that_are_not_text_or_too_long_are_reported(tmp_path: Path) -> None:
    (tmp_path / "binary.md").write_bytes(b"---\nname: x\ndescription: \xff\n---\n")
    (tmp_path / "long.md").write_bytes(b"---\nname: x\n---\n" + b"x" * MAX_BYTES)
    (tmp_path / "dangling.md").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "notes.txt").write_text("not a role")
    roles = load_roles([Folder(tmp_path)])
    assert roles.found == {}
    assert len(roles.problems) == 2
    assert "line 3: it is not UTF-8" in roles.problems[0]
    assert "larger than 262,144 bytes" in roles.problems[1]


def test_two_files_with_the_same_name_in_a_directory_are_reported(tmp_path: Path) -> None:
    role_file(tmp_path, "a", "name: Coder\ndescription: first")
    role_file(tmp_path, "b", "name: coder\ndescription: second")
    roles = load_roles([Folder(tmp_path)])
    assert roles.found["coder"].description == "first"
    assert len(roles.problems) == 1
    assert "b.md is not used: there is a role 'coder' already" in roles.problems[0]


def own_roles(roles: Roles) -> dict[str, str]:
    """The descriptions of all roles but the built-in ones."""
    built_in = load_roles([Folder(BUILTIN_ROLES)]).found.values()
    return {key: role.description for key, role in roles.found.items() if role not in built_in}


def test_the_project_comes_before_the_user_and_is_used_only_when_agreed_to(tmp_path: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    role_file(project / ".team" / "agents", "coder", "name: coder\ndescription: ours")
    role_file(project / ".claude" / "agents", "coder", "name: CODER\ndescription: theirs")
    role_file(project / ".claude" / "agents", "smith", "name: smith\ndescription: theirs")
    role_file(home / "agents", "coder", "name: Coder\ndescription: mine")
    role_file(home / "agents", "own", "name: own\ndescription: mine")

    trusted = load_roles(role_dirs(project, home, lambda path, content: True))
    assert own_roles(trusted) == {"coder": "ours", "smith": "theirs", "own": "mine"}
    assert trusted.problems == []
    stranger = load_roles(role_dirs(project, home, lambda path, content: False))
    assert own_roles(stranger) == {"coder": "mine", "own": "mine"}


def test_a_role_is_matched_by_name_in_any_case(tmp_path: Path) -> None:
    role_file(tmp_path, "x", "name: Code-Smith")
    roles = load_roles([Folder(tmp_path), Folder(tmp_path / "missing")])
    assert roles.match(" code-SMITH ") == roles.found["code-smith"]
    assert roles.match("smith who codes") is None
    assert roles.problems == []
