"""What agents changed: what is kept of it, and how it is shown."""

from __future__ import annotations

from pathlib import Path

from teamcli.commands.diff import describe_changes
from teamcli.workspace.bounds import Workspace
from teamcli.workspace.changes import Changes
from teamcli.workspace.file_access import Content
from teamcli.workspace.known_files import digest


def content(data: bytes) -> Content:
    return Content(digest(data), data)


def test_the_first_content_and_all_who_changed_it_are_kept() -> None:
    changes, path = Changes(), Path("/x/a")
    changes.note("alice", path, content(b"one"))
    changes.note("bob", path, content(b"two"))
    changes.note("alice", path, content(b"three"))
    (change,) = changes.all()
    assert (change.before, change.agents) == (b"one", ("alice", "bob"))


def test_what_is_kept_is_bounded() -> None:
    changes = Changes(max_file_bytes=4, max_kept_bytes=6)
    for name, data in (("a", b"1234"), ("b", b"12345"), ("c", b"123"), ("d", b"12")):
        changes.note("lead", Path(name), content(data))
    assert [change.before for change in changes.all()] == [b"1234", None, None, b"12"]
    assert all(change.digest for change in changes.all())


def test_everything_that_can_happen_to_a_file_is_reported(tmp_path: Path) -> None:
    changes = Changes(max_file_bytes=64)
    before = {"same": b"x\n", "gone": b"old\n", "large": b"y" * 65, "binary": b"\0\1\2\3", "made": None, "dir": b"z\n"}
    for name, data in before.items():
        changes.note("alice", tmp_path / name, None if data is None else content(data))
    after = {"same": b"x\n", "large": b"y\n", "binary": b"\0\1\2\4", "made": b"new\n"}
    for name, data in after.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "dir").mkdir()
    told = describe_changes(changes.all(), Workspace(tmp_path))
    assert "same" not in told
    for expected in (
        "gone: alice (deleted since)\n--- a/gone",
        "\n-old",
        "large: alice (changed; the original was too large to keep)",
        "binary: alice (binary",
        "made: alice (new)\n--- /dev/null",
        "dir: alice (dir is a directory",
    ):
        assert expected in told, expected
