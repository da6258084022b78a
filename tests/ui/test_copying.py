"""What a terminal that can wrap has on its screen, copied: paragraphs are one line, code is as the model wrote it."""

from __future__ import annotations

import pytest

from tests.support.fake_api import answer, drip, text
from tests.support.program import Program
from tests.support.running import Running
from tests.support.tmux import Tmux

PROMPT = "team >>"
LONG = " ".join(f"word{number} **bold{number}** `code {number}`," for number in range(200))
SHOWN = LONG.replace("*", "").replace("`", "")
CODE = 'def long():\n    return "' + "x" * 150 + '"\n\n\tdone = True'


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_copied_paragraph_is_one_line_and_copied_code_has_no_indent(
    program: Program, tmux: Tmux, columns: int
) -> None:
    words = f"Short **one**.\n\n{LONG}\n\n1. Do:\n\n   ```python\n" + "".join(
        f"   {line}\n" for line in CODE.split("\n")
    )
    with program.against([answer(text(f"{words}   ```\n\nThe end.", pieces=400), drip(0.002))]):
        tmux.start(program, columns=columns)
        tmux.wait_for(PROMPT)
        tmux.type("go", "Enter")
        tmux.wait_for("The end.")
        copied = tmux.copied().splitlines()
    assert "Short one." in copied
    assert SHOWN in copied
    at = copied.index("```python")
    assert copied[at + 1 : at + 6] == [*CODE.replace("\t", "        ").split("\n"), "```"]


def test_a_paragraph_that_is_copied_from_a_watcher_is_one_line(program: Program, tmux: Tmux) -> None:
    words = f"{LONG}\n\nThe end."
    tmux.start(program, "watch", "lead")
    tmux.wait_for("teamcli is not running in")
    with program.against([answer(text(words, pieces=400), drip(0.002))]), Running(program) as lead:
        tmux.wait_for("teamcli is running")
        lead.type("go")
        tmux.wait_for("The end.")
        copied = tmux.copied().splitlines()
    assert SHOWN in copied
