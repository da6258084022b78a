"""What a command runs besides itself: the command behind `env` or `xargs`, the line of `bash -c`, the alias of git.

Programs are known by name. Of those that are listed here, whatever is not understood makes the line one that cannot be
judged; of all others (`python`, `make`, a script) nothing is known, and a rule about them is about all that they do.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from itertools import dropwhile, pairwise
from typing import NamedTuple

from teamcli.agent.git_commands import runs_of_git
from teamcli.agent.program_options import Options, Words, read_options
from teamcli.agent.runs import Guess, Line, Run, Runs, Unknown, is_open_word, known_only_when_it_runs, may_be_option
from teamcli.agent.shell_words import SimpleCommand, Word, names


class Wrapper(NamedTuple):
    """How a program that runs another one is called: `NAME [options] [operands] COMMAND…`."""

    options: str = ""
    operand: str = ""
    """What stands between the options and the command, as a regular expression; empty for nothing."""
    assignments: bool = False
    """`NAME=value` words may stand before the command."""
    optional: bool = False
    """The operand may be missing."""
    lookup: str = ""
    """Letters with which it runs nothing."""


_DURATION = r"(\d+\.?\d*|\.\d+|inf|infinity)[smhd]?"
_ARCHITECTURE = r"linux(32|64)|uname26|x86_64|i[3-6]86|(arm|aarch|ppc|s390|sparc|mips|ia64|alpha|parisc|riscv)\w*"
_WRAPPERS = {
    "sudo": Wrapper(
        "-A -b -E -e -H -i -K -k -l -n -P -S -s -V -v -u: -g: -h: -p: -C: -r: -t: -T: -U: -D: -R: --user: --group: "
        "--host: --prompt: --chdir: --preserve-env?",
        assignments=True,
    ),
    "doas": Wrapper("-L -n -s -u: -C: -a:"),
    "env": Wrapper(
        "-i -0 -v -u: -C: -a: -S! -P: --unset: --chdir: --argv0: --split-string! --ignore-environment --null --debug "
        "--block-signal? --default-signal? --ignore-signal? --list-signal-handling",
        assignments=True,
    ),
    "nice": Wrapper("-# -n: --adjustment:"),
    "ionice": Wrapper("-t -c: -n: -p: -P: -u: --ignore --class: --classdata: --pid: --pgid: --uid:"),
    "time": Wrapper("-p -v -a -q -l -h -f: -o: --format: --output: --append --verbose --portability", assignments=True),
    "coproc": Wrapper(assignments=True),
    "timeout": Wrapper("-v -f -p -k: -s: --kill-after: --signal: --foreground --preserve-status --verbose", _DURATION),
    "gtimeout": Wrapper("-v -k: -s: --kill-after: --signal: --foreground --preserve-status --verbose", _DURATION),
    "command": Wrapper("-p -v -V", lookup="vV"),
    "exec": Wrapper("-c -l -a:"),
    "stdbuf": Wrapper("-i: -o: -e: --input: --output: --error:"),
    "chroot": Wrapper("--userspec: --groups: --skip-chdir", r".+"),
    "taskset": Wrapper("-a -c -p --all-tasks --cpu-list --pid", r"(0x)?[\da-f,:-]+"),
    "chrt": Wrapper("-a -b -d -f -i -m -o -p -r -R -v -T: -P: -D:", r"\d+"),
    "flock": Wrapper(
        "-s -x -e -n -u -o -F -w: -E: --shared --exclusive --nonblock --nb --unlock --close --no-fork --verbose "
        "--timeout: --wait: --conflict-exit-code:",
        r".+",
    ),
    "setarch": Wrapper("-R -B -F -I -L -S -T -X -Z -v -3", _ARCHITECTURE, optional=True),
    **dict.fromkeys(names("linux32 linux64 i386 x86_64"), Wrapper("-R -B -F -I -L -S -T -X -Z -v -3")),
    "strace": Wrapper("-f -F -c -C -q -r -t -T -v -V -w -x -y -z -Z -e: -s: -u: -P: -a: -b: -I: -O: -S: -X:"),
    "ltrace": Wrapper("-f -c -C -i -L -r -S -t -T -e: -s: -u: -a: -A: -n: -l: -x:"),
    "unshare": Wrapper(
        "-f -r -c -S: -G: -R: -w: -m? -u? -i? -n? -p? -U? -C? -T? --fork --map-root-user --map-current-user "
        "--mount-proc? --kill-child? --mount? --uts? --ipc? --net? --pid? --user? --cgroup? --time? --propagation: "
        "--setgroups: --root: --wd: --setuid: --setgid: --map-user: --map-group:"
    ),
    "nsenter": Wrapper("-a -F -Z -e -t: -S: -G: -m? -u? -i? -n? -p? -U? -C? -T? -r? -w? -W: --target: --all"),
    "runuser": Wrapper("-l -m -p -f -P -u: -g: -G: -s: -w: -c! --command! --user: --group: --login --shell:"),
    "systemd-run": Wrapper("-t -P -q -d -G -S -p: -u: -M: -H: -E: --user --scope --pipe --wait --unit: --property:"),
    "caffeinate": Wrapper("-d -i -m -s -u -t: -w:"),
    "setsid": Wrapper("-c -f -w --ctty --fork --wait"),
    "nohup": Wrapper(),
    "builtin": Wrapper(),
    "unbuffer": Wrapper("-p"),
    "torsocks": Wrapper("-i -q -d -u: -p: -a: -P:"),
    "fakeroot": Wrapper("-u -l: -s: -i: -b: --lib: --faked:"),
    "xvfb-run": Wrapper("-a -l -e: -f: -n: -p: -s: -w: --auto-servernum --server-args: --server-num:"),
    "prlimit": Wrapper("--nofile: --nproc: --as: --cpu: --core: --data: --fsize: --stack: --rss: --noheadings"),
    **dict.fromkeys(names("busybox toybox"), Wrapper("--list --help")),
    "xargs": Wrapper(
        "-0 -o -p -r -t -x -a: -d: -E: -e? -I: -i? -J: -L: -l? -n: -P: -R: -s: -S: --null --arg-file: --delimiter: "
        "--eof? --replace? --max-lines? --max-args: --max-procs: --max-chars: --process-slot-var: --interactive "
        "--no-run-if-empty --verbose --exit --open-tty --show-limits"
    ),
}

_LINE_OPTIONS = {
    "su": "-l -m -p -f -P -g: -G: -s: -w: -c! --command! --login --shell: --session-command!",
    "script": (
        "-a -e -f -q -t? -c! -E: -I: -O: -B: -T: -m: -o: --append --command! --return --flush --force --quiet "
        "--log-in: --log-out: --log-io: --log-timing: --logging-format: --echo: --output-limit:"
    ),
    "mapfile": "-t -d: -n: -O: -s: -u: -C! -c:",
    "complete": "-a -b -c -d -e -f -g -j -k -s -u -v -p -r -D -E -I -o: -A: -G: -W: -F: -C! -X: -P: -S:",
}
_LINE_OPTIONS["readarray"] = _LINE_OPTIONS["mapfile"]
_LINE_OPTIONS["compgen"] = _LINE_OPTIONS["complete"]

_RUNNING_OPTIONS = {
    "tar": "-I -F --use-compress-program --checkpoint-action --to-command --info-script --new-volume-script "
    "--rsh-command --rmt-command",
    "sort": "--compress-program",
    "split": "--filter",
    "rg": "--pre --hostname-bin",
    "rsync": "-e --rsh --rsync-path",
    "man": "-P -H --pager --html",
    "ssh": "-o -F -E",
    "scp": "-o -F -S",
    "sftp": "-o -F -S -D",
    "zip": "-TT --unzip-command",
    "tcpdump": "-z",
    "make": "-f -E --eval --file --makefile",
    "curl": "-K --config",
    "wget": "-e --execute --use-askpass",
    **dict.fromkeys(names("vi vim nvim ex view"), "-c -S --cmd --remote-expr -s -u"),
    "emacs": "--eval --execute --load -l -f --funcall --script",
    **dict.fromkeys(names("less more most"), "+"),
}
"""Options with which these programs run a command, or read what to do from a file."""
_OLD_STYLE = names("tar gtar bsdtar")
"""Their first word is options even without a dash."""
_RUNNING_OPTIONS["gmake"] = _RUNNING_OPTIONS["make"]
_RUNNING_OPTIONS["gtar"] = _RUNNING_OPTIONS["bsdtar"] = _RUNNING_OPTIONS["tar"]

_LOOSE = names(
    "setpriv numactl cgexec firejail proot bwrap valgrind gdb lldb perf rlwrap dbus-run-session hyperfine entr uv uvx "
    "poetry pipenv pdm rye npx bunx chpst softlimit s6-setuidgid catchsegv faketime eatmydata "
    "daemonize start-stop-daemon runcon sg trickle proxychains proxychains4 tsocks gosu setuidgid dumb-init tini rr "
    "expect tmux screen xterm ld.so ld-linux-x86-64.so.2 ld-linux-aarch64.so.1"
)
"""These run a command that stands somewhere in their words; where, only they know."""
_MOST_SUFFIXES = 6

_OTHER_SHELLS = names("zsh fish csh tcsh nu xonsh pwsh elvish")
"""Their lines are read as those of bash, and never trusted: `=ls`, `(ls)` and `begin` mean something to them."""
_SHELLS = names("sh bash dash ksh mksh ash rbash") | _OTHER_SHELLS
_SHELL_LONG_VALUED = names("--rcfile --init-file")
_SHELL_LINES = r"(?s)--(?:command|init-command)=(.*)"
_JOINING = {
    "eval": "",
    "watch": (
        "-b -c -C -d? -e -g -p -r -t -w -x -n: -q: --interval: --equexit: --beep --color --differences? --errexit "
        "--chgexit --precise --no-title --no-wrap --exec"
    ),
}
"""These join their words with blanks and give them to a shell."""
_BUILTINS = names("trap source . alias enable hash bind fc at batch")
"""Builtins of the shell that change what a later word means, and others that read commands."""
_FIND_ACTIONS = names("-exec -execdir -ok -okdir")
_FIND_CHANGES = names("-delete -fprint -fprint0 -fprintf -fls")
_FD_ACTIONS = names("-x -X --exec --exec-batch")
_DECLARING = names("declare typeset local export readonly")
_NAMING = _DECLARING | names("test printf read unset let wait mapfile readarray getopts")
"""These take names of variables, and evaluate what stands in the subscript of one: `a[$(command)]` runs it."""
_EVALUATED = r"(?a)(?:-\w*)?[A-Za-z_]\w*(?:\[|\+?=\()"
_NUMBER = r"\$[!?#$]"
_STEERING = (
    r"-?(?:PATH|IFS|ENV|BASH_ENV|BASH_FUNC_.*|BASH_(?:ALIASES|CMDS)\b.*|BASH_XTRACEFD|SHELLOPTS|BASHOPTS|PS4|PROMPT_COMMAND|SHELL|CDPATH|"
    r"EXECIGNORE|GLOBIGNORE|LD_\w+|DYLD_\w+|GIT_\w+|\w*PAGER|\w*EDITOR|VISUAL|\w*BROWSER|LESS\w*|PYTHON\w*|PERL\w*|"
    r"RUBY\w*|NODE_\w+|JAVA\w*|MAKEFLAGS|SSH_\w+|SUDO_\w+|\w*_COMMAND|\w*SHELL\w*|HOME|TMPDIR|XDG_\w+)(?:\+?=|$)"
)
"""Variables that decide what later commands run. (These patterns are compiled when they are first used.)"""
_HOLDING = r"(?:PS4|PROMPT_COMMAND|BASH_ENV|ENV|BASH_FUNC_.*|BASH_(?:ALIASES|CMDS)\b.*)\+?="
_NAMING_COMMANDS = (
    r"(?:\w*PAGER|\w*EDITOR|VISUAL|\w*BROWSER|\w*_COMMAND|SHELL|MAKEFLAGS|GIT_SSH|\w*ASKPASS|GIT_EXTERNAL_DIFF|"
    r"GIT_CONFIG_VALUE_\d+|LESSOPEN|LESSCLOSE)\+?="
)
"""Variables whose value is a command line; that of most others is a path."""
_AWK = names("awk gawk mawk nawk busybox-awk")
_RUNNING_AWK = r"\bsystem\s*\(|\||\bgetline\b|@|[>]\s*[\"(]"
_SED_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*/I?)?"
_SED_TEXT = r"(?:(?!\1)(?:[^\\\n]|\\.))*"
_PLAIN_SED = (
    rf"(?:{_SED_ADDRESS}(?:,{_SED_ADDRESS[:-1]})?\s*!?\s*[pdqgGhHxnNDP=l]"
    rf"|{_SED_ADDRESS}(?:,{_SED_ADDRESS[:-1]})?\s*s([/|#,:@!]){_SED_TEXT}\1{_SED_TEXT}\1[gpiI0-9]*)"
)


def runs_of(name: str, words: Words) -> Iterator[Run]:
    """What a command runs, as far as its words tell. `name` is that of the program without its directory."""
    if name in _READERS:
        yield from _READERS[name](name, words)
    if name in _BUILTINS:
        yield from _of_builtin(name, words)
    if name in _NAMING:
        yield from _of_naming(name, words[1:])
    if name in _LINE_OPTIONS:
        yield from _of_line_options(name, words)
    if name in _RUNNING_OPTIONS:
        yield from _of_running_options(name, words)
    if name in _WRAPPERS:
        yield from _of_wrapper(name, words, _WRAPPERS[name])


def steering_variable(assignment: Word) -> str:
    """The name, where an assignment (`NAME=value`) decides what later commands run."""
    return assignment.value.partition("=")[0].rstrip("+") if re.match(_STEERING, assignment.value) else ""


def _of_builtin(name: str, words: Words) -> Iterator[Run]:
    if name == "trap":
        yield from (Line(word) for word in _operands(words)[:1] if word.value != "-")
    elif name in ("source", "."):
        if len(words) < 2 or is_open_word(words[1]) or words[1].value.startswith("/dev/"):
            yield Unknown(f"`{name}` reads its commands from elsewhere", reads_input=True)
    elif name == "alias":
        yield from (Line(_value(word)) for word in words[1:] if "=" in word.value)
        if len(words) > 1:
            yield Unknown("`alias` changes what a name runs", anything=False)
    elif name == "enable" or (name == "hash" and any(re.match(r"-\w*p", word.value) for word in words[1:])):
        yield Unknown(f"`{name}` changes what a name runs", anything=len(words) > 1)
    elif name in ("bind", "fc"):
        yield Unknown(f"`{name}` may run a command", anything=False)
    elif name in ("at", "batch"):
        yield Unknown(f"`{name}` reads its commands from elsewhere", reads_input=True)


def _of_naming(name: str, arguments: Words) -> Iterator[Run]:
    text = " ".join(word.value for word in arguments)
    if _may_evaluate(name, arguments):
        yield Unknown(f"`{name}` may evaluate a subscript", anything=False, evaluates=True)
    if name in ("test", "unset", "wait", "let"):
        return
    steering = next((steered for word in arguments if (steered := steering_variable(word))), "")
    if steering and not (name in _DECLARING and "=" not in text):
        yield Unknown(f"`{name}` sets {steering}, which decides what later commands do", anything=False)
        yield from (run for word in arguments for run in runs_of_variable(word))


def runs_of_variable(assignment: Word) -> Iterator[Run]:
    """What may run because a variable is set: `PS4`, `BASH_ENV`, a pager, a function for the next shell."""
    if re.match(_HOLDING, assignment.value):
        yield Unknown(f"{steering_variable(assignment)} holds what a shell runs")
    if re.match(_NAMING_COMMANDS, assignment.value):
        yield Guess(line=assignment.value.partition("=")[2].removeprefix("!"))


def _of_wrapper(name: str, words: Words, wrapper: Wrapper) -> Iterator[Run]:
    options = read_options(words, wrapper.options)
    if options.letters & set(wrapper.lookup):
        return
    assignments, start = _assignments(name, words, options, wrapper)
    if wrapper.operand and start < len(words):
        fits = re.fullmatch(wrapper.operand, words[start].value) is not None
        if not fits and not wrapper.optional:
            yield Unknown(f"`{name}` is called in a way that is not known", anything=False)
            yield Guess(SimpleCommand(words[start:]))
        start += fits or not wrapper.optional
    if not all(word.is_static for word in words[:start]):  # `X=$Y` may become several words
        yield Unknown(known_only_when_it_runs(name))
    if options.unknown:
        yield from _either_reading(name, words, options.unknown)
    if name == "env" and options.lines:
        yield from _of_split_string(words[options.end :], options)
        return
    yield from map(Line, options.lines)
    rest = words[start:]
    if name == "flock" and rest[:1] and rest[0].value in ("-c", "--command"):
        yield from map(Line, rest[1:2])
        return
    if name == "xargs":
        rest = _filled_in(rest, options)
    yield Runs(SimpleCommand(rest, assignments))
    if words[0].value == "time" and (keyword_rest := _after_time_keyword(words)) != rest:
        yield Runs(SimpleCommand(keyword_rest))


def _assignments(name: str, words: Words, options: Options, wrapper: Wrapper) -> tuple[Words, int]:
    """`NAME=value` words in front of the command, and where that begins. To `env` any word with `=` is one."""
    end = options.end
    is_assignment = re.compile(r"[^=]+=" if name in ("env", "sudo") else r"[A-Za-z_]\w*\+?=", re.ASCII).match
    while wrapper.assignments and end < len(words) and is_assignment(words[end].value):
        end += 1
    return words[options.end : end], end


def _either_reading(name: str, words: Words, unknown: Sequence[int]) -> Iterator[Run]:
    """An option that is in no table: the command begins behind it, behind its value, or behind an operand."""
    yield Unknown(f"`{name}` has an option that is not known ({words[unknown[0]].value})", anything=False)
    for position in unknown:
        for start in range(position + 1, position + 4):
            if words[start:]:
                yield Guess(SimpleCommand(words[start:]))
        _, equals, value = words[position].value.partition("=")
        if equals:
            yield Guess(line=value)


def _of_split_string(rest: Words, options: Options) -> Iterator[Run]:
    """`env -S` has a quoting of its own, near to that of the shell."""
    value = options.lines[-1]
    more = " ".join(shlex.quote(word.value) if word.is_static else word.source for word in rest)
    line = f"env {value.value} {more}"
    yield Line(Word(line, "" if value.is_static else line))
    if re.search(r"[\\$#]", value.value):
        yield Guess(line=re.sub(r"\\_", " ", line))
        yield Unknown(known_only_when_it_runs("env"))


def _filled_in(rest: Words, options: Options) -> Words:
    """What `xargs` runs: with more arguments behind it, or in the place that an option names."""
    marks = [word.value for name, word in options.values if name in ("I", "i", "replace", "J")]
    marks += ["{}"] if not marks else []
    filled = [Word(word.value, word.value) if any(mark in word.value for mark in marks) else word for word in rest]
    return (*filled, Word("{}", "{}")) if rest else ()


def _after_time_keyword(words: Words) -> Words:
    """The program `time` has many options; the keyword of bash only these, and takes all else for the command."""
    return tuple(dropwhile(lambda word: word.value in ("time", "-p", "--", "!"), words))


def _of_shell(name: str, words: Words) -> Iterator[Run]:
    if name in _OTHER_SHELLS and len(words) > 1:
        yield Unknown(f"`{name}` reads its lines in a way of its own")
    position, takes_string, reads_input = 1, False, False
    while position < len(words) and re.match(r"[-+](?!-?\Z)", words[position].value):
        option = words[position].value
        if not words[position].is_static:
            yield Unknown(known_only_when_it_runs(name))
        if option.startswith("--"):
            yield from (Line(Word(found[1])) for found in [re.fullmatch(_SHELL_LINES, option)] if found)
            if option in _SHELL_LONG_VALUED:
                yield Unknown(f"`{name}` reads commands from a file first")
        elif option[0] == "-":
            takes_string = takes_string or "c" in option
            reads_input = reads_input or "s" in option or "i" in option
        valued = 0 if option.startswith("--") else option.count("o") + option.count("O")
        position += 1 + valued + (option in _SHELL_LONG_VALUED)
    ends_options = words[position : position + 1] in ((Word("--"),), (Word("-"),))
    operands = words[position + ends_options :]
    if takes_string:
        yield from map(Line, operands[:1])
    elif reads_input or not operands or is_open_word(operands[0]) or operands[0].value.startswith("/dev/"):
        yield Unknown(f"`{name}` reads its commands from elsewhere", reads_input=True)


def _of_joining(name: str, words: Words) -> Iterator[Run]:
    options = read_options(words, _JOINING[name])
    if options.unknown:
        yield from _either_reading(name, words, options.unknown)
    rest = words[options.end :]
    if rest:
        yield Line(joined(rest))


def _of_parallel(name: str, words: Words) -> Iterator[Run]:
    """It makes command lines from its words and from what it reads."""
    yield Unknown("`parallel` makes command lines from what it is given")
    separators = [i for i, word in enumerate(words) if re.fullmatch(r"::::?\+?", word.value)]
    end = separators[0] if separators else len(words)
    yield from (Guess(line=joined(words[start:end]).value) for start in range(1, min(end, _MOST_SUFFIXES + 1)))
    yield from (Guess(line=word.value) for word in words[end + 1 :])


def joined(words: Words) -> Word:
    line = " ".join(word.value for word in words)
    return Word(line, "" if all(word.is_static for word in words) else line)


def _of_find(name: str, words: Words) -> Iterator[Run]:
    yield from _after_each(words, _FIND_ACTIONS if name == "find" else _FD_ACTIONS)
    for position, word in enumerate(words[1:], 1):
        if name != "find" and word.value not in _FD_ACTIONS and re.match(r"--exec|-[A-Za-z]*[xX]", word.value):
            yield from _either_reading(name, words, [position])
    if name == "find" and any(word.value in _FIND_CHANGES or may_be_option(word) for word in words[1:]):
        yield Unknown("`find` may do more than look", anything=any(map(may_be_option, words[1:])))


def _after_each(words: Words, actions: frozenset[str]) -> Iterator[Run]:
    """The commands behind `-exec`, each up to `;` or `{} +`."""
    for position, word in enumerate(words):
        if word.value in actions:
            rest = words[position + 1 :]
            end = next((i for i, each in enumerate(rest) if _ends_action(rest, i)), len(rest))
            command = tuple(Word(each.value, each.value) if "{}" in each.value else each for each in rest[:end])
            if command:
                yield Runs(SimpleCommand((*command, Word("{}", "{}"))))


def _ends_action(words: Words, position: int) -> bool:
    value = words[position].value
    return value == ";" or (value == "+" and position > 0 and words[position - 1].value == "{}")


def _suffixes(name: str, words: Words) -> Iterator[Run]:
    starts = [i for i in range(1, len(words)) if not words[i].value.startswith("-")]
    yield from (Guess(SimpleCommand(words[start:])) for start in starts[:_MOST_SUFFIXES])
    lines = [word.value for word in words[1:] if re.search(r"\s", word.value)]
    yield from (Guess(line=line, is_text=True) for line in lines[:_MOST_SUFFIXES])


def _of_line_options(name: str, words: Words) -> Iterator[Run]:
    options = read_options(words, _LINE_OPTIONS[name])
    yield from map(Line, options.lines)
    if options.unknown:
        yield from _either_reading(name, words, options.unknown)
    if name == "script" and len(words) > options.end + 1:  # elsewhere it takes a command behind the file
        yield Runs(SimpleCommand(tuple(word for word in words[options.end + 1 :] if word.value != "--")))
    # GNU programs read options behind operands, too
    later = read_options(words, _LINE_OPTIONS[name], options.end + 1) if options.end < len(words) else Options(0)
    yield from map(Line, later.lines)


def _of_running_options(name: str, words: Words) -> Iterator[Run]:
    risky = _RUNNING_OPTIONS[name].split()
    for position, word in enumerate(words[1:], 1):
        if word.value == "--":
            return
        if may_be_option(word):
            yield Unknown(f"`{word.source}` may turn out to be an option with which `{name}` runs a command")
        text = f"-{word.value}" if position == 1 and name in _OLD_STYLE and word.value.isalpha() else word.value
        if not _is_risky(text, risky) and not (name in ("make", "gmake") and _is_risky_variable(word)):
            continue
        yield Unknown(f"`{name}` may run a command by its option {word.value}", anything=False)
        following = words[position + 1].value if position + 1 < len(words) else ""
        for text in (following, following.partition("=")[2], word.value.rpartition("=")[2], word.value[2:]):
            yield Guess(line=text)


def _is_risky(text: str, risky: Sequence[str]) -> bool:
    name = text.partition("=")[0]
    if name.startswith("--"):
        return len(name) > 2 and any(option.startswith(name) for option in risky)
    letters = [option[1] for option in risky if option[0] == "-" and option[1] != "-"]
    return (text[:1] == "-" and any(letter in text[1:] for letter in letters)) or ("+" in risky and text[:1] == "+")


def _is_risky_variable(word: Word) -> bool:
    name, equals, value = word.value.partition("=")
    return bool(equals) and (re.search(r"SHELL|FLAGS$", name) is not None or "$" in value or "`" in value)


def _of_awk(name: str, words: Words) -> Iterator[Run]:
    if any(re.search(_RUNNING_AWK, word.value) or may_be_option(word) for word in words[1:]):
        yield Unknown(f"`{name}` may run a command", anything=False, text=" ".join(word.value for word in words[1:]))


def _of_sed(name: str, words: Words) -> Iterator[Run]:
    """A script is one of the well-known kinds, or it may hold the command `e`."""
    scripts = [word for before, word in pairwise(words) if re.fullmatch(r"-[a-zA-Z]*e|--exp\w*", before.value)]
    operands = [word for word in words[1:] if not word.value.startswith("-") or not word.is_static]
    scripts = scripts or operands[:1]
    attached = [word for word in words[1:] if re.match(r"--(e|f)|-[a-zA-Z]*[ef].|-[a-zA-Z]*f$", word.value)]
    is_plain = all(word.is_static and re.fullmatch(_PLAIN_SED, word.value) for word in scripts)
    if not is_plain or attached or any(map(may_be_option, words[1:])):
        yield Unknown("`sed` may run a command", anything=False, text=" ".join(word.value for word in words[1:]))


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
        re.match(_EVALUATED, word.value) or not (word.is_static or re.fullmatch(_NUMBER, word.value))
        for word in arguments
    )


def _operands(words: Words) -> Words:
    rest = words[1:]
    while rest and rest[0].value.startswith("-") and rest[0].value not in ("-", "--"):
        rest = rest[1:]
    return rest[1:] if rest and rest[0].value == "--" else rest


def _value(word: Word) -> Word:
    value = word.value.partition("=")[2]
    return Word(value, "" if word.is_static else value)


_READERS: dict[str, Callable[[str, Words], Iterator[Run]]] = {
    **dict.fromkeys(_SHELLS, _of_shell),
    **dict.fromkeys(_JOINING, _of_joining),
    **dict.fromkeys(_LOOSE, _suffixes),
    **dict.fromkeys(_AWK, _of_awk),
    **dict.fromkeys(("sed", "gsed"), _of_sed),
    **dict.fromkeys(("find", "fd", "fdfind"), _of_find),
    "parallel": _of_parallel,
    "git": lambda _, words: runs_of_git(words),
}
