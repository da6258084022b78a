"""`teamcli merge`: bring the work of a teammate into the main checkout, from another shell, also if nothing runs."""

from __future__ import annotations

import os
import sys
from signal import SIGHUP, SIGINT, SIGTERM

from teamcli.app.merging import merging_from_outside
from teamcli.cancel import CancelScope
from teamcli.config.environment import secret_values
from teamcli.config.options import ExitStatus
from teamcli.config.trust import home_dir
from teamcli.errors import MergeRefused, UsageError
from teamcli.storage.team_dir import TeamDir
from teamcli.store.location import find_store, refuse_files
from teamcli.team.message import USER
from teamcli.text.escaping import escape_controls
from teamcli.text.redaction import register_secrets
from teamcli.ui.signals import SignalReceived, in_thread, signals_raise


def merge(name: str, message: str) -> int:
    """Merge, and print what was merged; returns the exit code.

    Raises: UsageError, ConfigError
    """
    if find_store(None, os.environ, home_dir()):
        refuse_files(TeamDir.here())
        raise UsageError(f"the team is in a database, where only its lead merges: type /merge {name} at its prompt")
    register_secrets(secret_values(os.environ))
    cancel = CancelScope()
    # Inside a member's checkout, the team of the main directory is meant.
    directory = TeamDir.here().root.parent
    with merging_from_outside(directory) as merging, signals_raise(SIGINT, SIGTERM, SIGHUP):

        def run() -> str:
            return merging.merge(USER, name.removeprefix("@"), message, cancel, _show)

        # In a thread: a signal is raised here, and must not cut the merge off in the middle of a step.
        working = in_thread(run, "merge")
        try:
            merged = working.result()
        except SignalReceived as e:
            cancel.cancel(f"stopped by {e.signal_name}")
            working.exception()  # waits until the merge is undone, or done after all
            return e.exit_code
        except MergeRefused as e:
            print(f"teamcli: {escape_controls(str(e))}", file=sys.stderr)
            return ExitStatus.FAILED
    print(escape_controls(merged))
    return ExitStatus.DONE


def _show(text: str) -> None:
    print(escape_controls(text), end="", file=sys.stderr, flush=True)
