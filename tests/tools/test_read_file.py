from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest

from teamcli.agent.tool import Reads
from teamcli.errors import Cancelled, ToolError
from teamcli.workspace.known_files import digest
from tests.tools.file_agent import FileAgent


@pytest.fixture
def agent(tmp_path: Path) -> FileAgent:
    return FileAgent(tmp_path)


def numbered(count: int) -> str:
    return "".join(f"line {n}\n" for n in range(1, count + 1))


def test_lines_come_with_their_numbers(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\n  three")
    assert agent.says("read_file", path="a.txt") == "1\tone\n2\t\n3\t  three"


def test_a_limit_says_how_many_lines_are_left_and_how_to_continue(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(numbered(10))
    first = agent.says("read_file", path="a.txt", limit=3)
    assert first.splitlines()[:3] == ["1\tline 1", "2\tline 2", "3\tline 3"]
    assert first.splitlines()[3].startswith("... (7 more)")
    assert "offset=4" in first
    assert agent.says("read_file", path="a.txt", offset=4, limit=2).startswith("4\tline 4\n5\tline 5\n... (5 more)")
    assert agent.says("read_file", path="a.txt", offset=9) == "9\tline 9\n10\tline 10"


def test_two_thousand_lines_are_shown_unless_more_are_asked_for(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(numbered(2500))
    assert agent.says("read_file", path="a.txt").splitlines()[-2:] == [
        "2000\tline 2000",
        "... (500 more) continue with offset=2001",
    ]
    assert agent.says("read_file", path="a.txt", limit=9999).endswith("2500\tline 2500")


def test_a_page_ends_at_a_line_border_before_fifty_thousand_characters(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{'x' * 999}\n" * 200)
    page = agent.says("read_file", path="a.txt").splitlines()
    assert len("\n".join(page)) < 51_000
    shown = len(page) - 1
    assert 40 < shown < 50
    assert page[shown - 1] == f"{shown}\t{'x' * 999}"
    assert page[-1] == f"... ({200 - shown} more) continue with offset={shown + 1}"


def test_following_the_marks_shows_every_line_once(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{n} {'ü' * (n % 700)}\n" for n in range(1, 1001)))
    lines: list[str] = []
    offset: str | None = "1"
    while offset:
        page = agent.says("read_file", path="a.txt", offset=offset, limit=150).splitlines()
        offset = page.pop().partition("offset=")[2] if page[-1].startswith("...") else None
        lines += page
    assert lines == [f"{n}\t{n} {'ü' * (n % 700)}" for n in range(1, 1001)]


def test_an_overlong_line_is_cut_with_a_mark(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("é" * 100_000 + "\nnext\n")
    first, second = agent.says("read_file", path="a.js").splitlines()
    assert first == f"1\t{'é' * 2000}... (line cut, 200,000 bytes in all)"
    assert second == "2\tnext"


def test_an_empty_file_says_so(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    assert agent.says("read_file", path="a.txt") == "(a.txt is empty)"


def test_an_offset_past_the_end_names_the_number_of_lines(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(numbered(10))
    assert "a.txt has 10 lines" in agent.refuses("read_file", path="a.txt", offset=11)


@pytest.mark.parametrize(("field", "value"), [("offset", 0), ("limit", 0), ("limit", "many"), ("lines", 3)])
def test_a_bad_field_is_named(agent: FileAgent, field: str, value: object) -> None:
    assert field in agent.refuses("read_file", **{"path": "a.txt", field: value})


def test_a_directory_is_refused_with_a_hint(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    assert agent.refuses("read_file", path="src") == "src is a directory, not a file; list what is in it with glob"


def test_a_missing_file_names_near_ones(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "settings.py").touch()
    assert agent.refuses("read_file", path="src/Setings.py") == (
        "No such file: src/Setings.py; did you mean src/settings.py?"
    )
    assert agent.refuses("read_file", path="src/zzz") == "No such file: src/zzz"
    assert "no directory lib" in agent.refuses("read_file", path="lib/settings.py")


def test_a_file_used_as_a_directory_is_refused_in_one_sentence(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert "Not a directory" in agent.refuses("read_file", path="a/b")
    assert "name too long" in agent.refuses("read_file", path="x" * 300)


def test_a_fifo_is_refused_without_waiting_for_a_writer(agent: FileAgent, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "pipe is a FIFO" in agent.refuses("read_file", path="pipe")


def test_a_socket_is_refused(agent: FileAgent) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{short}/s")
        assert "s is a socket" in FileAgent(Path(short).resolve()).refuses("read_file", path="s")


def test_a_device_is_refused(tmp_path: Path) -> None:
    agent = FileAgent(tmp_path, extra=(Path("/dev"),))
    assert "/dev/null is a character device" in agent.refuses("read_file", path="/dev/null")


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "a PNG image"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "a JPEG image"),
        (b"%PDF-1.7\nplain so far\n", "a PDF document"),
        (b"\x7fELF\x02\x01\x01\0", "an ELF binary"),
        (b"PK\x03\x04\x14\0", "a zip archive"),
        (b"\x1f\x8b\x08\0\0", "a gzip archive"),
        (b"text and then\0", "a binary file"),
        (bytes(range(1, 256)) * 4, "a binary file"),
        ("\ufeffa\0b".encode("utf-16-le"), "a binary file"),
    ],
)
def test_a_binary_file_is_refused_by_kind_and_size(agent: FileAgent, tmp_path: Path, head: bytes, kind: str) -> None:
    (tmp_path / "data").write_bytes(head)
    assert agent.refuses("read_file", path="data") == f"data is {kind} ({len(head):,} bytes), not text"


@pytest.mark.parametrize(
    ("data", "note"),
    [
        ("größe\nzwei\n".encode(), ""),
        ("\ufeffgröße\nzwei\n".encode(), "UTF-8 with a byte order mark"),
        ("\ufeffgröße\r\nzwei\r\n".encode("utf-16-le"), "UTF-16"),
        ("\ufeffgröße\nzwei".encode("utf-16-be"), "UTF-16"),
        ("größe\r\nzwei\r\n".encode("cp1252"), "Windows-1252"),
    ],
)
def test_encodings_and_line_ends_are_read_as_plain_text(
    agent: FileAgent, tmp_path: Path, data: bytes, note: str
) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    lines = agent.says("read_file", path="a.txt").splitlines()
    assert lines[:2] == ["1\tgröße", "2\tzwei"]
    assert lines[2:] == ([f"(a.txt is {note}; edit_file keeps that)"] if note else [])


def test_every_byte_of_a_legacy_encoding_is_shown(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"price: 5 \x80, \x81\x8d\x8f\x90\x9d\n" + b"plain text " * 30)
    assert agent.says("read_file", path="a.txt").startswith("1\tprice: 5 €, \x81\x8d\x8f\x90\x9d\n")


def test_text_that_only_begins_like_utf16_is_refused(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfea\0b")
    assert "begins like UTF-16 but is not valid" in agent.refuses("read_file", path="a.txt")


def test_a_huge_file_is_paged_and_a_stray_byte_far_away_decides_its_encoding(agent: FileAgent, tmp_path: Path) -> None:
    line = b"0123456789" * 10 + b"\n"
    with (tmp_path / "big.log").open("wb") as file:
        for _ in range(600):
            file.write(line * 1000)
        file.write(b"caf\xe9\n")
    assert agent.says("read_file", path="big.log", offset=300_000, limit=1).splitlines() == [
        f"300000\t{line.decode().strip()}",
        "... (300001 more) continue with offset=300001",
        "(big.log is Windows-1252; edit_file keeps that)",
    ]
    assert agent.says("read_file", path="big.log", offset=600_001).startswith("600001\tcafé\n")


def test_a_cancelled_read_stops(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    agent.cancel.cancel("the user said so")
    with pytest.raises(Cancelled):
        agent.call("read_file", path="a.txt")


def test_what_was_read_is_reported_with_its_digest(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    (tmp_path / "link").symlink_to("a.txt")
    output = agent.call("read_file", path="link", limit=1)
    assert output.seen_files == {str(tmp_path / "a.txt"): digest(b"one\r\ntwo\r\n")}


def test_a_read_declares_the_resolved_path(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("sub")
    call = agent.prepare("read_file", path="link/a.txt")
    assert call.access == Reads(tmp_path / "sub" / "a.txt")
    assert call.display.title == "read sub/a.txt"


def test_names_with_spaces_and_other_scripts_are_read(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "мой файл ü.txt").write_text("да\n")
    assert agent.says("read_file", path="мой файл ü.txt") == "1\tда"


def test_prepare_refuses_a_path_outside(agent: FileAgent) -> None:
    with pytest.raises(ToolError, match="Path escapes workspace"):
        agent.prepare("read_file", path="../x")
