"""One team in a database that may hold many: its number, and the key that signs its rows."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any, NamedTuple

from psycopg import Cursor

from teamcli.errors import LeaseLost
from teamcli.store.postgres.database import Database, Topic
from teamcli.team.message import LEAD

HELD = "held as (select 1 from lease where team = %(team)s and name = %(holder)s and epoch = %(epoch)s for share)"
"""In a statement that writes for an agent: empty if the lease of the holder was lost. A takeover waits until the
transaction has ended: `for key share` would let it through, because it does not change the key."""
_SIGNATURE_BYTES = 20
_LOST = 0
"""An epoch that no lease has."""


class Team(NamedTuple):
    database: Database
    id: int
    uid: str
    """Names the team everywhere; random, so that another team in another database never has the same."""
    key: bytes
    """Of this team, from the user's home. It is never in the database."""
    name: str = ""
    """What it is called among the teams of a repository."""

    def sign(self, *parts: str | int) -> str:
        """The signature of a row: of the table's name, what identifies the row in it, and its content."""
        # As a list in JSON: no other parts give the same text, wherever one ends and the next begins.
        text = json.dumps([self.uid, *parts], ensure_ascii=False, separators=(",", ":"))
        return hashlib.blake2b(text.encode("utf-8", "replace"), key=self.key, digest_size=_SIGNATURE_BYTES).hexdigest()

    def is_signed(self, signature: str, *parts: str | int) -> bool:
        # As bytes: of texts, it refuses those that are not ASCII, and a forged one may be anything.
        return hmac.compare_digest(signature.encode(), self.sign(*parts).encode())

    @property
    def channel(self) -> str:
        """Where every host of this team listens."""
        return f"teamcli_{self.id}"

    @property
    def lead_channel(self) -> str:
        """Where only the host of the lead listens, which shows everything."""
        return f"{self.channel}_lead"

    def topic(self, name: str) -> Topic:
        """What `Database.run` notifies about something of this team."""
        return Topic(self.channel, name)

    def lead_topic(self, name: str, seconds: float) -> Topic:
        """The same for what no other host has to know. It may arrive that much later."""
        return Topic(self.lead_channel, name, seconds)


class Fence:
    """Which agents this process may write for. A host that was replaced can no longer write."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self._epochs: dict[str, int] = {}  # each change and each look is one step, in any thread

    def hold(self, agent: str, epoch: int) -> None:
        self._epochs[agent] = epoch

    def lose(self, agent: str, epoch: int) -> bool:
        """Other hosts may run it since it had this epoch. Its threads may still run here, and must not write
        anything. False if it does not have that epoch anymore."""
        if self._epochs.get(agent) != epoch:
            return False
        self._epochs[agent] = _LOST
        return True

    def lose_all(self) -> None:
        """This process is no longer a host, and others may run its agents."""
        for agent, epoch in self.held().items():
            self.lose(agent, epoch)

    def forget(self, agent: str) -> None:
        """No thread of a lost agent runs here anymore."""
        if self.is_lost(agent):
            del self._epochs[agent]

    def is_lost(self, agent: str) -> bool:
        return self._epochs.get(agent) == _LOST

    def held(self) -> dict[str, int]:
        """The agents of this host, with their epochs."""
        return {name: epoch for name, epoch in list(self._epochs.items()) if epoch != _LOST}

    def epoch(self, agent: str) -> int | None:
        """The epoch that a write for this agent must check; None if it need not, because it never ran here."""
        return self._epochs.get(agent)

    def holder(self, agent: str) -> tuple[str, int]:
        """Whose lease lets this process write for an agent, and its epoch: its own, or that of the lead, who writes for
        all.

        Raises: LeaseLost
        """
        for name in (agent, LEAD):
            if (epoch := self._epochs.get(name)) is not None:
                return name, epoch
        raise LeaseLost(f"'{agent}' does not run on this host")

    def own(self, agent: str) -> int:
        """The epoch of an agent that this process runs.

        Raises: LeaseLost
        """
        if (epoch := self._epochs.get(agent)) is None:
            raise LeaseLost(f"'{agent}' does not run on this host")
        return epoch

    def holds(self, agent: str) -> bool:
        return self._epochs.get(agent, _LOST) != _LOST

    def check(self, cursor: Cursor[Any], agent: str) -> int:
        """In the transaction of each write for an agent. A takeover waits until that has ended. Returns the epoch;
        0 for an agent that nobody holds a lease for, such as the user.

        Raises: LeaseLost
        """
        epoch = self._epochs.get(agent)
        if epoch is None:
            return 0
        cursor.execute(
            "select 1 from lease where team = %s and name = %s and epoch = %s for share", (self._team.id, agent, epoch)
        )
        if cursor.fetchone() is None:
            raise lease_lost(agent)
        return epoch


def lease_lost(agent: str) -> LeaseLost:
    return LeaseLost(f"'{agent}' runs on another host now")
