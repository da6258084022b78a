"""Which mail wakes a teammate that was stopped or paused, and what keeps it from working: its budgets, and how often
in a row other agents may wake it."""

from __future__ import annotations

import threading

from teamcli.agent.limits import MAX_TURNS, Meter
from teamcli.errors import LimitReached
from teamcli.team.mailbox import Mailbox
from teamcli.team.message import USER, WAITED, Message

WOKEN = "Other agents have woken it"
"""How the one limit begins that is not a budget."""


class WakeRules:
    def __init__(self, mailbox: Mailbox, meter: Meter, max_wakes: int | None) -> None:
        """`max_wakes` is how often in a row it may work without a message from the user."""
        self._mailbox = mailbox
        self._meter = meter
        self._max_wakes = max_wakes
        self._held: frozenset[str] = frozenset()
        """What was unread when it was stopped or paused: it wakes nobody."""
        self._only_user_ends_pause = False
        self._wakes_in_a_row = 0
        self._looking = threading.RLock()
        """While a look takes long, nothing is new that it may find."""

    def hold(self, until_user: bool = False) -> None:
        """What is unread now wakes nobody. With `until_user`, only the user can end the pause that begins.

        Raises: StateError
        """
        self._only_user_ends_pause = self._only_user_ends_pause or until_user
        with self._looking:
            self._held = frozenset(message.read_as for message in self._mailbox.look())

    def hold_earlier_mail(self) -> bool:
        """Hold what an earlier run left unread. True if the user has sent some of it since then, which counts as new.

        Raises: StateError
        """
        self._only_user_ends_pause = False
        self.hold()
        new = {message.read_as for message in self._mailbox.look() if message.fields.get(WAITED)}
        self._held -= new
        return bool(new)

    def new_mail(self) -> list[Message]:
        """What has arrived since it was stopped or paused. The end of one of its commands does not count.

        Raises: StateError
        """
        with self._looking:
            new = [message for message in self._mailbox.look() if message.read_as not in self._held]
        return [message for message in new if not message.is_from_command]

    def ends_pause(self) -> bool:
        """Whether there is new mail from someone who may end the pause. Nothing ends it while a limit is reached: only
        the user can raise that.

        Raises: StateError
        """
        return self._meter.reached() is None and any(
            _is_from_user(message) or not self._only_user_ends_pause for message in self.new_mail()
        )

    def note_work(self, by_user: bool) -> None:
        """It begins a piece of work."""
        self._wakes_in_a_row = 0 if by_user else self._wakes_in_a_row + 1

    def allow(self) -> None:
        """The user lets it continue."""
        self._wakes_in_a_row = 0

    def limit(self) -> LimitReached | None:
        """Why it may not begin a turn: a budget, or other agents have woken it too often.

        Raises: StateError
        """
        is_over = self._max_wakes is not None and self._wakes_in_a_row >= self._max_wakes
        if not is_over or any(map(_is_from_user, self._mailbox.look())):
            return self._meter.reached()
        text = f"{WOKEN} {self._wakes_in_a_row:,} times in a row, without a message from the user"
        return LimitReached(text, MAX_TURNS, is_given=False)


def is_budget(limit: str) -> bool:
    """Whether raising a budget ends this limit. It does not if other agents have woken a teammate too often."""
    return bool(limit) and not limit.startswith(WOKEN)


def _is_from_user(message: Message) -> bool:
    return message.sender == USER and not message.is_foreign
