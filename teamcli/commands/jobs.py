"""`/jobs`: see and stop what runs in the background."""

from __future__ import annotations

from collections.abc import Sequence

from teamcli.commands.base import ArgumentKind, Column, CommandResult, Group, Option, Table, command
from teamcli.errors import UsageError
from teamcli.exec.job_list import JobEntry
from teamcli.session.session import Session
from teamcli.text.duration import short_time
from teamcli.text.escaping import one_line

NO_JOBS = "Nothing runs in the background."
ALL = "all"
COLUMNS = (
    Column("ID"),
    Column("OWNER", "name"),
    Column("TIME", "dim", right=True),
    Column("COMMAND", shrinks=True),
    Column("", "dim", goes_below=True),
)
_COMMAND_LENGTH, _LINE_LENGTH = 200, 100


@command(
    "jobs",
    usage="[ID | stop ID]",
    arguments=(ArgumentKind.JOB_VERB, ArgumentKind.JOB),
    group=Group.TEAM,
)
def jobs(session: Session, arguments: str) -> CommandResult:
    """Show or stop what runs in the background.

    /jobs             list the background commands of all agents, and your own ! commands
    /jobs bg-1        show the end of its output, also after it has ended
    /jobs stop bg-1   stop it with everything it has started; its agent gets a message that you did
    /jobs stop all    stop all of them
    They end when you leave teamcli.
    """
    found = session.command_hosts.jobs
    words = arguments.split()
    if not words:
        return job_table(found.running())
    if words[0] != "stop":
        return _output(found.find(words[0]))
    if len(words) != 2:
        raise UsageError("say which job to stop: /jobs stop ID, or /jobs stop all")
    return _stop(found.running() if words[1] == ALL else [found.find(words[1])])


def job_table(entries: Sequence[JobEntry]) -> Table:
    rows = tuple(
        (
            entry.id,
            entry.whose,
            short_time(entry.seconds),
            one_line(entry.command, _COMMAND_LENGTH),
            one_line(entry.last_line, _LINE_LENGTH),
        )
        for entry in entries
    )
    return Table("" if rows else NO_JOBS, COLUMNS, rows)


def job_options(session: Session) -> tuple[Option, ...]:
    return tuple(Option(entry.id, entry.title) for entry in session.command_hosts.jobs.running())


def _output(entry: JobEntry) -> str:
    state = f"ended after {short_time(entry.seconds)}" if entry.is_over else f"runs for {short_time(entry.seconds)}"
    title = f"{entry.id} ({entry.title}) {state}"
    return (
        f"{title}. The end of its output:\n{entry.recent.rstrip()}" if entry.recent.strip() else f"{title}, no output."
    )


def _stop(entries: Sequence[JobEntry]) -> str:
    running = [entry for entry in entries if not entry.is_over]
    for entry in running:
        entry.stop()
    if running:
        return "\n".join(f"Stopped {entry.id} ({entry.title})." for entry in running)
    return f"{entries[0].id} has ended already." if entries else NO_JOBS
