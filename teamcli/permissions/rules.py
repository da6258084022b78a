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
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from teamcli.claude_code.names import is_claude_tool, names_of
from teamcli.errors import ConfigError
from teamcli.permissions.claude_rules import read_claude_rule
from teamcli.permissions.command_rules import is_match, prefix_words
from teamcli.permissions.form import Form as Form
from teamcli.permissions.shell.scanner import names
from teamcli.workspace.globs import Part, matches_names, parse_names

COMMAND_TOOLS = names("bash")
READING_TOOLS = names("read_file glob grep")
WRITING_TOOLS = names("write_file edit_file")
MEMBER_TOOLS = names("merge_teammate")
_PATTERN_TOOLS = COMMAND_TOOLS | READING_TOOLS | WRITING_TOOLS | MEMBER_TOOLS

_TOOL_NAME = re.compile(r"\s*([A-Za-z*][\w*-]*)\s*", re.ASCII)
_CLAUDES_NEXT = re.compile(r"(?:(?<=\s)|\s)\s*(?=[A-Z]|mcp__)")
"""Between rules in Claude Code's form a blank is enough."""
_INSIDE = re.compile(r"""[^()'"\\]+|\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_PLAIN_PATH = re.compile(r"[\w./@+][\w./@+ -]*")


@dataclass(frozen=True, slots=True)
class Rule:
    tool: str
    """With stars in it, a pattern for names of tools."""
    form: Form
    pattern: str = ""
    written: str = ""
    """As the user wrote it, if that is in Claude Code's form."""

    @classmethod
    def parse(cls, text: str, known_tools: Collection[str] = ()) -> Rule:
        """Raises: ConfigError"""
        rules = parse_rules(text, known_tools)
        if len(rules) != 1:
            raise ConfigError(f"permission rule {text!r}: expected one rule, found {len(rules)}")
        return rules[0]

    def is_about(self, tool: str) -> bool:
        if "*" not in self.tool:
            return self.tool == tool
        return any(is_match(self.tool, name) for name in names_of(tool))

    def __str__(self) -> str:
        if self.written or self.form is Form.ANY:
            return self.written or self.tool
        inside = {
            Form.PATTERN: self.pattern,
            Form.PREFIX: f"{self.pattern}:*",
            Form.TEXT: f"={_quoted(self.pattern)}",
        }
        return f"{self.tool}({inside[self.form]})"


def parse_rules(rules: str | Iterable[str], known_tools: Collection[str] = (), kind: str = "allow") -> tuple[Rule, ...]:
    """Rules from a text in which commas separate them, or from several such texts.

    With `known_tools`, a rule about any other tool is an error. What a rule in Claude Code's form means depends on
    whether it is to `allow`, `ask` or `deny`; it may become several of ours.

    Raises: ConfigError, naming the rule at fault
    """
    texts = [rules] if isinstance(rules, str) else rules
    return tuple(rule for text in texts for rule in _scan(text, known_tools, kind))


def _scan(text: str, known_tools: Collection[str], kind: str) -> Iterator[Rule]:
    position = 0
    while position < len(text):
        if text[position] == "," or text[position].isspace():
            position += 1
            continue
        name = _TOOL_NAME.match(text, position)
        if name is None:
            raise ConfigError(f"permission rule {text[position:]!r}: expected a tool name, as in bash(git status:*)")
        end = _end_of_pattern(text, name) if text[name.end() : name.end() + 1] == "(" else name.end()
        parenthesis = text[name.end() : end].strip()
        if (is_claude_tool(name[1]) or "*" in name[1]) and name[1] not in known_tools:
            yield from _claude_rules(name[1], parenthesis, kind)
        else:
            yield _make_rule(name[1], parenthesis, known_tools)
        rest = text[end:].lstrip()
        if rest and not rest.startswith(",") and not _CLAUDES_NEXT.match(text, end):
            raise ConfigError(f"permission rule {text!r}: separate rules by commas; cannot read {rest!r}")
        position = end


def _claude_rules(name: str, parenthesis: str, kind: str) -> Iterator[Rule]:
    written = f"{name}{parenthesis}"
    try:
        meant = read_claude_rule(name, parenthesis[1:-1].strip() if parenthesis else None, kind)
        for tool, form, pattern in meant:
            if tool in READING_TOOLS | WRITING_TOOLS and form is Form.PATTERN:
                _parts(pattern)
            yield Rule(tool, form, pattern, written)
    except (ValueError, re.error) as e:
        raise ConfigError(f"permission rule {written!r}: {e}") from e


def _end_of_pattern(text: str, name: re.Match[str]) -> int:
    """The position after the parenthesis that closes the one after the name. Quoted and escaped ones do not count."""
    depth, position = 0, name.end()
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
    if is_claude_tool(name[1]) and text.rstrip().endswith(")"):  # there, quotes mean nothing: `Bash(echo it's)`
        return len(text.rstrip())
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
    if not prefix_words(prefix):
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


def matches_member(rule: Rule, member: str) -> bool:
    """Whether a rule with a name is about this teammate."""
    return rule.pattern.casefold() == member.casefold()


def matches_path(rule: Rule, path: Path, workspace_root: Path) -> bool:
    """Whether a rule that allows applies to this path."""
    if rule.form is not Form.PATTERN:
        return rule.form is Form.TEXT and workspace_root / rule.pattern == path
    return _matches_glob(_with_base(rule.pattern, workspace_root), path, workspace_root)


def hides_path(rule: Rule, path: Path, workspace_root: Path) -> bool:
    """Whether a rule that asks or denies applies: `secrets/**` includes `secrets`, and `*.pem` applies everywhere."""
    if rule.form is Form.TEXT:
        return matches_path(rule, path, workspace_root)
    glob = _with_base(rule.pattern, workspace_root)
    directory = glob.removesuffix("/**")
    if directory not in ("", ".", glob):
        glob = directory if "/" in directory else f"./{directory}"
    # outside the workspace, relative globs start at `/`, except `/src` in Claude Code's form
    is_fixed = bool(rule.written) and rule.pattern.startswith("./")
    base = workspace_root if is_fixed or path.is_relative_to(workspace_root) else Path("/")
    return _matches_glob(glob, path, base)


def _with_base(glob: str, workspace_root: Path) -> str:
    """The glob with its first directory written out, if that is a home or a directory above the workspace."""
    if glob.startswith("../"):
        above = re.sub(r"([\\*?\[\]])", r"\\\1", workspace_root.as_posix())
        return posixpath.normpath(f"{above}/{glob}")
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
