"""Instructions to agents from the project and the user: AGENTS.md and CLAUDE.md. `#line` at the prompt adds to them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from teamcli.errors import ConfigError

INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md")
INSTRUCTION_LIMIT = 40_000


class Instructions(NamedTuple):
    found: list[tuple[str, str]]
    """(source, text)"""
    problems: list[str]
    """One sentence for each file that exists but cannot be used."""


def find_instructions(workspace: Path, homes: Iterable[Path]) -> Instructions:
    """The user's instructions, then the project's. A text that several files share is used once."""
    instructions = Instructions([], [])
    for directory in (*homes, workspace):
        for name in INSTRUCTION_FILES:
            source = name if directory == workspace else f"~/{directory.name}/{name}"
            try:
                if directory == workspace and not (directory / name).resolve().is_relative_to(workspace):
                    instructions.problems.append(f"{source} is a link that leads out of the workspace and is left out")
                    continue
                text = _with_includes(directory / name)
            except OSError as e:
                instructions.problems.append(f"{source} cannot be read ({e.strerror}) and is left out")
                continue
            if text and all(text != other for _, other in instructions.found):
                instructions.found.append((source, text))
    return instructions


def _with_includes(path: Path) -> str:
    """The file's text. A line `@other.md`, as in Claude Code, is replaced by that file from the same directory."""
    lines = []
    for line in _read(path).splitlines():
        included = path.parent / line.strip().removeprefix("@")
        is_include = line.startswith("@") and included.suffix == ".md"
        if is_include and included.resolve().is_relative_to(path.parent.resolve()):
            lines.append(_read(included))
        else:
            lines.append(line)
    return "\n".join(lines).strip()


def _read(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="replace") as file:
        text = file.read(INSTRUCTION_LIMIT + 1)
    if len(text) > INSTRUCTION_LIMIT:
        text = text[:INSTRUCTION_LIMIT] + "\n[... the rest of this file is left out ...]"
    return text


def add_instruction(workspace: Path, line: str) -> str:
    """Append a line to the project's instructions. Returns the name of the file, which is created if needed.

    Raises: ConfigError
    """
    existing = [name for name in INSTRUCTION_FILES if (workspace / name).exists()]
    name = existing[0] if existing else INSTRUCTION_FILES[0]
    path = workspace / name
    if path.exists() and not path.is_file():
        raise ConfigError(f"{name} is not a regular file: nothing can be added to it")
    if not path.resolve().is_relative_to(workspace):
        raise ConfigError(f"{name} is a link that leads out of the workspace: add the line there yourself")
    try:
        before = path.read_bytes() if existing else b""
        end = b"\r\n" if b"\r\n" in before else b"\n"  # keep the line ends of the file
        with path.open("ab") as file:
            file.write((end if before and not before.endswith(b"\n") else b"") + f"- {line}".encode() + end)
    except OSError as e:
        raise ConfigError(f"{name} cannot be changed: {e.strerror or e}") from e
    return name
