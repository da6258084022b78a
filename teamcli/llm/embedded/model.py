"""The embedded model, used if no language model is configured.

It understands simple commands (see `grammar.py`), makes one tool call per answer, and ends with the tools' results.
It has no memory: like any other model, it derives what to do from the conversation.
"""

from __future__ import annotations

import os
import re

from teamcli.cancel import CancelScope
from teamcli.errors import StreamInterrupted
from teamcli.llm.embedded.grammar import VERBS, Unparsed
from teamcli.llm.embedded.pending import MAIL_TOOLS, OWN_CALL, ImperativeCall, Todo, from_history, shorten, show_mail
from teamcli.llm.types import NOT_UNDERSTOOD, Block, CallOpened, OnEvent, Reply, Request, TextDelta, Usage
from teamcli.text.counting import counted

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
            # Ids of messages are derived from ids of calls: no two may be the same, in any agent or session.
            id = OWN_CALL + os.urandom(12).hex()
            return _reply({"type": "tool_use", "id": id, "name": call.tool, "input": dict(call.input)}, "tool_use")
        text = _final_text(todo, tools)
        for start in range(0, len(text), _CHUNK):
            _check(cancel, text[:start])
            on_event(TextDelta(text[start : start + _CHUNK]))
        return _reply(_text(text), NOT_UNDERSTOOD if todo.understood_nothing else "end_turn")

    def warm_up(self) -> None:
        """There is nothing to load."""

    def close(self) -> None:
        """There is nothing to close."""


def _check(cancel: CancelScope, arrived: str) -> None:
    if cancel.cancelled:
        raise StreamInterrupted(cancel.reason, _reply(_text(arrived), "interrupted") if arrived else None)


def _reply(block: Block, stop_reason: str) -> Reply:
    return Reply((block,), stop_reason, Usage(), MODEL)


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


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


def _outcome(task: ImperativeCall) -> str:
    """What was asked and its outcome: on one line if that is enough."""
    asked = shorten(task.call.text, 120)
    if not task.is_possible:
        return f"{asked} – not done: this agent has no tool {task.call.tool}."
    if not task.made:
        return f"{asked} – not done: a command before it failed."
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


def _misunderstood(items: list[Unparsed]) -> str:
    named = []
    for item in items[:_MAX_LINES_NAMED]:
        quoted = f"“{shorten(item.text, 80)}”"
        named.append(f"{quoted} (say it as: {item.usage})" if item.usage else quoted)
    if len(items) > _MAX_LINES_NAMED:
        named.append(f"and {counted(len(items) - _MAX_LINES_NAMED, 'more line')}")
    return f"I did not understand: {'; '.join(named)}."


def help_text(tools: frozenset[str]) -> str:
    """What the embedded model can do with these tools, and how to get a real one."""
    return "\n".join(
        (
            "I am the embedded model: no language model, but I work with real tools when you say, one a line:",
            "",
            *(f"    {v.usage:26}{v.hint if v.tool in tools else '(not in this agent)'}" for v in VERBS),
            "",
            "Join them with “then”: write hi.txt: hello then read hi.txt",
            "Text in double quotes or back-ticks stays together.",
            "For a real model, put ANTHROPIC_API_KEY into the environment or into .env, and start teamcli again.",
        )
    )
