"""Questions of MCP servers at the prompt: a form, one field after the other, or an address to open."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, UsageError
from teamcli.mcp.server import Elicitation, ElicitationAnswer
from teamcli.text.escaping import escape_controls, one_line
from teamcli.ui.render.style import BOLD, DIM, YELLOW, Line
from teamcli.ui.terminal.questions import NO, YES, QuestionQueue

DEFAULT = "."
_MOST_FIELDS = 50


def ask_user(questions: QuestionQueue, question: Elicitation, cancel: CancelScope) -> ElicitationAnswer:
    """Raises: Cancelled"""
    asked = ServerQuestion(question)
    questions.add(asked)
    return asked.wait(cancel)


@dataclass(eq=False)
class ServerQuestion:
    """First whether to answer at all, then each field. Nothing is sent before the last one."""

    question: Elicitation
    _position: int = field(default=-1, init=False)
    _values: dict[str, Any] = field(default_factory=dict, init=False)
    _answer: ElicitationAnswer | None = field(default=None, init=False)
    _is_over: threading.Event = field(default_factory=threading.Event, init=False)

    def wait(self, cancel: CancelScope) -> ElicitationAnswer:
        """Raises: Cancelled"""
        with cancel.on_cancel(self._is_over.set):
            self._is_over.wait()
        if self._answer is None:
            raise Cancelled(cancel.reason)
        return self._answer

    @property
    def agent(self) -> str:
        return f"MCP server {self.question.server}"

    @property
    def is_open(self) -> bool:
        return not self._is_over.is_set()

    @property
    def label(self) -> str:
        return "answer? >> " if self._position < 0 else f"{one_line(self._field[0], 30)} >> "

    @property
    def keys(self) -> str:
        if self.question.url:
            return "y opened · n decline · Esc: answer later"
        if self._position < 0:
            return f"y {'answer' if self._fields else 'yes'} · n decline · Esc: answer later"
        has_default = "default" in self._field[1]
        skip = (
            f"{DEFAULT} {'default' if has_default else 'leave empty'} · " if has_default or not self._is_needed else ""
        )
        return f"type a value · {skip}Esc: back"

    def head(self, width: int = 0) -> list[Line]:
        return [[("▲ ", YELLOW), (self.agent, f"{BOLD} {YELLOW}"), (" asks:", YELLOW)]]

    def body(self) -> list[Line]:
        lines: list[Line] = [[("  " + line, "")] for line in escape_controls(self.question.message).split("\n")]
        if self.question.url:
            host = urlsplit(self.question.url).hostname or "?"
            lines += [[("  It wants you to open a page at ", DIM), (one_line(host), BOLD)]]
            lines += [[("  " + one_line(self.question.url, 4000), "")]]
            return [*lines, [("  teamcli does not open it. Open it yourself if you know the address.", DIM)]]
        if self._position < 0:
            names = ", ".join(name for name, _ in self._fields)
            return [*lines, [(one_line(f"  It wants to know: {names or 'yes or no'}", 400), DIM)]]
        return [*lines, *([("  " + text, DIM)] for text in describe_field(self._field[1]))]

    def fits(self, text: str) -> bool:
        return self._position >= 0 or text.strip().lower() in (*YES, *NO)

    def take(self, answer: str) -> str | None:
        """Raises: UsageError, for a value that does not fit its field"""
        if self._position < 0:
            return self._begin(answer.lower())
        name, schema = self._field
        if answer != DEFAULT:
            self._values[name] = read_value(schema, answer.strip('"') if answer.startswith('"') else answer)
        elif "default" in schema:
            self._values[name] = schema["default"]
        elif self._is_needed:
            raise UsageError(f"{one_line(name, 60)} is needed")
        return self._next()

    def back(self) -> bool:
        was_filling_in, self._position = self._position >= 0, -1
        return was_filling_in

    def _begin(self, answer: str) -> str | None:
        if answer in NO:
            return self._end(ElicitationAnswer("decline"), "Declined")
        if answer not in YES:
            return None
        return self._next()

    def _next(self) -> str:
        self._position += 1
        if self._position < len(self._fields):
            return ""
        return self._end(ElicitationAnswer("accept", self._values), "Answered")

    def _end(self, answer: ElicitationAnswer, did: str) -> str:
        self._answer = answer
        self._is_over.set()
        return f"{did}: {one_line(self.question.message, 60)}"

    @property
    def _fields(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        properties = {} if self.question.url else self.question.schema.get("properties")
        found = properties.items() if isinstance(properties, dict) else ()
        return [(str(name), each if isinstance(each, dict) else {}) for name, each in found][:_MOST_FIELDS]

    @property
    def _field(self) -> tuple[str, Mapping[str, Any]]:
        return self._fields[self._position]

    @property
    def _is_needed(self) -> bool:
        required = self.question.schema.get("required")
        return isinstance(required, list) and self._field[0] in required


def describe_field(schema: Mapping[str, Any]) -> list[str]:
    """What a field wants, in lines that are safe to print."""
    options = [f"{number} {label}" for number, (_, label) in enumerate(choices(schema), start=1)]
    several = " (several: separate them with commas)" if schema.get("type") == "array" else ""
    lines = [
        str(schema.get("title") or ""),
        str(schema.get("description") or ""),
        f"one of: {', '.join(options)}{several}"
        if options
        else f"{schema.get('format') or schema.get('type', 'text')}",
        f"default: {schema['default']}" if "default" in schema else "",
    ]
    return [one_line(line, 400) for line in lines if line]


def choices(schema: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """The values that a field can have, with what is shown for each; empty if it can have any."""
    items = schema.get("items")
    source = items if schema.get("type") == "array" and isinstance(items, dict) else schema
    for key in ("oneOf", "anyOf"):
        if isinstance(found := source.get(key), list):
            return [
                (e["const"], str(e.get("title") or e["const"])) for e in found if isinstance(e, dict) and "const" in e
            ]
    found = source.get("enum")
    return [(each, str(each)) for each in found] if isinstance(found, list) else []


def read_value(schema: Mapping[str, Any], text: str) -> Any:
    """Raises: UsageError"""
    options, kind = choices(schema), schema.get("type")
    if kind == "array":
        return [_choice(options, each.strip()) for each in text.split(",") if each.strip()]
    if options:
        return _choice(options, text)
    if kind == "boolean":
        if text.lower() not in (*YES, *NO, "true", "false"):
            raise UsageError("answer yes or no")
        return text.lower() in (*YES, "true")
    if kind not in ("integer", "number"):
        return text
    try:
        return int(text) if kind == "integer" else float(text)
    except ValueError:
        raise UsageError(f"{one_line(text, 60)} is not a valid {kind}") from None


def _choice(options: list[tuple[Any, str]], text: str) -> Any:
    if text.isdecimal() and 1 <= int(text) <= len(options):
        return options[int(text) - 1][0]
    for value, label in options:
        if text in (str(value), label):
            return value
    raise UsageError(f"choose one of 1 to {len(options)}, not {one_line(text, 60)}")
