"""Every simple command in a line, at any depth, from the parse tree of tree-sitter: for rules that ask or deny.

tree-sitter forgives more than bash does. Wherever the two may differ (skipped text, a word that bash would split
otherwise, an unusual here-document), the line counts as one that does not parse, and then rules that deny count as
matching. So a wrong reading never lifts a rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from teamcli.permissions.shell.strict import names

if TYPE_CHECKING:
    from tree_sitter import Language, Node

_WORDS = names(
    "word number string raw_string ansi_c_string translated_string concatenation simple_expansion expansion "
    "command_substitution process_substitution arithmetic_expansion brace_expression variable_name "
    "special_variable_name variable_assignment"
)
_COMMANDS = names("command declaration_command unset_command test_command variable_assignment")
_KNOWN = (
    _WORDS
    | _COMMANDS
    | names(
        "program redirected_statement for_statement c_style_for_statement while_statement do_group if_statement "
        "elif_clause else_clause case_statement case_item function_definition compound_statement subshell pipeline "
        "list negated_command command_name subscript array file_redirect heredoc_redirect herestring_redirect "
        "heredoc_start heredoc_body heredoc_content heredoc_end file_descriptor test_operator regex "
        "extglob_pattern comment string_content unary_expression binary_expression postfix_expression "
        "ternary_expression parenthesized_expression variable_assignments"
    )
)
_FREE_TEXT = names("string heredoc_body expansion regex extglob_pattern")
_GAPLESS = names("translated_string concatenation command_name variable_assignment simple_expansion")
_ONE_LINE = _GAPLESS | names(
    "command declaration_command unset_command variable_assignments file_redirect herestring_redirect "
    "redirected_statement negated_command test_command binary_expression unary_expression"
)
_REDIRECTIONS = names("file_redirect herestring_redirect heredoc_redirect heredoc_start heredoc_body heredoc_end")
_LITERAL_LEAVES = names("string_content heredoc_content heredoc_body regex extglob_pattern")
_RESERVED = names("if then else elif fi do done case esac while until for select function { } [[ ]] ! in")

_MASK = bytes(byte if byte < 0x80 else ord("^") for byte in range(0x100))
"""The scanner of tree-sitter-bash 0.25.1 reads outside its memory at characters such as 🎉, which ends the process.

To bash they are plain letters of a word that no name may contain, as `^` is; positions stay the same."""
_BLANKS = re.compile(rb"[ \t]*(?:[ \t]\\\n[ \t]*)*")
_BLANKS_AND_LINES = re.compile(rb"[ \t\n]*(?:[ \t\n]\\\n[ \t\n]*)*")
_LOST_DASH = re.compile(rb"[ \t]+-[ \t]+")
"""tree-sitter loses the `-` of `python - <<EOF`."""
_PLAIN_WORD = re.compile(rb"(?!#)(?:[^\s'\"\\$`;|&<>()\x00]|\\[^\n])+")
_VARIABLE_NAME = re.compile(rb"\d+|[A-Za-z_]\w*", re.ASCII)
_NO_EXPANSION = re.compile(rb"(?:\\.|[^\\`$]|\$(?![\w({\[@*#?$!'\"-]))*", re.DOTALL)
_HIDDEN = re.compile(rb"\$\(|`|[<>]\(|\$'\Z")
_EXPANDS = re.compile(r"(?:\\.|[^\\])*?(?:[*?\[{]|(?:^|[=:])~)", re.DOTALL)
_DELIMITER = re.compile(r"""\w+|'\w+'|"\w+\"""", re.ASCII)
_ANSI_C = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|[0-7]{1,3}|.)", re.DOTALL)
_ANSI_C_LETTERS = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))


class Word(NamedTuple):
    value: str
    """Quotes and escapes resolved; an expansion is kept as written."""
    source: str = ""
    """As written, if the value is known only when the shell runs it; empty for a literal word."""


class Found(NamedTuple):
    """A simple command."""

    words: tuple[Word, ...]
    assignments: tuple[Word, ...] = ()
    writes: tuple[Word, ...] = ()
    is_open: bool = False
    """It gets further words when it runs."""


class Tree(NamedTuple):
    commands: tuple[Found, ...]
    inputs: tuple[str, ...]
    """Here-documents and here-strings."""


class Unread(Exception):
    """The line does not parse, or bash may read it otherwise."""


def read_tree(text: str) -> Tree:
    """Raises: Unread"""
    try:
        source = text.encode()
    except UnicodeEncodeError as e:
        raise Unread("it is not valid text") from e
    return _Reader(source).read()


@cache
def _grammar() -> Language:
    # 20 ms, and few sessions need it
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Language(tree_sitter_bash.language())


class _Reader:
    """One pass over the tree: checks that nothing was skipped, and collects the commands."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.commands: list[Found] = []
        self.inputs: list[str] = []
        self._done: set[int] = set()

    def read(self) -> Tree:
        from tree_sitter import Parser

        # a parser must not be shared between threads, and a new one costs half a microsecond
        root = Parser(_grammar()).parse(self.source.translate(_MASK)).root_node
        if root.has_error:
            raise Unread("it does not parse")
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
        return Tree(tuple(self.commands), tuple(self.inputs))

    def _check(self, node: Node, children: Sequence[Node]) -> None:
        kind = node.type
        if node.is_named and kind not in _KNOWN:
            raise Unread(f"it has a construct that is not understood ({kind})")
        if not children:
            self._check_leaf(node, kind)
            return
        position = node.start_byte
        for child in children:
            self._check_gap(position, child.start_byte, kind)
            position = child.end_byte
        self._check_gap(position, node.end_byte, kind)
        if kind in ("negated_command", "test_command") or (kind == "compound_statement" and children[0].type == "{"):
            _check_apart(children[:2] if kind == "compound_statement" else children)

    def _check_gap(self, start: int, end: int, parent: str) -> None:
        """tree-sitter skips what it takes for blanks; bash may see more in it."""
        gap = self.source[start:end]
        if end < start or (gap and parent in _GAPLESS):
            raise Unread("its parts overlap")
        if parent in _FREE_TEXT:
            _check_literal(gap)
        elif not (_BLANKS if parent in _ONE_LINE else _BLANKS_AND_LINES).fullmatch(gap) and not (
            parent == "redirected_statement" and _LOST_DASH.fullmatch(gap)
        ):
            raise Unread("it has characters that the shell may read otherwise")

    def _check_leaf(self, node: Node, kind: str) -> None:
        text = self.source[node.start_byte : node.end_byte]
        if kind == "word" and not _PLAIN_WORD.fullmatch(text):
            raise Unread("it has a word that the shell may read otherwise")
        if kind == "variable_name" and not _VARIABLE_NAME.fullmatch(text):
            raise Unread("it has a name that the shell may read otherwise")
        quoted = kind in ("raw_string", "ansi_c_string")
        if quoted and (_HIDDEN.search(text) or _HIDDEN.search(self._value(node)[0].encode())):
            raise Unread("it quotes a substitution, which may be evaluated later")
        if kind == "P" and _parent(node).type == "expansion":
            raise Unread("it evaluates the value of a variable (@P)")
        if kind == "`":
            raise Unread("it has back-quotes: write $(…) instead")
        if kind == "((" and _parent(node).type == "compound_statement":
            raise Unread("it has arithmetic: use test instead")
        if kind in ("((", "$((", "$[") and re.search(r"['\"\\#`]|\bcase\b", self._text(_parent(node))):
            raise Unread("it has arithmetic that is not understood")
        if kind == "comment":
            self._check_comment(node)
        elif kind in _LITERAL_LEAVES and not (kind == "heredoc_body" and self._is_quoted(node)):
            _check_literal(text)

    def _check_comment(self, node: Node) -> None:
        before = self.source[node.start_byte - 1 : node.start_byte] if node.start_byte else b"\n"
        after = self.source[node.end_byte : node.end_byte + 1]
        if before not in b" \t\n;|&()" or after not in (b"", b"\n"):
            raise Unread("it has a comment that the shell may read otherwise")

    def _is_quoted(self, body: Node) -> bool:
        start = next(child for child in _parent(body).children if child.type == "heredoc_start")
        return self._text(start)[:1] in ("'", '"')

    def _collect(self, node: Node) -> None:
        kind = node.type
        if kind == "redirected_statement":
            self._collect_redirected(node)
        elif kind == "heredoc_redirect":
            self._collect_heredoc(node)
        elif kind == "herestring_redirect":
            self.inputs.append(self._word(node.children[-1]).value)
        elif kind in _COMMANDS and node.id not in self._done:
            parent = node.parent
            if kind != "variable_assignment" or parent is None or parent.type not in (*_COMMANDS, "subscript"):
                self._add(node, ())

    def _collect_redirected(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        redirections = [child for child in node.children if child.type in _REDIRECTIONS]
        # in `a && b > f` the redirection belongs to b
        while body is not None and body.type in ("list", "pipeline", "negated_command"):
            body = body.children[-1]
        if body is not None and body.type in _COMMANDS:
            self._done.add(body.id)
            self._add(body, redirections)
        else:
            command = self._command(redirections)
            if command.words and body is not None:
                raise Unread("arguments follow a redirection")
            self.commands.append(command)

    def _add(self, node: Node, redirections: Sequence[Node]) -> None:
        if node.type == "test_command":
            opening, inside = node.children[0].type, self._text(node)
            command = self._command(redirections)
            self.commands.append(command._replace(words=(Word(opening), Word(inside, inside), *command.words)))
        elif node.type == "variable_assignment":
            self.commands.append(self._command((node, *redirections)))
        else:
            self.commands.append(self._command((*node.children, *redirections)))

    def _command(self, parts: Sequence[Node]) -> Found:
        words: list[Word] = []
        assignments: list[Word] = []
        writes: list[Word] = []
        parts = list(_flat(parts))
        _check_apart([part for part in parts if part.type != "heredoc_end"])
        for part in parts:
            if part.type == "file_redirect":
                words += self._redirection(part, writes)
            elif part.type == "variable_assignment" and not words:
                assignments.append(self._word(part))
            elif part.type not in _REDIRECTIONS and not self._is_descriptor(part):
                words.append(self._argument(part))
        return Found(tuple(words), tuple(assignments), tuple(writes))

    def _is_descriptor(self, node: Node) -> bool:
        """The `2` of a `2>&1` behind a joined line, which tree-sitter calls a word."""
        if self.source[node.end_byte : node.end_byte + 1] not in (b"<", b">"):
            return False
        if self.source.endswith(b"}", node.start_byte, node.end_byte):
            raise Unread("it names a variable in a redirection")
        return self._text(node).isdecimal()

    def _argument(self, node: Node) -> Word:
        if node.type != "command_name":
            return self._word(node)
        if self._text(node) in _RESERVED or re.match(r"[A-Za-z_]\w*(\[.*\])?\+?=", self._text(node)):
            raise Unread(f"`{self._text(node)}` is where a command is expected")
        return self._word(node.children[0])

    def _redirection(self, node: Node, writes: list[Word]) -> list[Word]:
        """Note the file that is written; return the arguments behind it, which tree-sitter calls targets too."""
        operator = next(child.type for child in node.children if not child.is_named)
        targets = [part for part in node.children if part.type in _WORDS and not self._is_descriptor(part)]
        _check_apart(targets)
        if operator in ("<&-", ">&-"):
            return [self._word(target) for target in targets]
        if not targets:
            raise Unread("a redirection has a target that is not understood")
        if ">" in operator:
            writes.append(self._word(targets[0]))
        return [self._word(target) for target in targets[1:]]

    def _collect_heredoc(self, node: Node) -> None:
        parts = {child.type: child for child in node.children}
        start, body, end = parts.get("heredoc_start"), parts.get("heredoc_body"), parts.get("heredoc_end")
        if start is None or body is None or end is None or not _DELIMITER.fullmatch(self._text(start)):
            raise Unread("it has a here-document that is not understood")
        after = self.source[start.end_byte : start.end_byte + 1]
        if after not in b" \t\n;|&<>)" or self.source.count(b"\n", start.end_byte, body.start_byte) != 1:
            raise Unread("it has a here-document that begins in a later line")
        delimiter = self._text(start).strip("'\"")
        begin = self.source.index(b"\n", start.end_byte) + 1
        lines = self.source[begin:].decode().split("\n")
        if "<<-" in parts:
            lines = [line.lstrip("\t") for line in lines]
        count = self.source.count(b"\n", begin, end.end_byte)
        is_joined = delimiter == self._text(start) and any(line.endswith("\\") for line in lines[:count])
        if delimiter not in lines or lines.index(delimiter) != count or is_joined:
            raise Unread("it has a here-document whose end is not understood")
        self.inputs.append(self._text(body))

    def _text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode()

    def _word(self, node: Node) -> Word:
        value, is_literal = self._value(node)
        return Word(value, "" if is_literal else self._text(node))

    def _value(self, node: Node) -> tuple[str, bool]:
        """The value of a word or of a part of one, and whether it is literal."""
        kind, text = node.type, self._text(node)
        if kind == "raw_string":
            return text[1:-1], True
        if kind == "ansi_c_string":
            return _ANSI_C.sub(_ansi_c_character, text[2:-1]), True
        if kind == "string":
            is_literal = all(child.type == "string_content" for child in node.named_children)
            return re.sub(r'\\([$`"\\])', r"\1", text[1:-1]), is_literal
        if kind == "concatenation" or (kind == "variable_assignment" and node.children[-1].type != "array"):
            values = [self._value(child) for child in node.children]
            unquoted = "".join(
                "\\ " if child.is_named and child.type not in ("word", "number", "variable_name") else self._text(child)
                for child in node.children
            )
            is_literal = all(literal for _, literal in values) and (text == "{}" or not _EXPANDS.match(unquoted))
            return "".join(value for value, _ in values), is_literal
        if kind == "word" or (kind in ("number", "variable_name") and not node.children) or not node.is_named:
            return re.sub(r"(?s)\\(.)", r"\1", text), "$" not in text and not _EXPANDS.match(text)
        return text, False


def _flat(parts: Sequence[Node]) -> Iterator[Node]:
    """The parts of a command; of a here-document only what follows it in the same command."""
    for part in parts:
        if part.type == "heredoc_redirect":
            yield from (child for child in part.children if child.type == "file_redirect" or child.type in _WORDS)
        elif part.type in ("subshell", "comment"):
            raise Unread("it has parentheses that are not understood")
        else:
            yield part


def _check_apart(words: Sequence[Node]) -> None:
    for before, after in pairwise(words):
        if before.end_byte == after.start_byte and after.type not in _REDIRECTIONS:
            raise Unread("it joins words in a way that is not understood")


def _check_literal(text: bytes) -> None:
    """Text that the tree calls literal must not hold an expansion that bash would see, or may see later."""
    if not _NO_EXPANSION.fullmatch(text) or re.search(rb"\\[$`]\(?", text):
        raise Unread("it has an expansion that is not understood")


def _parent(node: Node) -> Node:
    assert node.parent is not None, "only the root has no parent"
    return node.parent


def _ansi_c_character(match: re.Match[str]) -> str:
    escape = match[1]
    if escape in _ANSI_C_LETTERS:
        return _ANSI_C_LETTERS[escape]
    code = int(escape[1:], 16) if escape[0] in "xu" and len(escape) > 1 else int(escape, 8) if escape.isdigit() else 0
    # beyond these bash cuts the word, or makes bytes that are not text
    if not 0 < code < 0x80:
        raise Unread("it has a character code that is not understood")
    return chr(code)
