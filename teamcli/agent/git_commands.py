"""What git runs for its user: aliases, pagers, hooks and helpers that its words name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from teamcli.agent.program_options import Words, read_options
from teamcli.agent.runs import Guess, Line, Run, Runs, Unknown, is_one_word, may_be_option
from teamcli.agent.shell_words import SimpleCommand, Word, names

_GLOBAL = (
    "-C: -c: -p -P -h -v --git-dir: --work-tree: --namespace: --super-prefix: --config-env: --exec-path? --html-path "
    "--man-path --info-path --paginate --no-pager --bare --no-replace-objects --literal-pathspecs --glob-pathspecs "
    "--noglob-pathspecs --icase-pathspecs --no-optional-locks --no-lazy-fetch --no-advice --version --help "
    "--attr-source: --list-cmds:"
)
_HARMLESS_KEYS = (
    r"(?i)(?:color|column|advice|user|author|committer|log|status|blame|rerere|fetch|push|pull|branch|tag|init)\."
    r"(?:(?!templatedir)[\w.-])*|core\.(?:quotepath|autocrlf|abbrev|eol|filemode|ignorecase|safecrlf|longpaths|"
    r"precomposeunicode|symlinks|commentchar|whitespace|compression)|diff\.(?:algorithm|renames|context|noprefix|"
    r"mnemonicprefix|colormoved\w*)|merge\.(?:conflictstyle|ff|renames|log)|commit\.(?:gpgsign|verbose|cleanup)|"
    r"tag\.gpgsign|gc\.auto|safe\.directory|rebase\.(?:autosquash|autostash|stat)|pack\.\w+|http\.(?:postbuffer|version)"
)
_RUNNING = {
    "rebase": "-x --exec",
    "grep": "-O --open-files-in-pager",
    "difftool": "-x --extcmd -t --tool",
    "mergetool": "-t --tool",
    "clone": "-u --upload-pack -c --config --template",
    "init": "--template",
    "fetch": "--upload-pack",
    "pull": "--upload-pack",
    "ls-remote": "--upload-pack",
    "push": "--receive-pack --exec",
    "archive": "--exec --remote",
    "diff": "--ext-diff",
    "log": "--ext-diff",
    "show": "--ext-diff",
    "send-email": "--sendmail-cmd --smtp-server --to-cmd --cc-cmd",
}
"""Options of subcommands with which they run a command."""
_RUNNERS = names("filter-branch for-each-repo daemon shell upload-pack receive-pack help web--browse instaweb")


def runs_of_git(words: Words) -> Iterator[Run]:
    options = read_options(words, _GLOBAL)
    for name, value in options.values:
        yield from _of_global_option(name, value)
    if options.unknown or not all(map(is_one_word, words[1 : options.end])):
        yield Unknown("`git` has an option that is not known")
    rest = words[options.end :]
    if not rest:
        return
    if options.end > 1:
        # a rule about `git push` means `git -C elsewhere push`, too
        yield Guess(SimpleCommand((words[0], *rest)))
    yield from _of_subcommand(rest[0].value, rest)


def _of_global_option(name: str, value: Word) -> Iterator[Run]:
    if name == "c":
        yield from _of_config(value)
    elif name == "config-env":
        yield Unknown("`git --config-env` may name a command")
    elif name == "exec-path":
        yield Unknown("`git --exec-path` names other programs")


def _of_config(setting: Word) -> Iterator[Run]:
    key, _, value = setting.value.partition("=")
    if not re.fullmatch(_HARMLESS_KEYS, key):
        yield Unknown(f"`git -c {key}` may name a command", anything=not setting.is_static)
        yield Line(Word(value[1:])) if value.startswith("!") else Guess(line=value)
    if key.lower().startswith("alias.") and not value.startswith("!"):
        yield Guess(line=f"git {value}")


def _of_subcommand(name: str, words: Words) -> Iterator[Run]:
    arguments = words[1:]
    if name == "submodule" and (places := [i for i, word in enumerate(arguments) if word.value == "foreach"]):
        rest = tuple(word for word in arguments[places[0] + 1 :] if word.value not in ("--recursive", "-q", "--quiet"))
        line = " ".join(word.value for word in rest)
        yield Line(Word(line, "" if all(word.is_static for word in rest) else line))
    elif name == "bisect" and arguments[:1] == (Word("run"),) and arguments[1:]:
        yield Runs(SimpleCommand(arguments[1:]))
    elif name == "config":
        yield from _of_changed_config(arguments)
    elif name in _RUNNERS:
        yield Unknown(f"`git {name}` may run a command", text=" ".join(word.value for word in arguments))
    yield from _of_running_options(name, arguments)
    if any(re.match(r"ext::", word.value) for word in arguments):
        yield Unknown("`ext::` is an address that runs a command", text=" ".join(w.value for w in arguments))


def _of_changed_config(arguments: Words) -> Iterator[Run]:
    """Reading is harmless; a key that is set may name a command for later."""
    operands = [word for word in arguments if not word.value.startswith("-")]
    is_reading = any(re.match(r"--(get|list|unset|name-only|show)|-l$", word.value) for word in arguments)
    if len(operands) < 2 or is_reading or re.fullmatch(_HARMLESS_KEYS, operands[0].value):
        return
    yield Unknown(f"`git config {operands[0].value}` may name a command", anything=not operands[0].is_static)
    yield Guess(line=operands[1].value.removeprefix("!"))


def _of_running_options(name: str, arguments: Words) -> Iterator[Run]:
    risky = _RUNNING.get(name, "").split()
    for position, word in enumerate(arguments):
        if not risky or word.value == "--":
            return
        if may_be_option(word) and name not in ("diff", "log", "show"):
            yield Unknown(f"`{word.source}` may turn out to be an option with which `git {name}` runs a command")
        if _is_risky(word.value, risky):
            yield Unknown(f"`git {name}` may run a command by its option {word.value}", anything=False)
            following = arguments[position + 1].value if position + 1 < len(arguments) else ""
            for text in (following, word.value.rpartition("=")[2], word.value[2:]):
                yield Guess(line=text)


def _is_risky(text: str, risky: list[str]) -> bool:
    name = text.partition("=")[0]
    if name.startswith("--"):
        return len(name) > 3 and any(option.startswith(name) for option in risky)
    return text.startswith("-") and any(len(option) == 2 and option[1] in text for option in risky)
