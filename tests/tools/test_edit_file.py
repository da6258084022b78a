from __future__ import annotations

import resource
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from teamcli.agent.tool import Writes
from teamcli.errors import Cancelled
from teamcli.workspace.known_files import PathLocks
from tests.tools.file_agent import FileAgent


@pytest.fixture
def agent(tmp_path: Path) -> FileAgent:
    return FileAgent(tmp_path)


def write(directory: Path, content: str | bytes, name: str = "a.txt") -> Path:
    path = directory / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_exact_text_is_replaced_and_the_result_shows_the_lines_around_it(agent: FileAgent, tmp_path: Path) -> None:
    path = write(tmp_path, "".join(f"line {n}\n" for n in range(1, 10)))
    said = agent.says("edit_file", path="a.txt", old_text="line 5\n", new_text="LINE 5\nline 5b\n")
    assert path.read_text().splitlines()[3:7] == ["line 4", "LINE 5", "line 5b", "line 6"]
    assert said == "Edited a.txt:\n3\tline 3\n4\tline 4\n5\tLINE 5\n6\tline 5b\n7\tline 6\n8\tline 7\n9\tline 8"


def test_part_of_a_line_is_replaced(agent: FileAgent, tmp_path: Path) -> None:
    path = write(tmp_path, "x = 1; y = 2")
    assert agent.says("edit_file", path="a.txt", old_text="y = 2", new_text="y = 3") == "Edited a.txt:\n1\tx = 1; y = 3"
    assert path.read_text() == "x = 1; y = 3"


def test_a_long_change_is_shown_without_its_middle(agent: FileAgent, tmp_path: Path) -> None:
    write(tmp_path, "start\nX\nend\n")
    said = agent.says("edit_file", path="a.txt", old_text="X", new_text="\n".join(map(str, range(1000))))
    assert len(said.splitlines()) < 25
    assert "more)" in said
    assert "2\t0\n" in said
    assert "1001\t999\n1002\tend" in said


@pytest.mark.parametrize("text", ["missing", "ONE", "one\ntwo"])
def test_missing_text_is_refused(agent: FileAgent, tmp_path: Path, text: str) -> None:
    path = write(tmp_path, "one\n\nthree\n")
    assert agent.refuses("edit_file", path="a.txt", old_text=text, new_text="x").startswith("old_text is not in a.txt")
    assert path.read_text() == "one\n\nthree\n"


def test_text_that_differs_only_in_white_space_is_reported_with_its_line(agent: FileAgent, tmp_path: Path) -> None:
    write(tmp_path, "def f():\n\tif x:\n\t\treturn  1\n")
    message = agent.refuses("edit_file", path="a.txt", old_text="    if x:\n        return 1", new_text="pass")
    assert "line 2 differs from it only in spaces, tabs or line breaks, which must be exact" in message


def test_line_numbers_in_old_text_are_reported(agent: FileAgent, tmp_path: Path) -> None:
    write(tmp_path, "one\ntwo\n")
    message = agent.refuses("edit_file", path="a.txt", old_text="1\tone\n2\ttwo\n", new_text="x")
    assert "leave out the line numbers" in message


def test_ambiguous_text_is_refused_with_count_and_lines(agent: FileAgent, tmp_path: Path) -> None:
    path = write(tmp_path, "x\ny\nx\nx\n")
    message = agent.refuses("edit_file", path="a.txt", old_text="x", new_text="z")
    assert "old_text occurs 3 times in a.txt (lines 1, 3, 4)" in message
    assert "replace_all" in message
    assert path.read_text() == "x\ny\nx\nx\n"


def test_overlapping_places_are_ambiguous(agent: FileAgent, tmp_path: Path) -> None:
    write(tmp_path, "aaa")
    assert "2 times" in agent.refuses("edit_file", path="a.txt", old_text="aa", new_text="b")
    agent.call("edit_file", path="a.txt", old_text="aa", new_text="b", replace_all=True)
    assert (tmp_path / "a.txt").read_text() == "ba"


def test_replace_all_replaces_all(agent: FileAgent, tmp_path: Path) -> None:
    path = write(tmp_path, "x y x\nx\n")
    said = agent.says("edit_file", path="a.txt", old_text="x", new_text="xx", replace_all=True)
    assert path.read_text() == "xx y xx\nxx\n"
    assert said == "Edited a.txt: 3 places, lines 1, 1, 2"
    assert "not in" in agent.refuses("edit_file", path="a.txt", old_text="zz", new_text="x", replace_all=True)


@pytest.mark.parametrize("old_text", ["a", "a" * 5_000_000, "a " * 4_999 + "b"])
def test_a_huge_repeating_file_is_searched_in_one_pass(agent: FileAgent, tmp_path: Path, old_text: str) -> None:
    (tmp_path / "a.txt").write_text("a" * 10_000_000 + "\n" + "a\t" * 1_000_000)
    assert agent.refuses("edit_file", path="a.txt", old_text=old_text, new_text="b")


def test_many_places_are_replaced_in_one_pass(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some line of text\n" * 90_000)
    assert "90000 places" in agent.says("edit_file", path="a.txt", old_text="line", new_text="row", replace_all=True)
    assert (tmp_path / "a.txt").read_text() == "some row of text\n" * 90_000


def test_a_replacement_that_would_blow_up_the_file_is_refused(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 50_000)
    message = agent.refuses("edit_file", path="a.txt", old_text="a", new_text="b" * 50_000, replace_all=True)
    assert "larger" in message
    assert (tmp_path / "a.txt").read_text() == "a" * 50_000


def test_a_cancelled_edit_writes_nothing(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    call = agent.prepare("edit_file", path="a.txt", old_text="a", new_text="b")
    agent.cancel.cancel()
    with pytest.raises(Cancelled):
        call.run(agent.cancel, lambda _: None)
    assert (tmp_path / "a.txt").read_text() == "a"


def test_empty_and_unchanged_text_are_refused(agent: FileAgent, tmp_path: Path) -> None:
    write(tmp_path, "x x x")
    assert "old_text: is empty" in agent.refuses("edit_file", path="a.txt", old_text="", new_text="y")
    assert "same as old_text" in agent.refuses("edit_file", path="a.txt", old_text="x", new_text="x")


def test_a_missing_file_a_directory_and_a_binary_are_refused(agent: FileAgent, tmp_path: Path) -> None:
    write(tmp_path, b"\x89PNG\0\0", "x.png")
    (tmp_path / "d").mkdir()
    assert "No such file: y.txt" in agent.refuses("edit_file", path="y.txt", old_text="a", new_text="b")
    assert "is a directory" in agent.refuses("edit_file", path="d", old_text="a", new_text="b")
    assert "a PNG image" in agent.refuses("edit_file", path="x.png", old_text="PNG", new_text="b")
    for path in ("y.txt", "d", "x.png"):
        display = agent.prepare("edit_file", path=path, old_text="a", new_text="b").display
        assert display.title == f"edit {path}"
        assert display.diff.splitlines()[3:] == ["-a", "+b"]


def test_an_edit_of_a_file_too_large_to_compare_shows_the_texts(agent: FileAgent, tmp_path: Path) -> None:
    write(tmp_path, b"x\n" * 600_000 + b"old\n", "a.txt")
    call = agent.prepare("edit_file", path="a.txt", old_text="old", new_text="new")
    done = call.run(agent.cancel, lambda _: None).display
    assert done is not None
    assert [shown.diff.splitlines()[3:] for shown in (call.display, done)] == [["-old", "+new"]] * 2


@pytest.mark.parametrize("path", ["../x", "/etc/hostname", ".team/config.json", ".team/settings.json", "~/x"])
def test_paths_that_are_off_limits_are_refused(agent: FileAgent, path: str) -> None:
    message = agent.refuses("edit_file", path=path, old_text="a", new_text="b")
    assert "escapes workspace" in message or "own state" in message


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encoding_line_ends_and_a_missing_last_one_stay(
    agent: FileAgent, tmp_path: Path, encoding: str, end: str
) -> None:
    path = write(tmp_path, f"größe{end}zwei{end}drei".encode(encoding))
    agent.call("edit_file", path="a.txt", old_text="größe\nzwei", new_text="höhe\nzwölf\nnoch eins")
    assert path.read_bytes() == f"höhe{end}zwölf{end}noch eins{end}drei".encode(encoding)


def test_text_with_crlf_finds_its_place_in_a_file_without(agent: FileAgent, tmp_path: Path) -> None:
    path = write(tmp_path, b"a\nb\nc\n")
    agent.call("edit_file", path="a.txt", old_text="a\r\nb", new_text="A\r\nB")
    assert path.read_bytes() == b"A\nB\nc\n"


def test_mixed_line_ends_stay_where_nothing_was_changed(agent: FileAgent, tmp_path: Path) -> None:
    path = write(tmp_path, b"a\r\nb\nc\r\nd\ne\r\n\r\nf\rg\n")
    agent.call("edit_file", path="a.txt", old_text="c\nd\n", new_text="C\nD\nE\n")
    assert path.read_bytes() == b"a\r\nb\nC\nD\nE\ne\r\n\r\nf\rg\n"
    agent.call("edit_file", path="a.txt", old_text="\ne\n\nf", new_text="\nx\ny")
    assert path.read_bytes() == b"a\r\nb\nC\nD\nE\r\nx\r\ny\rg\n"


def test_bytes_that_no_encoding_knows_stay(agent: FileAgent, tmp_path: Path) -> None:
    filler = b"plain text " * 50
    path = write(tmp_path, b"\x81\x8d\x8f\x90\x9d \x80 one " + filler)
    agent.call("edit_file", path="a.txt", old_text="€ one", new_text="€ two")
    assert path.read_bytes() == b"\x81\x8d\x8f\x90\x9d \x80 two " + filler


def test_a_character_that_the_files_encoding_lacks_is_refused(agent: FileAgent, tmp_path: Path) -> None:
    path = write(tmp_path, "größe".encode("cp1252"))
    message = agent.refuses("edit_file", path="a.txt", old_text="größe", new_text="→")
    assert "a.txt is Windows-1252, which cannot hold '→'" in message
    assert path.read_bytes() == "größe".encode("cp1252")


def test_the_mode_and_a_link_stay(agent: FileAgent, tmp_path: Path) -> None:
    path = write(tmp_path, "old")
    path.chmod(0o750)
    (tmp_path / "link").symlink_to("a.txt")
    agent.call("edit_file", path="link", old_text="old", new_text="new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert (tmp_path / "link").is_symlink()


def test_a_full_disk_keeps_the_old_content(agent: FileAgent, tmp_path: Path) -> None:
    path = write(tmp_path, "x" * 90_000 + "end")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        message = agent.refuses("edit_file", path="a.txt", old_text="end", new_text="y" * 20_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert message.startswith("Cannot write a.txt")
    assert path.read_text().endswith("end")
    assert list(tmp_path.iterdir()) == [path]


def test_no_read_is_needed_before_an_edit_but_then_before_a_write(agent: FileAgent, tmp_path: Path) -> None:
    write(tmp_path, "one two")
    output = agent.call("edit_file", path="a.txt", old_text="one", new_text="1")
    assert "changed" not in output.content
    assert output.seen_files == {str(tmp_path / "a.txt"): ""}
    assert "have not read" in agent.refuses("write_file", path="a.txt", content="all new")


def test_after_a_read_edits_and_writes_follow_each_other(agent: FileAgent, tmp_path: Path) -> None:
    path = write(tmp_path, "one two")
    agent.call("read_file", path="a.txt")
    assert "changed" not in agent.says("edit_file", path="a.txt", old_text="one", new_text="1")
    assert "changed" not in agent.says("edit_file", path="a.txt", old_text="two", new_text="2")
    agent.call("write_file", path="a.txt", content="all new")
    assert path.read_text() == "all new"


def test_an_edit_on_a_changed_file_is_made_and_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, "one\ntwo\n")
    locks = PathLocks()
    alice, bob = FileAgent(tmp_path, locks), FileAgent(tmp_path, locks)
    alice.call("read_file", path="a.txt")
    bob.call("edit_file", path="a.txt", old_text="two", new_text="bob's two")
    output = alice.call("edit_file", path="a.txt", old_text="one", new_text="1")
    assert "Edited a.txt (it had changed since you last read or wrote it" in output.content
    assert path.read_text() == "1\nbob's two\n"
    assert "have not read" in alice.refuses("write_file", path="a.txt", content="1\ntwo\n")
    restored = FileAgent(tmp_path, locks, seen=output.seen_files)
    assert "have not read" in restored.refuses("write_file", path="a.txt", content="1\ntwo\n")


def test_an_edit_whose_text_is_gone_says_that_the_file_has_changed(agent: FileAgent, tmp_path: Path) -> None:
    path = write(tmp_path, "one\ntwo\n")
    agent.call("read_file", path="a.txt")
    path.write_text("three\n")
    message = agent.refuses("edit_file", path="a.txt", old_text="one", new_text="1")
    assert "a.txt, which has changed since you last read or wrote it: read it again" in message


def test_an_edit_shows_its_diff_before_and_after(agent: FileAgent, tmp_path: Path) -> None:
    write(tmp_path, "".join(f"{n}\n" for n in range(1, 2001)))
    call = agent.prepare("edit_file", path="a.txt", old_text="1000\n", new_text="thousand\n")
    expected = "--- a/a.txt\n+++ b/a.txt\n@@ -997,7 +997,7 @@\n 997\n 998\n 999\n-1000\n+thousand\n 1001\n 1002\n 1003"
    assert (call.display.title, call.display.diff) == ("edit a.txt", expected)
    assert call.access == Writes(tmp_path / "a.txt")
    display = call.run(agent.cancel, lambda _: None).display
    assert display is not None
    assert display.diff == expected


def pieces(*choices: str) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(choices), max_size=12).map("".join)


AROUND = pieces("a", "b", "\n", "\r\n", "\r", " ")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=AROUND, old=pieces("a", "b", "\n", "\r\n", " "), after=AROUND)
def test_everything_around_the_old_text_stays_the_same_to_the_byte(
    tmp_path: Path, before: str, old: str, after: str
) -> None:
    old = f"<{old}>"
    path = write(tmp_path, before + old + after)
    FileAgent(tmp_path).call("edit_file", path="a.txt", old_text=old.replace("\r\n", "\n"), new_text="new")
    assert path.read_bytes() == f"{before}new{after}".encode()
