"""Reads a command line the way bash will: every simple command in it, as words with quotes and escapes resolved.

The tree comes from tree-sitter, which is more forgiving than bash: wherever the two could differ (a gap it skipped, a
word that bash would split otherwise, an exotic heredoc) the line counts as not understood, so that nothing is allowed
on the strength of a wrong reading. This is care, not a security border: that is the sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Language, Node

MAX_BYTES = 32 * 1024


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD_NODES = names(
    "word number string raw_string ansi_c_string translated_string concatenation simple_expansion expansion "
    "command_substitution process_substitution arithmetic_expansion brace_expression variable_name "
    "special_variable_name variable_assignment"
)
_COMMAND_NODES = names(
    "command declaration_command unset_command test_command variable_assignment variable_assignments"
)
_OTHER_NODES = names(
    "program redirected_statement for_statement c_style_for_statement while_statement do_group if_statement "
    "elif_clause else_clause case_statement case_item function_definition compound_statement subshell pipeline list "
    "negated_command command_name subscript array file_redirect heredoc_redirect herestring_redirect heredoc_start "
    "heredoc_body heredoc_content heredoc_end file_descriptor test_operator regex extglob_pattern comment "
    "string_content unary_expression binary_expression postfix_expression ternary_expression "
    "parenthesized_expression"
)
_KNOWN_NODES = _WORD_NODES | _COMMAND_NODES | _OTHER_NODES

_FREE_TEXT_NODES = frozenset({"string", "heredoc_body", "expansion", "regex", "extglob_pattern"})
"""What lies between the children of these is text, not only blanks."""
_ONE_LINE_NODES = names(
    "command command_name concatenation declaration_command unset_command variable_assignment variable_assignments "
    "file_redirect herestring_redirect redirected_statement negated_command "
    "test_command binary_expression unary_expression parenthesized_expression"
)
_GAPLESS_NODES = names("translated_string concatenation command_name variable_assignment simple_expansion")
_BLANK_NODES = names("negated_command test_command")
"""Their first and last token must stand apart to mean what tree-sitter takes them for."""
_STATEMENT_PARENTS = names(
    "program list pipeline subshell compound_statement do_group if_statement elif_clause else_clause while_statement "
    "case_item negated_command redirected_statement command_substitution process_substitution "
    "heredoc_redirect"
)
_BARE_ARGUMENTS = names("$ == =~ declare typeset export readonly local unset unsetenv")
_REDIRECTION_PARTS = names("file_redirect herestring_redirect heredoc_redirect heredoc_start heredoc_body heredoc_end")
_LITERAL_LEAVES = frozenset({"string_content", "heredoc_content", "heredoc_body", "regex", "extglob_pattern"})

_MASK = bytes(byte if byte < 0x80 else ord("^") for byte in range(0x100))
"""The scanner of tree-sitter-bash 0.25.1 reads outside its memory at characters such as 🎉, which ends the process.

To bash they are plain letters of a word that can stand in no name, as `^` is; positions stay the same."""
_EMPTY_EXPANSIONS = frozenset({"``", "$()", "$@", "$*", "${@}", "${*}"})
"""Nothing, in a line that is run without arguments: a known way to write `su$@do`."""
_ONE_PLAIN_COMMAND = re.compile(r"[\w./:=@%+,-][\w./:=@%+, -]*", re.ASCII)
"""Most lines: nothing in it means anything to the shell, so that blanks alone separate the words."""
_BLANKS = re.compile(rb"(?:[ \t]|\\\n)*")
_BLANKS_AND_LINES = re.compile(rb"(?:[ \t\n]|\\\n)*")
_PLAIN_WORD = re.compile(rb"(?!#)(?:[^\s'\"\\$`;|&<>()\x00]|\\[^\n])+")
_VARIABLE_NAME = re.compile(rb"\d+|[A-Za-z_]\w*", re.ASCII)
_HIDDEN_EXPANSION = re.compile(rb"(?:\\.|[^\\`$]|\$(?![\w({\[@*#?$!'\"-]))*", re.DOTALL)
_EXPANDS_UNQUOTED = re.compile(r"(?:\\.|[^\\])*?(?:[*?\[{]|(?:^|[=:])~)", re.DOTALL)
_HEREDOC_DELIMITER = re.compile(r"""\w+|'\w+'|"\w+\"""", re.ASCII)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[.*\])?\+?=", re.ASCII | re.DOTALL)
_REDIRECTION = re.compile(r"(?:(?<!\d)\d{1,3})?(?:&>>?|[<>]{1,3}[|&]?)\s*[^\s;|&()<>]+")
_BRACES = re.compile(r"([^\s{}]*)\{([^\s{}]*)\}([^\s{}]*)")
_LOST_DASH = re.compile(rb"[ \t]+-[ \t]+")
"""tree-sitter loses the `-` of `python - <<EOF`."""
_FD_TARGET = re.compile(r"\d*-?")
_PLAIN_EXPANSION = re.compile(
    r"\$\{(?:!\w+(?:\[[@*]\]|[@*])|#?(?:\w+|[@*#?$!-])(?:\[(?:\d+|[@*])\])?"
    r"(?:|:[-=?+].*|:[\d\s:()-]*|@[^P]|[-=?+#%/^,].*))\}",
    re.ASCII | re.DOTALL,
)
"""Not in it: `${!x}`, `${x@P}`, and subscripts or offsets that bash would evaluate."""
_NAMELESS_ARITHMETIC = re.compile(r"(?:0[xX][0-9a-fA-F]+|\d+|[\s()\[\]+*/%<>=!&|^~?:,;-]|^\$)*")

_RESERVED = names("if then else elif fi do done case esac while until for select function { } [[ ]] ! in")
_HARMLESS_TARGETS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})


class Word(NamedTuple):
    value: str
    """Quotes and escapes resolved; an expansion stands in it as written."""
    source: str = ""
    """As written, where the value is known only when the shell runs it (`$X`, `*.py`, `~`); empty for a static word."""

    @property
    def is_static(self) -> bool:
        return not self.source


class SimpleCommand(NamedTuple):
    words: tuple[Word, ...]
    """Name and arguments; empty for assignments or redirections that stand alone."""
    assignments: tuple[Word, ...] = ()
    """`NAME=value` in front of the name."""
    writes: tuple[Word, ...] = ()
    """Files that its redirections write (`/dev/null` and other descriptors are none)."""


class Script(NamedTuple):
    commands: tuple[SimpleCommand, ...]
    """Every simple command; where `problem` says that the line was not understood, each place where one may begin."""
    problem: str = ""
    """Why it cannot be known what the line runs; empty where all is known."""
    has_fork_bomb: bool = False
    inputs: tuple[Word, ...] = ()
    """Heredocs and herestrings: what commands are given to read."""
    guesses: tuple[SimpleCommand, ...] = ()
    """What it may run besides: for denials, never to allow anything."""


ANYTHING = SimpleCommand((Word("", "what it runs"),))
"""Stands among the guesses where a line may run whatever there is."""


class _NotUnderstood(Exception):
    """Control flow: the line is not one that bash and this module surely read alike."""


def parse_line(text: str) -> Script:
    """Every simple command of `text`, without looking into commands that run others. Never raises."""
    if _ONE_PLAIN_COMMAND.fullmatch(text):
        words = text.split()
        if words[0] not in _RESERVED and "=" not in words[0]:
            return Script((SimpleCommand(tuple(map(Word, words))),))
    try:
        source = text.encode()
    except UnicodeEncodeError:
        return _not_understood(text, "it is not valid text")
    if len(source) > MAX_BYTES:
        return _not_understood(text, f"it is longer than {MAX_BYTES} bytes")
    try:
        return _Reader(source).read()
    except _NotUnderstood as e:
        return _not_understood(text, str(e))


def _not_understood(text: str, why: str) -> Script:
    return Script(guess_commands(text), why, guesses=(ANYTHING,))


def guess_commands(text: str) -> tuple[SimpleCommand, ...]:
    """For a text that cannot be parsed: what stands where a command may begin, so that denials still work."""
    bare = _without_braces(re.sub(r"\\\n|\$?['\"]|\\|\$\(\)|``", "", text))
    writes = tuple(Word(target) for target in re.findall(r">[|&]?\s*([^\s;|&()<>]+)", bare))
    commands = [SimpleCommand((), (), writes)] if writes else []
    for segment in re.split(r"[;|&()<>`\n{}]+", _REDIRECTION.sub(" ", bare)):
        words = [Word(word, word if "$" in word else "") for word in segment.split()]
        begin = next((i for i, word in enumerate(words) if not _precedes_command(word.value)), len(words))
        if words[begin:]:
            commands.append(SimpleCommand(tuple(words[begin:])))
    return tuple(commands)


def _without_braces(text: str) -> str:
    """`{rm,-rf,/}` as bash would expand it."""
    return re.sub(r"\S+", _expand_braces, text) if "{" in text else text


def _expand_braces(word: re.Match[str]) -> str:
    found = _BRACES.fullmatch(word[0])
    if found is None or "," not in found[2]:
        return word[0]
    return " ".join(f"{found[1]}{part}{found[3]}" for part in found[2].split(","))


def _precedes_command(word: str) -> bool:
    return word in _RESERVED or _ASSIGNMENT.match(word) is not None


@cache
def _bash_grammar() -> Language:
    # 20 ms, and only a session that runs a command needs it
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Language(tree_sitter_bash.language())


def _parse_tree(source: bytes) -> Node:
    from tree_sitter import Parser

    # a parser must not be shared between threads, and a new one costs half a microsecond
    return Parser(_bash_grammar()).parse(source.translate(_MASK)).root_node


class _Reader:
    """One pass over the tree of one line: checks that nothing was skipped, and collects the commands."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.commands: list[SimpleCommand] = []
        self.problem = ""
        self.evaluates = False
        self.hides_commands = False
        """Quoted text in it holds what would be a substitution where text is evaluated."""
        self.has_fork_bomb = False
        self.inputs: list[Word] = []
        self._read_with_redirections: set[int] = set()

    def read(self) -> Script:
        root = _parse_tree(self.source)
        if root.has_error:
            raise _NotUnderstood("it cannot be parsed")
        self._check_gap(0, root.start_byte, "program")
        self._check_gap(root.end_byte, len(self.source), "program")
        # no recursion: `a && b && c …` nests as deep as it is long
        stack = [root]
        while stack:
            node = stack.pop()
            children = node.children
            self._check(node, children)
            self._collect(node)
            stack.extend(reversed(children))
        guesses = guess_commands(self.source.decode()) if self.evaluates else ()
        guesses = (*guesses, ANYTHING) if guesses and self.hides_commands else guesses
        return Script(tuple(self.commands), self.problem, self.has_fork_bomb, tuple(self.inputs), guesses)

    def _check(self, node: Node, children: Sequence[Node]) -> None:
        kind = node.type
        if node.is_named and kind not in _KNOWN_NODES:
            raise _NotUnderstood(f"it contains a construct that is not understood ({kind})")
        if not children:
            self._check_leaf(node, kind)
            return
        position = node.start_byte
        for child in children:
            if child.start_byte != position:
                self._check_gap(position, child.start_byte, kind)
            position = child.end_byte
        if position != node.end_byte:
            self._check_gap(position, node.end_byte, kind)
        if kind in _BLANK_NODES:
            _check_apart(children)
        elif kind == "compound_statement" and children[0].type == "{":
            _check_apart(children[:2])

    def _check_gap(self, start: int, end: int, parent: str) -> None:
        """tree-sitter skips what it takes for blanks; bash may see more in it."""
        if end < start:
            raise _NotUnderstood("its parts overlap")
        gap = self.source[start:end]
        if gap in (b"", b" ") and (not gap or parent not in _GAPLESS_NODES):
            return
        if parent == "redirected_statement" and _LOST_DASH.fullmatch(gap):
            return
        if parent in _FREE_TEXT_NODES:
            _check_literal(gap)
        elif parent in _GAPLESS_NODES or not (_BLANKS if parent in _ONE_LINE_NODES else _BLANKS_AND_LINES).fullmatch(
            gap
        ):
            raise _NotUnderstood("it contains characters that the shell reads otherwise")
        elif not gap.replace(b"\\\n", b""):
            raise _NotUnderstood("a word goes on in the next line")

    def _check_leaf(self, node: Node, kind: str) -> None:
        text = self.source[node.start_byte : node.end_byte]
        self.hides_commands = self.hides_commands or _hides_commands(kind, text)
        if kind == "word":
            if not _PLAIN_WORD.fullmatch(text):
                raise _NotUnderstood("it contains a word that the shell reads otherwise")
        elif kind == "variable_name":
            is_assigned = _parent_of(node).type in ("variable_assignment", "subscript")
            if not _VARIABLE_NAME.fullmatch(text) or (is_assigned and text.isdigit()):
                raise _NotUnderstood("it contains a name that the shell reads otherwise")
        elif kind == "comment":
            self._check_comment(node)
        elif kind in ("((", "$((", "$[") and not _is_plain_arithmetic(self._text(_parent_of(node))):
            raise _NotUnderstood("it contains arithmetic that is not understood")
        elif kind == "`" and b"\\" in self.source[node.start_byte : _parent_of(node).end_byte]:
            raise _NotUnderstood("it escapes characters inside back-quotes")
        elif kind == "regex" and re.search(rb"[<>]\(", text):
            raise _NotUnderstood("it contains a substitution that is not understood")
        elif kind in _LITERAL_LEAVES and not (kind == "heredoc_body" and self._is_quoted_heredoc(node)):
            _check_literal(text)

    def _check_comment(self, node: Node) -> None:
        before = self.source[node.start_byte - 1 : node.start_byte] if node.start_byte else b"\n"
        after = self.source[node.end_byte : node.end_byte + 1]
        if before not in b" \t\n;|&()" or after not in (b"", b"\n"):
            raise _NotUnderstood("it contains a comment that the shell reads otherwise")

    def _is_quoted_heredoc(self, body: Node) -> bool:
        start = next(child for child in _parent_of(body).children if child.type == "heredoc_start")
        return self._text(start)[:1] in ("'", '"')

    def _collect(self, node: Node) -> None:
        kind = node.type
        if kind == "redirected_statement":
            self._collect_redirected(node)
        elif kind == "heredoc_redirect":
            self._check_heredoc(node)
        elif kind == "herestring_redirect":
            self.inputs.append(self._word(node.children[-1]))
        elif kind == "subscript":
            self.evaluates = self.evaluates or not re.search(r"\[\d+\]", self._text(node))
        elif kind in ("expansion", "arithmetic_expansion", "compound_statement", "c_style_for_statement"):
            self._check_evaluation(node, kind)
        elif kind == "function_definition":
            self.has_fork_bomb = self.has_fork_bomb or self._is_fork_bomb(node)
        elif kind in _COMMAND_NODES and node.id not in self._read_with_redirections:
            parent = node.parent
            if kind == "variable_assignment" and parent is not None and parent.type not in _STATEMENT_PARENTS:
                return  # belongs to a command that reads it itself
            self._add(node, ())

    def _check_evaluation(self, node: Node, kind: str) -> None:
        """The value of a variable may hold `a[$(command)]`: wherever bash evaluates one as arithmetic, that runs."""
        text = self._text(node)
        if kind == "expansion":
            is_known = _PLAIN_EXPANSION.fullmatch(text) is not None
        else:
            is_known = node.children[0].type == "{" or _NAMELESS_ARITHMETIC.fullmatch(text) is not None
        if not is_known:
            self.evaluates = True
            self.problem = self.problem or "it evaluates text that is known only when it runs"

    def _collect_redirected(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        redirections = [child for child in node.children if child.type in _REDIRECTION_PARTS]
        # in `a && b > f` the redirection belongs to b
        while body is not None and body.type in ("list", "pipeline", "negated_command"):
            body = body.children[-1]
        if body is not None and body.type in _COMMAND_NODES:
            self._read_with_redirections.add(body.id)
            self._add(body, redirections)
            if self._has_lost_dash(node):
                self.commands[-1] = _with_argument(self.commands[-1], Word("-"))
            return
        command = self._command(redirections)
        if (command.words and body is not None) or self._has_lost_dash(node):
            raise _NotUnderstood("arguments follow a redirection")
        if command.words or command.writes:
            self._append(command)

    def _has_lost_dash(self, node: Node) -> bool:
        return any(
            _LOST_DASH.fullmatch(self.source, before.end_byte, after.start_byte)
            for before, after in pairwise(node.children)
        )

    def _add(self, node: Node, redirections: Sequence[Node]) -> None:
        if node.type == "test_command":
            opening = node.children[0].type
            inside = self._text(node)
            if opening == "[" and not _is_one_command(inside):
                raise _NotUnderstood("it contains a test that the shell reads otherwise")
            self.evaluates = self.evaluates or (
                opening == "[[" and re.search(r"-[lgne][teq]\b|-v\b", inside) is not None
            )
            command = self._command(redirections)
            self._append(SimpleCommand((Word(opening), Word(inside, inside), *command.words), (), command.writes))
        elif node.type == "variable_assignment":
            self._append(self._command((node, *redirections)))
        else:
            self._append(self._command((*node.children, *redirections)))

    def _append(self, command: SimpleCommand) -> None:
        self.commands.append(command)
        if command.words and not command.words[0].is_static:
            self.problem = self.problem or f"`{command.words[0].source}` is known only when it runs"

    def _command(self, parts: Sequence[Node]) -> SimpleCommand:
        words: list[Word] = []
        assignments: list[Word] = []
        writes: list[Word] = []
        parts = list(_flat_parts(parts))
        _check_apart([part for part in parts if part.type != "heredoc_end"])
        for part in parts:
            if part.type == "file_redirect":
                words += self._redirection(part, writes)
            elif part.type == "variable_assignment" and not words:
                assignments.append(self._word(part))
            elif part.type not in _REDIRECTION_PARTS and not self._is_descriptor(part):
                words.append(self._argument(part))
        return SimpleCommand(tuple(words), tuple(assignments), tuple(writes))

    def _is_descriptor(self, node: Node) -> bool:
        """The `2` of a `2>&1` behind a joined line, which tree-sitter calls a word."""
        if self.source[node.end_byte : node.end_byte + 1] not in (b"<", b">"):
            return False
        if self.source.endswith(b"}", node.start_byte, node.end_byte):
            raise _NotUnderstood("it names a variable in a redirection")
        return self._text(node).isdecimal()

    def _argument(self, node: Node) -> Word:
        if node.type == "command_name":
            if self._text(node) in _RESERVED or _ASSIGNMENT.match(self._text(node)):
                raise _NotUnderstood(f"`{self._text(node)}` stands where a command is expected")
            return self._word(node.children[0])
        if node.type not in _WORD_NODES and node.type not in _BARE_ARGUMENTS:
            raise _NotUnderstood(f"it contains an argument that is not understood ({node.type})")
        return self._word(node)

    def _redirection(self, node: Node, writes: list[Word]) -> list[Word]:
        """Note the file that is written; return the arguments behind it, which tree-sitter calls targets too."""
        operator = next(child.type for child in node.children if not child.is_named)
        target_nodes = [part for part in node.children if part.type in _WORD_NODES and not self._is_descriptor(part)]
        _check_apart(target_nodes)
        targets = [self._word(child) for child in target_nodes]
        if operator in ("<&-", ">&-"):
            return targets
        if not targets or (operator.endswith("&") and re.match("-.", targets[0].value)):
            raise _NotUnderstood("a redirection has a target that is not understood")
        if ">" in operator and not _is_no_file(targets[0], operator):
            writes.append(targets[0])
        return targets[1:]

    def _check_heredoc(self, node: Node) -> None:
        parts = {child.type: child for child in node.children}
        start, body, end = parts.get("heredoc_start"), parts.get("heredoc_body"), parts.get("heredoc_end")
        if start is None or body is None or end is None or not self._is_plain_delimiter(start):
            raise _NotUnderstood("it contains a heredoc that is not understood")
        if self.source.count(b"\n", start.end_byte, body.start_byte) != 1:
            raise _NotUnderstood("it contains a heredoc that begins in a later line")
        delimiter = self._text(start).strip("'\"")
        begin = self.source.index(b"\n", start.end_byte) + 1
        lines = self.source[begin:].decode().split("\n")
        if "<<-" in parts:
            lines = [line.lstrip("\t") for line in lines]
        text_lines = self.source[begin : end.end_byte].decode().count("\n")
        if delimiter not in lines or lines.index(delimiter) != text_lines:
            raise _NotUnderstood("it contains a heredoc whose end is not understood")
        if delimiter == self._text(start) and any(line.endswith("\\") for line in lines[:text_lines]):
            raise _NotUnderstood("it contains a heredoc with joined lines")
        text = self._text(body)
        self.inputs.append(Word(text, "" if self._is_quoted_heredoc(body) else text))

    def _is_plain_delimiter(self, start: Node) -> bool:
        is_whole = self.source[start.end_byte : start.end_byte + 1] in b" \t\n;|&<>)"
        return is_whole and _HEREDOC_DELIMITER.fullmatch(self._text(start)) is not None

    def _is_fork_bomb(self, function: Node) -> bool:
        """A function that does nothing but start itself twice, side by side."""
        name = self._text(function.children[1 if function.children[0].type == "function" else 0])
        nodes = list(_descendants(function))
        kinds = {node.type for node in nodes}
        calls = [node for node in nodes if node.type == "command_name" and self._word(node.children[0]).value == name]
        is_conditional = bool(kinds & {"if_statement", "case_statement", "list"})
        return len(calls) >= 2 and bool(kinds & {"pipeline", "&"}) and not is_conditional

    def _text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode()

    def _word(self, node: Node) -> Word:
        value, is_static = self._value(node)
        return Word(value) if is_static else Word(value, self._text(node))

    def _value(self, node: Node) -> tuple[str, bool]:
        """The value of a word or of a part of one, and whether it is static."""
        kind, text = node.type, self._text(node)
        if text in _EMPTY_EXPANSIONS:
            return "", False
        if kind == "word" or (kind in ("number", "variable_name") and not node.children) or not node.is_named:
            # the token `$` may also be a `$$`, the process id
            return _resolve_unquoted(text), text != "$$" and not _EXPANDS_UNQUOTED.match(text)
        if kind == "raw_string":
            return text[1:-1], True
        if kind == "ansi_c_string":
            return _resolve_ansi_c(text[2:-1]), True
        if kind == "string":
            return self._string_value(node)
        if kind == "concatenation" or (kind == "variable_assignment" and node.children[-1].type != "array"):
            return self._joined_value(node, text)
        return text, False

    def _string_value(self, node: Node) -> tuple[str, bool]:
        parts = []
        position = node.start_byte + 1
        expansions = [child for child in node.named_children if child.type != "string_content"]
        for expansion in expansions:
            parts.append(_resolve_double_quoted(self.source[position : expansion.start_byte].decode()))
            parts.append(self._text(expansion))
            position = expansion.end_byte
        parts.append(_resolve_double_quoted(self.source[position : node.end_byte - 1].decode()))
        return "".join(parts), not expansions

    def _joined_value(self, node: Node, text: str) -> tuple[str, bool]:
        if any(child.type == "$" for child in node.children[:-1]):
            raise _NotUnderstood("it contains a `$` that is not understood")
        parts = [self._value(child) for child in node.children]
        value = "".join(part for part, _ in parts)
        if text == "{}":
            return value, True
        return value, all(is_static for _, is_static in parts) and not _EXPANDS_UNQUOTED.match(_unquoted(node))


def _flat_parts(parts: Sequence[Node]) -> Iterator[Node]:
    """The parts of a command; of a heredoc only what stands behind it in the same command."""
    for part in parts:
        if part.type == "heredoc_redirect":
            yield from (child for child in part.children if child.type == "file_redirect" or child.type in _WORD_NODES)
        elif part.type in ("subshell", "comment"):
            raise _NotUnderstood("it contains parentheses that are not understood")
        else:
            yield part


def _check_apart(words: Sequence[Node]) -> None:
    if any(
        before.end_byte == after.start_byte and after.type not in _REDIRECTION_PARTS
        for before, after in pairwise(words)
    ):
        raise _NotUnderstood("it joins words in a way that is not understood")


def _is_one_command(test: str) -> bool:
    """`[` is a command like any other: what means something to the shell means it there too."""
    root = _parse_tree(b"test" + test[1:].encode())
    return not root.has_error and [child.type for child in root.children] == ["command"]


def _with_argument(command: SimpleCommand, argument: Word) -> SimpleCommand:
    return SimpleCommand((*command.words, argument), command.assignments, command.writes)


def _is_no_file(target: Word, operator: str) -> bool:
    if not target.is_static:
        return False
    is_descriptor = operator == ">&" and _FD_TARGET.fullmatch(target.value) is not None
    return is_descriptor or target.value in _HARMLESS_TARGETS


def _parent_of(node: Node) -> Node:
    assert node.parent is not None, "only the root has no parent"
    return node.parent


def _descendants(node: Node) -> Iterator[Node]:
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(current.children)


def _hides_commands(kind: str, text: bytes) -> bool:
    if kind == "raw_string":
        return re.search(rb"\$\(|\$'\Z|`", text) is not None
    if kind == "ansi_c_string":
        return re.search(rb"[$`\\]", text) is not None
    return kind in ("word", "string_content") and re.search(rb"\\[$`]", text) is not None


def _check_literal(text: bytes) -> None:
    """Text that the tree calls literal must not hold an expansion that bash would see."""
    if not _HIDDEN_EXPANSION.fullmatch(text):
        raise _NotUnderstood("it contains an expansion that is not understood")


def _is_plain_arithmetic(text: str) -> bool:
    """bash takes `((` for two subshells where the parentheses do not fit; quotes make them hard to count."""
    return not re.search(r"['\"\\#`]|\bcase\b", text) and text.count("(") == text.count(")")


def _unquoted(node: Node) -> str:
    """The unquoted text of a word, each quoted part replaced by an escaped blank: what bash looks at for globs."""
    texts = []
    for child in node.children:
        text = (child.text or b"").decode()
        texts.append(text if child.type in ("word", "number", "variable_name") or not child.is_named else "\\ ")
    return "".join(texts)


def _resolve_unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL) if "\\" in text else text


def _resolve_double_quoted(text: str) -> str:
    if "\\" not in text:
        return text
    return re.sub(r'\\([$`"\\\n])', lambda m: "" if m[1] == "\n" else m[1], text)


_ANSI_C_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|.)", re.DOTALL)
_ANSI_C_LETTERS = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


def _resolve_ansi_c(text: str) -> str:
    return _ANSI_C_ESCAPE.sub(_ansi_c_character, text) if "\\" in text else text


def _ansi_c_character(match: re.Match[str]) -> str:
    escape = match[1]
    if escape in _ANSI_C_LETTERS:
        return _ANSI_C_LETTERS[escape]
    if escape[0] in "xuU" and len(escape) > 1:
        code, limit = int(escape[1:], 16), 0x80 if escape[0] == "x" else 0xD800
    elif escape[0] in "01234567":
        code, limit = int(escape, 8), 0x80
    else:
        raise _NotUnderstood("it contains an escape that is not understood")
    # beyond these bash cuts the word, or makes bytes that are no text
    if not 0 < code < limit:
        raise _NotUnderstood("it contains a character code that is not understood")
    return chr(code)
