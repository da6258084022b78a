"""Permission rules: `tool`, `tool(pattern)` and `tool(="exact text")`; how they are written, and what each one matches.

For `bash` a pattern is one command (`git status`) or the words that commands begin with (`git log:*`). For file tools
it is a glob as in .gitignore: `src/**` and `./a.py` from the workspace root, `*.pem` at any depth, `/abs/**` or `~/x`
outside. `="…"` (a JSON string) is the form for texts that would otherwise be read as a list, a glob or a prefix.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path

from teamcli.agent.shell_words import Script, SimpleCommand, Word, names, parse_line
from teamcli.errors import ConfigError

COMMAND_TOOLS = names("bash")
READING_TOOLS = names("read_file glob grep")
WRITING_TOOLS = names("write_file edit_file")
_PATTERN_TOOLS = COMMAND_TOOLS | READING_TOOLS | WRITING_TOOLS

_TOOL_NAME = re.compile(r"\s*([A-Za-z][\w-]*)\s*", re.ASCII)
_INSIDE = re.compile(r"""[^()'"\\]+|\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_PLAIN_PATH = re.compile(r"[\w./@+][\w./@+ -]*")
_KNOWN_DIRECTORY = re.compile(r"~[\w.-]*/[^$`*?\[{]+|\"[^\"@`(]*\"")
"""The name behind the last slash is what it seems: nothing before it can become a word of its own."""
_IN_QUOTES = re.compile(r'"[^"@*]*"')
_PLAIN_NAME = re.compile(r"[\w.+-]+")
_WITHOUT_VALUE = names("-p -P --paginate --no-pager --bare --no-optional-locks --verbose -v --debug -q --quiet")
_GLOB_TOKEN = re.compile(r"\\.|\[[!^]?\]?[^\]/]*\]|\*+|\?|.", re.DOTALL)


class Form(StrEnum):
    ANY = "any"
    """`bash`: every call of the tool."""
    PATTERN = "pattern"
    """`bash(git status)`, `edit_file(src/**)`"""
    PREFIX = "prefix"
    """`bash(git log:*)`"""
    TEXT = "text"
    """`bash(="git log")`: this text and nothing else."""


class Match(IntEnum):
    NO = 0
    MAYBE = 1
    """It depends on an expansion."""
    YES = 2


@dataclass(frozen=True, slots=True)
class Rule:
    tool: str
    form: Form
    pattern: str = ""

    @classmethod
    def parse(cls, text: str, known_tools: Collection[str] = ()) -> Rule:
        """Raises: ConfigError"""
        rules = parse_rules(text, known_tools)
        if len(rules) != 1:
            raise ConfigError(f"permission rule {text!r}: expected one rule, found {len(rules)}")
        return rules[0]

    def __str__(self) -> str:
        if self.form is Form.ANY:
            return self.tool
        inside = {
            Form.PATTERN: self.pattern,
            Form.PREFIX: f"{self.pattern}:*",
            Form.TEXT: f"={_quoted(self.pattern)}",
        }
        return f"{self.tool}({inside[self.form]})"


def parse_rules(rules: str | Iterable[str], known_tools: Collection[str] = ()) -> tuple[Rule, ...]:
    """Rules from a text in which commas separate them, or from several such texts.

    With `known_tools`, a rule about any other tool is an error.

    Raises: ConfigError, naming the rule at fault
    """
    texts = [rules] if isinstance(rules, str) else rules
    return tuple(rule for text in texts for rule in _scan(text, known_tools))


def _scan(text: str, known_tools: Collection[str]) -> Iterator[Rule]:
    position = 0
    while position < len(text):
        if text[position] == "," or text[position].isspace():
            position += 1
            continue
        name = _TOOL_NAME.match(text, position)
        if name is None:
            raise ConfigError(f"permission rule {text[position:]!r}: expected a tool name, as in bash(git status:*)")
        end = _end_of_pattern(text, name.end()) if text[name.end() : name.end() + 1] == "(" else name.end()
        yield _make_rule(name[1], text[name.end() : end].strip(), known_tools)
        position = _end_of_rule(text, end)


def _end_of_pattern(text: str, start: int) -> int:
    """The position behind the parenthesis that closes the one at `start`; quotes and escapes hide parentheses."""
    depth, position = 0, start
    while position < len(text):
        character = text[position]
        if character in "()":
            depth += 1 if character == "(" else -1
            position += 1
            if depth == 0:
                return position
            continue
        token = _INSIDE.match(text, position)
        if token is None:
            break
        position = token.end()
    raise ConfigError(
        f"permission rule {text!r}: a parenthesis or quote is not closed; "
        'a pattern with such characters can be written as a JSON string: bash(="…")'
    )


def _end_of_rule(text: str, end: int) -> int:
    rest = text[end:].lstrip()
    if rest and not rest.startswith(","):
        raise ConfigError(f"permission rule {text!r}: separate rules by commas; cannot read {rest!r}")
    return end


def _make_rule(tool: str, parenthesis: str, known_tools: Collection[str]) -> Rule:
    written = f"{tool}{parenthesis}"
    if known_tools and tool not in known_tools:
        raise ConfigError(f"permission rule {written!r}: there is no tool {tool!r}{_hint(tool, known_tools)}")
    if not parenthesis:
        return Rule(tool, Form.ANY)
    if tool not in _PATTERN_TOOLS:
        raise ConfigError(f"permission rule {written!r}: {tool} takes no pattern; write {tool} alone")
    pattern = parenthesis[1:-1].strip()
    try:
        return _command_rule(tool, pattern) if tool in COMMAND_TOOLS else _path_rule(tool, pattern)
    except ValueError as e:
        raise ConfigError(f"permission rule {written!r}: {e}") from e


def _hint(tool: str, known_tools: Collection[str]) -> str:
    import difflib

    by_letters = {name.replace("_", "").lower(): name for name in known_tools}
    near = difflib.get_close_matches(tool.replace("_", "").lower(), by_letters, 1, 0.5)
    return f"; did you mean {by_letters[near[0]]}?" if near else f"; there are {', '.join(sorted(known_tools))}"


def _command_rule(tool: str, pattern: str) -> Rule:
    if pattern.startswith("="):
        return Rule(tool, Form.TEXT, _unquoted(pattern[1:]))
    prefix = pattern.removesuffix(":*").strip()
    if prefix in ("", "*"):
        raise ValueError(f"the pattern names no command; write {tool} alone for every command")
    if pattern.endswith(" *"):
        raise ValueError(
            f"write {tool}({pattern[:-2]}:*) for the commands that begin so, {tool}(={_quoted(pattern)}) for this one"
        )
    if not pattern.endswith(":*"):
        return Rule(tool, Form.PATTERN, pattern)
    if not _prefix_words(prefix):
        raise ValueError("what stands before `:*` must be the beginning of one plain command")
    return Rule(tool, Form.PREFIX, prefix)


def _path_rule(tool: str, pattern: str) -> Rule:
    if pattern.startswith("="):
        return Rule(tool, Form.TEXT, _unquoted(pattern[1:]))
    if not pattern or pattern.endswith(":*"):
        raise ValueError("expected a glob such as src/** (`:*` is for commands)")
    if ".." in pattern.split("/"):
        raise ValueError("a path pattern cannot contain `..`; write an absolute path")
    try:
        _glob(pattern)
    except re.error as e:
        raise ValueError(f"the glob is not valid ({e})") from e
    return Rule(tool, Form.PATTERN, pattern)


def _quoted(text: str) -> str:
    # lone surrogates survive only as escapes
    return json.dumps(text, ensure_ascii=any("\ud800" <= character <= "\udfff" for character in text))


def _unquoted(literal: str) -> str:
    try:
        text = json.loads(literal)
    except (ValueError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise ValueError('expected a JSON string behind the equals sign, as in bash(="git log")')
    return text


def rule_for_command(tool: str, command: str) -> Rule:
    """The narrowest rule that allows this command."""
    try:
        rule = Rule.parse(f"{tool}({command})") if command.isprintable() else None
    except ConfigError:
        rule = None
    return rule if rule == Rule(tool, Form.PATTERN, command) else Rule(tool, Form.TEXT, command)


def rule_for_path(tool: str, path: Path, workspace_root: Path) -> Rule:
    """The narrowest rule that allows this file."""
    written = path.relative_to(workspace_root).as_posix() if path.is_relative_to(workspace_root) else path.as_posix()
    if not _PLAIN_PATH.fullmatch(written) or written != written.strip() or written == ".":
        return Rule(tool, Form.TEXT, written)
    return Rule(tool, Form.PATTERN, written if "/" in written else f"./{written}")


def allows_line(rule: Rule, line: str) -> bool:
    """The rule allows the line as a whole, whatever is in it."""
    if rule.form is Form.PATTERN:
        return rule.pattern == line.strip()
    return rule.form is Form.ANY or (rule.form is Form.TEXT and rule.pattern == line)


def allows_command(rule: Rule, command: SimpleCommand) -> bool:
    """The rule allows this command of a line. Variables set for it and files it writes must stand in the rule."""
    if rule.form is Form.PREFIX:
        prefix = _prefix_words(rule.pattern)
        words = command.words if _begins_with_option(prefix) else _with_no_pager(command.words)
        return not command.writes and (*command.assignments, *words)[: len(prefix)] == prefix
    if rule.form is Form.PATTERN:
        script = _script(rule.pattern)
        return not script.problem and script.commands == (command,)
    return False


def _begins_with_option(prefix: tuple[Word, ...]) -> bool:
    return len(prefix) > 1 and prefix[1].value.startswith("-")


def _with_no_pager(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """`git --no-pager log` as `git log`: no command of an agent has a pager anyway."""
    if len(words) > 1 and words[0] == Word("git") and words[1] == Word("--no-pager"):
        return (words[0], *words[2:])
    return words


def hits(rule: Rule, line: str, script: Script) -> Match:
    """Whether a denying or asking rule is about this line: any command in it counts, also one that it may run."""
    if allows_line(rule, line):
        return Match.YES
    commands = (*script.commands, *script.guesses)
    if rule.form is Form.PREFIX:
        prefix = _prefix_words(rule.pattern)
        return max((_begins_with(command, prefix) for command in commands), default=Match.NO)
    if rule.form is Form.TEXT:
        return Match.NO
    wanted = [(*command.assignments, *command.words) for command in _script(rule.pattern).commands]
    found = [max((_is_same(command, one) for command in commands), default=Match.NO) for one in wanted if one]
    return min(found, default=Match.NO)


def _begins_with(command: SimpleCommand, prefix: tuple[Word, ...]) -> Match:
    words = _without_options(_comparable(command, prefix), prefix)
    for word, expected in zip(words, prefix, strict=False):
        if word.value != expected.value:
            return Match.NO if word.is_static else Match.MAYBE
    if len(words) >= len(prefix):
        return Match.YES
    # an expansion may have become several words, or stand for those that are missing
    return Match.NO if all(word.is_static for word in words) else Match.MAYBE


def _is_same(command: SimpleCommand, wanted: tuple[Word, ...]) -> Match:
    for word, expected in zip_longest(_comparable(command, wanted), wanted):
        if word is None or expected is None or word.value != expected.value:
            return Match.MAYBE if word is not None and not word.is_static else Match.NO
    return Match.YES


def _comparable(command: SimpleCommand, pattern: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words as the pattern writes them: with assignments, or with the directory of the program, only if it does."""
    words = command.words
    if words and "/" not in pattern[0].value:
        words = (_program(words[0], pattern[0].value), *words[1:])
    return (*command.assignments, *words) if "=" in pattern[0].value else words


def _program(word: Word, expected: str) -> Word:
    """The program without its directory, and as the rule spells it: there are file systems that ignore case."""
    name = word.value.rsplit("/", 1)[-1]
    if not word.is_static and not (_KNOWN_DIRECTORY.fullmatch(word.source) and _PLAIN_NAME.fullmatch(name)):
        return word
    return Word(expected if name.casefold() == expected.casefold() else name)


def _without_options(words: tuple[Word, ...], prefix: tuple[Word, ...]) -> tuple[Word, ...]:
    """`kubectl -n x delete` as `kubectl delete`: options of a program do not hide the word that a rule is about."""
    wanted = prefix[1] if len(prefix) > 1 else None
    if wanted is None or len(words) < 2 or wanted.value.startswith("-") or not words[1].value.startswith("-"):
        return words
    if words[0].value == "git":
        return words  # its options are known: `git_commands` reads them
    is_option = True
    for position, word in enumerate(words[1:], 1):
        if word.value == wanted.value or not (word.is_static or (is_option and _IN_QUOTES.fullmatch(word.source))):
            return (words[0], *words[position:])
        if not word.value.startswith("-") and not is_option:
            return words  # a second word that is neither an option nor the value of one: another subcommand
        is_option = word.value.startswith("-") and word.value not in _WITHOUT_VALUE
    return words


@lru_cache(maxsize=512)
def _script(pattern: str) -> Script:
    return parse_line(pattern)


@lru_cache(maxsize=512)
def _prefix_words(prefix: str) -> tuple[Word, ...]:
    """The words of a prefix; none where it is not the beginning of one command."""
    script = _script(prefix)
    if script.problem or len(script.commands) != 1 or script.commands[0].writes:
        return ()
    return (*script.commands[0].assignments, *script.commands[0].words)


def matches_path(rule: Rule, path: Path, workspace_root: Path) -> bool:
    """An allowing rule is about this path."""
    if rule.form is Form.TEXT:
        return workspace_root / rule.pattern == path
    # not Path.expanduser, which drops a `./` that means something here
    return _matches_glob(posixpath.expanduser(rule.pattern), path, workspace_root)


def hides_path(rule: Rule, path: Path, workspace_root: Path) -> bool:
    """A denying or asking rule is about this path: `secrets/**` includes the directory, `*.pem` is meant everywhere."""
    if rule.form is Form.TEXT:
        return matches_path(rule, path, workspace_root)
    glob = posixpath.expanduser(rule.pattern)
    directory = glob.removesuffix("/**")
    if directory not in ("", ".", glob):
        glob = directory if "/" in directory else f"./{directory}"
    # outside the workspace there is no root but `/`
    return _matches_glob(glob, path, workspace_root if path.is_relative_to(workspace_root) else Path("/"))


def _matches_glob(glob: str, path: Path, directory: Path) -> bool:
    base = Path("/") if glob.startswith("/") else directory
    if not path.is_relative_to(base):
        return False
    relative = path.relative_to(base).as_posix()
    return _glob(glob).fullmatch("" if relative == "." else relative) is not None


@lru_cache(maxsize=512)
def _glob(glob: str) -> re.Pattern[str]:
    """A .gitignore-like glob for relative paths; what matches a directory matches all that is in it."""
    is_anchored = "/" in glob.rstrip("/")
    parts = glob.removeprefix("./").strip("/").split("/")
    regex = "" if is_anchored else "(?:.*/)?"
    for part in parts[:-1]:
        regex += "(?:.*/)?" if part == "**" else f"{_part_regex(part)}/"
    regex += ".*" if parts[-1] == "**" else _part_regex(parts[-1])
    return re.compile(f"{regex}(?:/.*)?", re.DOTALL)


def _part_regex(part: str) -> str:
    return "".join(map(_token_regex, _GLOB_TOKEN.findall(part)))


def _token_regex(token: str) -> str:
    if token[0] == "*":
        return "[^/]*"
    if token == "?":
        return "[^/]"
    if token[0] == "[" and len(token) > 2:
        is_negated = token[1] in "!^" and len(token) > 3
        inside = re.sub(r"-{2,}|[^\w-]", lambda match: f"\\{match[0][0]}", token[2 if is_negated else 1 : -1])
        return f"(?!/)[{'^' if is_negated else ''}{inside}]"
    return re.escape(token[-1])
