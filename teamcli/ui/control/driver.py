"""Works on what the program that drives teamcli sends: one turn for each message of the user, each with a result."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from signal import SIGHUP, SIGINT, SIGTERM
from typing import Any, NamedTuple

from teamcli.agent.events import Outcome, TurnEnded
from teamcli.claude_code import stream_messages as shapes
from teamcli.claude_code.flags import mode_of
from teamcli.config.options import ExitStatus, Mode
from teamcli.errors import TeamcliError, TeamError, UsageError
from teamcli.llm.pricing import context_tokens
from teamcli.llm.types import Usage
from teamcli.session.session import LEAVING_SECONDS, Session
from teamcli.storage.files import Json
from teamcli.team.message import LEAD
from teamcli.ui.command_prompt import run_as_command
from teamcli.ui.control.channel import ControlChannel
from teamcli.ui.control.describing import context_usage, init_message, servers
from teamcli.ui.control.writer import MessageWriter
from teamcli.ui.headless import expand
from teamcli.ui.signals import SignalReceived, in_thread, result_of, signals_raise

_SUBTYPES = {
    Outcome.MAX_TURNS: "error_max_turns",
    Outcome.MAX_BUDGET: "error_max_budget_usd",
    Outcome.INTERRUPTED: "error_during_execution",
}
"""How a turn ends that is neither done nor failed. A failure of the model is a `success` with an error."""


class Driven(NamedTuple):
    """How the other program wants to be served."""

    servers: tuple[str, ...] = ()
    """MCP servers that it runs itself."""
    replays: bool = False
    """Repeat each message of the user."""
    shows_parts: bool = False
    resumes: bool = False
    """Teammates that were interrupted resume their work."""
    collect: Callable[[], Mapping[str, Any] | None] | None = None
    """Returns the answer in the form that was asked for, if one was."""


class _Before(NamedTuple):
    """Counts at the beginning of a turn."""

    started: float
    calls: int
    usage: Usage
    limits: int
    denials: int


class Driver:
    def __init__(self, session: Session, channel: ControlChannel, driven: Driven) -> None:
        self._session = session
        self._channel = channel
        self._driven = driven
        self._model = session.model
        roots = session.workspace.root
        parent_of = session.subagent_source.parent_of
        self._writer = MessageWriter(self._send, lambda: session.id, lambda agent: roots, parent_of, driven.shows_parts)
        self._is_error = False
        self._submitted: Future[TurnEnded] | None = None
        """The turn that the lead works on, or will."""
        self._starting = threading.Lock()
        self._taken = self._begun = 0
        """How many messages of the user were taken up, and how many of them have become turns."""
        self._skips_turn = False
        for subtype, answer in self._answers.items():
            channel.answer(subtype, answer)

    def run(self) -> int:
        """Serve until the input ends; returns the exit code."""
        session, channel = self._session, self._channel
        session.events.subscribe(self._writer)
        session.start(self._driven.resumes)
        with signals_raise(SIGINT, SIGTERM, SIGHUP):
            try:
                while (message := channel.next()) is not None:
                    if message.get("type") == "user":
                        self._turn(message)
                    else:
                        channel.reply_error(message, "Already initialized")
            except SignalReceived as e:
                session.cancel.cancel(f"stopped by {e.signal_name}")
                session.team.quiescence.wait_until_stopped(LEAVING_SECONDS)
                return e.exit_code
            finally:
                session.events.unsubscribe(self._writer)
        return ExitStatus.FAILED if self._is_error else ExitStatus.DONE

    def _send(self, message: Json) -> None:
        try:
            self._channel.send(message)
        except BrokenPipeError:  # no one reads the output, so there is no reason to spend more
            self._session.cancel.cancel("the reader of the output has gone")

    def _turn(self, message: Json) -> None:
        self._taken += 1
        self._send(init_message(self._session, self._driven.servers))
        if self._driven.replays:
            self._send({**message, "session_id": self._session.id, "isReplay": True, "uuid": shapes.new_id()})
        record = self._session.record
        usage, calls = self._session.usage, self._session.lead.agent.meter.turns
        before = _Before(time.monotonic(), calls, usage, len(record.limits), len(self._writer.denied))
        try:
            ended = self._work(_text_of(message), bool(message.get("client_composed")))
        except TeamcliError as e:  # such as a command that does not exist
            ended = TurnEnded(LEAD, Outcome.FAILED, str(e), 0.0, e)
        except CancelledError:
            ended = TurnEnded(LEAD, Outcome.INTERRUPTED, "", 0.0)
        with self._starting:
            self._begun, self._submitted, self._skips_turn = self._taken, None, False
        self._send(self._result(ended, before))

    def _work(self, text: str, is_verbatim: bool) -> TurnEnded:
        session = self._session
        expanded = text if is_verbatim else expand(session, text, run_as_command)
        if isinstance(expanded, Future):
            return result_of(expanded)
        with self._starting:
            self._begun = self._taken
            skips, self._skips_turn = self._skips_turn, False
            if skips:
                return TurnEnded(LEAD, Outcome.INTERRUPTED, "", 0.0)
            self._submitted = session.submit(expanded)
        ended = result_of(self._submitted)
        if ended.outcome is not Outcome.INTERRUPTED:
            result_of(in_thread(lambda: session.team.quiescence.wait_until_idle(session.cancel), "quiet"))
        return session.lead.last or ended

    # What the other program asks for

    @property
    def _answers(self) -> dict[str, Callable[[Json], Json]]:
        return {
            "interrupt": self._interrupt,
            "set_permission_mode": self._set_mode,
            "set_model": self._set_model,
            "mcp_status": lambda request: {"mcpServers": servers(self._session, self._driven.servers)},
            "mcp_toggle": self._toggle_server,
            "get_context_usage": lambda request: context_usage(self._session),
        }

    def _interrupt(self, request: Json) -> Json:
        session = self._session
        if not session.interrupt():
            with self._starting:
                if self._channel.received > self._begun:
                    self._skips_turn = True  # the message was sent before, and is not a turn yet
                # A line that the lead has not read is taken back; if it was read just now, its turn ends.
                elif self._submitted is not None and not session.withdraw(self._submitted):
                    session.interrupt()
        for name in self._session.team.names():
            with suppress(TeamError):  # it has left in the meantime
                self._session.team.interrupt(name)
        return {}

    def _set_mode(self, request: Json) -> Json:
        mode = Mode(mode_of(str(request.get("mode"))))
        self._session.live_policy.set_mode(mode)
        return {"mode": mode.value}

    def _set_model(self, request: Json) -> Json:
        self._session.use_model(str(request.get("model") or self._model))
        return {}

    def _toggle_server(self, request: Json) -> Json:
        name = str(request.get("serverName"))
        if self._session.mcp is None:
            raise UsageError(f"there is no MCP server {name}")
        self._session.mcp.switch(name, bool(request.get("enabled")))
        return {}

    # Messages about turns

    def _result(self, ended: TurnEnded, before: _Before) -> Json:
        session = self._session
        given = [hit for hit in session.record.limits[before.limits :] if hit.is_given]
        outcome = Outcome(given[0].limit) if given and ended.outcome is Outcome.DONE else ended.outcome
        subtype = _SUBTYPES.get(outcome, "success")
        structured = self._driven.collect() if self._driven.collect else None
        if self._driven.collect and structured is None and outcome is Outcome.DONE:
            subtype = "error_max_structured_output_retries"
        self._is_error = outcome is not Outcome.DONE or subtype != "success"
        said = ended.text or (str(ended.error) if ended.error else "")
        words = {"result": said} if subtype == "success" else {"errors": [said or "The turn was interrupted."]}
        usage = (session.usage - before.usage).to_dict()
        cost = round(session.budget.spent_usd, 6) if session.budget.is_known else None
        window, most = context_tokens(session.model), session.lead.agent.preamble.max_tokens
        return {
            "type": "result",
            "subtype": subtype,
            "is_error": self._is_error,
            "duration_ms": round((time.monotonic() - before.started) * 1000),
            "duration_api_ms": round(ended.seconds * 1000),
            "num_turns": session.lead.agent.meter.turns - before.calls,
            **words,
            "stop_reason": "end_turn" if outcome is Outcome.DONE else None,
            "session_id": session.id,
            "total_cost_usd": cost,
            "usage": usage,
            "modelUsage": {session.model: shapes.model_usage(usage, cost, window, most)},
            "permission_denials": self._writer.denied[before.denials :],
            **({"structured_output": structured} if structured is not None else {}),
            "uuid": shapes.new_id(),
        }


def _text_of(message: Json) -> str:
    content = message.get("message", {}).get("content", "")
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(
        str(block["text"]) if "text" in block else f"[a block of type {block.get('type')} was left out here]"
        for block in blocks
        if isinstance(block, dict)
    )
