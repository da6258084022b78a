"""The simple commands that the embedded model understands, and how a text is split into them.

A text splits at line ends, and inside a line at ` then ` and `. ` if another command follows; never inside double
quotes or backticks. Quotes around a whole argument keep it together and are not part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Imperative(NamedTuple):
    """Something to do with one tool call."""

    text: str
    """The words of the request."""
    tool: str
    input: Mapping[str, object]


class HelpAsked(NamedTuple):
    text: str


class Unparsed(NamedTuple):
    text: str
    usage: str = ""
    """How to write it, if it begins like a known command."""


Item = Imperative | HelpAsked | Unparsed


class Verb(NamedTuple):
    usage: str
    hint: str
    """An example, or what it does."""
    tool: str
    pattern: re.Pattern[str]
    """Matches a whole imperative; its groups are the fields of the tool's input."""
    status: str = ""
    """A field that is always the same."""

    @property
    def word(self) -> str:
        return re.split(r"\W", self.usage, maxsplit=1)[0]


def _verb(usage: str, hint: str, tool: str, pattern: str, status: str = "") -> Verb:
    return Verb(usage, hint, tool, re.compile(pattern, re.IGNORECASE | re.DOTALL), status)


_NUMBER = r"#?(?P<id>[0-9]{1,9})\s*[.!]?"
_NAME = r"[^\s:]+"
_NEW_FILE = r"\"[^\"]+\"|`[^`]+`|[^\s:]+"  # no spaces unless quoted: "write a poem about rain: …" must not make a file

VERBS = (
    _verb("run CMD", "such as: run git status", "bash", r"run(?::\s*|\s+)(?P<command>\S.*)"),
    _verb("read FILE", "such as: read README.md", "read_file", r"read(?::\s*|\s+)(?P<path>\S.*)"),
    _verb(
        "write FILE: TEXT",
        "such as: write notes.txt: buy milk",
        "write_file",
        rf"write\s+(?P<path>{_NEW_FILE})\s*:\s*(?P<content>\S.*)",
    ),
    _verb(
        "spawn NAME as ROLE: TASK",
        "such as: spawn alice as coder: run ls then tell lead: done",
        "spawn_teammate",
        rf"spawn\s+(?P<name>{_NAME})\s+as\s+(?:an?\s+)?(?P<role>[^:]*?[^:\s])"
        rf"(?:\s+on\s+host\s+(?P<host>{_NAME}))?"
        r"(?P<worktree>\s+in\s+a\s+worktree)?(?P<claims>\s+(?:who|that)\s+claims\s+tasks)?\s*:\s*(?P<prompt>\S.*)",
    ),
    _verb(
        "merge NAME", "the work of a teammate in a worktree", "merge_teammate", rf"merge\s+@?(?P<name>{_NAME}?)\s*[.!]?"
    ),
    _verb(
        "tell NAME: TEXT",
        "such as: tell alice: read notes.txt",
        "send_message",
        rf"tell\s+@?(?P<to>{_NAME})\s*:\s*(?P<content>\S.*)",
    ),
    _verb("broadcast: TEXT", "such as: broadcast: run git status", "broadcast", r"broadcast\s*:\s*(?P<content>\S.*)"),
    _verb("wait", "until a message comes", "wait_for_message", r"wait(?:\s+for\s+(?=[a-z])[\w\s,'-]+)?\s*[.!]?"),
    _verb("task TEXT", "such as: task write notes.txt: buy milk", "task_create", r"task(?::\s*|\s+)(?P<subject>\S.*)"),
    _verb("tasks", "what is on the board", "task_list", r"tasks\s*[.!]?"),
    _verb("claim N", "take that task", "task_update", rf"claim\s+(?:task\s+)?{_NUMBER}", "in_progress"),
    _verb("done N", "that task is completed", "task_update", rf"done\s+(?:task\s+)?{_NUMBER}", "completed"),
    _verb("list", "who is in the team", "list_teammates", r"list(?:\s+(?:the\s+|all\s+)?(?:team|teammates))?\s*[.!]?"),
)

_LINE_END = re.compile(r"\r\n|\r|\n")
_BULLET = re.compile(r"\A\s*(?:[-*•]|\d+[.)])\s+")
_LEAD_IN = re.compile(r"\s*(?:(?:and\s+)?then[\s,]+)?(?:please[\s,]+)?", re.IGNORECASE)
_TO_LINE_END = re.compile(rf"{_LEAD_IN.pattern}(?:spawn\s+{_NAME}\s+as\s+[^:]+:|(?P<task>task)[\s:])", re.IGNORECASE)
"""Commands that contain commands for later. A task contains none for the board: `task run ls then tasks`."""
_SENTENCE_END = r"(?<=[^\s./])"  # the dots in `cp a . then …` and `ls .. then …` are arguments, not full stops
_SEPARATOR = re.compile(
    rf"(?:{_SENTENCE_END}[.,]+)?(?<!\s)\s+(?:and\s+)?then\s+|{_SENTENCE_END}\.+\s+",
    re.IGNORECASE,
)
_HELP = re.compile(r"(?:help|\?+)\s*[.!]?", re.IGNORECASE)

# A quote spans lines only if both of its ends look like ends, so that a stray one (5" wide) joins nothing.
_QUOTED = re.compile(
    r"""
      (?<!`)(?P<fence>`{3,}+) .*? (?<!`)(?P=fence)(?!`)
    | `[^`\n]+`
    | (?<!\\)"(?:\\.|[^"\\\n])*+"
    | (?<![^\s:=(])"(?:\\.|[^"\\])*+"(?![^\s.,;)])
    """,
    re.VERBOSE | re.DOTALL,
)
_FENCED = re.compile(r"(?P<fence>`{3,}+)(?:[\w+-]*\r?\n)?(?P<body>.*?)(?<!`)(?P=fence)", re.DOTALL)
_TICKED = re.compile(r"`(?P<body>[^`]+)`")
_IN_QUOTES = re.compile(r'"(?P<body>(?:\\.|[^"\\])*)"', re.DOTALL)
_SENTENCE_STOP = re.compile(r"(?<=[\w\"`])\.$")


def parse(text: str) -> tuple[Item, ...]:
    """Everything that `text` asks for, in order. Never fails: other text comes back as `Unparsed`."""
    ends = [match.span() for match in _outside_quotes(text, _LINE_END)]
    starts = [0, *(end for _, end in ends)]
    items: list[Item] = []
    for start, (end, _) in zip(starts, [*ends, (len(text), 0)], strict=True):
        items += _parse_line(_BULLET.sub("", text[start:end], count=1).strip())
    return tuple(items)


def _outside_quotes(text: str, separator: re.Pattern[str]) -> Iterator[re.Match[str]]:
    quotes = _QUOTED.finditer(text)
    quote = next(quotes, None)
    for match in separator.finditer(text):
        while quote and quote.end() <= match.start():
            quote = next(quotes, None)
        if not (quote and quote.start() < match.end()):
            yield match


def _parse_line(line: str) -> Iterator[Item]:
    separators = list(_outside_quotes(line, _SEPARATOR))
    ends = [separator.start() for separator in separators[1:]] + [len(line)]
    start = 0
    later = _TO_LINE_END.match(line)
    for separator, end in zip(separators, ends, strict=False):
        following = _imperative(_without_lead_in(line[separator.end() : end]))
        if following and (not later or (later["task"] and following.tool.startswith("task_"))):
            yield from _parse_piece(line[start : separator.start()])
            start = separator.end()
            later = _TO_LINE_END.match(line, start)
    yield from _parse_piece(line[start:])


def _parse_piece(piece: str) -> Iterator[Item]:
    piece = _without_lead_in(piece)
    if not piece:
        return
    if _HELP.fullmatch(piece):
        yield HelpAsked(piece)
    else:
        word = re.split(r"\W", piece, maxsplit=1)[0].lower()
        usage = next((verb.usage for verb in VERBS if verb.word == word), "")
        yield _imperative(piece) or Unparsed(piece, usage)


def _without_lead_in(piece: str) -> str:
    match = _LEAD_IN.match(piece)
    return (piece[match.end() :] if match else piece).strip()


def _imperative(piece: str) -> Imperative | None:
    for verb in VERBS:
        if match := verb.pattern.fullmatch(piece):
            given = {field: raw for field, raw in match.groupdict().items() if raw is not None}
            fields = {field: _argument(field, raw) for field, raw in given.items()}
            return Imperative(piece, verb.tool, {**fields, "status": verb.status} if verb.status else fields)
    return None


def _argument(field: str, raw: str) -> str | int:
    if field in ("claims", "worktree"):
        return True
    if field == "id":
        return int(raw)
    raw = raw.strip()
    if field == "path" or (field == "command" and (not re.search(r"\s", raw) or _unquoted(raw[:-1]) is not None)):
        raw = _SENTENCE_STOP.sub("", raw)
    body = _unquoted(raw)
    return raw if body is None else body


def _unquoted(raw: str) -> str | None:
    """The text between the quotes, if they enclose all of `raw`."""
    for pattern in (_FENCED, _TICKED, _IN_QUOTES):
        if match := pattern.fullmatch(raw):
            body = match["body"]
            return body.replace('\\"', '"') if pattern is _IN_QUOTES else body
    return None
