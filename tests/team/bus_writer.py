"""A process that sends. Usage: python -m tests.team.bus_writer PLACE SENDER COUNT SIZE [EPOCH]

PLACE is a directory, or the URL of a database with the team `default`. Each message is its number and some padding, up
to SIZE characters; its number is printed once it is sent. With EPOCH, it holds that lease of its sender.
"""

from __future__ import annotations

import sys
from pathlib import Path

from teamcli.team.message_bus import FileBus, MessageBus
from tests.team.letters import KEY, letter


def open_bus(place: str, epochs: dict[str, int]) -> MessageBus:
    if "://" not in place:
        return FileBus(Path(place), KEY, durable=False)
    from tests.support.postgres_bus import HostBus

    return HostBus(place, Path("/nonexistent"), listens=False, key=KEY, epochs=epochs)


def main(place: str, sender: str, count: int, size: int, epoch: int = 0) -> None:
    bus = open_bus(place, {sender: epoch} if epoch else {})
    for n in range(count):
        bus.send(letter(f"{n} {'x' * (n * 7919 % (size + 1))}", sender=sender))
        sys.stdout.write(f"{n}\n")
        sys.stdout.flush()
    bus.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
