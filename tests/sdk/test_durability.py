"""The last message goes to the disk while its request travels. Nothing acts on the answer before it is there."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from teamcli import Outcome, tool
from tests.sdk.conftest import Open
from tests.support import fake_api
from tests.support.fake_api import FakeAPI, rules, text
from tests.support.team_script import agent_of

MAKE = "echo once >> made; printf 'it is %s' made"
BYPASS = {"permission_mode": "bypassPermissions"}


class Disk:
    """Knows which transcripts hold lines that are not on the disk, and can fail to put one there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.unsynced: set[Path] = set()
        self.fails_for = b"-" * 100
        """What the last line must hold."""
        self._write, self._fsync = os.write, os.fsync
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(os, "fsync", self.fsync)

    def write(self, fd: int, data: bytes) -> int:
        written = self._write(fd, data)
        if "transcripts" in (path := Path(f"/proc/self/fd/{fd}").readlink()).parts:
            self.unsynced.add(path)
        return written

    def fsync(self, fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.is_file() and self.fails_for in path.read_bytes().splitlines()[-1]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._fsync(fd)
        self.unsynced.discard(path)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to know which file a descriptor is")
    return Disk(monkeypatch)


def test_tools_run_only_when_every_message_is_on_the_disk(opened: Open, place: Path, disk: Disk) -> None:
    found: list[set[Path]] = []

    @tool
    def probe() -> str:
        """Look at the disk."""
        found.append(set(disk.unsynced))
        return "seen"

    with FakeAPI([*[fake_api.tool("probe")] * 3, text("done")]) as api:
        session = opened(api, tools=[probe], **BYPASS)
        assert session.run("go").text == "done"
        session.close()
    assert found == [set(), set(), set()]
    assert disk.unsynced == set()


def test_a_message_that_the_disk_refuses_was_never_said(opened: Open, place: Path, disk: Disk) -> None:
    with FakeAPI(
        rules(("once more", "again"), ("it is made", "never read"), ("go", fake_api.tool("bash", command=MAKE)))
    ) as api:
        session = opened(api, **BYPASS)
        disk.fails_for = b"tool_result"
        refused = session.run("go")
        assert refused.outcome is Outcome.FAILED
        assert "cannot write" in str(refused.error)
        transcript = place / ".team" / "transcripts" / "lead.jsonl"
        assert b"tool_result" not in transcript.read_bytes()
        assert b"never read" not in transcript.read_bytes()
        disk.fails_for = b"-" * 100
        assert session.run("once more").text == "again"
        session.close()
        assert (place / "made").read_text() == "once\n"
    # The refused request had left already, so the server may get to it after this one.
    [last] = [request for request in map(str, api.requests) if "once more" in request]
    assert "The result of this call was lost." in last


def test_a_message_was_sent_even_if_the_disk_refuses_the_line_that_says_so(
    opened: Open, place: Path, disk: Disk
) -> None:
    def lead(request: dict[str, Any], n: int) -> Any:
        history = str(request["messages"])
        if agent_of(request) != "lead" or "hi alice" in history:
            return text("done")
        if "Spawned" in history:
            return fake_api.tool("send_message", to="alice", content="hi alice")
        return fake_api.tool("spawn_teammate", name="alice", role="coder", prompt="wait")

    with FakeAPI(lead) as api:
        session = opened(api, **BYPASS)
        disk.fails_for = b"Sent message to alice"
        session.run("go")
        disk.fails_for = b"-" * 100
        assert session.run("once more").is_done
        session.close()
    asked = str(api.requests[-1])
    assert "Sent message to alice" in asked
    assert "was lost" not in asked
    assert (place / ".team/inbox/alice.jsonl").read_text().count("hi alice") == 1
