"""The tool pipeline: find → validate → hooks → decide → ask → run → hooks → cut. Every path ends in exactly one result.

Calls of one answer run at the same time unless they conflict; their results come back in call order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from teamcli.agent.events import (
    Emit,
    Notice,
    PermissionDenied,
    PermissionGiven,
    Refusal,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from teamcli.agent.hooks import (
    NO_HOOKS,
    NO_RESULT,
    PERMISSION_REQUEST,
    POST_TOOL_BATCH,
    POST_TOOL_USE,
    POST_TOOL_USE_FAILURE,
    PRE_TOOL_USE,
    HookEvent,
    HookResult,
    Hooks,
    hook_note,
)
from teamcli.agent.outside_tools import NothingOutside, Outside, meant_call
from teamcli.agent.pending_call import PendingCall, Results, must_wait, with_note
from teamcli.agent.permission_question import Permissions
from teamcli.agent.tool import (
    Access,
    AnyTool,
    Display,
    Harmless,
    PreparedCall,
    Reads,
    ToolOutput,
    Writes,
)
from teamcli.cancel import CancelScope
from teamcli.errors import CallRefused, Cancelled, ToolError
from teamcli.llm.types import Block
from teamcli.storage.files import read_regular
from teamcli.text.redaction import redact

logger = logging.getLogger(__name__)

MAX_CALLS, MAX_CALLS_AT_ONCE = 200, 32
"""For one answer."""
TOO_MANY_CALLS = ToolOutput(
    f"Error: Not run: one answer may make {MAX_CALLS} calls at most. Make the others in your next answers.",
    is_error=True,
)
MOST_ORIGINAL = 1_000_000
"""Bytes of a file that hooks get as it was before a change."""
NOTHING_OUTSIDE = NothingOutside()
CUT_CALL = "Your answer was cut off before this call was complete, so it was not run. Make a shorter call, or several."


class Toolset(NamedTuple):
    """The tools of one agent and what guards them."""

    agent: str
    tools: Mapping[str, AnyTool]
    permissions: Permissions
    emit: Emit
    hooks: Hooks = NO_HOOKS
    outside: Outside = NOTHING_OUTSIDE
    """Tools that are not among `tools`."""

    def find(self, name: str) -> AnyTool:
        """Raises: ToolError"""
        if (tool := self.tools.get(name) or self.outside.find(name)) is None:
            raise ToolError(f"Unknown tool: {name} (there are: {', '.join(self.tools)})")
        return tool

    def run(
        self, calls: Sequence[Block], cut: frozenset[str], cancel: CancelScope, key_of: Callable[[int], str] = str
    ) -> Results:
        """Run the calls of one answer; each gets one result, whatever happens.

        `cut` are the ids of incomplete calls. `key_of` returns the durable name of the call at a position.
        """
        pending = [
            PendingCall(meant_call(block), key=key_of(position)) for position, block in enumerate(calls[:MAX_CALLS])
        ]
        refused = [PendingCall(block, output=TOO_MANY_CALLS) for block in calls[MAX_CALLS:]]
        for call in pending:
            self._prepare(call, cut)
        for position, call in enumerate(pending):
            access = self._widest_access(call)
            call.come_after([each for each in pending[:position] if must_wait(access, self._widest_access(each))])
        if len(pending) == 1:  # the usual case, which needs no thread
            self._execute(pending[0], cancel)
        else:
            self._execute_together(pending, cancel)
        return self._after_all(Results.of([*pending, *refused]), pending, cancel)

    def run_for_user(self, name: str, raw: object, cancel: CancelScope) -> ToolOutput:
        """Run one call that the user asked for directly.

        Raises: ToolError, Cancelled
        """
        if name not in self.tools:
            raise ToolError(f"{self.agent} has no {name}")
        prepared = self.tools[name].prepare(raw)
        self.permissions.refuse_denied(name, prepared)
        output = prepared.run(cancel, lambda text: None)
        return output._replace(content=redact(output.content))

    def _prepare(self, call: PendingCall, cut: frozenset[str] = frozenset()) -> None:
        try:
            if call.id in cut:
                raise ToolError(CUT_CALL)
            call.prepare(self.find)
        except ToolError as e:
            call.fail(e)
        except Exception as e:  # boundary: a bug in a tool is a result, not the end of the agent
            logger.exception("preparing %s failed", call.name)
            call.fail(e)

    def _execute_together(self, calls: Sequence[PendingCall], cancel: CancelScope) -> None:
        """Calls start in order, so that none waits for a call that has no thread yet."""
        waiting = iter(calls)
        taking = threading.Lock()

        def work() -> None:
            while True:
                with taking:
                    call = next(waiting, None)
                if call is None:
                    return
                self._execute(call, cancel)

        started: list[threading.Thread] = []
        for call in calls[:MAX_CALLS_AT_ONCE]:
            thread = threading.Thread(target=work, name=f"{self.agent}:{call.name}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no thread left: those that run do the work
                break
            started.append(thread)
        if not started:
            work()
        for thread in started:
            thread.join()

    def _execute(self, call: PendingCall, cancel: CancelScope) -> None:
        if call.wait_for_earlier() and call.prepared:
            # Earlier calls may have changed what a path refers to: judge, show and run what is there now.
            self._prepare(call)
        display = call.display
        try:
            self.emit(ToolStarted(self.agent, call.id, call.name, display))
            if call.prepared:
                self._run(call, call.prepared, cancel)
        except CallRefused as e:
            call.fail(e, Refusal(e.by, e.reason))
        except ToolError as e:
            call.fail(e)
            call.end(self._after_failure(call, call.output, cancel))
        except Cancelled as e:
            call.interrupt(e.output)
        except Exception as e:  # boundary: a bug in a tool is a result, not the end of the agent
            logger.exception("%s failed", call.name)
            call.fail(e)
        finally:
            call.finish()
        # A hook may have changed the call, and with it the display.
        shown = call.output.display or (call.display if call.prepared else display)
        content, is_error = call.output.content, call.output.is_error
        ended = ToolFinished(self.agent, call.id, call.name, shown, content, is_error, call.seconds, call.refusal)
        self.emit(ended)

    def _run(self, call: PendingCall, prepared: PreparedCall, cancel: CancelScope) -> None:
        """Raises: ToolError, Cancelled"""
        cancel.check()
        scope = cancel.child()
        hooks_say = self._ask_hooks(call, prepared.display, scope)
        call.stop_turn(hooks_say.stop)
        if hooks_say.objection is not None:
            call.end(ToolOutput(hooks_say.objection, is_error=True), Refusal("a hook", redact(hooks_say.objection)))
            return
        prepared = call.prepared or prepared
        asked = time.monotonic()
        answer = (
            partial(self._answer_for_user, call, scope) if self.hooks.wants(PERMISSION_REQUEST, call.name) else None
        )
        was_asked = self.permissions.check(self.agent, call.name, prepared, scope, self.emit, hooks_say, answer)
        if call.prepared and call.prepared is not prepared:  # changed by the hook that allowed it
            prepared = call.prepared
            self.permissions.check(self.agent, call.name, prepared, scope, self.emit, HookResult(wish="allow"))
        original = self._original(call, prepared.access)
        if was_asked:
            self.emit(PermissionGiven(self.agent, call.id, call.name, time.monotonic() - asked))
        output = call.run(prepared, scope, lambda text: self.emit(ToolProgress(self.agent, call.id, text)))
        call.end(self._report_to_hooks(call, output, scope, original))

    def _ask_hooks(self, call: PendingCall, display: Display, cancel: CancelScope) -> HookResult:
        """What hooks say about a call before it is judged. If they change its input, the call is replaced.

        Raises: ToolError, if the changed input is not valid; Cancelled
        """
        if not self.hooks.wants(PRE_TOOL_USE, call.name):
            return NO_RESULT
        result = self.hooks.run(self._event(PRE_TOOL_USE, call), cancel)
        call.add_context(result.context)
        if result.objection is not None:
            self.emit(PermissionDenied(self.agent, call.name, display.text or display.title, result.objection))
        elif result.changed_input is not None:
            changed = call.change_input(result.changed_input, self.find)
            self.emit(Notice(self.agent, f"A hook has changed this call: {changed.display.title}"))
        return result

    def _answer_for_user(self, call: PendingCall, cancel: CancelScope, rules: Sequence[str]) -> HookResult:
        """What hooks answer to a question that is about to be asked.

        Raises: ToolError, if the changed input is not valid; Cancelled
        """
        result = self.hooks.run(self._event(PERMISSION_REQUEST, call, suggested_rules=list(rules)), cancel)
        call.stop_turn(result.stop)
        if result.changed_input is not None and result.objection is None:
            call.change_input(result.changed_input, self.find)
        return result

    def _original(self, call: PendingCall, access: Access) -> str | None:
        """The file as it is before the call changes it, if a hook will be given that."""
        if not isinstance(access, Writes) or not self.hooks.wants(POST_TOOL_USE, call.name):
            return None
        try:
            return read_regular(access.path, MOST_ORIGINAL).decode("utf-8", "replace")
        except (OSError, ValueError):
            return None

    def _report_to_hooks(
        self, call: PendingCall, output: ToolOutput, cancel: CancelScope, original: str | None = None
    ) -> ToolOutput:
        """The result, followed by what hooks say about it."""
        if self.hooks.wants(POST_TOOL_USE, call.name):
            event = self._event(POST_TOOL_USE, call, **_outcome(call, output))._replace(original=original)
            output = self._with_results(call, event, output, cancel)
        return self._after_failure(call, output, cancel)

    def _after_failure(self, call: PendingCall, output: ToolOutput, cancel: CancelScope) -> ToolOutput:
        """The same for a call that may have failed. The hooks know which exit codes of a command count."""
        if not call.began or not self.hooks.wants(POST_TOOL_USE_FAILURE, call.name):
            return output
        event = self._event(POST_TOOL_USE_FAILURE, call, **_outcome(call, output))
        return self._with_results(call, event, output, cancel)

    def _after_all(self, results: Results, calls: Sequence[PendingCall], cancel: CancelScope) -> Results:
        """The results of an answer's calls, and what hooks say about all of them. An objection ends the turn."""
        if not self.hooks.wants(POST_TOOL_BATCH):
            return results
        fields = {"tool_calls": [_fields(call, tool_response=call.output.content) for call in calls]}
        try:
            said = self.hooks.run(HookEvent(POST_TOOL_BATCH, self.agent, fields), cancel)
        except Cancelled:  # the calls are done, so their results count
            return results
        if said.context:
            last = results.blocks[-1]
            last["content"] = f"{last['content']}\n{hook_note(POST_TOOL_BATCH, said.context)}"
        stop = said.stop if said.objection is None else said.objection
        return results if stop is None else results._replace(stop=stop)

    def _with_results(self, call: PendingCall, event: HookEvent, output: ToolOutput, cancel: CancelScope) -> ToolOutput:
        try:
            result = self.hooks.run(event, cancel)
        except Cancelled:  # the call itself is done, so its result counts
            return output
        call.stop_turn(result.stop)
        if result.changed_output is not None:
            output = output._replace(content=result.changed_output)
        return with_note(output, event.name, "\n".join(filter(None, (result.objection, result.context))))

    def _event(self, name: str, call: PendingCall, **more: object) -> HookEvent:
        return HookEvent(name, self.agent, _fields(call, **more), call.name, call.prepared)

    def _widest_access(self, call: PendingCall) -> Access:
        """What a call may touch in the end. A hook can change its path, so then it is any path."""
        access = call.prepared.access if call.prepared else Harmless()
        if isinstance(access, Reads | Writes) and self.hooks.wants(PRE_TOOL_USE, call.name):
            return access._replace(path=Path("/"))
        return access


def _fields(call: PendingCall, **more: object) -> dict[str, Any]:
    """A call as hooks read it."""
    return {"tool_name": call.name, "tool_input": call.input, "tool_use_id": call.id, **more}


def _outcome(call: PendingCall, output: ToolOutput) -> dict[str, Any]:
    response = {"content": redact(output.content), "is_error": output.is_error}
    return {"tool_response": response, "duration_ms": round(call.seconds * 1000)}
