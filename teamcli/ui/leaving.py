"""What a user reads on leaving: who was interrupted, and which commands were stopped.

Leaving never asks. It must be quick, and nothing is lost that `teamcli --continue` does not bring back; commands are
named so that they can be started again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from teamcli.session.session import Session
from teamcli.team.message import LEAD
from teamcli.team.roster import Status
from teamcli.text.counting import counted
from teamcli.text.escaping import escape_controls


def busy_agents(session: Session) -> list[str]:
    """Those whose work ends if the program leaves now."""
    members = session.team.roster.members()
    busy = [member.name for member in members if member.status in (Status.WORKING, Status.SPAWNING)]
    subagents = session.subagents.running_detached() if session.subagents else []
    return [*([LEAD] if session.lead.is_in_turn else []), *busy, *subagents]


def leaving_hint(session: Session, hint: str) -> str:
    """The hint that the next key leaves, with what that ends."""
    busy, jobs = len(busy_agents(session)), len(session.command_hosts.jobs.running())
    ends = [f"{busy} working"] if busy else []
    ends += [counted(jobs, "job")] if jobs else []
    return f"{hint} (stops {', '.join(ends)})" if ends else hint


def leaving_lines(session: Session, interrupted: Sequence[str], is_headless: bool = False) -> list[str]:
    """Call this before the session is closed, which ends the commands."""
    lines = []
    agents, roster = session.team.agents, session.team.roster
    # Members on other hosts continue.
    interrupted = [name for name in interrupted if agents.get(name) or not roster.find(name)]
    if interrupted:
        can_resume = any(session.team.roster.find(name) for name in interrupted)
        resume = " After teamcli --continue, /resume lets teammates continue." if can_resume else ""
        resume = " Resume with: teamcli -p --continue" if is_headless else resume
        lines.append(f"Interrupted: {', '.join(interrupted)}.{resume}")
    if stopped := session.command_hosts.jobs.running():
        lines += [
            f"Stopped {counted(len(stopped), 'running command')}:",
            *(f"  {entry.title}" for entry in stopped),
        ]
    return lines


def print_leaving(session: Session, interrupted: Sequence[str], is_headless: bool = False) -> None:
    """Without a terminal: on stderr."""
    for line in leaving_lines(session, interrupted, is_headless):
        print(f"teamcli: {escape_controls(line)}", file=sys.stderr)
