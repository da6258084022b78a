from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from teamcli.agent.tool import Reads
from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled
from teamcli.workspace.search.engine import SearchProcess, python_command, ripgrep_command
from teamcli.workspace.search.fallback import Search, required_literal
from tests.tools.file_agent import FileAgent

RIPGREP = shutil.which("rg")
needs_ripgrep = pytest.mark.skipif(RIPGREP is None, reason="ripgrep is not installed")
ENGINES = [pytest.param("ripgrep", marks=needs_ripgrep), "python"]


@pytest.fixture(params=ENGINES)
def agent(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileAgent:
    """The same search with both engines: which one runs depends on what is on PATH."""
    if request.param == "python":
        monkeypatch.setenv("PATH", "/nowhere")
    return FileAgent(tmp_path)


def put(root: Path, name: str, content: str | bytes) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())


@needs_ripgrep
def test_ripgrep_is_used_if_it_is_installed(tmp_path: Path) -> None:
    command = ripgrep_command(RIPGREP, Search("x", str(tmp_path), str(tmp_path), "", False, False, 0, False, None))
    assert command is not None
    assert command[0] == RIPGREP


def test_lines_come_with_path_and_number(agent: FileAgent, tmp_path: Path) -> None:
    put(tmp_path, "src/b.py", "import os\n\ndef main():\n    pass\n")
    put(tmp_path, "a.py", "def helper(): ...\n")
    assert agent.says("grep", pattern=r"^def \w+") == "a.py:1:def helper(): ...\nsrc/b.py:3:def main():"


def test_files_or_counts_can_be_listed(agent: FileAgent, tmp_path: Path) -> None:
    put(tmp_path, "src/b.py", "x\nx x\ny\n")
    put(tmp_path, "a.py", "x")
    put(tmp_path, "c.py", "y")
    assert agent.says("grep", pattern="x", output="files") == "a.py\nsrc/b.py"
    assert agent.says("grep", pattern="x", output="count") == "a.py:1\nsrc/b.py:2"
    assert "output" in agent.refuses("grep", pattern="x", output="lines")


def test_context_lines_and_gaps_are_marked(agent: FileAgent, tmp_path: Path) -> None:
    put(tmp_path, "a.txt", "".join(f"{n}\n" for n in range(1, 21)))
    put(tmp_path, "b.txt", "x\n12\n")
    assert agent.says("grep", pattern="^(5|7|12)$", context=1).splitlines() == [
        *("a.txt-4-4", "a.txt:5:5", "a.txt-6-6", "a.txt:7:7", "a.txt-8-8"),
        *("--", "a.txt-11-11", "a.txt:12:12", "a.txt-13-13"),
        *("--", "b.txt-1-x", "b.txt:2:12"),
    ]


def test_case_can_be_ignored(agent: FileAgent, tmp_path: Path) -> None:
    put(tmp_path, "a.txt", "Größe\nGRÖSSE\ngröße\n")
    assert agent.says("grep", pattern="größe") == "a.txt:3:größe"
    assert agent.says("grep", pattern="GRÖßE", ignore_case=True) == "a.txt:1:Größe\na.txt:3:größe"


def test_one_file_or_directory_can_be_searched(agent: FileAgent, tmp_path: Path) -> None:
    for name in ("a.py", "src/b.py", ".hidden/c.py", "src/.d.py"):
        put(tmp_path, name, "x\n")
    assert agent.says("grep", pattern="x", path="src") == "src/b.py:1:x"
    assert agent.says("grep", pattern="x", path="a.py") == "a.py:1:x"
    assert agent.says("grep", pattern="x", path=".hidden") == ".hidden/c.py:1:x"
    assert agent.says("grep", pattern="x", path="src/.d.py") == "src/.d.py:1:x"


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*.py", ["a.py", "src/b.py", "src/x/c.py"]),
        ("src/**/*.py", ["src/b.py", "src/x/c.py"]),
        ("src/*.py", ["src/b.py"]),
        ("*.{ts,tsx}", ["d.ts", "src/x/e.tsx"]),
        ("**/x/**", ["src/x/c.py", "src/x/e.tsx"]),
        ("!*.py", ["d.ts", "src/x/e.tsx"]),
        ("!src/**", ["a.py", "d.ts"]),
        (".*.py", [".f.py"]),
        (".github/**", [".github/g.yml"]),
        ("b.py", ["src/b.py"]),
        ("**", ["a.py", "d.ts", "src/b.py", "src/x/c.py", "src/x/e.tsx"]),
    ],
)
def test_a_glob_chooses_the_files(agent: FileAgent, tmp_path: Path, glob: str, expected: list[str]) -> None:
    for name in ("a.py", "src/b.py", "src/x/c.py", "d.ts", "src/x/e.tsx", ".f.py", ".github/g.yml", "ignored.py"):
        put(tmp_path, name, "needle\n")
    put(tmp_path, ".gitignore", "ignored.py\n")
    assert agent.says("grep", pattern="needle", glob=glob, output="files").splitlines() == expected


def test_a_glob_with_a_slash_counts_from_the_path_or_from_the_root(agent: FileAgent, tmp_path: Path) -> None:
    put(tmp_path, "src/x/c.py", "needle\n")
    for glob in ("x/*.py", "src/x/*.py"):
        assert agent.says("grep", pattern="needle", path="src", glob=glob, output="files") == "src/x/c.py"


def test_what_is_ignored_hidden_or_state_is_not_searched(agent: FileAgent, tmp_path: Path) -> None:
    names = "a.py a.log build/b.py src/keep.log src/x.tmp .hidden.py .git/c.py .team/d.py .team/memory/e.py .ci/f.py"
    for name in names.split():
        put(tmp_path, name, "needle\n")
    put(tmp_path, ".gitignore", "*.log\nbuild/\n!.ci\n")
    put(tmp_path, "src/.gitignore", "!keep.log\n*.tmp\n")
    assert agent.says("grep", pattern="needle", output="files").splitlines() == [".ci/f.py", "a.py", "src/keep.log"]
    assert agent.says("grep", pattern="needle", output="files", path="src") == "src/keep.log"
    assert agent.says("grep", pattern="needle", output="files", path="build") == "build/b.py"
    assert agent.says("grep", pattern="needle", output="files", path=".team/memory") == ".team/memory/e.py"
    assert agent.says("grep", pattern="needle", output="files", glob=".*/*.py") == ".ci/f.py"
    assert "own state" in agent.refuses("grep", pattern="needle", path=".team")


@pytest.mark.parametrize("in_repository", [True, False])
def test_a_gitignore_above_the_workspace_counts_within_a_repository_only(
    agent: FileAgent, tmp_path: Path, in_repository: bool
) -> None:
    for name in ("work/src/a.log", "work/src/a.py", "work/src/b.tmp", "work/nested/c.log"):
        put(tmp_path, name, "needle\n")
    put(tmp_path, ".gitignore", "*.log\n")
    put(tmp_path, "work/.gitignore", "*.tmp\n")
    if in_repository:
        (tmp_path / ".git").mkdir()
        (tmp_path / "work/nested/.git").mkdir()
    inside = FileAgent(tmp_path / "work")
    logs = [] if in_repository else ["src/a.log"]
    assert inside.says("grep", pattern="needle", path="src", output="files").splitlines() == [*logs, "src/a.py"]
    assert inside.says("grep", pattern="needle", output="files").splitlines() == ["nested/c.log", *logs, "src/a.py"]


def test_binary_files_are_left_out_and_encodings_understood(agent: FileAgent, tmp_path: Path) -> None:
    put(tmp_path, "binary", b"needle\0\n")
    put(tmp_path, "bom.txt", "\ufeffneedle ü\n".encode())
    put(tmp_path, "crlf.txt", b"a needle\r\nx\r\n")
    put(tmp_path, "utf16.txt", "\ufeffneedle ü\r\n".encode("utf-16-le"))
    put(tmp_path, "latin.txt", b"needle \xfc\n")
    assert agent.says("grep", pattern="^(a )?needle").splitlines() == [
        *("bom.txt:1:needle ü", "crlf.txt:1:a needle", "latin.txt:1:needle �", "utf16.txt:1:needle ü")
    ]
    assert agent.says("grep", pattern="needle$") == "crlf.txt:1:a needle"
    assert "binary is a binary file" in agent.refuses("grep", pattern="needle", path="binary")


def test_links_and_special_files_are_not_read(agent: FileAgent, tmp_path: Path) -> None:
    work = tmp_path / "work"
    put(tmp_path, "outside/secret.txt", "needle\n")
    put(work, "a.txt", "needle\n")
    (work / "out").symlink_to(tmp_path / "outside")
    (work / "out.txt").symlink_to(tmp_path / "outside" / "secret.txt")
    (work / "in.txt").symlink_to("a.txt")
    os.mkfifo(work / "pipe")
    inside = FileAgent(work)
    assert inside.says("grep", pattern="needle", output="files") == "a.txt"
    assert "escapes" in inside.refuses("grep", pattern="needle", path="out")
    assert "escapes" in inside.refuses("grep", pattern="needle", path="..")
    assert "pipe is a FIFO" in inside.refuses("grep", pattern="needle", path="pipe")
    assert "No such file" in inside.refuses("grep", pattern="needle", path="b.txt")


@pytest.mark.parametrize("pattern", ["-e", "--files", "--", "-", "-foo", "--pre=touch x"])
def test_a_pattern_that_looks_like_an_option_is_a_pattern(agent: FileAgent, tmp_path: Path, pattern: str) -> None:
    put(tmp_path, "-a file.txt", f"nothing\n<{pattern}>\n")
    assert agent.says("grep", pattern=f"<?{pattern}>") == f"-a file.txt:2:<{pattern}>"
    assert agent.says("grep", pattern=pattern, path="-a file.txt", output="count").endswith(":1")


def test_a_bad_pattern_is_named_with_its_problem(agent: FileAgent) -> None:
    message = agent.refuses("grep", pattern="foo(")
    assert message.startswith("pattern: 'foo(' is not a valid regular expression: ")
    assert "position" in message


def test_a_bad_glob_is_named(agent: FileAgent) -> None:
    assert "[z-a]' is not a valid glob: bad character range z-a" in agent.refuses("grep", pattern="x", glob="[z-a]")


def test_a_search_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teamcli.workspace.search.engine._CHILD", "raise SystemExit('teamcli broke down')")
    monkeypatch.setenv("PATH", "/nowhere")
    message = FileAgent(tmp_path).refuses("grep", pattern="x")
    assert message.startswith("The search for 'x' failed: ")
    assert "teamcli broke down" in message


def test_what_only_one_engine_knows_works(agent: FileAgent, tmp_path: Path) -> None:
    put(tmp_path, "a.txt", "foobar\nbar\n")
    assert agent.says("grep", pattern="(?<=foo)bar") == "a.txt:1:foobar"
    assert agent.says("grep", pattern=r"(b)a(?!\1)r") == "a.txt:1:foobar\na.txt:2:bar"


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [("", "empty"), ("a\nb", "line break"), (r"a\nb", "line break"), ("a\0", "NUL"), ("\ud800", "Unicode")],
)
def test_a_pattern_that_can_match_nothing_is_refused(agent: FileAgent, pattern: str, reason: str) -> None:
    message = agent.refuses("grep", pattern=pattern)
    assert message.startswith("pattern: ")
    assert reason in message


def test_an_escaped_backslash_before_n_is_not_a_line_break(agent: FileAgent, tmp_path: Path) -> None:
    put(tmp_path, "a.txt", "a\\nb\n")
    assert agent.says("grep", pattern=r"a\\nb") == "a.txt:1:a\\nb"


def test_long_lines_are_cut_around_the_match(agent: FileAgent, tmp_path: Path) -> None:
    put(tmp_path, "min.js", "ä" * 5000 + "needle" + "z" * 100_000 + "\nneedle\n")
    first, second = agent.says("grep", pattern="needle").splitlines()
    assert first.startswith("min.js:1:...ä")
    assert "äneedlez" in first
    assert first.endswith("z... (line cut)")
    assert len(first) < 400
    assert second == "min.js:2:needle"


def test_many_matches_are_cut_with_a_mark(agent: FileAgent, tmp_path: Path) -> None:
    put(tmp_path, "a.txt", "needle\n" * 1000)
    put(tmp_path, "b.txt", "needle\n")
    lines = agent.says("grep", pattern="needle").splitlines()
    assert len(lines) == 201
    assert lines[199] == "a.txt:200:needle"
    assert lines[200].startswith("... (more than 200)")
    assert agent.says("grep", pattern="needle", limit=1, output="files").splitlines()[0] == "a.txt"
    assert "more than 1" in agent.says("grep", pattern="needle", limit=1, output="files")
    assert "more" not in agent.says("grep", pattern="needle", limit=2, output="files")


def test_the_whole_result_is_bounded(agent: FileAgent, tmp_path: Path) -> None:
    put(tmp_path, "a.txt", f"needle {'x' * 280}\n" * 1000)
    said = agent.says("grep", pattern="needle", limit=1000)
    assert len(said) < 31_000
    assert said.endswith("... (more, cut here) narrow the search")


def test_nothing_found_says_where_it_looked(agent: FileAgent, tmp_path: Path) -> None:
    put(tmp_path, "src/a.py", "x")
    assert agent.says("grep", pattern="zzz", path="src", glob="*.py") == (
        "(no matches for zzz in src, files *.py; binary, hidden and ignored files are left out)"
    )


def test_names_with_spaces_colons_line_breaks_and_other_scripts_are_found(agent: FileAgent, tmp_path: Path) -> None:
    names = ["a b.txt", "c:1:d.txt", "мой.txt", "é\u2028.txt"]
    for name in names:
        put(tmp_path, name, "needle\n")
    put(tmp_path, "12-3.txt", "x\nneedle 5:6:7\n")
    said = agent.says("grep", pattern="needle", context=1).split("\n")
    assert "12-3.txt-1-x" in said
    assert "12-3.txt:2:needle 5:6:7" in said
    assert {f"{name}:1:needle" for name in names} <= set(said)


def test_the_workspace_cannot_plant_code_in_the_search(
    agent: FileAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("re", "json", "teamcli", "pathspec", "sitecustomize"):
        put(tmp_path, f"{name}.py", "open('planted', 'w')\nraise SystemExit(7)\n")
    put(tmp_path, ".gitignore", "x\n")
    monkeypatch.chdir(tmp_path)
    assert agent.says("grep", pattern="SystemExit", output="count").splitlines()[0] == "json.py:1"
    assert not (tmp_path / "planted").exists()


def test_the_users_ripgrep_configuration_is_ignored(
    agent: FileAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "rc", "--invert-match\n")
    put(tmp_path, "a.txt", "needle\nx\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "rc"))
    assert agent.says("grep", pattern="needle") == "a.txt:1:needle"


def test_a_cancelled_search_stops(agent: FileAgent, tmp_path: Path) -> None:
    put(tmp_path, "a.txt", "needle\n")
    agent.cancel.cancel()
    with pytest.raises(Cancelled):
        agent.call("grep", pattern="needle")


def catastrophe(tmp_path: Path) -> Search:
    """A search that would take longer than anybody lives."""
    put(tmp_path, "a.txt", "a" * 5000 + "\n")
    return Search("(a|aa)+$!", str(tmp_path / "a.txt"), str(tmp_path), "", False, False, 0, False, None)


def test_a_regular_expression_that_takes_forever_can_be_canceled(tmp_path: Path) -> None:
    cancel = CancelScope()
    with SearchProcess(python_command(catastrophe(tmp_path)), cancel) as process:
        threading.Timer(0.3, cancel.cancel).start()
        with pytest.raises(Cancelled):
            list(process.hits())


def test_a_regular_expression_that_takes_forever_runs_out_of_time(tmp_path: Path) -> None:
    process = SearchProcess(python_command(catastrophe(tmp_path)), CancelScope(), time_limit_seconds=0.3)
    with process:
        assert list(process.hits()) == []
    assert process.is_out_of_time


def test_a_grep_declares_where_it_looks(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    call = FileAgent(tmp_path).prepare("grep", pattern="x", path="src", glob="*.py")
    assert call.access == Reads(tmp_path / "src")
    assert call.display.title == "grep x in src (*.py)"


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        ("needle", b"needle"),
        (r"^class \w+Err\($", b"class "),
        ("ab*c?de+f", b"de"),
        ("x{2,3}yy{0}z", b"y"),
        ("a[bcd]e{1}", b"a"),
        ("(abc)?", b""),
        ("abc|d", b""),
        (r"abc\|d", b"abc"),
        ("größe", "größe".encode()),
    ],
)
def test_files_are_ruled_out_only_by_text_that_every_match_has(pattern: str, literal: bytes) -> None:
    assert required_literal(pattern) == literal


@needs_ripgrep
@pytest.mark.parametrize("output", ["content", "files", "count"])
@pytest.mark.parametrize(
    "pattern", [r"\bself\b", "^import", r"def \w+\(self", "é|ü", "[Tt]ool(s)?$", "x{2}", r"^\s*$", "a.c"]
)
def test_both_engines_agree_on_a_real_source_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, output: str
) -> None:
    package = Path(__file__).parents[2] / "teamcli"
    shutil.copytree(package, tmp_path / "teamcli", ignore=shutil.ignore_patterns("__pycache__"))
    agent = FileAgent(tmp_path)
    given = {"pattern": pattern, "output": output, "limit": 5000, "context": 1 if output == "content" else 0}
    with_ripgrep = agent.says("grep", **given)
    monkeypatch.setenv("PATH", "/nowhere")
    assert agent.says("grep", **given) == with_ripgrep
