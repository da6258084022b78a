"""Makes a checkout: a repository that shares the objects of the main one, the files, what the project adds to them.

Its repository is written here, before its member exists, and filled by git inside the member's sandbox.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from teamcli.cancel import CancelScope
from teamcli.errors import GitError, ToolError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.command_output import BoundedText
from teamcli.exec.running_command import describe_exit
from teamcli.exec.sandbox.git import repositories_behind, shared_repository
from teamcli.text.escaping import one_line
from teamcli.workspace.bounds import TEAM_DIR
from teamcli.worktrees.checkout import Checkout
from teamcli.worktrees.git import Git, config_line

INCLUDE_FILE = ".worktreeinclude"
SETUP_SECONDS = 900.0
MOST_INCLUDED = 20_000
MOST_INCLUDED_BYTES = 1_000_000_000
_OUTPUT_LENGTH = 2_000
# Of the main repository's config, what decides how files look and who commits. Nothing in it names a program.
_KEPT = (
    r"^(user\.(name|email)|core\.(autocrlf|eol|safecrlf|filemode|ignorecase|symlinks|precomposeunicode|longpaths)"
    r"|merge\.(conflictstyle|renames)|diff\.renames)$"
)
_COPY = 'set -o pipefail 2> /dev/null; tar -cf - --null -T - | tar -xf - -C "$TEAMCLI_WORKTREE"'


class Main(NamedTuple):
    """What a checkout needs to know of the main repository."""

    git: Git
    head: str
    """The commit that the lead is at."""
    format: str
    """Of the names of objects: `sha1` or `sha256`."""
    objects: Path
    shallow: Path
    """Lists the commits whose parents are missing, if there are any."""

    @classmethod
    def read(cls, git: Git) -> Main:
        """Raises: GitError, with the reason why there can be no checkout"""
        root = git.directory
        if repositories_behind(root) and not shared_repository(root):  # a submodule, say
            raise GitError(f"the repository of {root} is outside of it, where commands cannot write")
        paths = ("--git-path", "objects", "--git-path", "shallow")
        try:
            found = git.text("rev-parse", "--path-format=absolute", "--show-object-format", *paths).splitlines()
        except GitError as e:
            raise GitError(_why_not(git, e), has_run=e.has_run) from e
        if not (head := git.commit("HEAD")):
            raise GitError("the repository has no commit yet: commit something first")
        return cls(git, head, found[0], Path(found[1]), Path(found[2]))


def _why_not(git: Git, error: GitError) -> str:
    if "not a git repository" not in error.errors:
        return str(error)
    root = git.directory
    top = next((above for above in root.parents if (above / ".git").exists()), None)
    if top is None:
        return f"{root} is not a git repository: make it one with git init and a commit"
    return f"{root} is inside the repository {top}: start teamcli there to use worktrees"


def write_repository(checkout: Checkout, main: Main, start: str) -> None:
    """An empty checkout of the commit `start`.

    Raises: OSError, GitError
    """
    config = _config(checkout, main)
    directory = checkout.path / ".git"
    for name in ("objects/info", "objects/pack", "refs/tags", "hooks", "info", os.path.dirname(checkout.ref)):  # noqa: PTH120
        (directory / name).mkdir(parents=True)
    objects = os.path.relpath(main.objects, directory / "objects")  # relative: the project may be moved
    (directory / "objects" / "info" / "alternates").write_bytes(os.fsencode(objects) + b"\n")
    if main.shallow.is_file():
        (directory / "shallow").write_bytes(main.shallow.read_bytes())
    (directory / "config").write_text(config)
    (directory / checkout.ref).write_text(f"{start}\n")
    (directory / "HEAD").write_text(f"ref: {checkout.ref}\n")


def _config(checkout: Checkout, main: Main) -> str:
    # No mail can ever be sent to a name below `.invalid`.
    identity = {"user.name": checkout.member, "user.email": f"{checkout.member}@teamcli.invalid"}
    found = main.git.text("config", "--null", "--get-regexp", _KEPT, check=False).split("\0")
    kept = {key: value for key, _, value in (entry.partition("\n") for entry in found) if key}
    version = "0" if main.format == "sha1" else "1"
    values = {
        "core.repositoryformatversion": version,
        "core.bare": "false",
        "core.logallrefupdates": "true",
        **({} if version == "0" else {"extensions.objectformat": main.format}),
        **identity,
        **kept,  # with the user's own name, if there is one: members commit as the user
        "remote.origin.url": str(main.git.directory),
        "remote.origin.fetch": "+refs/heads/*:refs/remotes/origin/*",
    }
    return "".join(config_line(key, value) for key, value in values.items())


def copy_included(checkout: Checkout, main: Git, host: CommandHost, cancel: CancelScope) -> None:
    """Copy the ignored files that `.worktreeinclude` names. The copy runs in the sandbox: a link leads nowhere.

    Raises: ToolError, Cancelled
    """
    if not (main.directory / INCLUDE_FILE).is_file():
        return
    named = main.run("ls-files", "-z", "--others", "--ignored", f"--exclude-from={INCLUDE_FILE}")
    # What git does not ignore would count as uncommitted work of the member.
    ignored = main.run("check-ignore", "-z", "--stdin", input=named, check=False)
    names = list(_included(ignored.split(b"\0"), main.directory))
    if names:
        with tempfile.TemporaryFile() as listed:
            listed.write(b"".join(b"./" + name + b"\0" for name in names))
            listed.seek(0)
            _run(_COPY, main.directory, host, f"copying what {INCLUDE_FILE} names", cancel, listed.fileno())


def _included(names: list[bytes], root: Path) -> Iterator[bytes]:
    """Raises: ToolError, if it is too much"""
    count = size = 0
    for name in names:
        if not name or name.split(b"/")[0] == TEAM_DIR.encode():
            continue
        path = root / os.fsdecode(name)
        try:
            found = path.lstat()
        except OSError:  # gone
            continue
        if stat.S_ISREG(found.st_mode) or (stat.S_ISLNK(found.st_mode) and path.resolve().is_relative_to(root)):
            count, size = count + 1, size + found.st_size
            yield name
        if count > MOST_INCLUDED or size > MOST_INCLUDED_BYTES:
            most = f"{MOST_INCLUDED:,} files or {MOST_INCLUDED_BYTES // 1_000_000:,} MB"
            raise ToolError(f"{INCLUDE_FILE} names more than {most}: name less, or let the setup command make it")


def run_setup(command: str, checkout: Checkout, host: CommandHost, cancel: CancelScope) -> None:
    """Raises: ToolError, Cancelled"""
    _run(command, checkout.path, host, f"the setup command `{one_line(command)}`", cancel)


def _run(command: str, cwd: Path, host: CommandHost, what: str, cancel: CancelScope, given: int = -1) -> None:
    output = BoundedText(_OUTPUT_LENGTH)
    if given < 0:
        running = host.start(command, cwd)
    else:
        with os.fdopen(os.dup(given), "rb") as file:
            running = host.start(f"{{ {command}; }} 2>&1", cwd, file)
    with cancel.on_cancel(running.stop):
        ended = running.follow(output.add, lambda text: None, SETUP_SECONDS)
    cancel.check()
    if ended.timed_out:
        raise ToolError(f"{what} took longer than {SETUP_SECONDS / 60:.0f} minutes")
    if ended.exit_code:
        raise ToolError(f"{what} failed ({describe_exit(ended.exit_code)}): {str(output).strip()}")
