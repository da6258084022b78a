"""Commands that a prefix rule never covers: programs that run other programs, builtins that change the shell.

These lists also say where rules that deny look for a command inside another one. `docs/permissions.md` has them for
users. What is not listed here does what its program can do, and a rule that names the program allows that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from teamcli.permissions.shell.scanner import names

SHELLS = names("sh bash dash ksh mksh ash rbash zsh fish csh tcsh nu xonsh pwsh elvish")
PACKAGE_RUNNERS = names("uv uvx poetry pipenv pdm rye npx bunx pipx")
"""Programs that run what a package brings. A rule that names one of these means to allow that, as with `npm`."""
RUNNERS = (
    SHELLS
    | PACKAGE_RUNNERS
    | names(
        "env xargs parallel nice ionice nohup timeout gtimeout time stdbuf setsid command exec coproc flock taskset "
        "chrt setarch linux32 linux64 i386 x86_64 uname26 prlimit unshare nsenter chroot runuser sudo doas su pkexec "
        "systemd-run strace ltrace busybox toybox fakeroot xvfb-run caffeinate unbuffer torsocks setpriv numactl "
        "cgexec firejail proot bwrap valgrind gdb lldb perf rlwrap dbus-run-session dbus-launch hyperfine entr watch "
        "script at batch crontab chpst softlimit s6-setuidgid catchsegv "
        "faketime eatmydata daemonize start-stop-daemon runcon sg trickle proxychains proxychains4 tsocks gosu "
        "setuidgid dumb-init tini rr expect tmux screen xterm ssh-agent choom capsh ed ex vi vim nvim view emacs "
        "emacsclient ld.so ld-linux.so.2 ld-linux-x86-64.so.2 ld-linux-aarch64.so.1"
    )
)
"""Programs that run the program that their words name."""
BUILTINS = names(
    "eval source . builtin trap alias unalias enable hash bind fc set shopt declare typeset local export readonly "
    "unset let read mapfile readarray getopts complete compgen compopt jobs wait bg fg disown suspend pushd popd "
    "dirs umask ulimit history shift return exit logout break continue caller times"
)
"""Builtins that change the shell, or that run or evaluate text."""
_LOOKUPS = re.compile("-[pvV]*[vV][pvV]*")
_OPTIONS = {
    "fd": "-x -X --exec --exec-batch",
    "fdfind": "-x -X --exec --exec-batch",
    "tar": "-I -F --use-compress-program --checkpoint-action --to-command --info-script --new-volume-script "
    "--rsh-command --rmt-command",
    "sort": "--compress-program",
    "split": "--filter",
    "rg": "--pre --hostname-bin",
    "rsync": "-e --rsh --rsync-path",
    "man": "-P -H -C --pager --html --config-file",
    "ssh": "-o -F -E -I",
    "scp": "-o -F -S -D",
    "sftp": "-o -F -S -D",
    "zip": "-T -TT --unzip-command",
    "tcpdump": "-z",
    "install": "--strip-program",
    "make": "-f -E --eval --file --makefile",
    "curl": "-K --config",
    "wget": "-e --execute --use-askpass --config",
    "printf": "-v",
    "test": "-v -R",
}
"""Options with which these run a program, set a variable, or read what to do from a file."""
_ALIKE = {"gtar": "tar", "bsdtar": "tar", "gmake": "make", "gfind": "find", "gsort": "sort"}
_OPTIONS |= dict.fromkeys(names("less more most"), "-k --lesskey-file --lesskey-src --lesskey-content")
_GIT_OPTIONS = {
    "rebase": "-x --exec",
    "grep": "-O --open-files-in-pager",
    "difftool": "-x --extcmd -t --tool",
    "mergetool": "-t --tool",
    "clone": "-u --upload-pack -c --config --template",
    "init": "--template",
    "fetch": "--upload-pack",
    "pull": "--upload-pack",
    "ls-remote": "--upload-pack --exec",
    "push": "--receive-pack --exec",
    "archive": "--exec --remote",
    "send-email": "--sendmail-cmd --smtp-server --to-cmd --cc-cmd --header-cmd",
    **dict.fromkeys(names("diff log show"), "--ext-diff"),
}
_GIT_RUNNERS = names(
    "config submodule bisect filter-branch for-each-repo daemon shell upload-pack receive-pack upload-archive "
    "fetch-pack send-pack remote-ext remote-fd help instaweb p4 svn cvsimport merge-index hook"
)
_GIT_SUBCOMMAND = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""`git a/b` runs the file `git-a/b`; those with two hyphens are parts of git that run what they are given."""
FIND_ACTIONS = names("-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls")
_SED_OPTIONS = re.compile(r"-[nErsuzi]+|--(quiet|silent|regexp-extended|null-data|separate|debug|posix|sandbox)")
_SED_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\[^\n])*/I?)"
_SED_TEXT = r"(?:(?!\1)[^\\\n]|\\[^\n])*"
_SED_SCRIPT = re.compile(
    rf"(?:{_SED_ADDRESS}(?:,{_SED_ADDRESS})?)?\s*!?\s*"
    rf"(?:[pdqgGhHxnNDP=l]|s([/|#,:@!]){_SED_TEXT}\1{_SED_TEXT}\1[gpiI0-9]*)"
)
_AWK_OPTIONS = re.compile(r"(?s)-F.*|-v|--")
_AWK_RUNS = re.compile(r"system|\||getline|@|>")


def never_covered(words: Sequence[str]) -> str:
    """Why a prefix rule does not cover a command, in a few words; empty if one may."""
    name = words[0].rsplit("/", 1)[-1]
    name = _ALIKE.get(name, name)
    if name == "command" and len(words) > 1 and _LOOKUPS.fullmatch(words[1]):
        return ""
    if name in RUNNERS:
        return f"`{name}` runs other programs"
    if name in BUILTINS:
        return f"`{name}` changes the shell, or evaluates text"
    if name in _FORMS:
        return _FORMS[name](words[1:])
    risky = _risky_option(words[1:], _OPTIONS.get(name, ""))
    return f"`{name} {risky}` runs or evaluates something else" if risky else ""


_DURATION = r"\d+(?:\.\d+)?[smhd]?"
_WRAPPERS = {
    "timeout": rf"(?:(?:--foreground|--preserve-status|-v|-k\0{_DURATION}|-s\0[A-Z0-9]+)\0)*{_DURATION}\0",
    "nice": r"(?:-n\0-?\d+\0|-\d+\0)?",
    "nohup": "",
    "stdbuf": r"(?:-[ioe][0L]\0)+",
}
"""Programs that do nothing but run a command, and the words that may come before it, each with a NUL at its end."""


def unwrapped(words: Sequence[str]) -> Sequence[str]:
    """The command without `timeout 60`, `nohup` and the like in front, which Claude Code's rules do not mention."""
    options = _WRAPPERS.get(words[0])
    found = None if options is None else re.match(options, "".join(f"{word}\0" for word in words[1:]))
    inner = words[1 + found[0].count("\0") :] if found else ()
    return unwrapped(inner) if inner else words


def is_named_by(prefix: Sequence[str]) -> bool:
    """Whether a rule with these first words says what is run: `npx tsc`, or a shell with the name of a script."""
    name, rest = prefix[0].rsplit("/", 1)[-1], prefix[1:]
    return name in PACKAGE_RUNNERS or (name in SHELLS and bool(rest) and re.match(r"[\w./]", rest[0]) is not None)


def _risky_option(arguments: Sequence[str], options: str) -> str:
    """An argument that is one of these options: also shortened, with a value, or in a bundle of letters."""
    listed = options.split()
    for argument in arguments if listed else ():
        name = argument.partition("=")[0]
        if name.startswith("--") and len(name) > 2:
            if any(option.startswith(name) for option in listed):
                return argument
        elif argument.startswith("-") and any(option[1] in argument for option in listed if option[1] != "-"):
            return argument
    return ""


def _find(arguments: Sequence[str]) -> str:
    action = next((argument for argument in arguments if argument in FIND_ACTIONS), "")
    return f"`find {action}` runs programs or writes files" if action else ""


def _tar(arguments: Sequence[str]) -> str:
    # the first argument is options even without a dash
    bundled = [f"-{argument}" for argument in arguments[:1] if not argument.startswith("-")]
    risky = _risky_option([*bundled, *arguments], _OPTIONS["tar"])
    return f"`tar {risky}` runs other programs" if risky else ""


def _git(arguments: Sequence[str]) -> str:
    rest = list(arguments)
    while rest and rest[0] == "--no-pager":
        rest.pop(0)
    if rest and rest[0].startswith("-"):
        return "" if rest == ["--version"] else f"`git {rest[0]}` changes what git does"
    if not rest:
        return ""
    risky = _risky_option(rest[1:], _GIT_OPTIONS.get(rest[0], "")) or next((a for a in rest if "ext::" in a), "")
    if rest[0] in _GIT_RUNNERS or risky or not _GIT_SUBCOMMAND.fullmatch(rest[0]):
        return f"`git {rest[0]}{' ' if risky else ''}{risky}` can run other programs"
    return ""


def _sed(arguments: Sequence[str]) -> str:
    scripts: list[str] = []
    operands: list[str] = []
    is_script = False
    for argument in arguments:
        if is_script or not argument.startswith("-") or argument == "-":
            (scripts if is_script else operands).append(argument)
            is_script = False
        elif argument == "-e":
            is_script = True
        elif not _SED_OPTIONS.fullmatch(argument):
            return f"`sed {argument}` may run or read other scripts"
    if any(not _SED_SCRIPT.fullmatch(script) for script in scripts or operands[:1]):
        return "only plain scripts of `sed` are covered, such as 1,5p and s/a/b/g"
    return ""


def _awk(arguments: Sequence[str]) -> str:
    options = [argument for argument in arguments if argument.startswith("-") and argument != "-"]
    if any(not _AWK_OPTIONS.fullmatch(option) for option in options) or any(map(_AWK_RUNS.search, arguments)):
        return "`awk` with system, getline, pipes, `>`, `@` or other options than -F and -v may run programs"
    return ""


def _make(arguments: Sequence[str]) -> str:
    variable = next((a for a in arguments if "=" in a and not a.startswith("-")), "")
    risky = _risky_option(arguments, _OPTIONS["make"]) or variable
    return f"`make {risky}` changes what make runs" if risky else ""


def _less(arguments: Sequence[str]) -> str:
    risky = _risky_option(arguments, _OPTIONS["less"]) or next((a for a in arguments if a.startswith("+")), "")
    return f"`{risky}` makes a pager run commands" if risky else ""


_FORMS: dict[str, Callable[[Sequence[str]], str]] = {
    "find": _find,
    "tar": _tar,
    "git": _git,
    "sed": _sed,
    "gsed": _sed,
    "make": _make,
    **dict.fromkeys(names("awk gawk mawk nawk"), _awk),
    **dict.fromkeys(names("less more most"), _less),
}
CONDITIONAL = frozenset({*_OPTIONS, *_FORMS, *_ALIKE})
"""Programs of which some forms run others."""
