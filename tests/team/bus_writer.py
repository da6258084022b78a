"""A process that sends. Usage: python -m tests.team.bus_writer DIRECTORY SENDER COUNT SIZE

Each message is its number and some padding, up to SIZE characters; its number is printed once it is sent.
"""

from __future__ import annotations

import sys
from pathlib import Path

from teamcli.team.message_bus import FileBus
from tests.team.letters import KEY, letter


def main(directory: str, sender: str, count: int, size: int) -> None:
    bus = FileBus(Path(directory), KEY, durable=False)
    for n in range(count):
        bus.send(letter(f"{n} {'x' * (n * 7919 % (size + 1))}", sender=sender))
        sys.stdout.write(f"{n}\n")
        sys.stdout.flush()
    bus.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
