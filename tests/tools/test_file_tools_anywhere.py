"""What holds for all file tools: in any locale, and within the size that a request can afford."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.file_agent import FileAgent

REPOSITORY = Path(__file__).parents[2]

SCRIPT = """
import sys
from pathlib import Path
from tests.tools.file_agent import FileAgent
assert sys.getfilesystemencoding() != "utf-8" or not {legacy}, "the test needs a legacy locale"
agent = FileAgent(Path(sys.argv[1]))
out = [
    agent.says("write_file", path="größe 文.txt", content="naïve 文\\n"),
    agent.says("read_file", path="größe 文.txt"),
    agent.says("edit_file", path="größe 文.txt", old_text="naïve", new_text="né"),
    agent.says("glob", pattern="größe*.txt"),
    agent.says("glob", pattern="**/größe 文.txt"),
    agent.says("grep", pattern="né 文"),
    agent.says("grep", pattern="né", glob="größe *", output="files"),
    agent.refuses("read_file", path="größe 文.tx"),
]
sys.stdout.buffer.write("\\n".join(out).encode("utf-8"))
"""


@pytest.mark.parametrize("with_ripgrep", [True, False])
@pytest.mark.parametrize(
    "locale",
    [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"LC_ALL": "C.UTF-8"}],
    ids=["legacy", "utf-8"],
)
def test_names_and_contents_are_utf8_in_every_locale(
    tmp_path: Path, locale: dict[str, str], with_ripgrep: bool
) -> None:
    if with_ripgrep and not shutil.which("rg"):
        pytest.skip("ripgrep is not installed")
    environment = {"PATH": os.environ["PATH"] if with_ripgrep else "/nowhere", "HOME": str(tmp_path), **locale}
    environment["PYTHONPATH"] = str(REPOSITORY)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(legacy="PYTHONUTF8" in locale), encoding="utf-8")
    work = tmp_path / "work"
    work.mkdir()
    result = subprocess.run([sys.executable, script, work], env=environment, capture_output=True, timeout=60)
    assert result.returncode == 0, result.stderr.decode()
    assert result.stdout.decode().splitlines() == [
        "Wrote 11 bytes to größe 文.txt",
        "1\tnaïve 文",
        "Edited größe 文.txt:",
        "1\tné 文",
        "größe 文.txt",
        "größe 文.txt",
        "größe 文.txt:1:né 文",
        "größe 文.txt",
        "No such file: größe 文.tx; did you mean größe 文.txt?",
    ]
    assert (work / "größe 文.txt").read_bytes() == "né 文\n".encode()


@pytest.mark.parametrize("tool", ["read_file", "write_file", "edit_file", "glob", "grep"])
def test_a_tool_costs_few_tokens_and_names_its_fields(tmp_path: Path, tool: str) -> None:
    spec = FileAgent(tmp_path).tools[tool].spec
    assert len(json.dumps(spec.to_dict())) < 850
    assert spec.description
    assert spec.input_schema["additionalProperties"] is False


def test_the_fields_are_those_of_the_contract(tmp_path: Path) -> None:
    fields = {
        "read_file": (["path"], ["path", "offset", "limit"]),
        "write_file": (["path", "content"], ["path", "content"]),
        "edit_file": (["path", "old_text", "new_text"], ["path", "old_text", "new_text", "replace_all"]),
        "glob": (["pattern"], ["pattern", "path"]),
        "grep": (["pattern"], ["pattern", "path", "glob", "ignore_case", "context", "output", "limit"]),
    }
    tools = FileAgent(tmp_path).tools
    for name, (required, all_fields) in fields.items():
        schema = tools[name].spec.input_schema
        assert (schema["required"], list(schema["properties"])) == (required, all_fields)
