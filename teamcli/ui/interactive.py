"""Which of the user's own commands need the terminal: editors, pagers, `ssh`, `git commit` without a message."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

_ALWAYS = (
    "vi vim nvim view nano pico emacs micro hx less more most man info top htop btop atop watch ssh sftp mosh telnet "
    "tmux screen mc ranger nnn tig lazygit fzf gdb ipython psql mysql su sudo passwd visudo"
)
PROGRAMS = frozenset(_ALWAYS.split(" "))
"""Those that always need a terminal."""
WITHOUT_ARGUMENTS = frozenset(("python", "python3", "node", "irb", "lua", "bash", "sh", "zsh", "fish", "sqlite3", "bc"))
"""Those that read commands from the terminal, unless they get a file or a command."""
CONTAINERS = frozenset(("docker", "podman", "kubectl"))

_SEPARATORS = re.compile(r"[;&|()\n]+")
_ASSIGNMENT = re.compile(r"\w+=")
_GIT_CHOOSES = ("-p", "--patch", "-i", "--interactive")
_GIT_MESSAGE = re.compile(r"-[a-zA-Z]*[mFC]|--(?:message|file|reuse-message|no-edit|fixup)\b")


def needs_terminal(command: str) -> str:
    """The first program of a command line that needs the terminal; empty if there is none."""
    shell = shlex.shlex(command, posix=True, punctuation_chars=True)
    shell.whitespace = " \t\r"  # a line break separates commands
    shell.commenters = ""
    words: list[str] = []
    try:
        for word in [*shell, ";"]:
            if not _SEPARATORS.fullmatch(word):
                words.append(word)
                continue
            # What goes into a pipe, or comes from a file, is not typed or seen.
            if word != "|" and "<" not in words and ">" not in words and (program := _interactive(words)):
                return program
            words = []
    except ValueError:  # quotes that do not end
        pass
    return ""


def _interactive(words: Sequence[str]) -> str:
    words = list(words)
    while words and _ASSIGNMENT.match(words[0]):
        del words[0]
    if not words:
        return ""
    program, arguments = words[0].rpartition("/")[2], words[1:]
    is_wanted = (
        program in PROGRAMS
        or (program in WITHOUT_ARGUMENTS and not arguments)
        or (program in CONTAINERS and any(each in ("-it", "-ti") for each in arguments))
        or (program == "git" and _is_interactive_git(arguments))
    )
    return program if is_wanted else ""


def _is_interactive_git(arguments: Sequence[str]) -> bool:
    words = list(arguments)
    while words and words[0].startswith("-"):
        del words[: 2 if words[0] in ("-C", "-c") else 1]
    verb, options = words[0] if words else "", words[1:]
    chooses = any(each in _GIT_CHOOSES for each in options)
    if verb == "commit":
        return chooses or not any(map(_GIT_MESSAGE.match, options))
    return chooses and verb in ("add", "checkout", "clean", "rebase", "reset", "restore", "stash")
