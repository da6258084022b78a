"""`teamcli -p`: one task from the command line or a pipe, the answer on stdout, everything else on stderr."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM
from typing import Any, NamedTuple

from teamcli.agent import events
from teamcli.agent.events import Event, Outcome, TurnEnded
from teamcli.agent.loop import Agent
from teamcli.config.options import ExitStatus
from teamcli.errors import AuthError, ConfigError, ModelNotFound, StateError, UsageError, WrongEndpoint
from teamcli.llm.types import Usage
from teamcli.session.session import CONTINUE, LEAVING_SECONDS, Session
from teamcli.storage.files import Json
from teamcli.team.message import LEAD
from teamcli.text.escaping import escape_controls
from teamcli.text.tags import tagged
from teamcli.ui.leaving import busy_agents, print_leaving
from teamcli.ui.render.progress import Progress
from teamcli.ui.signals import SignalReceived, in_thread, result_of, signals_raise

STDIN_WAIT_SECONDS = 3.0
"""How long to wait for a pipe on stdin that stays silent."""
LARGEST_STDIN = 10_000_000


RunCommand = Callable[[Session, str], "str | Future[TurnEnded]"]
"""Takes a line such as `/command words`; returns the task that it means, or the end of a command that is built in.

Raises: UsageError, for a command that does not exist; TeamcliError
"""


class Run(NamedTuple):
    """How to run."""

    output_format: str
    resumes: bool
    """Teammates that were interrupted resume their work."""
    run_command: RunCommand
    collect: Callable[[], Mapping[str, Any] | None] | None = None
    """Returns the answer in the form that was asked for, if one was."""
    parts: Callable[[Event], Sequence[Json]] | None = None
    """With stream-json: what else an event prints, if parts of answers are wanted."""


def run_headless(session: Session, prompt: str, stdin: str, run: Run) -> int:
    """Work on one task to the end, print the result, and return the exit code."""
    printer = PRINTERS[run.output_format](session)
    if run.parts is not None and isinstance(printer, StreamPrinter):
        session.events.subscribe(PartsPrinter(printer, run.parts, session))
    session.events.subscribe(Progress(sys.stderr, session.preferences))
    session.events.subscribe(printer)
    session.start(run.resumes)  # after subscribing, so that no event is missed
    piped = framed_stdin(stdin) if prompt and stdin else ""
    started, interrupted = time.monotonic(), list[str]()
    with signals_raise(SIGINT, SIGTERM, SIGHUP):
        expanded = expand(session, prompt, run.run_command)
        turn = expanded if isinstance(expanded, Future) else session.submit(expanded or stdin or CONTINUE, piped)
        try:
            result_of(turn)
            result_of(in_thread(lambda: session.team.quiescence.wait_until_idle(session.cancel), "quiet"))
            ended = turn.result() if isinstance(expanded, Future) else session.lead.last or turn.result()
            code = exit_status(session, ended)
        except SignalReceived as e:
            interrupted = busy_agents(session)
            session.cancel.cancel(f"stopped by {e.signal_name}")
            ended, code = _wait_for_end(turn), e.exit_code
            # The teammates end before the result is printed, because it reports on them.
            session.team.quiescence.wait_until_stopped(LEAVING_SECONDS)
        except CancelledError:  # the turn was not begun, because no one would read the answer
            ended, code = _wait_for_end(turn), ExitStatus.FAILED
    for each in (*_waiting(session), *_stopped_earlier(session)):
        print(f"teamcli: {escape_controls(each)}", file=sys.stderr)
    print_leaving(session, interrupted, is_headless=True)
    session.events.unsubscribe(printer)  # the result comes last
    result = result_object(session, ended, code, started)
    if run.collect is not None:
        code = _add_structured(result, run.collect(), code)
    printer.finish(ended, result)
    return code


def _add_structured(result: Json, given: Mapping[str, Any] | None, code: ExitStatus) -> ExitStatus:
    """Add the answer in the form that was asked for; returns the exit code."""
    if given is not None:
        result["structured_output"] = given
    elif code == ExitStatus.DONE:
        result |= {"subtype": "error_max_structured_output_retries", "is_error": True}
        return ExitStatus.FAILED
    return code


def expand(session: Session, prompt: str, run_command: RunCommand) -> str | Future[TurnEnded]:
    """What a prompt such as `/command words` means. Any other is returned as it is, also one that begins with a path.

    Raises: TeamcliError
    """
    name = prompt[1:].split(maxsplit=1)[0] if prompt.startswith("/") and prompt[1:].strip() else ""
    if not name or not re.fullmatch(r"[A-Za-z?][\w:.-]*", name) or Path(f"/{name}").exists():
        return prompt
    return run_command(session, prompt)


def _stopped_earlier(session: Session) -> list[str]:
    """Teammates that reached a limit before this run, so that no event has reported it."""
    reported = {hit.agent for hit in session.record.limits}
    members = [member for member in session.team.roster.members() if member.limit and member.name not in reported]
    return [f"{member.name} is paused: {member.limit}" for member in members]


def framed_stdin(text: str) -> str:
    """Piped text that comes with a prompt, in a tag that nothing in the text can close."""
    return tagged("stdin", text)


def _wait_for_end(turn: Future[TurnEnded]) -> TurnEnded:
    """How a cancelled turn ended. That takes milliseconds, and a program that is asked to stop must do so soon."""
    try:
        return turn.result(LEAVING_SECONDS)
    except (TimeoutError, CancelledError):
        return TurnEnded(LEAD, Outcome.INTERRUPTED, "", 0.0)


def exit_status(session: Session, ended: TurnEnded) -> ExitStatus:
    """The exit code of contract §1. If several apply, it is the first of 2, 1, 3, 4."""
    match ended.outcome:
        case Outcome.FAILED if isinstance(ended.error, StateError):  # for example a full disk
            return ExitStatus.FAILED
        case Outcome.FAILED if isinstance(ended.error, AuthError | ModelNotFound | WrongEndpoint | ConfigError):
            return ExitStatus.USAGE
        case Outcome.FAILED | Outcome.REFUSED | Outcome.CONTEXT_FULL | Outcome.INTERRUPTED:
            return ExitStatus.FAILED
        case Outcome.MAX_TURNS | Outcome.MAX_BUDGET:
            return ExitStatus.LIMIT
        case Outcome.DONE if any(limit.is_given for limit in session.record.limits):
            return ExitStatus.LIMIT
        case Outcome.DONE:
            needed_a_person = any(denial.unanswered for denial in session.record.denials)
            return ExitStatus.PERMISSION if needed_a_person else ExitStatus.DONE


def result_object(session: Session, ended: TurnEnded, code: int, started: float) -> Json:
    """The `result` of contract §1."""
    subtype = {ExitStatus.DONE: "success", ExitStatus.PERMISSION: "error_permission"}.get(ExitStatus(code), "error")
    if code == ExitStatus.LIMIT:
        # The limit that the lead has reached, or the first limit of the command line that any agent has.
        is_leads = ended.outcome in (Outcome.MAX_TURNS, Outcome.MAX_BUDGET)
        limit = ended.outcome if is_leads else next(hit.limit for hit in session.record.limits if hit.is_given)
        subtype = f"error_{limit}"
    return {
        "type": "result",
        "subtype": subtype,
        "is_error": subtype != "success",
        "result": ended.text or (str(ended.error) if ended.error else ""),
        "session_id": session.id,
        "num_turns": session.lead.agent.meter.turns,
        "duration_ms": round((time.monotonic() - started) * 1000),
        "total_cost_usd": round(session.budget.spent_usd, 6) if session.budget.is_known else None,
        "usage": session.usage.to_dict(),
        "agents": _used_by_each(session.agents),
        "permission_denials": [
            {"agent": d.agent, "tool_name": d.tool, "call": d.title, "reason": d.reason, "rule": d.rule}
            for d in session.record.denials
        ],
        "waiting": _waiting(session),
    }


def _waiting(session: Session) -> list[str]:
    return [*session.team.protocols.open_requests(), *session.team.agents.waiting_for_room]


def _used_by_each(agents: Sequence[Agent]) -> Json:
    used: Json = {}
    for name in dict.fromkeys(agent.name for agent in agents):
        meters = [agent.meter for agent in agents if agent.name == name]
        used[name] = {
            "turns": sum(meter.turns for meter in meters),
            "tool_calls": sum(meter.tool_calls for meter in meters),
            "usage": sum((meter.usage for meter in meters), Usage()).to_dict(),
        }
    return used


class TextPrinter:
    """The last answer, as plain text."""

    def __init__(self, session: Session) -> None:
        pass

    def __call__(self, event: Event) -> None:
        pass

    def finish(self, ended: TurnEnded, result: Json) -> None:
        if "structured_output" in result:
            _print_json(result["structured_output"])
        elif ended.text:
            print(escape_controls(ended.text), flush=True)


class JsonPrinter(TextPrinter):
    """One object at the end."""

    def finish(self, ended: TurnEnded, result: Json) -> None:
        _print_json(result)


class StreamPrinter(TextPrinter):
    """One object per line, as events happen."""

    def __init__(self, session: Session) -> None:
        self._cancel = session.cancel
        self._session = session
        self._reader_has_gone = False
        _print_json(
            {
                "type": "system",
                "subtype": "init",
                "session_id": session.id,
                "model": session.model,
                "tools": [tool.name for tool in session.lead.agent.preamble.tools],
                "cwd": str(session.workspace.root),
                "permissionMode": str(session.live_policy.policy.mode),
                **_catalog(session),
            }
        )

    def __call__(self, event: Event) -> None:
        if (line := stream_line(event)) is None:
            return
        if line["type"] in ("assistant", "user"):  # readers of Claude Code's stream look for these
            agent = line["agent"]
            line = {**line, "session_id": self._session.id, "parent_tool_use_id": None if agent == LEAD else agent}
        self.print_line(line)

    def print_line(self, line: Json) -> None:
        try:
            _print_json(line)
        except BrokenPipeError:  # no one reads the output, so there is no reason to spend more
            self._reader_has_gone = True
            self._cancel.cancel("the reader of the output has gone")

    def finish(self, ended: TurnEnded, result: Json) -> None:
        if self._reader_has_gone:
            raise BrokenPipeError
        _print_json(result)


def _catalog(session: Session) -> Json:
    """What can be called, by the names that Claude Code's stream has for it."""
    catalog = session.catalog
    names = [each.name for each in catalog.custom_commands.find().commands if each.for_user]
    names += [each.name for each in catalog.skills if each.for_user]
    return {
        "slash_commands": list(dict.fromkeys(names)),
        "agents": [role.name for role in catalog.roles],
        "skills": [skill.name for skill in catalog.skills],
        "plugins": [{"name": name, "path": str(path)} for name, path in catalog.plugins.items()],
        "mcp_servers": [{"name": name, "status": "pending"} for name in (session.mcp.servers if session.mcp else ())],
    }


class PartsPrinter:
    """The parts of answers, before the lines about the same events."""

    def __init__(self, printer: StreamPrinter, parts: Callable[[Event], Sequence[Json]], session: Session) -> None:
        self._printer = printer
        self._parts = parts
        self._session = session
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        with self._lock:
            for part in self._parts(event):
                about = {"agent": event.agent, "session_id": self._session.id}
                self._printer.print_line({"type": "stream_event", **about, "event": part})


PRINTERS: dict[str, Callable[[Session], TextPrinter]] = {
    "text": TextPrinter,
    "json": JsonPrinter,
    "stream-json": StreamPrinter,
}


def stream_line(event: Event) -> Json | None:
    match event:
        case events.Recorded():
            return {"type": event.message.role, "agent": event.agent, "message": event.message.to_dict()}
        case events.PermissionAsked():
            call = {"tool_name": event.tool, "call": event.title, "state": "asked"}
            return {"type": "team", "event": "permission", "agent": event.agent, **call}
        case events.PermissionDenied():
            call = {"tool_name": event.tool, "call": event.title, "state": "denied"}
            call |= {"reason": event.reason, "rule": event.rule}
            return {"type": "team", "event": "permission", "agent": event.agent, **call}
        case events.MailSent():
            mail = {"to": event.to, "message_type": event.type, "content": event.content}
            return {"type": "team", "event": "message", "agent": event.agent, **mail}
        case events.StatusChanged():
            return {"type": "team", "event": "status", "agent": event.agent, "status": event.status, **event.details}
        case events.TaskChanged():
            task = {"task": event.id, "subject": event.subject, "status": event.status, "owner": event.owner}
            return {"type": "team", "event": "task", "agent": event.agent, "change": event.change, **task}
        case events.MergeEnded():
            merge = {name: value for name, value in event._asdict().items() if name != "by_user"}
            return {"type": "team", "event": "merge", **merge}
        case events.LimitHit():
            return {"type": "team", "event": "limit", "agent": event.agent, "limit": event.limit, "text": event.text}
        case events.Notice(severity=events.Severity.ERROR):
            return {"type": "team", "event": "error", "agent": event.agent, "text": event.text}
        case _:
            return None


def _print_json(value: Json) -> None:
    # `json.dumps` escapes everything but ASCII, so neither control characters nor the locale can spoil the output.
    print(json.dumps(value), flush=True)


def read_stdin(prompt: str, may_be_empty: bool) -> str:
    """The text that was piped in. Empty if stdin is a terminal, or a pipe that stays silent.

    Raises: UsageError, if there is no task at all.
    """
    text = ""
    try:
        mode = os.fstat(0).st_mode
    except OSError:  # started with stdin closed
        mode = 0
    if stat.S_ISREG(mode) or ((stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)) and _has_stdin()):
        with contextlib.suppress(OSError):  # for example opened for writing only
            data = sys.stdin.buffer.read(LARGEST_STDIN + 1)
            if len(data) > LARGEST_STDIN:
                raise UsageError(
                    f"standard input has more than {LARGEST_STDIN:,} bytes; name a file in the task instead"
                )
            text = data.decode("utf-8", "replace").strip("\n")
    if not prompt.strip() and not text.strip() and not may_be_empty:
        raise UsageError("-p needs a task: give a PROMPT, or pipe one in (try teamcli --help)")
    return text


def _has_stdin() -> bool:
    if select.select([0], [], [], STDIN_WAIT_SECONDS)[0]:
        return True
    print(f"teamcli: no input on stdin within {STDIN_WAIT_SECONDS:.0f} s; continuing without it", file=sys.stderr)
    return False
