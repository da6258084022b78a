"""`.team/team.toml`: the members that a project's team always has, as values and as a file."""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from teamcli.config.front_matter import Folder, NotAgreed, read_document
from teamcli.config.project_files import TEAM_FILE
from teamcli.config.trust import Agreement
from teamcli.errors import ConfigError, TeamcliError, UsageError
from teamcli.storage.files import write_atomic
from teamcli.text.counting import counted
from teamcli.text.escaping import one_line

GIT_LINE = "!team.toml"
"""What `.team/.gitignore` needs so that git takes the file."""


class PlannedMember(NamedTuple):
    """A member as the file describes it. The fields are the keys of a `[[member]]`."""

    name: str
    role: str
    model: str = ""
    worktree: bool = False
    claims: bool = False
    plan: bool = False
    tools: tuple[str, ...] | None = None
    cwd: str = ""
    budget_usd: float | None = None
    host: str = ""
    prompt: str = ""


class TeamFile(NamedTuple):
    name: str = ""
    members: tuple[PlannedMember, ...] = ()


Rule = Callable[[PlannedMember], object]
"""Raises: TeamcliError, with a message that begins with the key at fault: `tools: ...`"""


class ValueKind(NamedTuple):
    words: str
    accepts: Callable[[Any], bool]


_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TEXT = ValueKind("a text", lambda value: isinstance(value, str))
_SOME_TEXT = ValueKind("a text that is not empty", lambda value: isinstance(value, str) and bool(value.strip()))
_FLAG = ValueKind("true or false", lambda value: isinstance(value, bool))
_MEMBER_KINDS: Mapping[str, ValueKind] = {
    "name": _SOME_TEXT,
    "role": _SOME_TEXT,
    "model": _TEXT,
    "worktree": _FLAG,
    "claims": _FLAG,
    "plan": _FLAG,
    "tools": ValueKind(
        "a list of tool names", lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value)
    ),
    "cwd": _TEXT,
    "budget_usd": ValueKind(
        "an amount of dollars above 0", lambda value: type(value) in (int, float) and 0 < value < math.inf
    ),
    "host": ValueKind('the name of a host, or "any"', lambda value: bool(_HOST.fullmatch(str(value)))),
    "prompt": _TEXT,
}
_TEAM_KINDS: Mapping[str, ValueKind] = {
    "name": _SOME_TEXT,
    "member": ValueKind(
        "a list of tables", lambda value: isinstance(value, list) and all(type(m) is dict for m in value)
    ),
}


def read_team_file(path: Path, root: Path, agreement: Agreement, rules: Iterable[Rule]) -> TeamFile | None:
    """The team of a project; None if the user has not agreed to the file as it is.

    Raises: ConfigError, with file, line and key
    """
    try:
        if path.is_symlink():
            raise ValueError("it is a symbolic link")
        text = read_document(path, Folder(path.parent, root, agreement.covers))
    except NotAgreed:
        return None
    except ValueError as e:
        raise ConfigError(f"{TEAM_FILE} cannot be used: {e}; fix or delete it") from e
    return parse_team_file(text, rules)


def parse_team_file(text: str, rules: Iterable[Rule] = ()) -> TeamFile:
    """Raises: ConfigError, with file, line and key"""
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{TEAM_FILE} is not valid TOML: {e}") from e
    _check(text, None, raw, _TEAM_KINDS)
    members: dict[str, PlannedMember] = {}
    for number, fields in enumerate(raw.get("member", ())):
        _check(text, number, fields, _MEMBER_KINDS)
        for key in ("name", "role"):
            if key not in fields:
                raise _error(text, number, key, f"{key} is missing in this member")
        tools = fields.get("tools")
        member = PlannedMember(**{**fields, "tools": None if tools is None else tuple(tools)})
        if member.name.casefold() in members:
            raise _error(text, number, "name", f"name: there is a member {member.name!r} already")
        try:
            for rule in rules:
                rule(member)
        except TeamcliError as e:
            raise _error(text, number, str(e).partition(":")[0], str(e)) from e
        members[member.name.casefold()] = member
    return TeamFile(raw.get("name", ""), tuple(members.values()))


def _check(text: str, member: int | None, fields: Mapping[str, Any], kinds: Mapping[str, ValueKind]) -> None:
    for key, value in fields.items():
        if key not in kinds:
            what = "the file" if member is None else "a member"
            raise _error(text, member, key, f"{key!r:.80} is not a key of {what} (there are: {', '.join(kinds)})")
        if not kinds[key].accepts(value):
            raise _error(text, member, key, f"{key} must be {kinds[key].words}, not {value!r:.80}")


def _error(text: str, member: int | None, key: str, problem: str) -> ConfigError:
    return ConfigError(one_line(f"{TEAM_FILE}, line {_line_of(text, member, key)}: {problem}", 1000))


def _line_of(text: str, member: int | None, key: str) -> int:
    """The line of a key in the file or in one of its members; else the line on which that begins."""
    line, current = 1, None
    for start, statement in _statements(text):
        if statement == {"member": [{}]}:
            current = 0 if current is None else current + 1
            line = start if current == member else line
        if key in statement and (current == member or member is None):
            return start
    return line


def _statements(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each statement of a valid file, with the line on which it begins. tomllib does not report lines, but it reads
    each statement without the others; one that spans lines is not valid until its last line."""
    start, lines = 1, []
    for number, line in enumerate(text.split("\n"), start=1):
        lines.append(line)
        try:
            statement = tomllib.loads("\n".join(lines))
        except tomllib.TOMLDecodeError:
            continue
        yield start, statement
        start, lines = number + 1, []


def to_toml(file: TeamFile) -> str:
    lines = [f"name = {_toml(file.name)}"] if file.name else []
    for member in file.members:
        given = {key: value for key, value in member._asdict().items() if value not in ("", False, None)}
        lines += ["", "[[member]]", *(f"{key} = {_toml(value)}" for key, value in given.items())]
    return "\n".join(lines).lstrip("\n") + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, str):
        # The escapes of JSON are among those of TOML, which wants one more.
        escaped = [json.dumps(line, ensure_ascii=False)[1:-1].replace("\x7f", "\\u007f") for line in value.split("\n")]
        return f'"{escaped[0]}"' if len(escaped) == 1 else '"""\n{}"""'.format("\n".join(escaped))
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)


def save_team_file(path: Path, agreement: Agreement, file: TeamFile, replaces: bool) -> str:
    """Write the file, which counts as agreed to; returns what to show the user.

    Raises: UsageError, if that would lose something and is not asked for; StateError
    """
    if os.path.lexists(path):
        if _says(path, file):
            return f"{TEAM_FILE} says this already."
        if not replaces:
            raise UsageError(f"{TEAM_FILE} differs: /team save --force replaces it, including its comments")
    data = to_toml(file).encode("utf-8", "replace")
    write_atomic(path, data, mode=0o644)
    agreement.file_written(path, None, data)
    hint = f" Git ignores it: add the line {GIT_LINE} to .team/.gitignore." if _is_ignored(path) else ""
    return f"Saved {counted(len(file.members), 'member')} to {TEAM_FILE}.{hint}"


def _says(path: Path, file: TeamFile) -> bool:
    try:
        return parse_team_file(read_document(path)) == file
    except (ConfigError, ValueError):
        return False


def _is_ignored(path: Path) -> bool:
    try:
        return GIT_LINE not in read_document(path.with_name(".gitignore")).split()
    except ValueError:  # there is none that git could read
        return False
