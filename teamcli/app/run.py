"""Runs a session: `teamcli -p`, at a terminal, or on a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from teamcli.agent.events import Event, TurnEnded
from teamcli.app.build import open_session
from teamcli.app.choices import untrusted_notes
from teamcli.app.host_program import Embedding
from teamcli.config.options import Options
from teamcli.config.project import Project, inspect_project
from teamcli.config.sources import Sources
from teamcli.session.session import Session
from teamcli.storage.files import Json
from teamcli.text.escaping import escape_controls
from teamcli.ui import headless

if TYPE_CHECKING:
    from teamcli.app.structured_output import StructuredOutput
    from teamcli.cancel import CancelScope
    from teamcli.mcp.server import Elicitation, ElicitationAnswer


def run_headless(options: Options) -> int:
    """`teamcli -p`; returns the exit code."""
    if options.is_controlled:
        from teamcli.app.controlled import run_controlled  # late: few starts are driven by a program

        return run_controlled(options, _project(options), _print_notes)
    stdin = headless.read_stdin(options.prompt, may_be_empty=options.continue_last or bool(options.resume))
    project = _project(options)
    structured = _structured_output(options)
    session = _open_headless(options, project, structured)
    try:
        _print_notes([*untrusted_notes(project), *session.record.notes])
        run = headless.Run(
            options.output_format,
            options.continue_last or bool(options.resume),
            _run_command,
            structured.collect if structured else None,
            _parts_of_answers() if options.include_partial_messages else None,
        )
        return headless.run_headless(session, options.prompt, stdin, run)
    finally:
        session.close()


def run_repl(options: Options) -> int:
    """`teamcli`: at a terminal or on a pipe; returns the exit code."""
    return _run_at_terminal(options) if sys.stdin.isatty() and sys.stdout.isatty() else _run_on_pipe(options)


def _run_at_terminal(options: Options) -> int:
    from teamcli.ui.terminal.questions import QuestionQueue

    project = _project(options)
    if project.must_ask and not options.trust:
        from teamcli.ui.terminal.run import ask_trust

        shown = [line for offer in project.pending for line in offer.lines]
        project = project.trust() if ask_trust(project.directory, shown) else project.refuse()
    questions = QuestionQueue()

    def ask_for_server(question: Elicitation, cancel: CancelScope) -> ElicitationAnswer:
        from teamcli.ui.terminal.elicitation import ask_user  # late: few servers ask anything

        return ask_user(questions, question, cancel)

    session = open_session(options, project, questions.ask, ask_for_server=ask_for_server)
    session.command_hosts.agents.prestart()
    session.record.notes.extend(untrusted_notes(project))
    try:
        from teamcli.ui.terminal.run import (
            run_terminal,  # takes a while, in which the sandbox gets ready for the banner
        )

        return run_terminal(session, options.prompt, questions)
    finally:
        session.close()


def _run_on_pipe(options: Options) -> int:
    from teamcli.ui.piped import run_piped

    project = _project(options)
    session = open_session(options, project)
    try:
        _print_notes([*session.record.notes, *untrusted_notes(project)])
        return run_piped(session, options.prompt)
    finally:
        session.close()


def _project(options: Options) -> Project:
    project = inspect_project(Path.cwd(), sources=_sources(options))
    return project.trust() if project.pending and options.trust else project


def _parts_of_answers() -> Callable[[Event], Sequence[Json]]:
    from teamcli.ui.control.partial_answers import PartialAnswers  # late: few runs need it

    return PartialAnswers()


def _structured_output(options: Options) -> StructuredOutput | None:
    if not options.json_schema:
        return None
    from teamcli.app.structured_output import StructuredOutput  # late: few runs need it

    return StructuredOutput(options.json_schema)


def _open_headless(options: Options, project: Project, structured: StructuredOutput | None) -> Session:
    hooks = (structured.hook,) if structured else ()
    embedding = Embedding(
        registered_hooks=hooks, lead_tools=(structured.tool,) if structured else (), owns_process=True
    )
    if options.permission_prompt_tool:
        from teamcli.app.prompt_tool import OpenedLater, approval_of  # late: few runs have one to ask

        opened = OpenedLater()
        if approval := approval_of(options, opened):
            embedding = embedding._replace(registered_hooks=(*hooks, approval.hook))
            return opened.set(open_session(options, project, approval.ask, embedding))
    return open_session(options, project, embedding=embedding if structured else None)


def _run_command(session: Session, line: str) -> str | Future[TurnEnded]:
    from teamcli.ui.command_prompt import run_as_command  # late: few runs begin with a command

    return run_as_command(session, line)


def _sources(options: Options) -> Sources:
    if options.setting_sources is None and not options.bare:
        return Sources()
    named = () if options.bare else options.setting_sources or ()
    return Sources("user" in named, "project" in named, "local" in named)


def _print_notes(notes: list[str]) -> None:
    for note in notes:
        print(f"teamcli: {escape_controls(note)}", file=sys.stderr)
