"""Everything that a line may run: its commands at every depth, and those that they run (`env X`, `bash -c 'X'`).

Used for rules that ask or deny, and for what is always blocked. Rules that allow never use it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import takewhile

from teamcli.permissions.shell.forms import BUILTINS, CONDITIONAL, FIND_ACTIONS, RUNNERS, SHELLS, never_covered
from teamcli.permissions.shell.loose import FoundCommand, Tree, Unread, Word, read_tree
from teamcli.permissions.shell.scanner import names
from teamcli.permissions.shell.strict import MAX_LENGTH, NotUnderstood, read_line

_MOST_WORDS, _MOST_LINES, _MOST_DEPTH = 1000, 300, 4
_HOLDS_COMMAND = re.compile(
    r"(?:PS4|PROMPT_COMMAND|BASH_ENV|ENV|BASH_FUNC_.*|BASH_(?:ALIASES|CMDS)\b.*|\w*PAGER|\w*EDITOR|VISUAL|\w*BROWSER|"
    r"\w*_COMMAND|SHELL|MAKEFLAGS|GIT_(?!DIR|WORK_TREE|AUTHOR|COMMITTER)\w+|\w*ASKPASS|LESSOPEN|LESSCLOSE)\+?=(.*)",
    re.DOTALL,
)
"""Variables whose value is a command, or names a file of commands."""
_META = re.compile(r"[\s;|&()<>$`'\"\\{}*?\[~]")
_PASSED_OVER = re.compile(r"[-+.{]|\d|\w+=|.*/|(run|exec|tool|dlx|foreach|stat|new-session|now)$")
"""A word between a program and the program that it runs: an option, a number, a variable, a path, a subcommand."""
_NEEDS_VALUE = names("flock chroot sg su runuser")
"""A file, a directory, a group or a user comes before the program that these run."""
_READS_ARGUMENTS = names("xargs parallel")
_DECLARING = names("declare typeset local export readonly unset")
_ANY = names("parallel at batch enable hash alias")
_SCRIPTED = names("sed gsed less more most vi vim nvim view make gmake")
"""In a text for these a command may begin at any word: `1e git push`, `+!git push`."""
_RUNNER = "|".join(map(re.escape, sorted(RUNNERS)))
_UNKNOWN = {
    "env": r" -[a-zA-Z0]*S| --s",
    "xargs": rf" -[IiJ]| --rep|[ /](?:{_RUNNER})(?= |$)",
    "find": r" -(?:exec|execdir|ok|okdir) \{\}",
    "git": r" --config-e",
    **dict.fromkeys(SHELLS - names("sh bash dash"), r" [-+]"),
}
"""Arguments with which these run something that is not in their words."""
_PRINTS = names("echo printf cat")
_ASSIGNED = re.compile(r"(?<![\w$])([A-Za-z_]\w*)=(['\"]?)([\w./-]+)\2(?=[\s;&|]|$)", re.ASCII)
_BRACES = re.compile(r"(?<![^\s{}])([^\s{}]*)\{([^\s{}]*,[^\s{}]*)\}([^\s{}]*)")


class LineReading:
    """What a line may run."""

    def __init__(self) -> None:
        self.commands: list[FoundCommand] = []
        """What it certainly or probably runs."""
        self.guesses: list[FoundCommand] = []
        """What else it might run."""
        self.doubt = ""
        """Why that is uncertain; empty if it is not."""
        self._lines = 0

    def add_line(self, text: str, depth: int = 0, is_guess: bool = False) -> None:
        self._lines += 1
        # Bounds on the work: a line made to be slow must not delay a decision.
        if depth > _MOST_DEPTH or self._lines > _MOST_LINES or len(text) > MAX_LENGTH:
            self._doubt("it is too long or nests too many commands")
            return
        try:
            tree = _read(text)
        except Unread as e:
            self._doubt(str(e), is_guess)
            tree = Tree(tuple(_pieces(text)), ())
        for command in tree.commands:
            (self.guesses if is_guess else self.commands).append(command)
            self._look_into(command, tree, depth, is_guess)
        # Names that are put together from variables or braces would hide from rules otherwise.
        if (plain := _substituted(text)) != text:
            self.add_line(plain, depth + 1, is_guess)

    def _doubt(self, why: str, is_guess: bool = False) -> None:
        self.doubt = self.doubt or ("" if is_guess else why)

    def _look_into(self, command: FoundCommand, tree: Tree, depth: int, is_guess: bool) -> None:
        words = command.words
        declared = words[1:] if words and _name(words[0]) in BUILTINS else ()
        for assignment in (*command.assignments, *declared):
            if held := _HOLDS_COMMAND.fullmatch(assignment.value):
                self._add_texts(held[1], depth, is_guess)
                if assignment.value.startswith(("BASH_ENV", "ENV")):
                    self._doubt("it names a file that a shell reads first", is_guess)
        # `git-push`, in the directory of git's programs, is `git push` by another name.
        if words and (subcommand := re.fullmatch("git-(.+)", _name(words[0]))):
            self.guesses.append(FoundCommand((Word("git"), Word(subcommand[1]), *words[1:])))
        if words and words[0].source:
            self._doubt(f"`{words[0].source}` is known only when it runs", is_guess)
        if words and never_covered([word.value for word in words]):
            self._look_behind(_from_action(words), tree, depth, is_guess)

    def _look_behind(self, words: tuple[Word, ...], tree: Tree, depth: int, is_guess: bool) -> None:
        """The program runs another one, which begins at one of its words or is the text of one."""
        if len(words) > _MOST_WORDS:
            self._doubt("it has too many words")
            return
        self._judge_runner(words, tree, depth, is_guess)
        is_open = False
        for i, word in enumerate(words[1:], 1):
            is_open = is_open or _name(words[i - 1]) in _READS_ARGUMENTS
            # What is only a directory, or a value that is assigned, runs nothing.
            if word.source and (_is_directory(words[i - 1], word) or _name(words[0]) in _DECLARING):
                continue
            if word.source:
                self._doubt(f"`{word.source}` is known only when it runs", is_guess)
            (self.guesses if is_guess else self.commands).append(FoundCommand(words[i:], is_open=is_open))
            # Its name comes first: `alias g=git`.
            if _name(words[0]) == "alias":
                self.commands.append(FoundCommand((Word(word.value.partition("=")[2]),)))
            # Options with values come before the subcommand, so it may be any of the words.
            if _name(words[0]) == "git":
                self.guesses.append(FoundCommand((words[0], *words[i:])))
            if _name(words[0]) in _SCRIPTED:
                inside = tuple(map(Word, re.findall(r"[\w./=-]+", word.value)[:_MOST_WORDS]))
                self.guesses += (FoundCommand(inside[at:]) for at in range(min(len(inside), _MOST_LINES)))
            self._judge_runner(words[i:], tree, depth, is_guess)
            self._add_texts(word.value, depth, is_guess)
            # Behind an operand, what follows is more likely an argument than a command.
            is_guess = is_guess or not _is_passed_over(words[i - 1], word)

    def _judge_runner(self, words: tuple[Word, ...], tree: Tree, depth: int, is_guess: bool) -> None:
        """Whether what this program runs is in its words at all."""
        name, arguments = _name(words[0]), tuple(word.value for word in words[1:])
        operands = [each for each in arguments if not each.startswith(("-", "+"))]
        reads_file = any(re.match("/dev/|/proc/", each) for each in operands)
        # A shell without a script runs what it reads: a here-document, or what the line prints into it.
        if name in SHELLS and (not operands or reads_file):
            printing = (each.words for each in tree.commands if each.words and _name(each.words[0]) in _PRINTS)
            for text in (*tree.inputs, *(word.value for each in printing for word in each)):
                self._add_texts(text, depth, is_guess)
        elif name not in _ANY and not (name in ("source", ".") and reads_file):
            options = _UNKNOWN.get(name)
            if options is None or not re.search(options, " ".join(["", *arguments])):
                return
        self._doubt(f"what `{name}` runs is known only when it runs", is_guess)

    def _add_texts(self, value: str, depth: int, is_guess: bool) -> None:
        """The lines that a word may hold: all of it, what follows an equals sign, what follows a short option."""
        # After `ext::` in an address, git runs a command.
        variants = {value, value.partition("=")[2], value.rpartition("=")[2], value.partition("ext::")[2]}
        if re.match("-[^-]", value):
            variants.add(value[2:])
        for variant in sorted(variants):
            text = variant.lstrip("!=|").strip()
            if re.search(r"\w", text) and _META.search(text):
                self.add_line(text, depth + 1, is_guess)
            elif text:
                word = Word(text)
                self.guesses += [FoundCommand((word,)), FoundCommand((Word("git"), word))]
                self._judge_runner((word,), Tree((), ()), depth, is_guess)


@lru_cache(maxsize=64)
def read_commands(text: str) -> LineReading:
    """What the line may run. Never raises."""
    reading = LineReading()
    reading.add_line(text)
    return reading


def _read(text: str) -> Tree:
    try:
        commands = read_line(text)
    except NotUnderstood:
        return read_tree(text)
    return Tree(
        tuple(FoundCommand(_as_words(c.words), _as_words(c.assignments), _as_words(c.writes)) for c in commands), ()
    )


def _as_words(values: tuple[str, ...]) -> tuple[Word, ...]:
    return tuple(map(Word, values))


def _is_passed_over(before: Word, word: Word) -> bool:
    """Whether the program that is run may come after this word."""
    is_value = before.value.startswith("-") and before.value not in ("-exec", "-execdir", "-ok", "-okdir")
    is_value = is_value or _name(before) in _NEEDS_VALUE
    is_runner = _name(word) in RUNNERS | BUILTINS | CONDITIONAL
    return is_value or is_runner or _PASSED_OVER.match(word.value) is not None


def _from_action(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Of `find`, what follows its literal conditions: `-name "*.py"` is not a command."""
    if _name(words[0]) not in ("find", "gfind"):
        return words
    conditions = takewhile(lambda word: not word.source and word.value not in FIND_ACTIONS, words[1:])
    return (words[0], *words[1 + len(list(conditions)) :])


def _is_directory(before: Word, word: Word) -> bool:
    """The value of an option that names a directory, and stays one word."""
    return before.value in ("-C", "--git-dir", "--work-tree") and re.fullmatch(r'"[^"@*]*"', word.source) is not None


def _name(word: Word) -> str:
    return word.value.rsplit("/", 1)[-1]


def _substituted(text: str) -> str:
    """The line with variables that it sets itself, braces and empty expansions replaced: `X=su; ${X}do`."""
    if not re.search(r"[$`{]", text):
        return text
    values = {name: value for name, _, value in _ASSIGNED.findall(text)}
    text = re.sub(r"\$\(\)|``|\$[@*]|\$\{[@*]\}", "", text)
    text = re.sub(r"\$(?:(\w+)|\{(\w+)\})", lambda found: values.get(found[1] or found[2], found[0]), text)
    return _BRACES.sub(lambda found: " ".join(f"{found[1]}{each}{found[3]}" for each in found[2].split(",")), text)


def _pieces(text: str) -> Iterator[FoundCommand]:
    """For a line that does not parse: every place where a command could begin."""
    bare = re.sub(r"\\\n|\$?['\"]|\\", "", text)
    yield FoundCommand((), (), tuple(Word(target) for target in re.findall(r">[|&]?\s*([^\s;|&()<>]+)", bare)))
    for segment in re.split(r"[;|&()`\n{}]+", re.sub(r"\d?(?:&>>?|[<>]{1,3}[|&]?)\s*[^\s;|&()<>]+", " ", bare)):
        words = segment.split()
        while words and re.fullmatch(r"(?s)if|then|else|elif|do|while|until|time|!|[A-Za-z_]\w*\+?=.*", words[0]):
            words.pop(0)
        if words:
            yield FoundCommand(tuple(Word(word, word if "$" in word else "") for word in words))
