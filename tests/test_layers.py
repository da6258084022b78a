"""The architecture as tests: imports go one way, and nothing heavy is loaded before it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import teamcli

PACKAGE = Path(teamcli.__file__).parent

LAYERS = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["tool"]["teamcli"]["layers"]
RANK = {name: rank for rank, names in enumerate(reversed(LAYERS)) for name in names.split()}
LIBRARIES = {
    "anthropic": "llm",
    "httpx2": "llm mcp",
    "httpcore2": "llm",
    "mcp": "mcp",
    "langchain_core": "llm sdk tools",
    "rich": "ui text",
    "prompt_toolkit": "ui",
}
"""Where a heavy library may be imported."""
LOADED_LATE = ("anthropic", "httpx2", "httpcore2", "mcp", "langchain_core")
"""Imported inside a function, because each takes a while to load."""
LATE_MODULES = ("teamcli.ui.render.markdown", "teamcli.session.replay", "teamcli.text.failures")
"""Parts of teamcli that may be imported inside a function, because they take a while to load."""
WIRING = ("__main__", "cli", "app", "sdk")
"""Layers that import other parts of teamcli late, when a run needs them."""


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
            parents = path.relative_to(PACKAGE).parts[: -node.level] if node.level else ()
            names = [".".join(("teamcli", *parents, node.module or "")) if node.level else node.module or ""]
            if node.module == "teamcli":
                names = [f"teamcli.{alias.name}" for alias in node.names]
        for name in names:
            yield name, id(node) in inside, id(node) in typing_only


def test_nothing_imports_from_a_layer_above_its_own() -> None:
    upwards = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in modules()
        for name, _, typing_only in imports(path)
        if layer_of(path) != "__init__" and name.startswith("teamcli.") and not typing_only
        if name != "teamcli.__version__" and RANK[name.split(".")[1]] > RANK[layer_of(path)]
    ]
    assert upwards == []


def test_modules_load_in_any_order() -> None:
    """No module needs itself while it loads. Runs that are forks would not notice: all is loaded before."""
    names = {_name_of(path): path for path in modules()}
    needed = {
        name: {each for each, is_inside, typing_only in imports(path) if each in names and not is_inside | typing_only}
        for name, path in names.items()
    }
    assert len(list(TopologicalSorter(needed).static_order())) == len(names)


def _name_of(path: Path) -> str:
    return ".".join(("teamcli", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


def test_libraries_stay_in_their_layer_and_load_late() -> None:
    misplaced = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in modules()
        for name, is_inside, typing_only in imports(path)
        if name not in LATE_MODULES
        if not _is_well_placed(layer_of(path), name.split(".")[0], is_inside, typing_only)
    ]
    assert misplaced == []


def _is_well_placed(layer: str, library: str, is_inside: bool, typing_only: bool) -> bool:
    if library == "teamcli":
        return not is_inside or layer in WIRING
    is_late = is_inside or typing_only
    return layer in LIBRARIES.get(library, layer).split() and (is_late or library not in LOADED_LATE)


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
    loaded = loaded_by("import teamcli.app.run")
    assert not loaded & {"anthropic", "httpx2", "pydantic", "prompt_toolkit", "rich", "dotenv"}
    assert not any(name.startswith(("teamcli.subagent", "teamcli.hooks")) for name in loaded)
    assert not loaded & {
        f"teamcli.{name}" for name in ("llm.client", "permissions.decide", "permissions.rules", "tools.base.tool")
    }
