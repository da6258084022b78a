"""Permission rules: `tool`, `tool(pattern)` and `tool(="exact text")`; how they are written, and what each one matches.

For `bash` a pattern is one command (`git status`) or the words that commands begin with (`git log:*`). For file tools
it is a glob as in .gitignore: `src/**` and `./a.py` from the workspace root, `*.pem` at any depth, `/abs/**` or `~/x`
outside. For `merge_teammate` it is a name. `="…"` (a JSON string) is the form for texts that would otherwise be read as
a list, a glob or a prefix.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path

from teamcli.errors import ConfigError
from teamcli.permissions.shell.commands import LineReading
from teamcli.permissions.shell.forms import never_covered
from teamcli.permissions.shell.loose import FoundCommand, Word
from teamcli.permissions.shell.scanner import names
from teamcli.permissions.shell.strict import Command, NotUnderstood, read_line
from teamcli.workspace.globs import Part, matches_names, parse_names

COMMAND_TOOLS = names("bash")
READING_TOOLS = names("read_file glob grep")
WRITING_TOOLS = names("write_file edit_file")
MEMBER_TOOLS = names("merge_teammate")
_PATTERN_TOOLS = COMMAND_TOOLS | READING_TOOLS | WRITING_TOOLS | MEMBER_TOOLS

_TOOL_NAME = re.compile(r"\s*([A-Za-z][\w-]*)\s*", re.ASCII)
_INSIDE = re.compile(r"""[^()'"\\]+|\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_PLAIN_PATH = re.compile(r"[\w./@+][\w./@+ -]*")
_WITHOUT_VALUE = names("-p -P --paginate --no-pager --bare --no-optional-locks --verbose -v --debug -q --quiet")
_ONE_WORD = re.compile(r'"[^"@*]*"')


class Form(StrEnum):
    ANY = "any"
    """`bash`: every call of the tool."""
    PATTERN = "pattern"
    """`bash(git status)`, `edit_file(src/**)`"""
    PREFIX = "prefix"
    """`bash(git log:*)`"""
    TEXT = "text"
    """`bash(="git log")`: this text and nothing else."""


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
        rest = text[end:].lstrip()
        if rest and not rest.startswith(","):
            raise ConfigError(f"permission rule {text!r}: separate rules by commas; cannot read {rest!r}")
        position = end


def _end_of_pattern(text: str, start: int) -> int:
    """The position after the parenthesis that closes the one at `start`. Quoted and escaped ones do not count."""
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


def _make_rule(tool: str, parenthesis: str, known_tools: Collection[str]) -> Rule:
    written = f"{tool}{parenthesis}"
    if known_tools and tool not in known_tools:
        raise ConfigError(f"permission rule {written!r}: there is no tool {tool!r}{_hint(tool, known_tools)}")
    if not parenthesis:
        return Rule(tool, Form.ANY)
    if tool not in _PATTERN_TOOLS:
        raise ConfigError(f"permission rule {written!r}: {tool} takes no pattern; write {tool} alone")
    pattern = parenthesis[1:-1].strip()
    if tool in MEMBER_TOOLS:
        return Rule(tool, Form.PATTERN, pattern)
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
        raise ValueError("what precedes `:*` must be the beginning of one plain command")
    return Rule(tool, Form.PREFIX, prefix)


def _path_rule(tool: str, pattern: str) -> Rule:
    if pattern.startswith("="):
        return Rule(tool, Form.TEXT, _unquoted(pattern[1:]))
    if not pattern or pattern.endswith(":*"):
        raise ValueError("expected a glob such as src/** (`:*` is for commands)")
    if ".." in pattern.split("/"):
        raise ValueError("a path pattern cannot contain `..`; write an absolute path")
    if "\0" in pattern:
        raise ValueError("a path pattern cannot contain a NUL character")
    try:
        _parts(pattern)
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
        raise ValueError('expected a JSON string after the equals sign, as in bash(="git log")')
    return text


def rule_for_command(tool: str, command: str) -> Rule:
    """The narrowest rule that allows this command, if it is one that rules can allow."""
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


def is_line(rule: Rule, line: str) -> bool:
    """Whether the rule is for exactly this line."""
    return rule.pattern == (line.strip() if rule.form is Form.PATTERN else line) and rule.form is not Form.PREFIX


def covers(rule: Rule, command: Command) -> bool:
    """Whether a rule that allows applies to this command of a line."""
    if rule.form is Form.PREFIX:
        prefix = _prefix(rule.pattern)
        if prefix is None or command.words[: len(prefix.words)] != prefix.words:
            return False
        return set(prefix.assignments) <= set(command.assignments) and not never_covered(command.words)
    return rule.form is Form.PATTERN and _commands(rule.pattern) == (command,)


def hits(rule: Rule, line: str, reading: LineReading) -> bool:
    """Whether a rule that asks or denies applies to this line: to a command in it, or to a part that is unknown."""
    # A line that is not fully understood may run anything, so every rule that denies commands applies.
    if is_line(rule, line) or reading.doubt:
        return True
    found = [*reading.commands, *reading.guesses]
    if rule.form is Form.PREFIX:
        return any(_begins_with(command, _prefix_words(rule.pattern)) for command in found)
    wanted = [(*command.assignments, *command.words) for command in _commands(rule.pattern)]
    is_wanted = rule.form is Form.PATTERN and bool(wanted)
    return is_wanted and all(any(_is_same(command, words) for command in found) for words in wanted)


def _begins_with(command: FoundCommand, prefix: Sequence[str]) -> bool:
    """Options do not hide the word that a rule is about: `kubectl -n x delete` is a `kubectl delete`."""
    words = _comparable(command, prefix)
    is_value, at = False, 0
    for word in words:
        if at == len(prefix):
            break
        if word.source and not (is_value and _ONE_WORD.fullmatch(word.source)):
            return True  # an expansion may become any word, or several
        if word.value == prefix[at]:
            at, is_value = at + 1, False
        elif at == 0 or prefix[at].startswith("-") or not (is_value or word.value.startswith("-")):
            return False
        else:
            is_value = word.value.startswith("-") and "=" not in word.value and word.value not in _WITHOUT_VALUE
    return at == len(prefix) or (at > 0 and command.is_open)


def _is_same(command: FoundCommand, wanted: Sequence[str]) -> bool:
    for word, expected in zip_longest(_comparable(command, wanted), wanted):
        if word is None or word.value != expected:
            return word is not None and bool(word.source)
    return True


def _comparable(command: FoundCommand, pattern: Sequence[str]) -> tuple[Word, ...]:
    """The words as the pattern writes them: with assignments, or with the directory of the program, only if it does.

    Some file systems ignore case, so the name of a program is compared without it.
    """
    words = command.words
    if words and "/" not in pattern[0] and not words[0].source:
        name = words[0].value.rsplit("/", 1)[-1]
        words = (Word(pattern[0] if name.casefold() == pattern[0].casefold() else name), *words[1:])
    return (*command.assignments, *words) if "=" in pattern[0] else words


@lru_cache(maxsize=512)
def _commands(pattern: str) -> tuple[Command, ...]:
    """The commands of a pattern; none if it is not one that rules can allow."""
    try:
        return read_line(pattern)
    except NotUnderstood:
        return ()


def _prefix(pattern: str) -> Command | None:
    commands = _commands(pattern)
    return commands[0] if len(commands) == 1 and not commands[0].writes else None


def _prefix_words(pattern: str) -> tuple[str, ...]:
    """The words of a prefix; none if it is not the beginning of one command."""
    if prefix := _prefix(pattern):
        return (*prefix.assignments, *prefix.words)
    # words such as `time`, `[` and X=1 can be denied, though nothing with them is ever allowed
    return tuple(pattern.split()) if re.fullmatch(r"(?!if\b)[\w./+@=:,%!\[ -]+", pattern) else ()


def matches_member(rule: Rule, member: str) -> bool:
    """Whether a rule with a name is about this teammate."""
    return rule.pattern.casefold() == member.casefold()


def matches_path(rule: Rule, path: Path, workspace_root: Path) -> bool:
    """Whether a rule that allows applies to this path."""
    if rule.form is Form.TEXT:
        return workspace_root / rule.pattern == path
    return _matches_glob(_with_home(rule.pattern), path, workspace_root)


def hides_path(rule: Rule, path: Path, workspace_root: Path) -> bool:
    """Whether a rule that asks or denies applies: `secrets/**` includes `secrets`, and `*.pem` applies everywhere."""
    if rule.form is Form.TEXT:
        return matches_path(rule, path, workspace_root)
    glob = _with_home(rule.pattern)
    directory = glob.removesuffix("/**")
    if directory not in ("", ".", glob):
        glob = directory if "/" in directory else f"./{directory}"
    # outside the workspace, relative globs start at `/`
    return _matches_glob(glob, path, workspace_root if path.is_relative_to(workspace_root) else Path("/"))


def _with_home(glob: str) -> str:
    # not Path.expanduser, which drops a leading `./`, and that has a meaning here
    try:
        return posixpath.expanduser(glob)
    except ValueError:  # `~` and a name that cannot be looked up
        return glob


def _matches_glob(glob: str, path: Path, directory: Path) -> bool:
    base = Path("/") if glob.startswith("/") else directory
    return path.is_relative_to(base) and matches_names(_parts(glob), path.relative_to(base).parts, covers_contents=True)


@lru_cache(maxsize=512)
def _parts(glob: str) -> tuple[Part, ...]:
    """As in .gitignore: a glob without a directory is about names at any depth."""
    parts = glob.removeprefix("./").strip("/").split("/")
    return parse_names(parts if "/" in glob.rstrip("/") else ["**", *parts])
