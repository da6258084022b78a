"""The architecture as tests: imports go one way, and nothing heavy is loaded before it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import teamcli

PACKAGE = Path(teamcli.__file__).parent

LAYERS = """
    errors cancel aside masking frames globs files git_files front_matter plain programs table streams logs options
    workspace state settings environment trust project project_files project_settings claude_settings
    llm permissions
    agent
    tools
    team
    subagents
    custom_commands skills session sessions timeline overview mail
    embedding agent_shop subagent_shop
    commands
    ui
    app
    library events
    doctor model_check team_cli demo
    cli
    __main__
"""
RANK = {name: rank for rank, names in enumerate(LAYERS.strip().splitlines()) for name in names.split()}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def layer_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


@cache
def imports(path: Path) -> list[tuple[str, bool, bool]]:
    """(module, inside a function, only for type checking) of each import."""
    return list(_imports(path))


def _imports(path: Path) -> Iterator[tuple[str, bool, bool]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {id(child) for function in functions for child in ast.walk(function)}
    guards = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    typing_only = {id(child) for guard in guards for child in ast.walk(guard)}
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
            if node.module == "teamcli":
                names = [f"teamcli.{alias.name}" for alias in node.names]
        for name in names:
            yield name, id(node) in inside, id(node) in typing_only


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_imports_upwards(path: Path) -> None:
    own = layer_of(path)
    if own == "__init__":
        return
    for name, _, typing_only in imports(path):
        if not name.startswith("teamcli.") or typing_only or name == "teamcli.__version__":
            continue
        other = name.split(".")[1]
        assert RANK[other] <= RANK[own], f"{own} imports {other}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_libraries_stay_in_their_layer_and_first_party_imports_at_the_top(path: Path) -> None:
    own = layer_of(path)
    for name, is_inside, typing_only in imports(path):
        library = name.split(".")[0]
        if library in ("anthropic", "httpx2", "httpcore2"):
            assert own == "llm" and (is_inside or typing_only), f"{name} must be imported late, in llm/"
        if library.startswith("langchain"):
            assert own in ("llm", "tools") and is_inside, f"{name} must be imported late, in an adapter"
        if library in ("rich", "prompt_toolkit"):
            assert own == "ui"
        if library == "teamcli" and is_inside:
            assert own in ("cli", "app", "agent_shop", "library", "__main__"), f"{name} is imported inside a function"


def loaded_by(code: str) -> set[str]:
    script = f"import sys; {code}; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def test_version_and_help_load_next_to_nothing() -> None:
    for arguments in (["--version"], ["--help"], ["-p", "x", "--max-turns", "0"]):
        command = [sys.executable, "-X", "importtime", "-m", "teamcli", *arguments]
        loaded = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL).stderr
        assert "teamcli" in loaded
        for heavy in ("pydantic", "httpx2", "anthropic", "prompt_toolkit", "rich", "asyncio"):
            assert f" {heavy}\n" not in loaded, f"{arguments} loads {heavy}"


def test_the_program_is_built_without_loading_a_client_or_the_terminal() -> None:
    loaded = loaded_by("import teamcli.app")
    assert not loaded & {"anthropic", "httpx2", "pydantic", "prompt_toolkit", "rich", "dotenv"}
    assert not any(name.startswith("teamcli.subagent") for name in loaded)
    assert not loaded & {
        f"teamcli.{name}" for name in ("llm.client", "permissions.decide", "permissions.rules", "tools.base")
    }
