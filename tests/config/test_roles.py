"""Role files: the small part of YAML that people write, read strictly, and one bad file never costs the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamcli.config.front_matter import MAX_BYTES, Folder, parse
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
    ],
)
def test_tools_can_be_written_in_many_ways(tmp_path: Path, written: str) -> None:
    front = f"name: x\n{written}\nmodel: m"
    role = read_role(role_file(tmp_path, "x", front))
    assert role.tools == ("bash", "read_file")
    assert role.model == "m"
    crlf = tmp_path / "crlf.md"
    crlf.write_bytes(f"\ufeff---\n{front}\n---\nBody\n".replace("\n", "\r\n").encode())
    assert read_role(crlf).tools == ("bash", "read_file")


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
    ],
)
def test_texts_mean_what_yaml_says(written: str, meant: str) -> None:
    matter = parse(f"---\ndescription: {written}\nmodel: m\n---\nbody", ("description", "model"))
    assert matter.fields == {"description": meant, "model": "m"}
    assert matter.body == "body"


def test_unknown_fields_are_skipped_whatever_they_contain(tmp_path: Path) -> None:
    front = "color: {a: b\nhooks:\n  PreToolUse:\n    - matcher: x\nname: x\nmcpServers: [a,\n  b]"
    assert read_role(role_file(tmp_path, "y", front)).name == "x"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1: the file must begin with ---"),
        ("just a prompt", "line 1: the file must begin with ---"),
        ("---\nname: x\nno end", "line 3: the front matter has no closing ---"),
        ("---\nname: x\nname: y\n---", "line 3: name occurs twice"),
        ("---\nname x\n---", "line 2: 'name x' is not `key: value`"),
        ("---\nname:x\n---", "line 2: 'name:x' is not `key: value`"),
        ("---\n  name: x\n---", "line 2: 'name: x' belongs to no field"),
        ("---\n- a\n---", "line 2: '- a' belongs to no field"),
        ("---\nname: 'x\n---", "line 2: the quotes of"),
        ('---\nname: "x" y\n---', "line 2: the quotes of"),
        ('---\nname: "\\q"\n---', 'line 2: "\\q" has an unknown escape'),
        ("---\nname: {a: b}\n---", "line 2: a text that begins with { must be in quotes"),
        ("---\nname: *x\n---", "line 2: a text that begins with * must be in quotes"),
        ("---\nname: [a]\n---", "line 2: name must be a text, not a list"),
        ("---\nname: a/b\n---", "line 2: 'a/b' is not a valid name"),
        ("---\nname: ..\n---", "line 2: '..' is not a valid name"),
        ("---\ntools: [a, b\n---", "line 2: the list must end with ] on the same line"),
        ("---\ntools: [a 'b']\n---", "line 2: \"a 'b'\" is not a list item"),
        ("---\n\ntools:\n---", "line 3: tools is empty; leave it out, or write [] for none"),
        ("---\ntools: a,,b\n---", "line 2: '' is not a valid tool name"),
        ("---\ntools: [Bash(git:*)]\n---", "line 2: 'Bash(git:*)' is not a valid tool name"),
        ("---\ntools:\n  read: yes\n---", "line 3: 'read: yes' is not `- item`"),
        ("---\ntools:\n  - a\n  -b\n---", "line 4: '-b' is not `- item`"),
        ("---\ndescription: one\n  two\n---", "line 3: description has its value in line 2; write `description: |`"),
        ("---\ndescription: |\n- two\n---", "line 2: the text of description must be indented"),
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
