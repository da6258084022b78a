"""The results of our tools in Claude Code's shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from teamcli.claude_code.tool_responses import CallResult, exit_code_of, failure_text, is_failure, tool_response

ROOT = Path("/srv/project")


def response(tool: str, given: dict[str, Any], content: str, original: str | None = None) -> Any:
    return tool_response(CallResult(tool, given, content, ROOT, original))


@pytest.mark.parametrize(
    ("content", "stdout"),
    [("hi", "hi"), ("(no output)", ""), ("a\n[exit code 1]", "a"), ("a\n[killed by signal 9 (SIGKILL)]\n[why]", "a")],
)
def test_a_command_has_its_output(content: str, stdout: str) -> None:
    assert response("bash", {"command": "x"}, content) == {
        "stdout": stdout,
        "stderr": "",
        "interrupted": False,
        "isImage": False,
    }


def test_a_command_in_the_background_has_its_id() -> None:
    content = "Started in the background as bash-3; bash_output shows what it prints, bash_stop ends it."
    assert response("bash", {"command": "x", "background": True}, content)["backgroundTaskId"] == "bash-3"


def test_a_file_that_was_read_has_its_lines() -> None:
    content = "3\ta\n4\t\n5\tb\tc\n... (7 more) continue with offset=6"
    assert response("read_file", {"path": "x/a"}, content) == {
        "type": "text",
        "file": {
            "filePath": "/srv/project/x/a",
            "content": "a\n\nb\tc",
            "numLines": 3,
            "startLine": 3,
            "totalLines": 12,
        },
    }


def test_an_empty_file_has_no_lines() -> None:
    assert response("read_file", {"path": "a"}, "(a is empty)")["file"]["totalLines"] == 0


@pytest.mark.parametrize(("original", "kind"), [(None, "create"), ("", "update"), ("x", "update")])
def test_a_written_file_is_created_or_updated(original: str | None, kind: str) -> None:
    assert response("write_file", {"path": "a", "content": "y"}, "Wrote", original) == {
        "type": kind,
        "filePath": "/srv/project/a",
        "content": "y",
        "structuredPatch": [],
        "originalFile": original,
        "success": True,
    }


def test_an_edit_has_both_texts() -> None:
    given = {"path": "a", "old_text": "x", "new_text": "y"}
    assert response("edit_file", given, "Edited", "x\n") == {
        "filePath": "/srv/project/a",
        "oldString": "x",
        "newString": "y",
        "originalFile": "x\n",
        "structuredPatch": [],
        "userModified": False,
        "replaceAll": False,
        "success": True,
    }


def test_glob_has_whole_paths() -> None:
    content = "src/a.py\nb.py\n... (3 more) narrow the pattern or the path"
    assert response("glob", {"pattern": "*"}, content) == {
        "filenames": ["/srv/project/src/a.py", "/srv/project/b.py"],
        "numFiles": 2,
        "durationMs": 0,
        "truncated": True,
    }


def test_glob_without_matches_has_none() -> None:
    assert response("glob", {"pattern": "*"}, "(no matches for * in .; hidden …)")["filenames"] == []


@pytest.mark.parametrize(
    ("output", "content", "expected"),
    [
        ("files", "a\nb", {"mode": "files_with_matches", "numFiles": 2, "filenames": ["a", "b"]}),
        ("count", "a:3\nb:4", {"mode": "count", "numFiles": 2, "numMatches": 7, "content": "a:3\nb:4"}),
        ("content", "a:3:x\na-4-y\nb:1:z", {"mode": "content", "numFiles": 2, "numLines": 3}),
        ("content", "(no matches for x in .; binary …)", {"mode": "content", "numFiles": 0, "content": ""}),
    ],
)
def test_grep_has_what_its_mode_shows(output: str, content: str, expected: dict[str, Any]) -> None:
    assert expected.items() <= response("grep", {"pattern": "x", "output": output}, content).items()


def test_an_agent_that_ended_has_its_text() -> None:
    expected = {"status": "completed", "content": [{"type": "text", "text": "done"}], "prompt": "x"}
    assert expected.items() <= response("agent", {"prompt": "x"}, "done").items()


@pytest.mark.parametrize(
    ("tool", "given", "content", "id"),
    [
        ("agent", {"prompt": "x", "background": True}, "Started sa-4 in the background. Its end …", "sa-4"),
        ("spawn_teammate", {"prompt": "x", "name": "alice"}, "Spawned 'alice' (role: coder)", "alice"),
    ],
)
def test_an_agent_that_runs_has_its_id(tool: str, given: dict[str, Any], content: str, id: str) -> None:
    assert {"status": "async_launched", "agentId": id}.items() <= response(tool, given, content).items()


def test_a_server_and_a_tool_without_a_shape_have_the_text() -> None:
    assert (response("mcp__s__t", {}, "x"), response("broadcast", {}, "x")) == ("x", {"content": "x"})


@pytest.mark.parametrize(
    ("content", "code"),
    [("x", 0), ("x\n[exit code 3]", 3), ("[exit code 3]\nx", 0), ("x\n[killed by signal 9 (SIGKILL)]", 137)],
)
def test_the_exit_code_is_the_last_line(content: str, code: int) -> None:
    assert exit_code_of(content) == code


@pytest.mark.parametrize(
    ("command", "code", "fails"),
    [
        ("make", 0, False),
        ("make", 1, True),
        ("grep x y", 1, False),
        ("cat a | grep x", 1, False),
        ("grep x y", 2, True),
        ("git diff --quiet", 1, False),
        ("git push", 1, True),
        ("[ -f x ]", 1, False),
        ("grepx", 1, True),
    ],
)
def test_a_search_without_a_hit_is_no_failure(command: str, code: int, fails: bool) -> None:
    assert is_failure(command, code) is fails


def test_a_failure_begins_with_its_code() -> None:
    assert failure_text("no such file\n[exit code 2]") == "Exit code 2\nno such file"
