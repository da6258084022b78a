"""A remote that answers one fetch of a host only when the test lets it."""

from __future__ import annotations

from tests.store.machines import Machines


class SlowRemote:
    def __init__(self, machines: Machines, clone: str) -> None:
        """Holds back what the host in that clone fetches."""
        place = machines.base
        self._armed, self.asked, self._go = (place / f"{clone}.{word}" for word in ("armed", "asked", "go"))
        script = place / f"slow.{clone}"
        wait = f"touch {self.asked}; while ! test -e {self._go}; do sleep 0.05; done"
        script.write_text(
            f"#!/bin/sh\ncase $PWD in */{clone}-*) if rm {self._armed} 2>/dev/null; then {wait}; fi ;; esac\n"
            'exec git-upload-pack "$@"\n'
        )
        script.chmod(0o755)
        with (machines.lead.home / ".gitconfig").open("a") as config:
            config.write(f'[remote "teamcli"]\n\tuploadpack = {script}\n')

    def hold_next(self) -> None:
        """The next fetch waits. `asked` is there when it has begun."""
        self._armed.touch()

    def answer(self) -> None:
        self._go.touch()
