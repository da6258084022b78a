"""The words of hook events in which Claude Code and teamcli differ, other than those about tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from teamcli.claude_code.names import names_of
from teamcli.errors import AuthError, ContextTooLong, ModelNotFound, RequestRejected, TransientError

_SUBJECTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "SessionEnd": {"exit": ("other", "prompt_input_exit")},
    "SubagentStart": {"general": ("general-purpose",)},
    "SubagentStop": {"general": ("general-purpose",)},
}
"""By event and our word: theirs, the one that a hook reads first."""
_ALWAYS_THERE: Mapping[str, Mapping[str, Any]] = {
    "Stop": {"background_tasks": [], "session_crons": []},
    "SubagentStop": {"background_tasks": [], "session_crons": []},
    "PostToolUseFailure": {"is_interrupt": False},
}
"""Fields that hooks of Claude Code find in an event, and that have no counterpart here."""
_RENAMED = {"SessionEnd": "reason", "SubagentStart": "agent_type", "SubagentStop": "agent_type"}
"""The field with the word that differs."""


def subject_names(event: str, subject: str) -> tuple[str, ...]:
    """All words that a matcher may use for the subject of an event, ours first."""
    others = _SUBJECTS.get(event, {}).get(subject, ())
    return (*names_of(subject), *others)


NEEDS_PERMISSION, IS_IDLE = "Your permission is needed", "The lead waits for your input"
_SENTENCES = {NEEDS_PERMISSION: "Claude needs your permission", IS_IDLE: "Claude is waiting for your input"}
"""Beginnings of notifications. Scripts compare them."""


def their_fields(event: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an event with Claude Code's words in them."""
    theirs = {**_ALWAYS_THERE.get(event, {}), **fields}
    field = _RENAMED.get(event, "")
    if words := _SUBJECTS.get(event, {}).get(str(theirs.get(field))):
        theirs[field] = words[0]
    if event == "Notification":
        for ours, sentence in _SENTENCES.items():
            theirs["message"] = str(theirs.get("message", "")).replace(ours, sentence)
    return theirs


_FAILURES = (
    (AuthError, "", "authentication_failed"),
    (ModelNotFound, "", "model_not_found"),
    (RequestRejected, "", "invalid_request"),
    (ContextTooLong, "", "invalid_request"),
    (TransientError, "429", "rate_limit"),
    (TransientError, "overloaded", "overloaded"),
    (TransientError, "", "server_error"),
)
"""By class and what the message contains."""


def failure_word(error: Exception | None) -> str:
    """Claude Code's word for the failure of a model call."""
    found = (word for kind, part, word in _FAILURES if isinstance(error, kind) and part in str(error).lower())
    return next(found, "unknown")
