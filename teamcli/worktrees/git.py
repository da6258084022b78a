"""Runs git inside the sandbox of commands, so that nothing a repository names is run outside it."""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from teamcli.cancel import CancelScope
from teamcli.errors import GitError, ToolError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.command_output import BoundedText
from teamcli.exec.running_command import Ended, describe_exit
from teamcli.storage.files import as_state_error, read_regular
from teamcli.text.escaping import one_line

GIT_SECONDS = 120.0
STALE_SECONDS = 1.0
"""Git holds the lock of a branch for a few milliseconds."""
_LARGEST_LOCK = 1_000
_MOST_ERRORS = 4_000
_REASON_LENGTH = 300
# A repository can name programs: hooks, a file watcher, filters, a signer, the other side of a fetch that completes a
# partial clone. The sandbox confines them. These options keep git from starting them at all, also without a sandbox.
NO_PROGRAMS = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.quotePath": "false",
    "commit.gpgSign": "false",
    "merge.verifySignatures": "false",
    "submodule.recurse": "false",
}
_NO_NETWORK = {"core.sshCommand": "false", "credential.helper": "", "gc.auto": "0", "maintenance.auto": "false"}
_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "LC_ALL": "C.UTF-8",  # some errors are recognized by their English words
}
# They would lead git to another repository, if teamcli is started by a hook, say.
_UNSET = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE"),
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_PREFIX", "GIT_SHALLOW_FILE"),
    *("GIT_EXTERNAL_DIFF", "GIT_REPLACE_REF_BASE", "GIT_GRAFT_FILE", "GIT_ATTR_SOURCE", "GIT_TRACE"),
)
_FILTERS = ("config", "--includes", "--null", "--name-only", "--get-regexp", r"^filter\..*\.(clean|smudge|process)$")


def options_for(config: Mapping[str, str]) -> tuple[str, ...]:
    """What comes before the name of a command: git uses this configuration, whatever its files say."""
    # Without this, a look such as `git status` locks the index to refresh it, and the user's own git would fail.
    return ("--no-optional-locks", *(word for item in config.items() for word in ("-c", "=".join(item))))


class Git:
    """The git of one directory. Hooks never run, nothing is signed, fetched or asked."""

    def __init__(self, host: CommandHost, directory: Path, may_climb: bool = False) -> None:
        """Unless it `may_climb`, a repository that contains `directory` is not taken for its own."""
        self.host = host
        self.directory = directory
        self._options = options_for({**NO_PROGRAMS, **_NO_NETWORK})
        self._variables = _VARIABLES
        if not may_climb:
            self._variables = {**_VARIABLES, "GIT_CEILING_DIRECTORIES": str(directory.parent)}

    def run(
        self,
        *arguments: str,
        input: bytes | BinaryIO = b"",
        output: BinaryIO | None = None,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        cancel: CancelScope | None = None,
        seconds: float = GIT_SECONDS,
    ) -> bytes:
        """What git prints, byte for byte. Unless it is to `check`, also if git fails.

        Input and output can be files, which may be large; the result is empty then.

        Raises: GitError, with the reason that git gives
        """
        with contextlib.ExitStack() as files:
            given = _as_file(input, files)
            printed = output or files.enter_context(tempfile.TemporaryFile())
            errors = BoundedText(_MOST_ERRORS)
            ended = self._follow(self._command(arguments, env or {}), given, printed, errors, cancel, seconds)
            if ended.timed_out:
                raise GitError(f"git {arguments[0]} took longer than {seconds:.0f} s in {self.directory}")
            if check and ended.exit_code:
                reason = _reason(str(errors)) or describe_exit(ended.exit_code)
                raise GitError(f"git {arguments[0]}: {reason}", ended.exit_code, str(errors))
            printed.seek(0)
            return printed.read() if output is None else b""

    def text(self, *arguments: str, input: str = "", check: bool = True, env: Mapping[str, str] | None = None) -> str:
        """What git prints, as text without the last line end.

        Raises: GitError
        """
        given = os.fsencode(input)
        return os.fsdecode(self.run(*arguments, input=given, check=check, env=env)).removesuffix("\n")

    def succeeds(self, *arguments: str) -> bool:
        """Whether git answers yes, for commands that exit with 1 for no.

        Raises: GitError
        """
        try:
            self.run(*arguments)
        except GitError as e:
            if e.exit_code != 1:
                raise
            return False
        return True

    def commit(self, name: str) -> str:
        """The id of the commit that `name` leads to; empty if there is none.

        Raises: GitError
        """
        return self.text("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", check=False)

    def filters_off(self, cancel: CancelScope | None = None) -> dict[str, str]:
        """Variables (`env`) that turn off the filters which the config names. Without them, a look may run programs.

        Raises: GitError
        """
        try:
            names = self.run(*_FILTERS, cancel=cancel).decode()
        except UnicodeDecodeError as e:
            raise GitError("a filter in its config has a name that is not UTF-8", has_run=False) from e
        except GitError as e:
            if e.exit_code != 1:
                raise
            names = ""
        # An empty command turns a filter off, unless it is required.
        drivers = dict.fromkeys(name.rpartition(".")[0] for name in names.split("\0") if name)
        off = {f"{driver}.{key}": "" for driver in drivers for key in ("clean", "smudge", "process")}
        off |= {f"{driver}.required": "false" for driver in drivers}
        variables = {"GIT_CONFIG_COUNT": str(len(off))}
        for number, (key, value) in enumerate(off.items()):  # not with -c: a name may contain any character
            variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return variables

    def _command(self, arguments: tuple[str, ...], env: Mapping[str, str]) -> str:
        git = self.host.programs.find("git")
        if git is None:
            raise GitError("git is not installed, or only in a place where agents can write", has_run=False)
        assigned = " ".join(f"{name}={shlex.quote(value)}" for name, value in {**self._variables, **env}.items())
        unset = f"unset {' '.join(name for name in _UNSET if name not in env)}"
        return f"{unset}; {assigned} exec {shlex.join((git, *self._options, *arguments))}"

    def _follow(
        self,
        command: str,
        given: BinaryIO,
        output: BinaryIO,
        errors: BoundedText,
        cancel: CancelScope | None,
        seconds: float,
    ) -> Ended:
        try:
            running = self.host.start(command, self.directory, given, output)
            stopping = cancel.on_cancel(running.stop) if cancel else contextlib.nullcontext()
            with stopping:
                return running.follow(errors.add, lambda text: None, seconds)
        except ToolError as e:
            raise GitError(f"git cannot be run: {e}", has_run=False) from e


def _as_file(input: bytes | BinaryIO, files: contextlib.ExitStack) -> BinaryIO:
    if not isinstance(input, bytes):
        return input
    given: BinaryIO = files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - it is
    given.write(input)
    given.seek(0)
    return given


def _reason(errors: str) -> str:
    """The line that says what is wrong. Hints and warnings come before and after it."""
    lines = [line for line in errors.splitlines() if line.strip()]
    wrong = [line for line in lines if line.startswith(("fatal: ", "error: "))]
    return one_line((wrong or lines or [""])[0].removeprefix("fatal: ").removeprefix("error: "), _REASON_LENGTH)


def drop_stale_lock(path: Path, is_ours: Callable[[bytes], bool] | None = None) -> None:
    """Remove the lock of a git that was killed. One that lives is done in a moment, and its lock is left alone. With
    `is_ours`, also one with other content.

    Raises: StateError
    """
    with as_state_error("remove", path), contextlib.suppress(FileNotFoundError):
        before = path.lstat()
        # Nothing tells whether the git that made it still lives, so there is no condition to wait for.
        time.sleep(STALE_SECONDS)
        now = path.lstat()
        is_stale = (before.st_ino, before.st_mtime_ns) == (now.st_ino, now.st_mtime_ns)
        if is_stale and (is_ours is None or _holds(path, is_ours)):
            path.unlink()


def _holds(path: Path, is_ours: Callable[[bytes], bool]) -> bool:
    try:
        return is_ours(read_regular(path, _LARGEST_LOCK, os.O_NOFOLLOW))
    except ValueError:  # too large, or not a file: none of ours is
        return False


def config_line(key: str, value: str) -> str:
    """A line of a configuration file, with the heading of its section."""
    section, _, name = key.rpartition(".")
    top, _, sub = section.partition(".")
    heading = f'{top} "{_escaped(sub)}"' if sub else top
    quoted = _escaped(value).replace("\n", "\\n")
    return f'[{heading}]\n\t{name} = "{quoted}"\n'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
