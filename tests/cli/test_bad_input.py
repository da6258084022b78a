"""What goes wrong around the program: one clear sentence, the right exit code, nothing lost."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.fake_api import FakeAPI, text, tool, tool_results
from tests.support.program import Program, Ran

BYPASS = ("--permission-mode", "bypassPermissions")


def one_line(ran: Ran, code: int, *said: str) -> bool:
    return ran.code == code and ran.out == "" and ran.err.count("\n") == 1 and all(word in ran.err for word in said)


@pytest.mark.parametrize("key", ["two words", "sk-é", "line\nbreak"])
def test_a_garbled_key_names_the_variable_and_not_the_value(program: Program, key: str) -> None:
    ran = program.run("-p", "x", env={"ANTHROPIC_API_KEY": key})
    assert one_line(ran, 2, "ANTHROPIC_API_KEY")
    assert key not in ran.err


@pytest.mark.parametrize("url", ["localhost:4000", "ftp://x", "http://", "not a url"])
def test_a_garbled_endpoint_names_the_variable(program: Program, url: str) -> None:
    ran = program.run("-p", "x", env={"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k"})
    assert one_line(ran, 2, "ANTHROPIC_BASE_URL")


def test_a_path_that_is_not_a_directory_is_one_clear_line(program: Program) -> None:
    (program.directory / "file").write_text("")
    assert one_line(program.run("-p", "x", "--cwd", "file"), 2, "file", "Not a directory")


def test_a_team_directory_that_is_a_file_is_one_clear_line(program: Program) -> None:
    (program.directory / ".team").write_text("")
    assert one_line(program.run("-p", "x"), 2, ".team", "--no-team")


def test_50_megabytes_of_output_and_binary_output_are_cut(program: Program) -> None:
    script = [
        tool("bash", command="yes 0123456789 | head -c 50000000"),
        tool("bash", command="head -c 5000 /dev/urandom"),
        text("ok"),
    ]
    with program.against(script) as api:
        ran = program.run("-p", "x", *BYPASS)
    assert (ran.code, ran.out) == (0, "ok\n")
    shown = tool_results(api.requests[1])[0]["content"]
    assert len(shown) < 40_000
    assert "left out" in shown


def test_files_that_are_not_text_are_explained(program: Program) -> None:
    (program.directory / "data.bin").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (program.directory / "latin.txt").write_bytes("größe".encode("latin-1"))
    (program.directory / "pipe").parent.mkdir(exist_ok=True)
    os.mkfifo(program.directory / "pipe")
    script = [
        tool("read_file", path="data.bin"),
        tool("read_file", path="latin.txt"),
        tool("read_file", path="pipe"),
        text("ok"),
    ]
    with program.against(script) as api:
        assert program.run("-p", "x").code == 0
    told = [tool_results(request)[0]["content"] for request in api.requests[1:]]
    assert "PNG" in told[0]
    assert "größe" in told[1]
    assert "pipe" in told[2]


def test_a_full_disk_stops_the_turn_and_loses_nothing(program: Program) -> None:
    with program.against([text("x" * 3000), text("never recorded" * 2000), text("ok")]) as api:
        program.run("-p", "one")
        size = (program.directory / ".team/transcripts/lead.jsonl").stat().st_size
        blocks = size // 1024 + 2
        limited = subprocess.run(
            ["bash", "-c", f'ulimit -f {blocks}; exec "$@"', "limited", *program.command(["-p", "-c", "two"])],
            cwd=program.directory,
            env=program.env(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert limited.returncode == 1
        assert "lead.jsonl" in limited.stderr
        assert "Traceback" not in limited.stderr
        assert program.run("-p", "-c", "three").out == "ok\n"
    assert api.requests[2]["messages"][:2] == api.requests[1]["messages"][:2]


def test_a_directory_with_spaces_and_other_letters_works(tmp_path: Path, clean_environment: Path) -> None:
    directory = tmp_path / "mein Projekt – ÄÖ 日本"
    directory.mkdir()
    with FakeAPI([tool("bash", command="pwd"), text("ok"), text("again")]) as api:
        program = Program(directory, clean_environment, api.url)
        assert program.run("-p", "x", *BYPASS).out == "ok\n"
        assert program.run("-p", "-c", "y").out == "again\n"
    assert tool_results(api.requests[1])[0]["content"] == str(directory)


def test_a_locale_without_utf_8_works(program: Program) -> None:
    with program.against([tool("write_file", path="ü.txt", content="日本 🚀"), text("größe 🚀")]):
        ran = program.run("-p", "schreib", *BYPASS, env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    assert (ran.code, ran.out) == (0, "größe 🚀\n")
    assert (program.directory / "ü.txt").read_text(encoding="utf-8") == "日本 🚀"


def test_the_key_is_nowhere_but_in_the_request(program: Program) -> None:
    with program.against([tool("bash", command="env; cat /proc/self/environ"), text("ok")]) as api:
        ran = program.run("-p", "x", *BYPASS, "--debug", "--output-format", "stream-json")
        assert program.key not in ran.out + ran.err
    assert program.key in str(api.headers[0])
    for path in (program.directory / ".team").rglob("*"):
        assert not path.is_file() or program.key not in path.read_text(errors="replace"), path
