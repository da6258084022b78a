"""The lines below the prompt: the board if it is shown, agents, and model, mode, mail, cost and context."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from teamcli.agent import events
from teamcli.agent.events import Event
from teamcli.session.session import EMBEDDED, Session
from teamcli.team.message import LEAD, Message, shown_sender
from teamcli.team.roster import Member, Status
from teamcli.ui.render.style import AgentColors, Line
from teamcli.ui.terminal.background_read import BackgroundRead
from teamcli.ui.terminal.questions import ChoiceQuestion, PermissionQuestion, PromptQuestion
from teamcli.ui.terminal.status import AgentState, CurrentWork, SessionMeter, StatusBoard, meter_line
from teamcli.ui.terminal.status_area import Moment, agent_lines
from teamcli.ui.terminal.task_panel import TaskPanel, lines_for_board

AGENTS_SHARE = 4
"""At most a fourth of the screen lists agents: the rest is for what they say."""


class Room(NamedTuple):
    """How large the screen is, and how many rows of it the prompt needs."""

    width: int
    height: int
    taken: int


class StatusBar:
    def __init__(self, session: Session, colors: AgentColors, redraw: Callable[[], None]) -> None:
        states: list[AgentState] = []
        for member in session.team.roster.members():
            notes = [word for word in ("interrupted", "paused", "error") if getattr(member, word)]
            states.append(AgentState(member.name, member.status, ", ".join(notes), _elsewhere(member)))
        self.board = StatusBoard(LEAD, states)
        self.tasks = TaskPanel(session, redraw)
        self._session = session
        self._colors = colors
        self._unread: tuple[Message, ...] = ()
        self._mail = BackgroundRead(self._look_at_mail, redraw)
        self._context: tuple[float | None, int] = (None, 0)
        """The share of its window that the lead's conversation fills, and its tokens."""

    def note(self, event: Event) -> None:
        """Update what costs too much to look up for each drawing."""
        self.tasks.note(event)
        match event:
            case events.Answered() if event.agent == LEAD and event.model != EMBEDDED:
                self._note_context(event.usage.context_tokens)
            case events.Compacted() if event.agent == LEAD and self._session.model != EMBEDDED:
                self._note_context(event.tokens_after)
            case events.MailSent() | events.TurnStarted() | events.TurnEnded():
                self._mail.again()

    def _look_at_mail(self) -> None:
        self._unread = self._session.lead.mailbox.look()

    def lines(
        self,
        room: Room,
        questions: Sequence[PromptQuestion],
        hint: str,
        watched: str = "",
        is_urgent: bool = False,
    ) -> list[Line]:
        session, budget = self._session, self._session.budget
        # A small cost would be shown as $0.00.
        digits = 2 if budget.spent_usd >= 0.1 or not budget.spent_usd else 4
        cost = f"${budget.spent_usd:.{digits}f}" if budget.is_known else f"{session.usage.context_tokens:,} tokens"
        share, tokens = self._context
        unread, jobs = self._unread, len(session.command_hosts.jobs.background())
        mode, senders = session.live_policy.policy.mode, tuple(dict.fromkeys(map(shown_sender, unread)))
        meter = SessionMeter(session.model, mode, share, cost, len(unread), tokens, senders, jobs)
        panel = self.tasks.lines(room.width, lines_for_board(room.height, bool(questions)))
        rows = max(1, min(room.height // AGENTS_SHARE, room.height - room.taken - len(panel) - 1))
        moment = Moment(time.monotonic(), [question.agent for question in questions], watched, self._colors)
        agents = agent_lines(self.board.states(), room.width, rows, moment)
        return [*panel, *agents, meter_line(meter, hint, room.width, is_urgent)]

    def hint(self, current: PromptQuestion | None, has_questions: bool, has_jobs: bool, shown: str) -> str:
        """What a key does right now."""
        if current is None and has_questions:
            return "Enter: answer"
        if isinstance(current, ChoiceQuestion):
            return "Esc: cancel"
        if isinstance(current, PermissionQuestion) and current.is_choosing:
            return "Esc: back"
        if current is not None and current.agent != LEAD:
            return "Esc: answer later"
        key = "Ctrl-C" if self._session.preferences.vi_mode else "Esc"  # in vi mode, Esc leaves insert mode
        if shown != LEAD:
            return f"{key}: back to the lead"
        return f"{key}: interrupt" if self.board.lead_is_working or has_jobs else "/help"

    def _note_context(self, tokens: int) -> None:
        agent = self._session.lead.agent
        self._context = (agent.context.filled(tokens, agent.preamble.model), tokens)


def _elsewhere(member: Member) -> CurrentWork | None:
    """What a member does on another host while this program starts; nothing is heard of that before it changes."""
    if not member.runs_on or member.status is not Status.WORKING:
        return None
    began = time.monotonic() - max(0.0, time.time() - member.since)
    return CurrentWork(f"{member.status} on {member.runs_on}", began)
