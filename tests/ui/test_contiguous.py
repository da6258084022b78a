"""However an answer arrives, and however wide the terminal is: what is printed and what is shown at the prompt are
together the answer so far."""

from __future__ import annotations

import re
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from teamcli.agent import events
from teamcli.ui.render.answers import HELD_ROWS
from teamcli.ui.render.event_renderer import EventRenderer
from teamcli.ui.render.style import AgentColors, TerminalStyle

NUMBER = re.compile(r"n(\d+)x")
NOT_TEXT = re.compile(r"\x1b\[[0-9;]*m|[\s│]")


class Writer:
    """Writes random markdown. Its words are numbered."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._count = 0

    def answer(self) -> str:
        kinds = (self._paragraph, self._paragraph, self._list, self._nested, self._code, self._quote, self._table)
        return "\n\n".join(self._random.choice(kinds)() for _ in range(self._random.randint(1, 6)))

    def _words(self, *counts: int) -> list[str]:
        first, self._count = self._count, self._count + self._random.choice(counts)
        return [f"n{number}x" for number in range(first, self._count)]

    def _marked(self, *counts: int) -> str:
        """Words, some of them in bold or code, some with signs that could begin something else."""
        words, at = self._words(*counts), 0
        while at < len(words):
            chance, end = self._random.random(), min(len(words) - 1, at + self._random.randint(0, 12))
            if chance < 0.05:
                mark = self._random.choice(["**", "*", "`", "~~"])
                words[at], words[end], at = mark + words[at], words[end] + mark, end
            elif chance < 0.1:
                words[at] = self._random.choice(["2 * 3 ", "- ", "3. ", "# ", "a `", "["]) + words[at]
            at += 1
        return " ".join(words)

    def _paragraph(self) -> str:
        return "\n".join(self._marked(5, 40, 300) for _ in range(self._random.randint(1, 3)))

    def _list(self) -> str:
        is_bullet, count = self._random.random() < 0.5, self._random.randint(1, 6)
        return "\n".join(("- " if is_bullet else f"{at + 1}. ") + self._marked(3, 8, 90) for at in range(count))

    def _nested(self) -> str:
        items = [f"  - {self._marked(3, 60)}" for _ in range(self._random.randint(1, 12))]
        return "\n".join([f"- {self._marked(5)}", *items])

    def _code(self) -> str:
        lines = [" ".join(self._words(0, 2, 8, 150)) for _ in range(self._random.randint(1, 20))]
        return "\n".join(["```python", *lines, "```"])

    def _quote(self) -> str:
        return "\n".join(f"> {self._marked(4, 100)}" for _ in range(self._random.randint(1, 5)))

    def _table(self) -> str:
        # One column: cells that are wrapped next to each other mix their words.
        rows = [f"| {' '.join(self._words(1, 3))} |" for _ in range(self._random.randint(1, 40))]
        return "\n".join(["| head |", "|---|", *rows])


def numbers(text: str) -> list[int]:
    return [int(number) for number in NUMBER.findall(NOT_TEXT.sub("", text))]


@given(st.integers(0, 2**32), st.integers(20, 200), st.integers(10, 60), st.booleans())
@settings(max_examples=60)
def test_the_printed_part_and_the_tail_are_the_answer_so_far(
    seed: int, width: int, height: int, wraps_words: bool
) -> None:
    random = Random(seed)
    answer = Writer(random).answer()
    style = TerminalStyle(True, True, lambda: width, lambda: height)
    renderer = EventRenderer(style, AgentColors(), wraps_words=wraps_words)
    printed, at = "", 0
    while at < len(answer):
        size = random.choice([1, 3, 9, 50, 400])
        printed += renderer.show(events.TextArrived("lead", answer[at : at + size]))
        at += size
        growing = renderer.growing()
        tail = "".join(text for line in growing for text, _ in line)
        expected = numbers(answer[:at])
        assert numbers(printed + tail)[: len(expected)] == expected
        assert "…" not in tail
        assert len(growing) <= max(2 * HELD_ROWS, height * 2 // 3)
    assert numbers(printed + renderer.unfinished()) == numbers(answer)
