"""What README and docs print works: each console block is typed as printed, in a fresh clone or a small project."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from teamcli.cli.main import _agent_parser
from tests.support.console import BLOCK, Reader, in_path, on_path, sittings, steps_of
from tests.support.fake_api import FakeAPI, text
from tests.support.program import ROOT, Program

SH_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = [page for page in sorted(ROOT.glob("docs/*.md")) if BLOCK.search(page.read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def api() -> Iterator[FakeAPI]:
    """Answers for an API key that a page exports."""
    with FakeAPI(default=text("Done.")) as api:
        yield api


@pytest.fixture
def clone(program: Program, api: FakeAPI) -> Program:
    """A fresh clone, set up: installing packages needs a network."""
    listed = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in filter(lambda name: (ROOT / name).is_file(), files):
        (program.directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, program.directory / name)
    git(program, "init", "-q")
    git(program, "add", "-A")
    on_path(program.directory / ".venv/bin", api.url)
    (program.directory / ".venv/run.stamp").touch()
    return program


@pytest.fixture
def project(program: Program, api: FakeAPI, tmp_path: Path) -> Program:
    """A small repository with a change that is not committed, and `teamcli` on PATH."""
    (program.directory / "README.md").write_text("# A project\n")
    (program.directory / "task.txt").write_text("read README.md\n")
    git(program, "init", "-q")
    git(program, "add", "-A")
    (program.directory / "README.md").write_text("# My project\n")
    in_path(program, on_path(tmp_path / "bin", api.url).parent)
    return program


def git(program: Program, *arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=program.directory, env=program.env(), capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("columns", [80, 120])
def test_the_readme_works_as_printed_in_a_fresh_clone(clone: Program, columns: int) -> None:
    steps = list(itertools.chain.from_iterable(sittings((ROOT / "README.md").read_text(encoding="utf-8"))))
    assert steps
    with Reader(clone, columns) as reader:
        reader.follow(steps)


@pytest.fixture
def private_server(request: pytest.FixtureRequest, page: Path, project: Program) -> Iterator[None]:
    """For a page that needs PostgreSQL, the private server is where its programs look for one."""
    if "createdb teams" not in page.read_text(encoding="utf-8"):
        yield
    else:
        import psycopg

        server = request.getfixturevalue("postgres_server")
        git(project, "config", "user.name", "Reader")
        git(project, "config", "user.email", "reader@example.org")
        project.variables.update({"PGHOST": str(server.socket), "PGUSER": "postgres"})
        yield
        with psycopg.connect(server.url(), autocommit=True) as admin:
            admin.execute("drop database if exists teams with (force)")


@pytest.mark.usefixtures("private_server")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_works_as_printed(project: Program, page: Path) -> None:
    blocks = list(sittings(page.read_text(encoding="utf-8")))
    assert blocks
    for steps in blocks:
        with Reader(project, columns=100) as reader:  # without bwrap, some lines are longer
            reader.follow(steps)  # raises if something is not shown as printed


def test_the_first_run_asks_nothing_and_leaves_the_repository_clean(clone: Program) -> None:
    before = git(clone, "status", "--porcelain", "--untracked-files=all")
    with Reader(clone) as reader:
        reader.follow(list(steps_of("$ make run\nteam >> read AGENTS.md\nread AGENTS.md →\n")))
    assert git(clone, "status", "--porcelain", "--untracked-files=all") == before


def test_make_run_takes_arguments(clone: Program) -> None:
    line = ["make", "--no-print-directory", "run", "ARGS=--version"]
    shown = subprocess.run(
        line, cwd=clone.directory, env=clone.env() | {"PATH": os.environ["PATH"]}, capture_output=True
    )
    assert shown.stdout.startswith(b"teamcli ")


def test_blocks_for_other_servers_use_only_variables_and_options_that_teamcli_has() -> None:
    """They cannot be run here: they need llama.cpp, LiteLLM, Ollama or a proxy."""
    blocks = [block for page in ROOT.glob("docs/*.md") for block in SH_BLOCK.findall(page.read_text(encoding="utf-8"))]
    assert blocks
    exported = {name for block in blocks for name in re.findall(r"^export (\w+)=", block, re.MULTILINE)}
    assert exported <= {"ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY", "MODEL_ID", "TEAMCLI_STORE"}
    for line in re.findall(r"^teamcli(?: (.*))?$", "\n".join(blocks), re.MULTILINE):
        options = set(re.findall(r"--[\w-]+", line.partition("#")[0]))
        assert options <= {option for action in _agent_parser()._actions for option in action.option_strings}
