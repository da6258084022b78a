"""All that a command line would run: its own commands, and those that they start (`env`, `xargs`, `bash -c`, …)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import dropwhile, pairwise
from typing import NamedTuple

from teamcli.agent.shell_words import Script, SimpleCommand, Word, names, parse_line

_MAX_DEPTH = 8
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_MORE_ARGUMENTS = Word("{}", "{}")
"""Stands for what `xargs` and `find` fill in."""


class Wrapper(NamedTuple):
    """How a program that runs another one is called: `NAME [options] [operands] COMMAND…`."""

    valued: frozenset[str] = frozenset()
    """Options whose value is the next word."""
    operands: int = 0
    """How many words stand between the options and the command."""
    assignments: bool = False
    """`NAME=value` words may stand before the command."""
    lookup: frozenset[str] = frozenset()
    """Options with which it runs nothing."""


_WRAPPERS = {
    "sudo": Wrapper(names("-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir"), assignments=True),
    "doas": Wrapper(names("-u -C -a")),
    "env": Wrapper(names("-u -C --unset --chdir"), assignments=True),
    "nice": Wrapper(names("-n --adjustment")),
    "ionice": Wrapper(names("-c -n -p --class --classdata")),
    "time": Wrapper(names("-f -o --format --output"), assignments=True),
    "coproc": Wrapper(assignments=True),
    "timeout": Wrapper(names("-k -s --kill-after --signal"), operands=1),
    "gtimeout": Wrapper(names("-k -s --kill-after --signal"), operands=1),
    "command": Wrapper(lookup=names("-v -V -pv -pV")),
    "exec": Wrapper(names("-a")),
    "stdbuf": Wrapper(names("-i -o -e --input --output --error")),
    "chroot": Wrapper(operands=1),
    "taskset": Wrapper(operands=1),
    "chrt": Wrapper(names("-T -P -D"), operands=1),
    "flock": Wrapper(names("-w -E --timeout --conflict-exit-code"), operands=1),
    "setarch": Wrapper(operands=1),
    "strace": Wrapper(names("-o -e -p -s -u -E -P")),
    "ltrace": Wrapper(names("-o -e -p -s -u")),
    "unshare": Wrapper(names("-S -G -R -w")),
    "nsenter": Wrapper(names("-t -S -G --target")),
    "runuser": Wrapper(names("-u -g -G")),
    "systemd-run": Wrapper(names("-p -u -M -H --unit --property")),
    "caffeinate": Wrapper(names("-t -w")),
    **dict.fromkeys(names("nohup setsid builtin busybox toybox unbuffer fakeroot xvfb-run torsocks"), Wrapper()),
    "xargs": Wrapper(names("-I -n -P -L -d -a -E -s --max-args --max-procs --max-lines --delimiter --arg-file")),
}

_SHELLS = names("sh bash zsh dash ksh mksh ash fish rbash")
_SHELL_VALUED = names("-o +o -O +O --rcfile --init-file")
_JOINING = names("eval watch parallel")
"""These join their words with blanks and give them to a shell."""
_PRINTING = names("echo printf cat")
_STRING_OPTION = {
    **dict.fromkeys(("su", "script", "flock", "runuser"), "-c"),
    "env": "-S",
    "mapfile": "-C",
    "readarray": "-C",
}
"""The option whose value is a command line."""
_FIND_ACTIONS = names("-exec -execdir -ok -okdir")
_FIND_CHANGES = names("-delete -fprint -fprint0 -fprintf -fls")
_FD_ACTIONS = names("-x -X --exec --exec-batch")
_DECLARING = names("declare typeset local export readonly")
_NAMING = _DECLARING | names("test printf read unset let wait mapfile readarray")
"""These take names of variables, and evaluate what stands in the subscript of one: `a[$(command)]` runs it."""
_EVALUATED = re.compile(r"(?:-\w*)?[A-Za-z_]\w*(?:\[|\+?=\()", re.ASCII)
_NUMBER = re.compile(r"\$[!?#$]")


@lru_cache(maxsize=64)
def read_commands(text: str) -> Script:
    """Every simple command that `text` would run, as far as that can be known. Never raises."""
    return _read(text, 0)


def program_name(command: SimpleCommand) -> str:
    """The name without its directory: `/usr/bin/sudo` is `sudo`."""
    return command.words[0].value.rsplit("/", 1)[-1] if command.words else ""


def _read(text: str, depth: int) -> Script:
    script = parse_line(text)
    if depth > _MAX_DEPTH:
        return Script(script.commands, script.problem or "it nests too many shells", script.has_fork_bomb)
    found = _Found(list(script.commands), script.problem, script.has_fork_bomb)
    for command in script.commands:
        found.add_inner(command, depth + 1)
    if found.reads_input:
        found.add_input(script, depth + 1)
    return Script(tuple(found.commands), found.problem, found.has_fork_bomb)


@dataclass
class _Found:
    commands: list[SimpleCommand]
    problem: str
    has_fork_bomb: bool
    reads_input: bool = False

    def add_input(self, script: Script, depth: int) -> None:
        """A shell that reads commands may be given what stands in the line itself."""
        printed = [_joined(command.words[1:]) for command in script.commands if program_name(command) in _PRINTING]
        for line in (*script.inputs, *printed):
            self._add_line(line, "the shell", depth)

    def add_inner(self, command: SimpleCommand, depth: int) -> None:
        name = program_name(command)
        for inner in _inner(name, command.words):
            if isinstance(inner, _Unknown):
                self.problem = self.problem or inner.why
                self.reads_input = self.reads_input or inner.reads_input
            elif isinstance(inner, Word):
                self._add_line(inner, name, depth)
            elif inner:
                self._add_command(SimpleCommand(inner), depth)

    def _add_command(self, command: SimpleCommand, depth: int) -> None:
        self.commands.append(command)
        if not command.words[0].is_static:
            self.problem = self.problem or f"`{command.words[0].source}` is known only when it runs"
        if depth > _MAX_DEPTH:
            self.problem = self.problem or "it nests too many commands"
        else:
            self.add_inner(command, depth + 1)

    def _add_line(self, line: Word, name: str, depth: int) -> None:
        script = _read(line.value, depth)
        self.commands += script.commands
        self.has_fork_bomb = self.has_fork_bomb or script.has_fork_bomb
        self.problem = self.problem or script.problem
        if not line.is_static:
            self.problem = self.problem or f"what `{name}` runs is known only when it runs"


class _Unknown(NamedTuple):
    why: str
    reads_input: bool = False


Words = tuple[Word, ...]


def _inner(name: str, words: Words) -> Iterator[Words | Word | _Unknown]:
    """What a command runs: words of another command, or a word that is a command line."""
    if name in _SHELLS:
        yield from _of_shell(name, words)
    elif name in _JOINING:
        yield from _of_joining(words)
    elif name == "find":
        yield from _of_find(words)
    elif name in ("fd", "fdfind"):
        yield from _after_each(words, _FD_ACTIONS)
    elif name == "trap":
        yield from (word for word in words[1:2] if word.value not in ("-", "--") and not word.value.startswith("-"))
    elif name in ("source", "."):
        yield from _of_source(name, words)
    if name in _NAMING and _may_evaluate(name, words[1:]):
        yield _Unknown(f"`{name}` may evaluate a subscript")
    if name in _STRING_OPTION:
        yield from _option_values(words, _STRING_OPTION[name])
    if name in _WRAPPERS:
        yield from _of_wrapper(name, words, _WRAPPERS[name])


def _of_wrapper(name: str, words: Words, wrapper: Wrapper) -> Iterator[Words | _Unknown]:
    start = _skip_options(words, wrapper)
    if any(word.value in wrapper.lookup for word in words[1:start]):
        return
    start += wrapper.operands
    if not all(word.is_static for word in words[:start]):
        yield _Unknown(f"what `{name}` runs is known only when it runs")
    rest = words[start:]
    yield (*rest, _MORE_ARGUMENTS) if rest and name == "xargs" else rest
    keyword_rest = _after_time_keyword(words)
    if words[0].value == "time" and keyword_rest != rest:
        yield keyword_rest


def _after_time_keyword(words: Words) -> Words:
    """The program `time` has many options; the keyword of bash only these, and takes all else for the command."""
    return tuple(dropwhile(lambda word: word.value in ("time", "-p", "--"), words))


def _skip_options(words: Words, wrapper: Wrapper) -> int:
    position = 1
    while position < len(words):
        text = words[position].value
        if text == "--":
            return position + 1
        if wrapper.assignments and _ASSIGNMENT.match(text):
            position += 1
        elif text.startswith("-"):
            position += 2 if _takes_next_word(text, wrapper.valued) else 1
        else:
            break
    return position


def _takes_next_word(option: str, valued: Iterable[str]) -> bool:
    if option.startswith("--"):
        return option in valued
    letters = option[1:]
    first = next((i for i, letter in enumerate(letters) if f"-{letter}" in valued), None)
    return first is not None and first == len(letters) - 1


def _of_shell(name: str, words: Words) -> Iterator[Word | _Unknown]:
    position, takes_string, reads_input = 1, False, False
    while position < len(words) and words[position].value[:1] in ("-", "+") and words[position].value != "--":
        option = words[position].value
        takes_string = takes_string or bool(re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", option))
        reads_input = reads_input or bool(re.fullmatch(r"-[A-Za-z]*s[A-Za-z]*", option))
        position += 2 if option in _SHELL_VALUED else 1
    operands = words[position + 1 :] if words[position : position + 1] == (Word("--"),) else words[position:]
    if takes_string:
        yield from operands[:1]
    elif reads_input or not operands or not operands[0].is_static or operands[0].value.startswith("/dev/"):
        yield _Unknown(f"`{name}` reads its commands from elsewhere", reads_input=True)


def _of_joining(words: Words) -> Iterator[Word]:
    rest = words[_skip_options(words, Wrapper(names("-n --interval -j --jobs"))) :]
    if rest:
        yield _joined(rest)


def _joined(words: Words) -> Word:
    line = " ".join(word.value for word in words)
    return Word(line, "" if all(word.is_static for word in words) else line)


def _of_source(name: str, words: Words) -> Iterator[_Unknown]:
    if len(words) < 2 or not words[1].is_static or words[1].value.startswith("/dev/"):
        yield _Unknown(f"`{name}` reads its commands from elsewhere")


def _of_find(words: Words) -> Iterator[Words | _Unknown]:
    yield from _after_each(words, _FIND_ACTIONS)
    if any(word.value in _FIND_CHANGES or (not word.is_static and word.value[:1] in ("$", "`")) for word in words[1:]):
        yield _Unknown("`find` may do more than look")


def _may_evaluate(name: str, arguments: Words) -> bool:
    if name == "let":
        return True
    if name == "printf" and arguments[:1] and arguments[0].is_static and not arguments[0].value.startswith("-v"):
        return False
    if name in _DECLARING:
        if any(re.match(r"[-+]\w*[in]", word.value) for word in arguments):  # as a number, or as another name
            return True
        arguments = tuple(word for word in arguments if not re.match(r"\w+\+?=(?!\()", word.value))
    return any(
        _EVALUATED.match(word.value) or not (word.is_static or _NUMBER.fullmatch(word.value)) for word in arguments
    )


def _after_each(words: Words, actions: frozenset[str]) -> Iterator[Words]:
    """The commands behind `-exec`, each up to `;` or `+`."""
    for position, word in enumerate(words):
        if word.value in actions:
            rest = words[position + 1 :]
            end = next((i for i, word in enumerate(rest) if word.value in (";", "+")), len(rest))
            if end:
                yield (*rest[:end], _MORE_ARGUMENTS)


def _option_values(words: Sequence[Word], option: str) -> Iterator[Word]:
    for word, following in pairwise(words):
        if word.value == option:
            yield following
    for word in words[1:]:
        if word.value.startswith(option) and len(word.value) > len(option):
            value = word.value[len(option) :]
            yield Word(value, "" if word.is_static else value)
