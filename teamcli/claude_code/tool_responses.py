"""The results of our tools in the shapes that hooks and programs written for Claude Code read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from teamcli.claude_code.names import MCP
from teamcli.claude_code.tool_inputs import absolute

Response = dict[str, Any]
_NO_OUTPUT = "(no output)"
_NOTHING_FOUND = "(no matches for "
_EXIT = re.compile(r"(?:^|\n)\[(?:exit code (\d+)|killed by signal (\d+) \([\w-]+\))\](?:\n\[[^\n]*\])?$")
_STARTED = re.compile(r"Started (?:in the background as )?([\w-]+)")
_NUMBERED = re.compile(r"(\d+)\t(.*)")
_MORE_LINES = re.compile(r"\.\.\. \((\d+) more\) continue with offset=")
_MORE = re.compile(r"\.\.\. \(.*\) ")
_GREP_LINE = re.compile(r"(.+?)([:-])\d+\2")
_TASK_ID = re.compile(r"\d+")
_ONE_IS_SUCCESS = re.compile(r"\s*(?:(?:grep|rg|egrep|fgrep|find|diff|test|\[)(?=\s|$)|git (?:diff|grep)(?=\s|$))")


class CallResult(NamedTuple):
    """What happened with a call of ours."""

    tool: str
    given: Mapping[str, Any]
    """Its input, in our words."""
    content: str
    """What the model reads."""
    root: Path
    """Where relative paths start."""
    original: str | None = None
    """The content of the file before a change, if it was there and is known."""
    milliseconds: int = 0


def tool_response(result: CallResult) -> Response | str:
    """`tool_response` of a call that succeeded."""
    if result.tool.startswith(MCP):
        return result.content
    make = _SHAPES.get(result.tool)
    return make(result) if make else {"content": result.content}


def exit_code_of(content: str) -> int:
    """The exit code in the result of a command; a signal counts as a shell counts it."""
    found = _EXIT.search(content)
    if found is None:
        return 0
    return int(found[1]) if found[1] else 128 + int(found[2])


def is_failure(command: str, exit_code: int) -> bool:
    """Whether a command counts as failed: code 1 of `grep`, `diff` and the like only says no."""
    last = re.split(r"[;|&\n]+", command.rstrip("; \n"))[-1]
    return exit_code != 0 and not (exit_code == 1 and _ONE_IS_SUCCESS.match(last))


def has_failed(tool: str, fields: Mapping[str, Any]) -> bool:
    """Whether an event of ours is about a call that counts as failed there."""
    response, given = fields.get("tool_response"), fields.get("tool_input")
    if not isinstance(response, Mapping) or not isinstance(given, Mapping):
        return False
    command, code = str(given.get("command", "")), exit_code_of(str(response.get("content", "")))
    return bool(response.get("is_error")) or (tool == "bash" and is_failure(command, code))


def failure_of(tool: str, fields: Mapping[str, Any]) -> str | None:
    """`error` of a call that counts as failed there; None if it does not."""
    if not has_failed(tool, fields):
        return None
    response = fields["tool_response"]
    content = str(response["content"])
    return content.removeprefix("Error: ") if response.get("is_error") else failure_text(content)


def failure_text(content: str) -> str:
    """`error` of a command that failed."""
    return f"Exit code {exit_code_of(content)}\n{_printed(content)}".strip()


def _printed(content: str) -> str:
    """What a command printed, without what teamcli says about its end."""
    printed = _EXIT.sub("", content)
    return "" if printed == _NO_OUTPUT else printed


def _bash(result: CallResult) -> Response:
    response = {"stdout": _printed(result.content), "stderr": "", "interrupted": False, "isImage": False}
    if result.given.get("background") and (started := _STARTED.match(result.content)):
        return {**response, "stdout": "", "backgroundTaskId": started[1]}
    return response


def _read(result: CallResult) -> Response:
    lines, more = [], 0
    for line in result.content.split("\n"):
        if found := _NUMBERED.match(line):
            lines.append((int(found[1]), found[2]))
        elif found := _MORE_LINES.match(line):
            more = int(found[1])
    first, last = (lines[0][0], lines[-1][0]) if lines else (1, 0)
    file = {
        "filePath": _path(result),
        "content": "\n".join(text for _, text in lines),
        "numLines": len(lines),
        "startLine": first,
        "totalLines": last + more,
    }
    return {"type": "text", "file": file}


def _path(result: CallResult) -> Any:
    return absolute(result.given.get("path", "."), result.root)


def _written(result: CallResult) -> Response:
    return {
        "type": "create" if result.original is None else "update",
        "filePath": _path(result),
        "content": result.given.get("content", ""),
        "structuredPatch": [],
        "originalFile": result.original,
        "success": True,
    }


def _edited(result: CallResult) -> Response:
    return {
        "filePath": _path(result),
        "oldString": result.given.get("old_text", ""),
        "newString": result.given.get("new_text", ""),
        "originalFile": result.original,
        "structuredPatch": [],
        "userModified": False,
        "replaceAll": bool(result.given.get("replace_all")),
        "success": True,
    }


def _found_lines(result: CallResult) -> list[str]:
    lines = [] if result.content.startswith(_NOTHING_FOUND) else result.content.split("\n")
    return [line for line in lines if not _MORE.match(line)]


def _globbed(result: CallResult) -> Response:
    names = [absolute(line, result.root) for line in _found_lines(result)]
    truncated = bool(_MORE.match(result.content.rsplit("\n", 1)[-1]))
    return {"filenames": names, "numFiles": len(names), "durationMs": result.milliseconds, "truncated": truncated}


def _grepped(result: CallResult) -> Response:
    lines, output = _found_lines(result), result.given.get("output", "content")
    if output == "files":
        return {"mode": "files_with_matches", "numFiles": len(lines), "filenames": lines}
    if output == "count":
        files = [line.rpartition(":") for line in lines]
        matches = sum(int(number) for _, _, number in files if number.isdecimal())
        response = {"mode": "count", "numFiles": len(files), "filenames": [], "numMatches": matches}
    else:
        names = dict.fromkeys(found[1] for line in lines if (found := _GREP_LINE.match(line)))
        response = {"mode": "content", "numFiles": len(names), "filenames": [], "numLines": len(lines)}
    return {**response, "content": "\n".join(lines)}


def _agent(result: CallResult) -> Response:
    given = {"prompt": result.given.get("prompt", "")}
    if result.tool == "spawn_teammate" or result.given.get("background"):
        started = _STARTED.match(result.content)
        id = str(result.given.get("name") or (started[1] if started else ""))
        description = result.given.get("description", "")
        return {"status": "async_launched", "agentId": id, "description": description, **given, "outputFile": ""}
    return {
        "status": "completed",
        "agentId": "",
        "content": [{"type": "text", "text": result.content}],
        "totalToolUseCount": 0,
        "totalDurationMs": result.milliseconds,
        "totalTokens": 0,
        "usage": {},
        **given,
    }


def _stopped(result: CallResult) -> Response:
    ids = result.given.get("ids") or [result.given.get("id", "")]
    kind = "local_agent" if result.tool == "agent_stop" else "local_bash"
    return {"message": result.content, "task_id": ",".join(map(str, ids)), "task_type": kind}


def _task_created(result: CallResult) -> Response:
    id = _TASK_ID.search(result.content)
    return {"task": {"id": id[0] if id else "", "subject": result.given.get("subject", "")}}


def _task_updated(result: CallResult) -> Response:
    fields = [name for name in result.given if name != "id"]
    return {"success": True, "taskId": str(result.given.get("id", "")), "updatedFields": fields}


_SHAPES: Mapping[str, Callable[[CallResult], Response]] = {
    "bash": _bash,
    "read_file": _read,
    "write_file": _written,
    "edit_file": _edited,
    "glob": _globbed,
    "grep": _grepped,
    "agent": _agent,
    "spawn_teammate": _agent,
    "bash_stop": _stopped,
    "agent_stop": _stopped,
    "task_create": _task_created,
    "task_update": _task_updated,
    "submit_plan": lambda result: {"plan": result.given.get("plan", ""), "isAgent": True},
}
