"""What the embedded model still has to do, derived from the conversation.

The history is replayed from the last finished answer on: texts and mail add tasks, calls are matched with their task,
and results complete them. A call that was made is never made again, whatever its outcome.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from teamcli.llm.embedded.grammar import HelpAsked, Imperative, Item, Unparsed, parse
from teamcli.llm.types import Block, Message

OWN_CALL = "toolu_embedded_"
"""The prefix of the ids of the embedded model's calls."""

MAIL_TOOLS = ("read_inbox", "wait_for_message")
_OBEYED_TYPES = ("message", "broadcast", "task")
_MAX_PREVIEW = 160
_EXIT_CODE = "[exit code "
"""In the result of a command that failed."""

_MAIL = re.compile(r'<message(?P<attributes>(?:\s+[\w-]+="[^"]*")*)\s*>(?P<text>.*?)</message>', re.DOTALL)
_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')
_HARNESS_TAG = re.compile(r"<(?:environment|project-instructions|team|note|shell|stdin)[\s>]")
_HARNESS_FRAME = re.compile(r"<([a-z][a-z_-]*)(?:\s[^>]*)?>.*</\1>", re.DOTALL)
_INTERRUPTED = re.compile(r"\b(?:interrupted|cancelled)\b", re.IGNORECASE)
_MUST_READ_FIRST = re.compile(r"\bread\b(?!-only)", re.IGNORECASE)


@dataclass
class MadeCall:
    """A call in the history, and its result once it has arrived."""

    id: str
    output: str = ""
    is_error: bool = False


@dataclass
class ImperativeCall:
    call: Imperative
    is_possible: bool
    can_read: bool
    made: list[MadeCall] = field(default_factory=list)
    needs: tuple[ImperativeCall, ...] = ()
    """Those that must succeed first."""

    @property
    def has_failed(self) -> bool:
        if not self.is_possible:
            return True
        if not self.made or self.next_call() is not None:
            return False
        last = self.made[-1]
        return last.is_error or (self.call.tool == "bash" and _EXIT_CODE in last.output)

    def next_call(self) -> Imperative | None:
        if not self.is_possible or any(each.has_failed for each in self.needs):
            return None
        if not self.made:
            return self.call
        if len(self.made) == 1 and self._must_read_first():
            return self.call._replace(tool="read_file", input={"path": self.call.input["path"]})
        if len(self.made) == 2 and not self.made[1].is_error:
            return self.call
        return None

    def _must_read_first(self) -> bool:
        """An existing file must be read before it is overwritten, and `write` means that the user wants that."""
        refused = self.made[0]
        return (
            self.can_read
            and self.call.tool == "write_file"
            and refused.is_error
            and not _INTERRUPTED.search(refused.output)
            and bool(_MUST_READ_FIRST.search(refused.output))
        )


class IncomingMail(NamedTuple):
    sender: str
    type: str
    request_id: str
    text: str
    task: str = ""
    """The number of the task that it gives."""


@dataclass
class Todo:
    tools: frozenset[str]
    tasks: list[ImperativeCall] = field(default_factory=list)
    misunderstood: list[Unparsed] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)
    """Mail that asks for nothing that the model could do."""
    help_asked: bool = False
    _is_interrupted: bool = False
    _inbox_calls: set[str] = field(default_factory=set)

    @property
    def understood_nothing(self) -> bool:
        return bool(self.misunderstood) and not self.tasks and not self.help_asked

    def next_call(self) -> Imperative | None:
        task = self._current()
        return task.next_call() if task else None

    def _current(self) -> ImperativeCall | None:
        return next((task for task in self.tasks if task.next_call()), None)

    def see_answer(self, content: Sequence[Block]) -> None:
        self._is_interrupted = False
        for block in content:
            if block.get("type") == "tool_use":
                self._see_call(block)

    def _see_call(self, block: Block) -> None:
        if block.get("name") in MAIL_TOOLS:
            self._inbox_calls.add(block.get("id", ""))
        task = self._current()
        expected = task.next_call() if task else None
        if task is None or expected is None or block.get("name") != expected.tool:
            return
        # A hook or redaction may have changed the input on its way into the history. Our own ids are proof enough.
        if str(block.get("id")).startswith(OWN_CALL) or block.get("input") == expected.input:
            task.made.append(MadeCall(block.get("id", "")))

    def see_user(self, content: Sequence[Block]) -> None:
        for block in content:
            if block.get("type") == "tool_result":
                self._see_result(block)
            elif block.get("type") == "text":
                self._see_text(str(block.get("text", "")).strip())

    def _see_result(self, block: Block) -> None:
        output, is_error = _text_of(block.get("content")), bool(block.get("is_error"))
        call_id = block.get("tool_use_id")
        for made in (made for task in self.tasks for made in task.made if made.id == call_id):
            made.output, made.is_error = output, is_error
        self._is_interrupted |= is_error and bool(_INTERRUPTED.search(output[:200]))
        if call_id in self._inbox_calls:
            for mail in mails_in(output):
                self._see_mail(mail, is_quoted=True)

    def _see_text(self, text: str) -> None:
        if mails := list(mails_in(text)) if text.startswith("<message") else []:
            for mail in mails:
                self._see_mail(mail)
        elif _HARNESS_TAG.match(text) or _HARNESS_FRAME.fullmatch(text):
            self._is_interrupted |= text.startswith("<note") and bool(_INTERRUPTED.search(text))
        else:
            self._take_from_user(parse(text))

    def _take_from_user(self, items: Sequence[Item]) -> None:
        """After an interruption, a new text replaces the open tasks; otherwise it adds to them."""
        if self._is_interrupted:
            self.tasks, self.misunderstood, self.help_asked = [], [], False
            self._is_interrupted = False
        self._add(items)

    def _see_mail(self, mail: IncomingMail, is_quoted: bool = False) -> None:
        items = parse(mail.text) if mail.type in _OBEYED_TYPES else ()
        if mail.sender == "user" and items:
            self._take_from_user(items)
        elif any(not isinstance(item, Unparsed) for item in items):
            self._add(items)
            if mail.type == "task":
                self._complete(mail.task, items)
        elif mail.type == "shutdown_request" and mail.request_id and "shutdown_response" in self.tools:
            self._approve_shutdown(mail)
        elif not is_quoted:
            self.noted.append(f"{mail.type} from {mail.sender}: {shorten(mail.text, _MAX_PREVIEW)}".rstrip(": "))

    def _add(self, items: Sequence[Item]) -> None:
        for item in items:
            match item:
                case Imperative():
                    self.tasks.append(self._task(item))
                case HelpAsked():
                    self.help_asked = True
                case Unparsed():
                    self.misunderstood.append(item)

    def _complete(self, number: str, items: Sequence[Item]) -> None:
        """A task whose commands have all succeeded is done, unless they say so themselves."""
        commands = [item for item in items if isinstance(item, Imperative)]
        if number.isdigit() and len(commands) == len(items):
            done = Imperative(f"done {number}", "task_update", {"id": int(number), "status": "completed"})
            if all(command.input != done.input for command in commands):
                self.tasks.append(self._task(done, needs=tuple(self.tasks[-len(commands) :])))

    def _approve_shutdown(self, mail: IncomingMail) -> None:
        answer: dict[str, object] = {"request_id": mail.request_id, "approve": True}
        call = Imperative(f"shutdown request from {mail.sender}", "shutdown_response", answer)
        position = next((i for i, task in enumerate(self.tasks) if task.next_call()), len(self.tasks))
        self.tasks.insert(position, self._task(call))

    def _task(self, call: Imperative, needs: tuple[ImperativeCall, ...] = ()) -> ImperativeCall:
        return ImperativeCall(call, call.tool in self.tools, can_read="read_file" in self.tools, needs=needs)


def from_history(messages: Sequence[Message], tools: frozenset[str]) -> Todo:
    """What the current turn asked for, what was done, and what is left."""
    todo = Todo(tools)
    start = 0
    for index, message in enumerate(messages):
        # An answer without a call ended a turn: everything before it is complete.
        if message.role == "assistant" and not any(block.get("type") == "tool_use" for block in message.content):
            start = index + 1
    for message in messages[start:]:
        if message.role == "assistant":
            todo.see_answer(message.content)
        else:
            todo.see_user(message.content)
    return todo


def mails_in(text: str) -> Iterator[IncomingMail]:
    for match in _MAIL.finditer(text):
        attributes = {name: _unescape(value) for name, value in _ATTRIBUTE.findall(match["attributes"])}
        yield IncomingMail(
            attributes.get("from", "someone"),
            attributes.get("type", "message"),
            attributes.get("request_id", ""),
            _unescape(match["text"]).strip(),
            attributes.get("task", ""),
        )


def show_mail(text: str) -> str:
    """The text with each tagged message in a readable form."""

    def show(match: re.Match[str]) -> str:
        (mail,) = mails_in(match[0])
        return f"{mail.sender} ({mail.type}): {mail.text}"

    return _MAIL.sub(show, text)


def shorten(text: str, limit: int) -> str:
    """The text on one line, with at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _unescape(text: str) -> str:
    # `&amp;` last, so that an escaped entity is not unescaped twice.
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list | tuple) else ()
    return "\n".join(str(block.get("text", "")) for block in blocks if isinstance(block, dict) and "text" in block)
