"""The lead's conversation: which session it belongs to, and what goes to the model with the user's next line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from teamcli.agent.context_window import compact
from teamcli.agent.conversation import History, text_block
from teamcli.agent.hooks import SESSION_END, HookEvent
from teamcli.agent.loop import Agent
from teamcli.agent.prompt import FACTS_FRAME, environment_facts
from teamcli.agent.transcript_sessions import begin_session, find_session, list_sessions, session_rows
from teamcli.cancel import CancelScope
from teamcli.exec.command_output import BoundedText
from teamcli.llm.types import Block
from teamcli.team.lead import Lead
from teamcli.text.escaping import escape_controls
from teamcli.text.tags import tagged
from teamcli.workspace.known_files import KnownFiles

if TYPE_CHECKING:
    from teamcli.storage.log import Log

SHELL = "shell"
SHELL_CHARACTERS = 10_000
"""Of the output of one command."""
MOST_SHELL = 5


class LeadConversation:
    def __init__(
        self,
        lead: Lead,
        session_id: str,
        log: Log,
        known_files: KnownFiles,
        root: Path,
        close_calls: Callable[[Agent], None],
    ) -> None:
        """`close_calls` answers the calls that a crash left open in a conversation."""
        self.id = session_id
        self._lead = lead
        self._log = log
        self._known_files = known_files
        self._root = root
        self._close_calls = close_calls
        self._facts = self._last_facts()
        """The facts about the surroundings that the lead knows."""
        self._news_lock = threading.Lock()
        self._news: list[Block] = []
        """What the user has done that the lead does not know of yet."""
        self._sent_news: list[Block] = []
        """What went with the newest line."""

    # With the user's next line

    def line(self, text: str, piped: str) -> list[Block]:
        """A line from the user, and what has changed around the lead since its last one."""
        with self._news_lock:
            blocks = [*map(text_block, filter(None, (text, piped))), *self._news]
            self._sent_news, self._news = self._news, []
        facts = environment_facts(self._root)
        if facts != self._facts:
            blocks.append(text_block(facts))
            self._facts = facts
        return blocks

    def line_not_read(self) -> None:
        """The newest line was taken back or blocked: what went with it goes with the next one."""
        self._facts = ""
        with self._news_lock:
            self._news, self._sent_news = [*self._sent_news, *self._news], []

    def add_note(self, text: str) -> None:
        """Something for the lead to read with the user's next line."""
        with self._news_lock:
            self._news.append(text_block(tagged("note", text, "", "")))

    def add_shell(self, command: str, output: str, ending: str) -> None:
        """A command that the user has run, and the beginning and the end of what it has printed; of many, the newest.
        From any thread."""
        shown = BoundedText(SHELL_CHARACTERS)
        shown.add(escape_controls(output) or "(no output)")  # redacted before it is cut, so that no half of a key stays
        words = f"The user ran this command:\n$ {escape_controls(command)}\n{shown}\n{ending}".rstrip()
        with self._news_lock:
            others = [block for block in self._news if not _is_shell(block)]
            shell = [block for block in self._news if _is_shell(block)][1 - MOST_SHELL :]
            self._news = [*others, *shell, text_block(tagged(SHELL, words))]

    # Which conversation

    def clear(self) -> None:
        """Begin a new session with an empty conversation.

        Raises: StateError, and UsageError while the lead works
        """
        with self._lead.held():
            self._switch(None, History(), "clear")

    def resume(self, wanted: str, transcript: Path) -> None:
        """Resume an earlier session of this directory. How far mail is read stays as it is.

        Raises: StateError, and UsageError for an unknown session or while the lead works
        """
        found = find_session(list_sessions(transcript), wanted)
        with self._lead.held():
            self._switch(found.id, History.read(session_rows(transcript, found.id)), "resume")

    def compact(self, focus: str, cancel: CancelScope) -> bool:
        """Shorten the conversation, keeping above all what `focus` names; false if nothing can be removed.

        Raises: ModelError, StateError, Cancelled, LimitReached, and UsageError while the lead works
        """
        with self._lead.held():
            is_done = compact(self._lead.agent, focus, cancel)
            self._facts = self._last_facts()
        return is_done

    def run_end_hooks(self, reason: str) -> None:
        hooks = self._lead.agent.hooks
        if hooks.wants(SESSION_END, reason):
            hooks.run(HookEvent(SESSION_END, self._lead.name, {"reason": reason}, reason), CancelScope())

    def _switch(self, session_id: str | None, history: History, why: str) -> None:
        self.run_end_hooks(why)
        agent = self._lead.agent
        self.id = begin_session(self._log, agent.preamble.model, session_id)
        agent.conversation.switch_to(history)
        with self._news_lock:  # what the user did for another conversation
            self._news = [block for block in self._news if not _is_shell(block)]
        self._known_files.restore(history.seen_files)
        self._close_calls(agent)
        self._facts = self._last_facts()
        self._lead.session_began(why)

    def _last_facts(self) -> str:
        """The facts about the surroundings that the conversation contains."""
        blocks = (block for message in self._lead.agent.conversation.messages for block in message.content)
        facts = [block["text"] for block in blocks if str(block.get("text", "")).startswith(FACTS_FRAME)]
        return facts[-1] if facts else ""


def _is_shell(block: Block) -> bool:
    return str(block.get("text", "")).startswith(f"<{SHELL}>")
