"""Sends until the file may grow no further, as on a full disk. Usage: python -m tests.team.full_disk DIRECTORY"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from teamcli.errors import StateError
from teamcli.team.message_bus import FileBus
from tests.team.letters import KEY, letter

bus = FileBus(Path(sys.argv[1]), KEY)
bus.send(letter("fits"))
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
for content in ("x" * 5000, "y" * 5000):
    try:
        bus.send(letter(content))
    except StateError as e:
        assert "cannot write" in str(e), e
        assert "alice.jsonl" in str(e), e
    else:
        sys.exit("it was sent")
bus.send(letter("fits too"))
