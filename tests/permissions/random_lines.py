"""Lines made at random: mostly of the kind that rules understand, with a little of everything that bash knows in it."""

from __future__ import annotations

import random

NAMES = (
    "run", "show", "git", "git status", "sed -n 1p", "find .", "rg x", "make", "echo", "true", "run.sh",
    "./run.sh",
)  # fmt: skip
SCRIPTS = ("run.sh", "./run.sh", "./evil.sh")
BUILTINS = (
    "printf -v X %s", "printf -vX", "printf %s", "test -v", "test x =", "export X=1", "declare X=1", "eval",
    "exec", "source", ".", "trap evil EXIT", "alias run=evil", "set -f", "set -- a", "shopt -s extglob", "read X",
    "unset X", "command run", "builtin eval", "env run", "xargs evil", "let X=1", "hash -p ./evil.sh run",
    "compgen -W", "cd sub", "cd ..", "cd", "cd -", "pushd sub", "enable -n echo", "mapfile X", "wait",
    "jobs -x evil", "time run", "coproc run", "exit", "return", "break", "bash -c evil", "nice run", "local X",
    "type run", "pwd", "kill -l", ":", "umask 0",
)  # fmt: skip
PLAIN = (
    "a", "b-c", "-x", "--long=1", "a/b.py", "X=1", "x:y", "@{u}", "HEAD~1", "HEAD^", "{}", "1", "2", "a#b", "%h",
    "k=~", "+x", "a,b", "..", "-", "=", "a:~", "CI=1",
)  # fmt: skip
QUOTED = (
    "'a b'", "'$(evil)'", "'`evil`'", '"a b"', '"it\'s"', '"a\\$X"', '"a$"', '"$ x"', '"a\\b"', '"a\\"b"', "\\$X",
    "\\ ", "a\\;b", "''", '""', "'#'", "\\#x", "'a\nb'", '"a\nb"', '"!x"', "'ä'", '"€"', "a'b'\"c\"\\d", "\\~",
    "'*'", "\\*", '"\\\\"', "'\\'", '"`"', '"$(evil)"', '"${X:-$(evil)}"', '"$X"',
)  # fmt: skip
TEXTS = (
    "a", "it's", '"', "$(evil)", "`evil`", ")", "\\", "a\\", "E F", " E", "${X}", "#x", "; evil", "E)", 'E)"; evil; "',
    "\tE", 'Ex)"; evil "', " E)",
)  # fmt: skip
EXPANDED = (
    "$X", "${X}", "$(evil)", "`evil`", "$((1+1))", "$[1]", "${X:-evil}", "${X:=evil}", "~", "~/x", "*", "?", "[a]",
    "a*", "{a,b}", "{1..3}", "$'a'", '$"a"', "<(evil)", ">(evil)", "$@", "$$", "$?", "!x", "!", "#c", "ä",
    "\u00a0", "(evil)", "@(a)", "+(a)", "a[1]", "k=~/x", "${X@P}", "$1", "{fd}",
)  # fmt: skip
JOINTS = (
    "&&", "||", ";", "|", "\n", ";\n", " &&\n",
)  # fmt: skip
ODD_JOINTS = (
    "&", "|&", ";;", ";&", "&&&", "|||", ")", "(", "{", "}", "then", "do", "\\\n", "\r", "\n\n", ";\n\n",
)  # fmt: skip
REDIRECTIONS = (
    "> f", ">f", ">> g", "2>&1", "> /dev/null", "2>/dev/null", "&> f", "&>> g", ">| f", "< /dev/null", ">&2",
    "2> sub/e", "1>&2", "> 'h i'", ">\\f", "3>&1", "<&0",
)  # fmt: skip
ODD_REDIRECTIONS = (
    "<<E\na\nE", "<<< a", "<> f", ">& f", ">&-", "{fd}> f", "10> f", "> $X", "> >(evil)", "< f", "2>&1-", "&>&1",
    ">&1x", "<<'E'\n$(evil)\nE", "> f g", "&>1", "2 >f", ">&\n1",
)  # fmt: skip
RESERVED = (
    "if", "for X in a; do", "while", "case a in a)", "[[", "((", "!", "function run {", "run()", "{", "select",
    "time", "in",
)  # fmt: skip
VARIABLES = (
    "CI=1", "LANG=C", "NO_COLOR=1", "TZ=UTC", "CI=", "X=1", "PATH=.", "CI+=1", "CI='a b'", "X=$(evil)", "LC_ALL=C",
)  # fmt: skip
CHARACTERS = " \t\n;|&<>()$`\\\"'*?[]{}~#!=%:,./-+@^ab1X\r"


class RandomLines:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def line(self) -> str:
        choose = self._random
        count = choose.choice((1, 1, 1, 2, 2, 3))
        line = self._command()
        for _ in range(count - 1):
            joint = choose.choice(ODD_JOINTS if self._rarely(40) else JOINTS)
            line += f"{self._blank()}{joint}{self._blank()}{self._command()}"
        if self._rarely(3):
            for _ in range(choose.randint(1, 3)):
                line = self._mutated(line)
        return line

    def _rarely(self, one_in: int) -> bool:
        return self._random.randrange(one_in) == 0

    def _blank(self) -> str:
        return self._random.choice((" ", " ", " ", "", "  ", "\t", " \\\n", " \\\n "))

    def _command(self) -> str:
        choose = self._random
        words = [choose.choice(VARIABLES)] if self._rarely(12) else []
        words += [choose.choice(RESERVED)] if self._rarely(60) else []
        words.append(choose.choice(BUILTINS if self._rarely(8) else SCRIPTS if self._rarely(50) else NAMES))
        words += [self._word() for _ in range(choose.randrange(4))]
        if self._rarely(5):
            redirection = choose.choice(ODD_REDIRECTIONS if self._rarely(5) else REDIRECTIONS)
            words.insert(choose.randrange(len(words) + 1), redirection)
        return " ".join(words)

    def _word(self) -> str:
        choose = self._random
        parts = [choose.choice(choose.choice((PLAIN, PLAIN, QUOTED))) for _ in range(choose.choice((1, 1, 1, 2, 3)))]
        if self._rarely(25):
            parts[choose.randrange(len(parts))] = choose.choice(EXPANDED)
        return self._text_from_cat() if self._rarely(30) else "".join(parts)

    def _text_from_cat(self) -> str:
        choose = self._random
        body = "\n".join(choose.choice(TEXTS) for _ in range(choose.randrange(4)))
        begin = choose.choice(("<<'E'", "<< 'E'", '<<"E"', "<<'E'", "<<E" if self._rarely(4) else "<<'E'"))
        return f'"$(cat {begin}\n{body}\nE\n)"'

    def _mutated(self, line: str) -> str:
        choose = self._random
        at = choose.randrange(len(line) + 1)
        match choose.randrange(4):
            case 0:
                return line[:at] + line[at + 1 :]
            case 1:
                return line[:at] + choose.choice(CHARACTERS) + line[at:]
            case 2:
                return line[:at] + line[choose.randrange(len(line) + 1) :][: choose.randint(1, 4)] + line[at:]
            case _:
                return line[:at] + choose.choice(CHARACTERS) + line[at + 1 :]
