"""The user's own commands (`!command`): without asking, and outside any sandbox."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from teamcli.agent.tool import Progress
from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled
from teamcli.exec.commands import Commands
from teamcli.exec.job_list import OWN, JobList
from teamcli.exec.running_command import describe_exit
from teamcli.session.lead_conversation import LeadConversation
from teamcli.team.message import USER

TIMEOUT_SECONDS = 600.0
PACE = 64_000
"""In a tenth of a second; a file is shown whole, and an endless command does not drown the terminal."""


class UserShell:
    def __init__(self, commands: Commands, jobs: JobList, root: Path, shared_with: LeadConversation | None) -> None:
        """Commands run in `root`. The lead sees them and their output if its conversation is given."""
        self._commands = commands
        self._jobs = jobs
        self._root = root
        self._shared_with = shared_with

    def run(self, command: str, cancel: CancelScope, progress: Progress) -> str:
        """Run a command, and show its output as it runs. Returns how it ended, if there is something to say.

        Raises: ToolError, Cancelled
        """
        with self._jobs.listed(USER, command, partial(cancel.cancel, "stopped by the user"), OWN) as job:

            def show(text: str) -> None:
                job.add(text)
                progress(text)

            try:
                finished = self._commands.run(command, self._root, TIMEOUT_SECONDS, cancel, show, PACE)
            except Cancelled as e:
                self._share(command, e.output, "[interrupted by the user]")
                raise
        ending = f"[{describe_exit(finished.ended.exit_code)}]" if finished.ended.exit_code else ""
        if finished.ended.timed_out:
            ending = f"[ended after {TIMEOUT_SECONDS:.0f} s]"
        self._share(command, finished.output, ending)
        return ending

    def run_at_terminal(self, command: str, cancel: CancelScope) -> str:
        """Run a command that needs the whole terminal, such as an editor. The lead does not see it.

        Raises: ToolError
        """
        exit_code = self._commands.run_at_terminal(command, self._root, cancel)
        return f"[{describe_exit(exit_code)}]" if exit_code else ""

    def _share(self, command: str, output: str, ending: str) -> None:
        if self._shared_with is not None:
            self._shared_with.add_shell(command, output, ending)
