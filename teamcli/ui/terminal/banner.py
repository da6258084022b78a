"""The first and the last lines of a session at the terminal."""

from __future__ import annotations

from pathlib import Path

from teamcli import __version__
from teamcli.session.session import Session
from teamcli.team.roster import Member, Status
from teamcli.text.escaping import one_line
from teamcli.ui.render.style import BOLD, CYAN, DIM, YELLOW, Piece, TerminalStyle
from teamcli.ui.render.wrapping import wrap

HINT = "Type a task, or /help. Esc interrupts, q leaves."
NO_TEAM = "no teammates yet: the lead hires them, or ask it to"


def banner(session: Session, style: TerminalStyle) -> str:
    """What this is and where, who is there, what to type; below, what the user should know."""
    width = style.width() - 1
    where = " " + one_line(
        f"{__version__} · {session.model} · {_sandbox(session)} · {short_path(session.workspace.root)}",
        max(20, width - 7),
    )
    lines: list[list[Piece]] = [
        [("teamcli ", f"1;{CYAN}"), (one_line(where, max(20, width - 8)), DIM)],
        [("team ", BOLD), (one_line(_team(session), max(20, width - 5)), DIM)],
        [(HINT, DIM)],
        *(line for note in session.notes for line in wrap([(note, YELLOW)], width)),
    ]
    return "".join(style.paint(line) + "\n" for line in lines)


def farewell(session: Session, style: TerminalStyle) -> str:
    cost, how = session.cost_line(), "Go on with: teamcli --continue"
    fits = len(cost) + 1 + len(how) < style.width()
    return f"\n{cost}{' ' if fits else chr(10)}{how}"


def inbox_tip(name: str) -> str:
    return f"Tip: {name}'s mail is the file .team/inbox/{name}.jsonl; tail -f it, or see /inbox {name} and /team."


def short_path(path: Path) -> str:
    try:
        return str(Path("~") / path.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(path)


def _sandbox(session: Session) -> str:
    if session.host.why_refused():
        return "no commands, the sandbox fails"
    return "no sandbox" if session.host.why_unconfined() else "sandbox"


def _team(session: Session) -> str:
    members = [member for member in session.team.roster.members() if member.status is not Status.SHUTDOWN]
    return ", ".join(map(_described, members)) or NO_TEAM


def _described(member: Member) -> str:
    state = "interrupted" if member.interrupted else "paused" if member.paused else str(member.status)
    return f"{member.name} ({one_line(member.role, 24)}, {state})"
