"""A small repository, made once and copied for each test, and a host that runs git in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from teamcli.exec.command_host import CommandHost

Run = Callable[..., str]


def git(directory: Path, *arguments: str) -> str:
    """The user's git, outside any sandbox."""
    identity = {
        f"GIT_{who}_{what}": "user@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-C", str(directory), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


@pytest.fixture(scope="session")
def repository_to_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository") / "project"
    (root / "src").mkdir(parents=True)
    git(root, "init", "--quiet", "--initial-branch=main")
    (root / "README.md").write_text("# Shop\n")
    (root / "src" / "cart.py").write_text("total = 0\n")
    (root / ".gitignore").write_text(".env\nbuild/\n.team/\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "Begin")
    return root


@pytest.fixture
def repository(repository_to_copy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(repository_to_copy, tmp_path / "project", symlinks=True))


@pytest.fixture
def plain_host() -> Iterator[CommandHost]:
    """Without a sandbox."""
    host = CommandHost(os.environ, owns_process=False)
    yield host
    host.close()
