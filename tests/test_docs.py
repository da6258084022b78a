"""The documentation keeps up with the program: what it names exists, and what exists is named."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from teamcli.cli.main import SUBCOMMANDS, _agent_parser
from teamcli.commands.catalog import COMMANDS
from teamcli.config.settings import PermissionSettings, Price, Settings
from teamcli.tools.catalog import ALL_TOOLS
from tests.support.program import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
HOW_TO = [page for page in PAGES if page.stem not in ("promises", "contributing", "CHANGELOG")]
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TEST = re.compile(r"\b(tests/[\w/]+\.py)::(\w+(?:::\w+)*)")


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@cache
def names_of(path: Path) -> frozenset[str]:
    """As pytest names them: `test_x`, `TestClass`, `TestClass::test_x`."""
    return frozenset(names_in(ast.parse(path.read_text(encoding="utf-8")).body))


def names_in(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from names_in(node.body, f"{prefix}{node.name}::")


def anchors_in(page: Path) -> set[str]:
    """The anchors that a Markdown page's headings get."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = TEST.findall(page.read_text(encoding="utf-8"))
    missing = [f"{path}::{name}" for path, name in named if not has_test(ROOT / path, name)]
    assert missing == []


def has_test(path: Path, name: str) -> bool:
    return path.is_file() and name in names_of(path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_between_files_leads_somewhere(page: Path) -> None:
    targets = LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    broken = [target for target in targets if "://" not in target and not leads_somewhere(page, target)]
    assert broken == []


def leads_somewhere(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    path = page.parent / name if name else page
    return path.exists() and (not anchor or anchor in anchors_in(path))


def test_every_fault_of_the_ancestor_has_its_row_with_a_test() -> None:
    rows = re.findall(r"^\| (R\d\d) \|(.*)$", read("docs/promises.md"), re.MULTILINE)
    assert [name for name, _ in rows] == [f"R{number:02}" for number in range(1, 47)]
    assert [name for name, row in rows if not TEST.search(row)] == []


def test_every_setting_is_documented() -> None:
    keys = [name for name in Settings._fields if name != "permissions"]
    keys += [f"permissions.{name}" for name in PermissionSettings._fields]
    page = read("docs/settings.md")
    assert [key for key in keys if f"| `{key}` |" not in page] == []
    assert all(f'"{name}"' in page for name in Price._fields)


def test_every_option_and_command_is_documented() -> None:
    page = read("docs/commands.md")
    options = [option for action in _agent_parser()._actions for option in action.option_strings]
    assert [option for option in options if not re.search(rf"`{option}[ `]", page)] == []
    assert [name for name in SUBCOMMANDS if f"`teamcli {name}`" not in page] == []
    names = [name for command in COMMANDS for name in (command.name, *command.aliases)]
    assert [name for name in names if not re.search(rf"`/{re.escape(name)}[ `]", page)] == []


def test_every_tool_is_documented_with_its_fields() -> None:
    page = read("docs/tools.md")
    for tool in ALL_TOOLS:
        section = re.search(rf"^## `{tool.name}`\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
        assert section, f"{tool.name} has no section"
        assert [name for name in tool.load().input._fields if f"`{name}`" not in section[1]] == []


def test_every_package_has_its_row_and_is_introduced_by_files_that_exist() -> None:
    rows = re.findall(r"^\| `(\w+(?:/|\.py))` \|.*\|([^|]*)\|$", read("docs/architecture.md"), re.MULTILINE)
    found = [path for path in (ROOT / "teamcli").iterdir() if not path.name.startswith(("__init__", "__pycache__"))]
    assert {name for name, _ in rows} == {
        path.name + "/" * path.is_dir() for path in found if path.is_dir() or path.suffix == ".py"
    }
    files = [name + file for name, start in rows for file in re.findall(r"`([\w/]+\.py)`", start)]
    assert [file for file in files if not (ROOT / "teamcli" / file).is_file()] == []


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/contributing.md", "AGENTS.md"])
def test_every_file_that_a_page_for_developers_names_exists(page: str) -> None:
    named = re.findall(r"(?:^|[`\[\"(])((?:[\w.]+/)+\w+\.py)", read(page), re.MULTILINE)
    tops = {path.name for path in (ROOT / "teamcli").iterdir()} | {"teamcli", "tests", "bench"}
    files = [name for name in named if name.partition("/")[0] in tops and "NAME" not in name]
    missing = [name for name in files if not any((parent / name).is_file() for parent in (ROOT, ROOT / "teamcli"))]
    assert files
    assert missing == []


def test_every_step_of_the_walks_is_in_its_file() -> None:
    steps = re.findall(r'"([\w/]+\.py)<br>([\w.]+)"', read("docs/contributing.md"))
    assert len(steps) > 10
    gone = [(file, name) for file, name in steps if name.split(".")[-1] not in read(f"teamcli/{file}")]
    assert gone == []


def test_the_layers_are_those_of_the_layer_test() -> None:
    block = re.search(r"## Layers\n.*?```text\n(.*?)```", read("docs/architecture.md"), re.DOTALL)
    assert block
    project = tomllib.loads(read("pyproject.toml"))["tool"]["teamcli"]
    assert [re.split(r" {2,}", line)[0] for line in block[1].splitlines()] == project["layers"]


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.name)
def test_only_developers_pages_name_tests(page: Path) -> None:
    assert TEST.findall(page.read_text(encoding="utf-8")) == []


def test_every_error_in_the_table_of_endpoints_is_one_that_the_program_raises() -> None:
    section = read("docs/endpoints.md").partition("## Errors")[2]
    messages = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "teamcli").rglob("*.py"))
    parts = [max(re.split(r"…|\d+|ANTHROPIC_\w+", message), key=len).strip(" .,:;()") for message in messages]
    assert len(parts) > 10
    assert [part for part in parts if part not in source] == []


def test_every_soak_test_is_in_the_table() -> None:
    page = read("docs/contributing.md")
    paths = [path for path in (ROOT / "tests").rglob("test_*.py") if "mark.soak" in path.read_text("utf-8")]
    named = [f"{path.relative_to(ROOT).as_posix()}::{name}" for path in paths for name in soak_tests_in(path)]
    assert len(named) > 5
    assert [name for name in named if name not in page] == []


def soak_tests_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        marks = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
        if any("mark.soak" in ast.unparse(mark) for mark in marks):
            yield node.name
