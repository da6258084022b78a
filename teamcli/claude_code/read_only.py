"""Commands that Claude Code runs without a question, because they only read. Here that counts for commands in the text
of its commands and skills, which would otherwise fail without a terminal."""

from __future__ import annotations

import re

_PROGRAMS = (
    "basename cat cd cmp column comm cut date df diff dirname du echo egrep false fgrep find grep head hostname id jq "
    "ls nl nproc printf pwd realpath rev seq sort stat tac tail test tr tree true uname wc which whoami"
)
_GIT = "blame cat-file describe diff for-each-ref log ls-files ls-tree merge-base rev-list rev-parse shortlog show"
_MORE_GIT = (
    "git status:*",
    *("git branch", "git branch -a", "git branch -r", "git branch -v", "git branch -vv", "git branch --show-current"),
    *("git branch --all", "git branch --list:*", "git tag", "git tag -l:*", "git tag --list:*", "git tag --sort=*"),
    *("git remote", "git remote -v", "git remote get-url:*", "git stash list:*", "git worktree list:*", "git reflog"),
)
_OTHERS = ("uniq", "uniq -c", "uniq -d", "node --version", "npm --version", "python --version", "python3 --version")
_WRITES = r"(?:^|\s)(?:-o|--output|--ext-diff|--textconv|--compress-program)"
"""Options with which some of these write or run something."""


def rules_for_reading(command: str) -> tuple[str, ...]:
    """Rules that allow what Claude Code would not ask about; none if the command may do more."""
    if re.search(_WRITES, command):
        return ()
    prefixes = (*_PROGRAMS.split(), *(f"git {each}" for each in _GIT.split()))
    return (*(f"Bash({each}:*)" for each in prefixes), *(f"Bash({each})" for each in (*_MORE_GIT, *_OTHERS)))
