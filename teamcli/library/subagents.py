"""The sub-agents of a session, as the host program sees and steers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from teamcli.errors import TeamError, ToolError
from teamcli.subagents.manager import SubAgentManager
from teamcli.subagents.snapshot import Snapshot


class SubAgents:
    """All of them, by their ids (`sa-1`). Everything here can be used before the first was started."""

    def __init__(self, manager: SubAgentManager) -> None:
        self._manager = manager

    def snapshots(self) -> tuple[Snapshot, ...]:
        """How each stands, in the order in which they were started."""
        return self._manager.snapshots()

    def snapshot(self, id: str) -> Snapshot:
        """Raises: TeamError, for an unknown id."""
        with _told_apart():
            return self._manager.snapshot(id)

    def wait(self, id: str, timeout_seconds: float | None = None) -> Snapshot:
        """Wait until it has ended or the time is up; how it stands then.

        Raises: TeamError, for an unknown id
        """
        with _told_apart():
            return self._manager.wait(id, timeout_seconds)

    def cancel(self, id: str) -> bool:
        """End one; false where it had ended before.

        Raises: TeamError, for an unknown id
        """
        with _told_apart():
            return self._manager.cancel_one(id)

    def cancel_all(self) -> int:
        """End all that run or wait; how many there were."""
        return self._manager.cancel_all()

    def send(self, id: str, text: str) -> None:
        """A message that it reads at its next step.

        Raises: TeamError, for an unknown id or one that has ended
        """
        with _told_apart():
            self._manager.send(id, text)

    def broadcast(self, text: str) -> list[str]:
        """The same for all that run or wait; the ids that were reached."""
        return self._manager.broadcast(text)

    def on_update(self, listener: Callable[[Snapshot], None]) -> Callable[[], None]:
        """Call it as each comes along: at most ten times a second, and always at the end.

        Call what this returns to remove the listener. One that raises is removed.
        """
        return self._manager.on_update(listener)

    def on_end(self, listener: Callable[[Snapshot], None]) -> Callable[[], None]:
        """Call it once for each that has ended; remove it as with `on_update`."""
        return self._manager.on_end(listener)


@contextmanager
def _told_apart() -> Iterator[None]:
    """What the manager tells a model that it can mend is for a program something that cannot be done."""
    try:
        yield
    except ToolError as e:
        raise TeamError(str(e)) from e
