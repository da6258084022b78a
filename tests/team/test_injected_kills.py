"""The program is killed before, in the middle of and after every kind of call that changes a file of its team's state.

Each case is one write, sync, truncation or rename of one file in a run of a whole team, which has late mail in an
archive, a long inbox to rotate, lines of a shell, and teammates that write to each other, leave and come back.
Afterwards the program starts again as if nothing had happened: every message is there once and was read once.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_api import FakeAPI, answer, text, tool
from tests.support.forks import Forks
from tests.support.team_script import agent_of
from tests.team.killed_team import KilledTeam
from tests.team.letters import SOAK, append, outside
from tests.team.test_team import spawn

CASES = 1000 if SOAK else 100
GROUPS = 20 if SOAK else 2
HOW = ("before", "torn", "after")
LONG_BLANK_LINE = b" " * 1_100_000 + b"\n"


def talk(request: dict[str, Any], n: int) -> Any:
    """Worked out from the history alone, so that it survives kills."""
    name, history = agent_of(request), str(request["messages"])
    if name == "lead":
        return lead(history)
    sent = history.count("Sent message to")
    if name not in ("alice", "bob") or ">hear this<" not in history or sent == 3:
        return text("done")
    return tool("send_message", to="bob" if name == "alice" else "alice", content=f"{name} {sent}")


def lead(history: str) -> Any:
    hired = history.count("Spawned 'carol'")
    if not hired:
        return answer(*(spawn(mate) for mate in ("alice", "bob", "carol")))
    if "GO!" not in history:
        return text("fine")
    if "Broadcast to" not in history:
        return tool("broadcast", content="hear this")
    if "sa-1" not in history:
        return tool("agent", prompt="look", background=True)
    if "is shut down now" not in history and "is shut down already" not in history:
        return tool("shutdown_request", teammate="carol")
    return spawn("carol") if hired == 1 else text("fine")


class Place(KilledTeam):
    """A project with a team, as it is before the run that is killed."""

    def __init__(self, base: Path, forks: Forks) -> None:
        super().__init__(base, forks)
        with FakeAPI(talk) as api:
            self.program.url = api.url
            for content in ("old 1", "old 2"):
                assert self.run("hire") == 0  # and the second time, rotate
                append(self.inboxes / "alice.jsonl", LONG_BLANK_LINE + outside(content))
                assert self.run("read") == 0
        append(self.inboxes / "archive/alice.1.jsonl", outside("late 1") + outside("late 2"))
        append(self.inboxes / "bob.jsonl", outside("shell 1") + outside("shell 2", id="mine") + outside("torn")[:20])
        self.keep()

    @property
    def inboxes(self) -> Path:
        return self.program.directory / ".team/inbox"

    def rows(self, *paths: Path) -> list[dict[str, Any]]:
        lines = (line for path in paths if path.exists() for line in path.read_bytes().splitlines())
        return [json.loads(line) for line in lines if line.strip().startswith(b"{") and line.endswith(b"}")]

    def sent(self, name: str) -> list[str]:
        rows = self.rows(*sorted(self.inboxes.glob(f"archive/{name}.*.jsonl")), self.inboxes / f"{name}.jsonl")
        return [row["id"] for row in rows if "sig" in row]

    def read(self, name: str) -> list[str]:
        rows = self.rows(self.program.directory / f".team/transcripts/{name}.jsonl")
        return [each for row in rows for each in (row.get("marks") or {}).get("mail", ())]

    def heard(self, name: str) -> Counter[str]:
        """The texts of the messages that the model of `name` was given."""
        rows = self.rows(self.program.directory / f".team/transcripts/{name}.jsonl")
        said = (json.dumps(row["content"]) for row in rows if row.get("kind") == "user")
        return Counter(found for each in said for found in re.findall(r"<message[^>]*>([^<]*)</message>", each))


def chosen(sites: Counter[tuple[str, str]]) -> list[dict[str, Any]]:
    """Cases of every kind of call, each kind as often as any other, as long as it has more."""
    chance = random.Random(0)
    every = {
        site: [{"number": number, "how": how} for number in range(1, count + 1) for how in HOW]
        for site, count in sorted(sites.items())
    }
    for cases in every.values():
        chance.shuffle(cases)
    found: list[dict[str, Any]] = []
    while len(found) < CASES:
        for (operation, file), cases in every.items():
            case = cases.pop() if cases else {"number": chance.randint(1, sites[operation, file]), "how": "after"}
            found.append({"operation": operation, "file": file, **case})
    return found[:CASES] if SOAK else chance.sample(found, CASES)


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 900)
@pytest.mark.parametrize("group", range(GROUPS))
def test_killed_at_any_change_of_a_file_a_team_loses_and_repeats_no_message(
    tmp_path: Path, forks: Forks, group: int
) -> None:
    place = Place(tmp_path, forks)
    with FakeAPI(talk) as api:
        place.program.url = api.url
        cases = chosen(place.sites())[group::GROUPS]
        killed = 0
        for case in cases:
            place.reset()
            killed += place.run("GO!", fault=case) == -9
            check_restart(place, case)
    assert killed > 0.8 * len(cases)  # not all: threads make some calls more or less often than in the first run


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 900)
def test_a_change_of_a_file_that_fails_loses_and_repeats_no_message(tmp_path: Path, forks: Forks) -> None:
    place, chance = Place(tmp_path, forks), random.Random(1)
    with FakeAPI(talk) as api:
        place.program.url = api.url
        for case in chance.sample(chosen(place.sites()), CASES // 5):
            place.reset()
            failing = {**case, "how": chance.choice(("EIO", "ENOSPC"))}
            place.run("GO!", fault=failing)  # it may fail, with an error; it must not break
            check_restart(place, failing)


def check_restart(place: Place, case: dict[str, Any]) -> None:
    """Nothing that was sent is lost or repeated, and after a kill everyone says all they had to say, once.

    After an error a model that reads of it may say its words again, and one whose work the error ended says no more.
    """
    was_killed = case["how"] in HOW
    assert place.run("GO!") == 0, case
    if any(set(place.sent(name)) - set(place.read(name)) for name in ("lead", "alice", "bob")):
        assert place.run("and?") == 0, case  # what came after the lead's last turn comes with the user's next line
    for name in ("lead", "alice", "bob"):
        sent, read, heard = place.sent(name), place.read(name), place.heard(name)
        assert len(sent) == len(set(sent)), (case, name)
        assert len(read) == len(set(read)), (case, name)
        assert set(sent) <= set(read), (case, name)
        repeated = [words for words, times in heard.items() if times > 1 and words != "done"]
        assert not (was_killed and repeated), (case, name, heard)
    if not was_killed:
        return
    alice, bob = place.heard("alice"), place.heard("bob")
    assert {"late 1", "late 2", *(f"bob {n}" for n in range(3)), "hear this"} <= set(alice), (case, alice)
    assert {"shell 1", "shell 2", *(f"alice {n}" for n in range(3)), "hear this"} <= set(bob), (case, bob)
