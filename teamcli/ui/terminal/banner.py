"""The first and the last lines of a session at the terminal, and the tip after the first hire."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from teamcli import __version__
from teamcli.agent import events
from teamcli.agent.events import Event
from teamcli.commands.reports.team import NO_TEAMMATES
from teamcli.session.session import Session
from teamcli.team.message import LEAD
from teamcli.team.roster import Member, Status
from teamcli.text.console import shorten, wrap
from teamcli.text.escaping import one_line
from teamcli.ui.leaving import busy_agents, leaving_lines
from teamcli.ui.render.style import BOLD, CYAN, DIM, YELLOW, Piece, TerminalStyle

HINT = "Type a task, or /help. Esc interrupts, q leaves."


def banner(session: Session, style: TerminalStyle) -> str:
    """Version, model and directory; the team; what to type; then notes that the user should read."""
    width = style.width() - 1
    sandbox = "no sandbox" if session.command_hosts.agents.why_unconfined() else "sandbox"
    if session.command_hosts.agents.why_refused():
        sandbox = "no commands, the sandbox fails"
    root = session.workspace.root
    with suppress(ValueError, RuntimeError):  # it is outside the home directory, or there is none
        root = Path("~") / root.relative_to(Path.home())
    where = f"{__version__} · {session.model} · {sandbox} · {root}"
    members = [member for member in session.team.roster.members() if member.status is not Status.SHUTDOWN]
    team = one_line(", ".join(map(_describe, members)), max(20, width - 5))
    lines: list[list[Piece]] = [
        [("teamcli ", f"{BOLD} {CYAN}"), (one_line(where, max(20, width - 8)), DIM)],
        [("team ", BOLD), (team, DIM)] if members else [(NO_TEAMMATES, DIM)],
        [(HINT, DIM)],
        *(line for note in session.record.notes for line in wrap([(note, YELLOW)], width)),
    ]
    if session.team_host is not None:
        lines.insert(2, [("store ", BOLD), (one_line(session.team_host.describe(), max(20, width - 6)), DIM)])
    return "".join(style.paint(line) + "\n" for line in lines)


def farewell(session: Session, style: TerminalStyle, unfinished: Sequence[str] = ()) -> str:
    """Who was interrupted and which commands were stopped; which lines were not carried out; what it cost; how to
    resume."""
    width = style.width() - 1
    left = ""
    lines = leaving_lines(session, busy_agents(session))
    lines += ["Not carried out:", *(f"  {one_line(line)}" for line in unfinished)] if unfinished else []
    for line in lines:
        is_item = line.startswith(" ")
        parts = [[(shorten(line, width), DIM)]] if is_item else wrap([(line, YELLOW)], width)
        left += "".join(style.paint(part) + "\n" for part in parts)
    cost, how = session.cost_line(), "Resume with: teamcli --continue"
    fits = len(cost) + 1 + len(how) < style.width()
    return f"\n{left}{cost}{' ' if fits else chr(10)}{how}"


class InboxTip:
    """Tells the user where the mail is: once, after the lead's first hire."""

    def __init__(self, is_wanted: bool, is_in_files: bool) -> None:
        self._is_wanted = is_wanted
        self._is_in_files = is_in_files
        self._hired = ""

    def after(self, event: Event) -> str:
        """The tip, once the lead's call that hired someone is complete; otherwise empty."""
        if not self._is_wanted:
            return ""
        if isinstance(event, events.StatusChanged) and event.status == "spawning":
            self._hired = self._hired or event.agent
        if not self._hired or not isinstance(event, events.Recorded) or event.agent != LEAD:
            return ""
        self._is_wanted, name = False, self._hired
        if not self._is_in_files:
            return f"Tip: /inbox {name} shows {name}'s mail, and /team who does what."
        return f"Tip: {name}'s mail is the file .team/inbox/{name}.jsonl; tail -F it, or see /inbox {name} and /team."


def _describe(member: Member) -> str:
    state = "interrupted" if member.interrupted else "paused" if member.paused else str(member.status)
    return f"{member.name} ({one_line(member.role, 24)}, {state})"
