"""The input of tool calls in Claude Code's words and in ours, translated both ways.

Values of a wrong type pass unchanged: the tool itself reports them. So do fields that only one side knows, except those
of Claude Code that mean nothing here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from teamcli.claude_code.names import their_tool

Input = dict[str, Any]
Convert = Callable[[Any, Path], Any]
_MOST_SECONDS = 600
"""The longest time that our tools accept."""


class FieldMapping(NamedTuple):
    theirs: str
    ours: str
    to_theirs: Convert = lambda value, root: value
    to_ours: Convert = lambda value, root: value


def absolute(path: Any, root: Path) -> Any:
    return os.path.normpath(os.path.join(root, os.path.expanduser(path))) if isinstance(path, str) else path  # noqa: PTH111, PTH118


def relative(path: Any, root: Path) -> Any:
    """A path inside the workspace as our tools show it; any other as it is."""
    if not isinstance(path, str) or not path.startswith("/"):
        return path
    inside = os.path.relpath(path, root)
    return path if inside.split("/", 1)[0] == ".." else inside


def _milliseconds(seconds: Any, root: Path) -> Any:
    return int(seconds * 1000) if _is_number(seconds) else seconds


def _seconds(milliseconds: Any, root: Path) -> Any:
    return min(max(math.ceil(milliseconds / 1000), 1), _MOST_SECONDS) if _is_number(milliseconds) else milliseconds


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _listed(id: Any, root: Path) -> Any:
    return [each.strip() for each in id.split(",")] if isinstance(id, str) else id


def _unlisted(ids: Any, root: Path) -> Any:
    return ",".join(map(str, ids)) if isinstance(ids, list | tuple) else ids


def _number(id: Any, root: Path) -> Any:
    return int(id) if isinstance(id, str) and id.isascii() and id.isdecimal() and len(id) < 20 else id


def _numbers(ids: Any, root: Path) -> Any:
    return [_number(id, root) for id in ids] if isinstance(ids, list | tuple) else ids


def _texts(ids: Any, root: Path) -> Any:
    return [str(id) for id in ids] if isinstance(ids, list | tuple) else ids


def _words(values: Mapping[str, str]) -> Convert:
    return lambda value, root: values.get(value, value) if isinstance(value, str) else value


_FILE = FieldMapping("file_path", "path", absolute, relative)
_FOLDER = FieldMapping("path", "path", absolute, relative)
_OUTPUT = {"files": "files_with_matches"}
_FIELDS: Mapping[str, tuple[FieldMapping, ...]] = {
    "bash": (
        FieldMapping("timeout", "timeout_seconds", _milliseconds, _seconds),
        FieldMapping("run_in_background", "background"),
    ),
    "bash_output": (FieldMapping("bash_id", "id"), FieldMapping("task_id", "id")),
    "bash_stop": (FieldMapping("task_id", "id"), FieldMapping("shell_id", "id")),
    "agent_status": (FieldMapping("task_id", "id"), FieldMapping("timeout", "wait_seconds", _milliseconds, _seconds)),
    "agent_stop": (FieldMapping("task_id", "ids", _unlisted, _listed),),
    "read_file": (_FILE,),
    "write_file": (_FILE,),
    "edit_file": (_FILE, FieldMapping("old_string", "old_text"), FieldMapping("new_string", "new_text")),
    "glob": (_FOLDER,),
    "grep": (
        _FOLDER,
        FieldMapping("-i", "ignore_case"),
        FieldMapping("-C", "context"),
        FieldMapping("head_limit", "limit"),
        FieldMapping(
            "output_mode", "output", _words(_OUTPUT), _words({theirs: ours for ours, theirs in _OUTPUT.items()})
        ),
    ),
    "agent": (FieldMapping("run_in_background", "background"),),
    "spawn_teammate": (
        FieldMapping("subagent_type", "role"),
        FieldMapping("isolation", "worktree", _words({}), lambda value, root: value == "worktree"),
    ),
    "send_message": (FieldMapping("message", "content"),),
    "task_update": (
        FieldMapping("taskId", "id", lambda id, root: str(id), _number),
        FieldMapping("addBlockedBy", "blocked_by", _texts, _numbers),
    ),
    "task_list": (FieldMapping("taskId", "id", lambda id, root: str(id), _number),),
}
"""By our tool: the fields that differ. If two of theirs are one of ours, the first is the one we write."""
_MEANINGLESS: Mapping[str, tuple[str, ...]] = {
    "bash": ("description", "dangerouslyDisableSandbox"),
    "bash_output": ("filter", "block", "timeout"),
    "agent_status": ("block",),
    "read_file": ("pages", "allow_large"),
    "grep": ("-n", "-o", "-A", "-B", "type", "offset", "multiline"),
    "agent": ("effort", "isolation", "name"),
    "spawn_teammate": ("description", "effort", "run_in_background"),
    "submit_plan": ("planFilePath",),
    "task_create": ("activeForm", "metadata"),
    "task_update": ("addBlocks", "metadata", "activeForm"),
}
"""Fields of Claude Code that have no counterpart here."""
_SAME_NAMES: Mapping[str, tuple[str, ...]] = {
    "agent": ("prompt", "description", "subagent_type", "model", "name"),
    "read_file": ("offset", "limit"),
    "edit_file": ("replace_all",),
    "glob": ("pattern",),
    "grep": ("pattern", "glob"),
    "send_message": ("to", "summary"),
    "task_update": ("status", "subject", "description", "owner"),
}
_DESCRIPTION_WORDS = 5


class TheirCall(NamedTuple):
    tool: str
    input: Input


def to_theirs(tool: str, given: object, root: Path) -> TheirCall:
    """A call of ours as Claude Code would make it. `root` is the directory that relative paths start from."""
    if not isinstance(given, Mapping):
        return TheirCall(their_tool(tool), {})
    fields: dict[str, FieldMapping] = {}
    for each in _FIELDS.get(tool, ()):
        fields.setdefault(each.ours, each)
    theirs: Input = {}
    for key, value in given.items():
        field = fields.get(key) or FieldMapping(key, key)
        theirs[field.theirs] = field.to_theirs(value, root)
    name = "TaskGet" if tool == "task_list" and "id" in given else their_tool(tool)
    complete = _MADE_FOR_THEM.get(tool)
    return TheirCall(name, complete(theirs) if complete else theirs)


def _described(theirs: Input) -> Input:
    """Claude Code's Agent always has a description and says where it runs."""
    words = str(theirs.get("prompt", "")).split()[:_DESCRIPTION_WORDS]
    return {"description": " ".join(words), "run_in_background": False, **theirs}


def _as_member(theirs: Input) -> Input:
    is_isolated = theirs.pop("isolation", False)
    return {**_described(theirs), "run_in_background": True, **({"isolation": "worktree"} if is_isolated else {})}


_MADE_FOR_THEM: Mapping[str, Callable[[Input], Input]] = {
    "agent": _described,
    "spawn_teammate": _as_member,
    # Its default is another one there.
    "grep": lambda theirs: {"output_mode": "content", **theirs},
}


def has_field(tool: str, name: str) -> bool:
    """Whether a call of a tool of ours can have a field with this name, in either words."""
    renamed = (name for field in _FIELDS.get(tool, ()) for name in (field.theirs, field.ours))
    return name in (*renamed, *_MEANINGLESS.get(tool, ()), *_SAME_NAMES.get(tool, ()))


def to_ours(tool: str, given: Mapping[str, Any], root: Path) -> Input:
    """Input in Claude Code's words for a tool of ours. Fields that are in our words already are kept."""
    fields = _FIELDS.get(tool, ())
    renamed = {field.theirs for field in fields}
    skipped = {*renamed, *_MEANINGLESS.get(tool, ())} - {"path"}
    ours = {name: value for name, value in given.items() if name not in skipped}
    for field in reversed(fields):
        if field.theirs in given:
            ours[field.ours] = field.to_ours(given[field.theirs], root)
    return _searched(ours, given) if tool == "grep" else ours


def _searched(ours: Input, given: Mapping[str, Any]) -> Input:
    """What Grep says in more fields than our grep has."""
    around = [given[flag] for flag in ("-A", "-B") if _is_number(given.get(flag))]
    if around:
        ours.setdefault("context", max(around))
    if isinstance(kind := given.get("type"), str):
        ours.setdefault("glob", f"*.{kind}")
    return {"output": "files", **ours}


def updated_to_ours(tool: str, updated: Mapping[str, Any], before: Mapping[str, Any], root: Path) -> Input:
    """The whole input that a hook returned, in our words.

    The hook has read the call in both words and may have changed it in either. A field that it left in their words as
    it was `before` (the input in our words) does not undo a change in ours.
    """
    shown = to_theirs(tool, before, root).input
    ours = to_ours(tool, updated, root)
    if tool == "grep" and not {"output", "output_mode"} & updated.keys():
        ours["output"] = before.get("output", "content")
    for field in _FIELDS.get(tool, ()):
        is_left = updated.get(field.theirs) == shown.get(field.theirs)
        if is_left and field.theirs != field.ours and field.ours in updated:
            ours[field.ours] = updated[field.ours]
    return ours
