"""Mentions at the terminal."""

from __future__ import annotations

from tests.cli.test_mentions import said
from tests.support.fake_api import text, tool
from tests.support.program import Program
from tests.support.screen import Screen
from tests.support.waiting import wait_until


def test_a_line_typed_while_the_lead_works_attaches_files_as_they_are_when_it_is_read(
    program: Program,
) -> None:
    path = program.directory / "a.txt"
    path.write_text("old\n")
    wait = tool("bash", command="touch began; until [ -e go ]; do sleep 0.02; done")
    with (
        program.against([wait, text("That was it.")]) as api,
        Screen(program, "--permission-mode", "bypassPermissions") as screen,
    ):
        screen.wait_for("team >>")
        screen.type("begin\r")
        wait_until((program.directory / "began").exists)
        screen.type("look at @a.txt please\r")
        screen.wait_for("queued: look at @a.txt please")
        path.write_text("new\n")
        (program.directory / "go").touch()
        screen.wait_for("That was it.")
        screen.type("q\r")
        screen.wait_for_end()
    told = said(api.requests[1])
    assert told == ["look at @a.txt please", '<file path="a.txt">\n1\tnew\n</file>']
    line = next(row for row in program.transcript() if "files" in row)
    assert list(line["files"]) == [str(path.resolve())]
    assert len(line["content"]) == 3
