from __future__ import annotations

import errno
import os
import resource
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from teamcli.agent.tool import Writes
from teamcli.workspace.known_files import PathLocks, digest
from tests.tools.file_agent import FileAgent, as_an_ordinary_user


@pytest.fixture
def agent(tmp_path: Path) -> FileAgent:
    return FileAgent(tmp_path)


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that an ordinary user reaches, too (pytest's own are closed to all but its user)."""
    directory = Path(tempfile.mkdtemp()).resolve()
    directory.chmod(0o777)
    yield directory
    shutil.rmtree(directory)


def test_a_new_file_is_made_with_its_directories(agent: FileAgent, tmp_path: Path) -> None:
    assert agent.says("write_file", path="a/b/c.txt", content="hi\n") == "Wrote 3 bytes to a/b/c.txt"
    assert (tmp_path / "a/b/c.txt").read_bytes() == b"hi\n"


def test_bytes_are_counted_not_characters(agent: FileAgent, tmp_path: Path) -> None:
    assert agent.says("write_file", path="a.txt", content="é" * 10).startswith("Wrote 20 bytes")
    assert (tmp_path / "a.txt").read_bytes() == "é".encode() * 10


def test_content_is_written_as_given(agent: FileAgent, tmp_path: Path) -> None:
    agent.call("write_file", path="a.txt", content="one\r\ntwo\n\tthree")
    assert (tmp_path / "a.txt").read_bytes() == b"one\r\ntwo\n\tthree"
    assert agent.says("write_file", path="empty.txt", content="") == "Wrote 0 bytes to empty.txt"
    assert (tmp_path / "empty.txt").read_bytes() == b""


def test_an_unread_file_is_not_overwritten(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("precious")
    message = agent.refuses("write_file", path="a.txt", content="new")
    assert "a.txt exists and you have not read its present content: read it first" in message
    assert (tmp_path / "a.txt").read_text() == "precious"


def test_a_file_that_was_read_is_overwritten_as_long_as_it_has_not_changed(agent: FileAgent, tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("one")
    agent.call("read_file", path="a.txt")
    assert agent.says("write_file", path="a.txt", content="two") == "Wrote 3 bytes to a.txt"
    assert agent.says("write_file", path="a.txt", content="three") == "Wrote 5 bytes to a.txt"
    target.write_text("by somebody else")
    message = agent.refuses("write_file", path="a.txt", content="four")
    assert "a.txt has changed since you last read or wrote it: read it again" in message
    assert target.read_text() == "by somebody else"
    agent.call("read_file", path="a.txt")
    agent.call("write_file", path="a.txt", content="five")
    assert target.read_text() == "five"


def test_another_agents_write_counts_as_a_change(tmp_path: Path) -> None:
    locks = PathLocks()
    alice, bob = FileAgent(tmp_path, locks), FileAgent(tmp_path, locks)
    alice.call("write_file", path="a.txt", content="alice")
    assert "not read" in bob.refuses("write_file", path="a.txt", content="bob")
    bob.call("read_file", path="a.txt")
    bob.call("write_file", path="a.txt", content="bob")
    assert "has changed" in alice.refuses("write_file", path="a.txt", content="alice again")


def test_what_was_seen_survives_a_restart(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    seen = dict(FileAgent(tmp_path).call("read_file", path="a.txt").seen_files)
    seen |= FileAgent(tmp_path).call("write_file", path="b.txt", content="two").seen_files
    assert seen == {str(tmp_path / "a.txt"): digest(b"one"), str(tmp_path / "b.txt"): digest(b"two")}
    restored = FileAgent(tmp_path, seen=seen)
    restored.call("write_file", path="a.txt", content="1")
    (tmp_path / "b.txt").write_text("changed while nobody ran")
    assert "has changed" in restored.refuses("write_file", path="b.txt", content="2")


def test_a_file_that_was_deleted_can_be_written_again(agent: FileAgent, tmp_path: Path) -> None:
    agent.call("write_file", path="a.txt", content="one")
    (tmp_path / "a.txt").unlink()
    assert agent.says("write_file", path="a.txt", content="two") == "Wrote 3 bytes to a.txt"


def test_the_same_content_may_always_be_written(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("same")
    before = (tmp_path / "a.txt").stat()
    assert agent.says("write_file", path="a.txt", content="same") == (
        "Wrote 4 bytes to a.txt (it had this content already)"
    )
    assert (tmp_path / "a.txt").stat().st_mtime_ns == before.st_mtime_ns


def test_the_mode_of_an_existing_file_stays_and_a_new_one_obeys_the_umask(agent: FileAgent, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("old")
    script.chmod(0o755)
    agent.call("read_file", path="run.sh")
    agent.call("write_file", path="run.sh", content="new")
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    (tmp_path / "plain").touch()
    agent.call("write_file", path="new.txt", content="new")
    assert (tmp_path / "new.txt").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_the_owner_of_an_existing_file_stays(agent: FileAgent, tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    os.chown(target, 1234, 1234)
    agent.call("read_file", path="a.txt")
    agent.call("write_file", path="a.txt", content="new")
    assert (target.stat().st_uid, target.stat().st_gid) == (1234, 1234)


def test_a_link_inside_stays_a_link(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    agent.call("read_file", path="link.txt")
    assert agent.says("write_file", path="link.txt", content="new").endswith("to real.txt")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


def test_a_link_out_of_the_workspace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "secret").write_text("untouched")
    (tmp_path / "work" / "link").symlink_to(tmp_path / "secret")
    assert "escapes" in FileAgent(tmp_path / "work").refuses("write_file", path="link", content="x")
    assert (tmp_path / "secret").read_text() == "untouched"


@pytest.mark.parametrize("path", ["../x.txt", "/tmp/teamcli-x.txt", ".team/config.json", "~/x.txt"])
def test_paths_that_are_off_limits_make_no_file(tmp_path: Path, path: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    assert FileAgent(work).refuses("write_file", path=path, content="x")
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_memory_of_the_team_can_be_written(agent: FileAgent, tmp_path: Path) -> None:
    agent.call("write_file", path=".team/memory/coder/notes.md", content="tabs")
    assert (tmp_path / ".team/memory/coder/notes.md").read_text() == "tabs"


def test_directories_and_special_files_are_refused(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    assert "d is a directory" in agent.refuses("write_file", path="d", content="x")
    assert "pipe is a FIFO" in agent.refuses("write_file", path="pipe", content="x")
    assert "Cannot write file/x" in agent.refuses("write_file", path="file/x", content="x")
    assert "Cannot write" in agent.refuses("write_file", path="n" * 256, content="x")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_name_of_the_greatest_length_works(agent: FileAgent, tmp_path: Path) -> None:
    agent.call("write_file", path="n" * 255, content="x")
    assert (tmp_path / ("n" * 255)).read_text() == "x"


def test_content_that_is_not_unicode_is_refused(agent: FileAgent, tmp_path: Path) -> None:
    assert "UTF-8" in agent.refuses("write_file", path="a.txt", content="a\ud800b")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_keeps_the_old_content_and_leaves_nothing_behind(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    agent.call("read_file", path="a.txt")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # as near to a full disk as a test should come
    try:
        message = agent.refuses("write_file", path="a.txt", content="x" * 200_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert message == f"Cannot write a.txt: {os.strerror(errno.EFBIG)}"
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a.txt", "old")]


def test_a_read_only_file_is_not_replaced(open_directory: Path) -> None:
    target = open_directory / "a.txt"
    target.write_text("old")
    target.chmod(0o444)
    agent = FileAgent(open_directory)
    with as_an_ordinary_user():
        agent.call("read_file", path="a.txt")
        assert "read-only" in agent.refuses("write_file", path="a.txt", content="new")
    assert target.read_text() == "old"


def test_missing_permissions_are_explained_in_one_sentence(open_directory: Path) -> None:
    closed = open_directory / "closed"
    closed.mkdir(mode=0o755)
    (closed / "secret").write_text("x")
    (closed / "secret").chmod(0o600)
    closed.chmod(0o555)
    agent = FileAgent(open_directory)
    with as_an_ordinary_user():
        assert agent.refuses("write_file", path="closed/new.txt", content="x") == (
            "Cannot write closed/new.txt: Permission denied"
        )
        if os.geteuid() != (closed / "secret").stat().st_uid:
            assert agent.refuses("read_file", path="closed/secret") == "Cannot read closed/secret: Permission denied"
    assert [file.name for file in closed.iterdir()] == ["secret"]
    closed.chmod(0o755)


@pytest.mark.parametrize(
    ("old", "note"),
    [
        ("\ufeffalt\n".encode("utf-16-le"), " (it was UTF-16, it is UTF-8 now)"),
        ("\ufeffalt\n".encode(), " (it was UTF-8 with a byte order mark, it is UTF-8 now)"),
        (b"alt\r\n", " (it had CRLF line ends, it has LF now)"),
        (b"\0\1\2", ""),
    ],
)
def test_a_change_of_encoding_or_line_ends_is_reported(agent: FileAgent, tmp_path: Path, old: bytes, note: str) -> None:
    (tmp_path / "a.txt").write_bytes(old)
    seen = {str(tmp_path / "a.txt"): digest(old)}
    assert FileAgent(tmp_path, seen=seen).says("write_file", path="a.txt", content="neu\n") == (
        f"Wrote 4 bytes to a.txt{note}"
    )


def test_the_diff_is_shown_before_and_after(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    agent.call("read_file", path="a.txt")
    call = agent.prepare("write_file", path="a.txt", content="one\n2\nthree\n")
    expected = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"
    assert (call.display.title, call.display.diff) == ("write a.txt", expected)
    assert call.access == Writes(tmp_path / "a.txt")
    display = call.run(agent.cancel, lambda _: None).display
    assert display is not None
    assert display.diff == expected


def test_the_diff_of_a_new_file_is_its_content(agent: FileAgent) -> None:
    diff = agent.prepare("write_file", path="a.txt", content="one\ntwo\n").display.diff
    assert diff == "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1,2 @@\n+one\n+two"


def test_the_diff_of_a_long_change_is_complete(agent: FileAgent) -> None:
    lines = [f"line {number} {'x' * 400}" for number in range(10_000)]
    diff = agent.prepare("write_file", path="a.txt", content="\n".join(lines)).display.diff
    assert diff.splitlines()[3:] == [f"+{line}" for line in lines]


@pytest.mark.parametrize("before", [b"\0\1", b"x\n" * 600_000], ids=["not text", "too large"])
def test_a_write_over_what_cannot_be_compared_shows_all_of_the_new_content(
    agent: FileAgent, tmp_path: Path, before: bytes
) -> None:
    (tmp_path / "a.txt").write_bytes(before)
    display = agent.prepare("write_file", path="a.txt", content="one\ntwo\n").display
    assert display.diff.splitlines()[3:] == ["+one", "+two"]
    assert "replaces all of a file" in display.text


def test_showing_a_write_never_fails(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "binary").write_bytes(b"\0\1")
    os.mkfifo(tmp_path / "pipe")
    for path in ("d", "binary", "pipe", "d/x/y", "binary/x"):
        assert agent.prepare("write_file", path=path, content="x").display.title == f"write {path}"
