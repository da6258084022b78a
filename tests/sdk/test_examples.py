"""The examples in docs/library.md and the README: each is a whole program, and prints what stands below it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.fake_api import FakeAPI
from tests.support.fake_api_process import parse_script
from tests.support.program import PATIENCE_SECONDS, ROOT, Program

EXAMPLE = re.compile(
    r"(?:^<!-- model: (?P<model>.*?) -->\n)?^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)


class Example(NamedTuple):
    name: str
    code: str
    output: str
    model: str
    """Scripted answers as JSON; empty for the embedded model."""


def examples() -> Iterator[Example]:
    for page in ("docs/library.md", "README.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for found in EXAMPLE.finditer(text):
            line = text[: found.start("code")].count("\n") + 1
            yield Example(f"{page}:{line}", found["code"], found["output"] or "", found["model"] or "")


@pytest.mark.parametrize("example", list(examples()), ids=lambda example: example.name)
def test_an_example_prints_the_output_shown_below_it(program: Program, tmp_path: Path, example: Example) -> None:
    script = tmp_path / "example.py"
    script.write_text(example.code, encoding="utf-8")
    with ExitStack() as stack:
        if example.model:
            program.url = stack.enter_context(FakeAPI(parse_script(json.loads(example.model)))).url
        ran = subprocess.run(
            [sys.executable, script],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            cwd=program.directory,
            env=program.env(),
        )
    assert (ran.stdout, ran.stderr, ran.returncode) == (example.output, "", 0)


def test_there_is_an_example_for_each_part() -> None:
    page = (ROOT / "docs/library.md").read_text(encoding="utf-8")
    assert page.count("```python\n") == len([each for each in examples() if "library.md" in each.name]) >= 9
