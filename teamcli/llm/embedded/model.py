"""The embedded model: a stand-in for where no language model is configured.

It follows plain imperatives (`offline_grammar`), one tool call per answer, and ends with what the tools returned. It
remembers nothing: what is still to do follows from the conversation alone, as with any other model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from teamcli.cancel import CancelScope
from teamcli.errors import StreamInterrupted
from teamcli.llm.embedded.grammar import VERBS, NotUnderstood
from teamcli.llm.embedded.todo import MAIL_TOOLS, OWN_CALL, Call, Task, Todo, from_history, shorten, show_mail
from teamcli.llm.types import NOT_UNDERSTOOD, Block, CallOpened, OnEvent, Reply, Request, TextDelta, Usage

MODEL = "embedded"

_CHUNK = 256
_MAX_QUOTE = 4000
_MAX_LINES_NAMED = 5


class EmbeddedModel:
    """An `LLM` that needs no key, no network and no tokens."""

    def stream(self, request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        _check(cancel, "")
        tools = frozenset(tool.name for tool in request.preamble.tools)
        todo = from_history(request.messages, tools)
        if call := todo.next_call():
            on_event(CallOpened(call.tool))
            _check(cancel, "")
            return _reply(_tool_use(call), "tool_use")
        text = _final_text(todo, tools)
        _stream_text(text, on_event, cancel)
        return _reply(_text(text), NOT_UNDERSTOOD if todo.understood_nothing else "end_turn")

    def warm_up(self) -> None:
        """There is nothing to load."""

    def close(self) -> None:
        """There is nothing to give up."""


def _stream_text(text: str, on_event: OnEvent, cancel: CancelScope) -> None:
    for start in range(0, len(text), _CHUNK):
        _check(cancel, text[:start])
        on_event(TextDelta(text[start : start + _CHUNK]))


def _check(cancel: CancelScope, arrived: str) -> None:
    if cancel.cancelled:
        raise StreamInterrupted(cancel.reason, _reply(_text(arrived), "interrupted") if arrived else None)


def _reply(block: Block, stop_reason: str) -> Reply:
    return Reply((block,), stop_reason, Usage(), MODEL)


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _tool_use(call: Call) -> Block:
    # Ids of messages are derived from ids of calls: no two may ever be the same, in any agent or session.
    return {"type": "tool_use", "id": OWN_CALL + os.urandom(12).hex(), "name": call.tool, "input": dict(call.input)}


def _final_text(todo: Todo, tools: frozenset[str]) -> str:
    if todo.understood_nothing:
        return f"{_misunderstood(todo.misunderstood)}\n\n{help_text(tools)}"
    parts = [_outcome(task) for task in todo.tasks]
    if todo.help_asked:
        parts.append(help_text(tools))
    if todo.misunderstood:
        parts.append(f"{_misunderstood(todo.misunderstood)} Say `help` for what I know.")
    if todo.noted:
        parts.append(f"Noted: {'; '.join(todo.noted)}.")
    return "\n".join(parts) or "Nothing to do. Say `help` for what I know."


def _outcome(task: Task) -> str:
    """What was asked and what came of it: on one line where that is enough."""
    asked = shorten(task.text, 120)
    if not task.is_possible:
        return f"{asked} – not done: this agent has no tool {task.call.tool}."
    last = task.made[-1]
    output = show_mail(last.output) if task.call.tool in MAIL_TOOLS else last.output
    output = _cut_middle(output.strip("\n")) or "(no output)"
    verdict = "– failed:" if last.is_error else "→"
    return f"{asked} {verdict} {output}" if "\n" not in output else f"{asked} {verdict}\n{_fenced(output)}"


def _fenced(output: str) -> str:
    longest = max((len(ticks) for ticks in re.findall(r"`{3,}", output)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{output}\n{fence}"


def _cut_middle(output: str) -> str:
    left_out = len(output) - _MAX_QUOTE
    if left_out <= 0:
        return output
    half = _MAX_QUOTE // 2
    return f"{output[:half]}\n[… {left_out} characters left out …]\n{output[-half:]}"


def _misunderstood(items: list[NotUnderstood]) -> str:
    named = [_named(item) for item in items[:_MAX_LINES_NAMED]]
    if len(items) > _MAX_LINES_NAMED:
        named.append(f"and {len(items) - _MAX_LINES_NAMED} more lines")
    return f"I did not understand: {'; '.join(named)}."


def _named(item: NotUnderstood) -> str:
    quoted = f"“{shorten(item.text, 80)}”"
    return f"{quoted} (say it as: {item.usage})" if item.usage else quoted


def help_text(tools: frozenset[str]) -> str:
    """What the embedded model can do with these tools, and how to get a real one."""
    return "\n".join(
        (
            "I am the embedded model: no language model, but I work with real tools when you say, one a line:",
            "",
            *_help_rows(tools),
            "",
            "Join them with “then”: write hi.txt: hello then read hi.txt",
            "Text in double quotes or back-ticks stays together.",
            "For a real model, put ANTHROPIC_API_KEY into the environment or into .env, and start teamcli again.",
        )
    )


def _help_rows(tools: frozenset[str]) -> Iterator[str]:
    for verb in VERBS:
        yield f"    {verb.usage:26}{verb.hint if verb.tool in tools else '(not in this agent)'}"
