"""Every simple command of a line, at any depth: for rules that ask or deny, and for what is always blocked.

This covers more of bash than `strict`, because it only has to find where commands may begin. Anything else
(back-quotes, functions, `case`, unusual here-documents) makes the line one that does not parse, and then rules that
deny count as matching. So what this does not know never weakens a rule.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from teamcli.permissions.shell.scanner import Scanner, names

_MOST_DEPTH = 20
_KEYWORDS = names("if then else elif fi do done while until { } !")
_CLOSED_BY = {"if": "fi", "do": "done", "{": "}"}
_NOT_KNOWN = names("case esac select function")

_NOT_TEXT = re.compile(r"[\x00-\x08\x0b-\x0d\ud800-\udfff]")
_BLANKS = re.compile(r"(?:[ \t]|\\\n)*")
_COMMENT = re.compile(r"#[^\n]*")
_SEPARATOR = re.compile(r"&&|\|\||\|&|\||;(?![;&])|&(?!>)")
_REDIRECTION = re.compile(r"&>>?|<<<|<<-?|[<>]&|>>|>\||<(?![(>])|>(?!\()")
_DESCRIPTOR = re.compile(r"\d+-?|-")
_DELIMITER = re.compile(r"""(?:\w+|'\w+'|"\w+")(?=[ \t\n;|&<>)])""", re.ASCII)
_FOR = re.compile(r"for[ \t]+[A-Za-z_]\w*[ \t]*(?:[;\n]|(?<=[ \t])in[ \t\n;])", re.ASCII)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_WORD_ENDS = frozenset(" \t\n;|&<>()")
_PLAIN = re.compile(r"[^ \t\n;|&<>()'\"\\$`]+")
_EXPANDS = re.compile(r"[*?\[{]|(?:^|[=:])~")
_SINGLE_QUOTED = re.compile(r"'([^']*)'")
_IN_QUOTES = re.compile(r'[^"\\$`]+|\\[^$`\n]|\$(?=")')
_ANSI_C = re.compile(
    r"""\$'((?:[^'\\\x80-\U0010ffff]|\\(?!x00|u0000|000)(?:[nt\\'"]|x[0-7][0-9A-Fa-f]|u00[0-7][0-9A-Fa-f]|[01][0-7]{2}))*)'"""
)
_HIDDEN = re.compile(r"\$\(|`|[<>]\(")
_VARIABLE = re.compile(
    r"\$(?:[A-Za-z_]\w*|[0-9@*#?$!-]|\{#?(?:\w+|[@*])(?:\[[\w@*]+\])?"
    r"(?:(?::?[-+=?]|##?|%%?|//?|:|\^\^?|,,?)(?:[\w \t./:@%*=,+-]|\$\w+)*)?\})",
    re.ASCII,
)
_ARITHMETIC = re.compile(r"\$\(\((?:[\w \t+*/%<>=!&|?:,-]|\$\w+)*\)\)", re.ASCII)
_PLAIN_DOLLAR = re.compile(r"\$(?=[ \t\n|)/.,:;]|\Z)")


class Word(NamedTuple):
    value: str
    """Quotes and escapes resolved; an expansion is kept as written."""
    source: str = ""
    """As written, if the value is known only when the shell runs it; empty for a literal word."""


class FoundCommand(NamedTuple):
    """A simple command."""

    words: tuple[Word, ...]
    assignments: tuple[Word, ...] = ()
    writes: tuple[Word, ...] = ()
    is_open: bool = False
    """It gets further words when it runs."""


class Tree(NamedTuple):
    commands: tuple[FoundCommand, ...]
    inputs: tuple[str, ...] = ()
    """Here-documents and here-strings."""


class Unread(Exception):
    """The line does not parse, or contains something that is not supported here."""


def read_tree(text: str) -> Tree:
    """Raises: Unread"""
    return _LooseReader(text).read()


class _LooseReader(Scanner):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0
        self.commands: list[FoundCommand] = []
        self.inputs: list[str] = []
        self.documents: list[tuple[int, str, str]] = []
        """Here-documents that begin after this line: where they are named, operator and delimiter."""
        self.open: list[str] = []
        """The keywords that must close what is open."""

    def read(self) -> Tree:
        if _NOT_TEXT.search(self.text):
            raise Unread("it has characters that are not text")
        self._list("")
        return Tree(tuple(self.commands), tuple(self.inputs))

    def _list(self, end: str) -> None:
        """Commands up to a parenthesis, or up to the end of the line."""
        self.depth += 1
        if self.depth > _MOST_DEPTH or self.documents:
            raise Unread("it nests too many commands, or commands in the line of a here-document")
        outside, self.open = self.open, []
        while self._skip(_BLANKS) and self._next() != ")":
            if self._next() == "\n":
                self.at += 1
                self._read_documents()
            elif self._is_subshell():
                self.at += 1
                self._list(")")
            elif not self._take(_COMMENT):
                self._command()
        if self._next() != end or self.documents or self.open:
            raise Unread("it does not parse")
        self.at += len(end)
        self.depth -= 1
        self.open = outside

    def _command(self) -> None:
        words: list[Word] = []
        assignments: list[Word] = []
        writes: list[Word] = []
        is_first, is_test = True, False
        while self._skip(_BLANKS) and self._next() not in "\n)" and not self._take(_COMMENT):
            start = self.at
            if separator := self._take(_SEPARATOR):
                if is_test and separator in ("&&", "||"):  # inside `[[ ]]` they join conditions, not commands
                    continue
                break
            if operator := self._take(_REDIRECTION):
                self._redirect(operator, writes)
                is_first = False
                continue
            if not words and self._is_subshell():  # as in `then (a)`
                break
            word = self._word()
            source = self.text[start : self.at]
            if self._is_descriptor(source) or (not words and self._is_keyword(source, start)):
                continue
            if not words and _ASSIGNMENT.match(source):
                assignments.append(word)
            else:
                is_test = (is_test or (is_first and source == "[[")) and source != "]]"
                words.append(Word(source) if source in ("[", "[[") else word)
            is_first = False
        self.commands.append(FoundCommand(tuple(words), tuple(assignments), tuple(writes)))

    def _is_subshell(self) -> bool:
        return self._next() == "(" and not self.text.startswith("((", self.at)

    def _is_descriptor(self, source: str) -> bool:
        """The `2` of `2> f`."""
        if self._next() not in ("<", ">"):
            return False
        if source.endswith("}"):
            raise Unread("it names a variable in a redirection")
        return source.isdecimal()

    def _is_keyword(self, source: str, start: int) -> bool:
        """A word after which a command may begin."""
        if source in _NOT_KNOWN or (source == "for" and not _FOR.match(self.text, start)):
            raise Unread(f"it has `{source}`")
        if source in _CLOSED_BY:
            self.open.append(_CLOSED_BY[source])
        elif source in _CLOSED_BY.values() and (not self.open or self.open.pop() != source):
            raise Unread("it does not parse")
        return source in _KEYWORDS

    def _redirect(self, operator: str, writes: list[Word]) -> None:
        self._skip(_BLANKS)
        if operator in ("<<", "<<-"):
            self.documents.append((self.at, operator, self._take(_DELIMITER)))
            return
        target = self._word()
        if operator[-1] == "&" and re.match("-.", target.value):  # `>&-zap` closes, and runs zap
            raise Unread("it closes a descriptor in a way that is not understood")
        if operator == "<<<":
            self.inputs.append(target.value)
        elif ">" in operator and not (operator == ">&" and _DESCRIPTOR.fullmatch(target.value)):
            writes.append(target)

    def _read_documents(self) -> None:
        documents, self.documents = self.documents, []
        line = self.at - 1
        for start, operator, delimiter in documents:
            name = delimiter.strip("'\"")
            tabs = "\t*" if operator == "<<-" else ""
            end = re.compile(f"^{tabs}{name}$", re.MULTILINE).search(self.text, self.at)
            if not name or end is None or "\n" in self.text[start:line]:
                raise Unread("it has a here-document that is not understood")
            body = self.text[self.at : end.start()]
            # in `$(…)` bash 5.2 ends the text at `END)`, and runs what follows
            if self.depth > 1 and re.search(rf"^\s*{name}", body, re.MULTILINE):
                raise Unread("it has a here-document whose end is not understood")
            if name == delimiter:
                self._expand(end.start())
            self.inputs.append(body)
            self.at = min(end.end() + 1, len(self.text))

    def _word(self) -> Word:
        text, start = self.text, self.at
        parts: list[tuple[str, bool]] = []
        is_literal = True
        if text.startswith(("<(", ">("), start):
            self.at += 2
            self._list(")")
            is_literal = False
        while self._next() and self._next() not in _WORD_ENDS:
            parts.append(self._part())
        if self._next() == "(" and _ASSIGNMENT.fullmatch(text, start, self.at):
            self._array()
            is_literal = False
        if self.at == start:
            raise Unread("it does not parse")
        if _HIDDEN.search("".join(part if is_plain else "\n" for part, is_plain in parts)):
            raise Unread("it quotes a substitution, which may be evaluated later")
        source = text[start : self.at]
        is_literal = source == "{}" or (is_literal and all(is_plain for _, is_plain in parts))
        return Word("".join(part for part, _ in parts), "" if is_literal else source)

    def _part(self) -> tuple[str, bool]:
        """The value of a part of a word, and whether it is literal."""
        text, start = self.text, self.at
        if plain := self._take(_PLAIN):
            return plain, not _EXPANDS.search(plain)
        if quoted := self._take(_SINGLE_QUOTED) or self._take(_ANSI_C):
            return (quoted[1:-1] if quoted[0] == "'" else quoted[2:-1].encode().decode("unicode_escape")), True
        if text[start] == '"':
            self.at += 1
            is_literal = self._expand(None)
            self.at += 1
            return re.sub(r'\\(["\\])', r"\1", text[start + 1 : self.at - 1]), is_literal
        if text[start] == "\\" and text[start + 1 : start + 2] not in ("", "\n", "$", "`"):
            self.at += 2
            return text[start + 1], True
        is_literal = self._dollar()
        return text[start : self.at], is_literal

    def _array(self) -> None:
        """In one line: after an error in an array, bash runs the line that follows."""
        self.at += 1
        while self._skip(_BLANKS) and self._next() != ")":
            if self._next() == "#" or _ASSIGNMENT.match(self._word().source):
                raise Unread("it has an array that is not understood")
        if not self._next():
            raise Unread("it does not parse")
        self.at += 1

    def _expand(self, end: int | None) -> bool:
        """Read up to a double quote, or up to `end` as in a here-document; whether nothing is expanded there."""
        is_literal = True
        while self.at != end and (end is not None or self._next() != '"'):
            if found := _IN_QUOTES.match(self.text, self.at, len(self.text) if end is None else end):
                self.at = found.end()
            elif self._next() == '"':
                self.at += 1
            else:
                is_literal = self._dollar() and is_literal
            if end is not None and self.at > end:
                raise Unread("it has a here-document that is not understood")
        return is_literal

    def _dollar(self) -> bool:
        """Whether the dollar sign here is only that."""
        if self._take(_PLAIN_DOLLAR):
            return True
        if self.text.startswith("$(", self.at) and not self.text.startswith("$((", self.at):
            self.at += 2
            self._list(")")
        elif not self._take(_VARIABLE) and not self._take(_ARITHMETIC):
            raise Unread("it has back-quotes, an open quote, or an expansion that is not understood")
        return False
