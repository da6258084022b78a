"""A conversation of very many turns in a small context: it keeps working, and late turns cost what early ones did."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.fake_api import answer, blocks_of, said_by_user, text, tool
from tests.support.program import Program

SOAK = bool(os.environ.get("TEAMCLI_SOAK"))
TURNS = 2000 if SOAK else 120
WINDOW = 16_000
WORDS = "so many words about it " * 20
FACT = "the password of the story is swordfish"


class Cost(NamedTuple):
    """What the program has used up to the beginning of a turn."""

    cpu_seconds: float
    resident_kb: int
    at: float


class Storyteller:
    """A model that looks at a file in every turn and talks at length. It checks each request, and notes what the
    program has used when a turn begins."""

    def __init__(self) -> None:
        self.pid = 0
        """Whose costs are noted; nobody's at 0."""
        self.costs: list[Cost] = []
        self.largest = 0
        self.most_messages = 0
        self.summaries = 0
        self.prefixes: set[str] = set()

    def __call__(self, request: dict[str, Any], n: int) -> Any:
        tokens = len(json.dumps(request)) // 4
        self.largest, self.most_messages = max(self.largest, tokens), max(self.most_messages, len(request["messages"]))
        usage = {"input_tokens": tokens}
        whole = json.dumps(request["messages"])
        turn = max(map(int, re.findall(r"task number (\d+)\.", whole)))
        assert FACT in whole, f"what matters was forgotten in turn {turn}"
        if "will be replaced by a summary" in said_by_user(request):
            self.summaries += 1
            return answer(text(f"Up to turn {turn} all went well; {FACT}."), usage=usage)
        self.prefixes.add(json.dumps([request["system"], request["tools"]]))
        if any(block["type"] == "tool_result" for block in blocks_of(request["messages"][-1])):
            return answer(text(f"turn {turn} is done: {WORDS}"), usage=usage)
        assert turn == len(self.costs), "the newest line of the user's is not there"
        self.costs += [cost_of(self.pid)] if self.pid else []
        return answer(text("I look."), tool("read_file", path="notes.txt"), usage=usage)


def cost_of(pid: int) -> Cost:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
    return Cost(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") // 1024, time.monotonic())


def lines() -> Iterator[str]:
    yield f"task number 0. Remember: {FACT}. {WORDS}\n"
    yield from (f"task number {turn}. {WORDS}\n" for turn in range(1, TURNS))


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 300)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads what the program uses from /proc")
def test_it_keeps_working_in_a_small_context_and_the_last_turn_costs_what_an_early_one_did(program: Program) -> None:
    program.settings(context_tokens=WINDOW, durable=False)
    (program.directory / "notes.txt").write_text("a line of notes\n" * 60)
    model = Storyteller()
    with program.against(model, keep_bodies=1):
        process = program.start(stdin=subprocess.PIPE, stderr=subprocess.STDOUT)
        model.pid = process.pid
        out, _ = process.communicate("".join(lines()).encode(), timeout=3000)
        assert process.returncode == 0, out[-2000:]
        check_costs(model)
        check_transcript(program)
        began = time.monotonic()
        model.pid = 0
        ran = program.run("-p", "--continue", f"task number {TURNS}.")
        print(f"to go on took {time.monotonic() - began:.2f} s")
    assert ran.out.startswith(f"turn {TURNS} is done")
    assert model.largest < WINDOW


def check_costs(model: Storyteller) -> None:
    """No request grows with the number of turns, nor does what the program needs for one."""
    assert len(model.costs) == TURNS
    assert len(model.prefixes) == 1
    assert model.largest < WINDOW
    assert model.most_messages < 150
    assert model.summaries >= TURNS // 50
    settled, *_, last = costs = model.costs[TURNS // 10 :]
    assert last.resident_kb - settled.resident_kb < 20_000, "memory grows with every turn"
    few = len(costs) // 4
    early, late = costs[few].cpu_seconds - settled.cpu_seconds, last.cpu_seconds - costs[-few].cpu_seconds
    for what, first, then in (("early", settled, costs[few]), ("late", costs[-few], last)):
        print(f"{what}: {(then.at - first.at) / few * 1000:.1f} ms a turn, {then.resident_kb} KB")
    assert late < 2 * early + 0.5, "turns become slower and slower"


def check_transcript(program: Program) -> None:
    """All of it is on disk, and every call has its result."""
    rows = program.transcript()
    told = "\n".join(json.dumps(row["content"]) for row in rows if row["kind"] == "user")
    numbers = [int(number) for number in re.findall(r"task number (\d+)\.", told)]
    assert numbers == list(range(TURNS))
    blocks = [block for row in rows for block in row.get("content", ())]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert len(calls) == TURNS
    assert calls == [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
    assert sum(row["kind"] == "compaction" for row in rows) >= TURNS // 50
