"""The terms of a piece of work, and how they travel to a member on another host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from teamcli.team.message import LEAD, USER, Message

TERMS = ("role", "model", "tools", "plan", "claims")
"""What each piece of work sets anew."""
TERMS_FIELD = "terms"
"""The field of a message that gives a member on another host its next piece of work."""


def terms_in(message: Message) -> Mapping[str, Any]:
    """The terms of the piece of work that a message gives to its recipient; often none."""
    terms = message.fields.get(TERMS_FIELD)
    if message.is_foreign or message.sender not in (LEAD, USER) or not isinstance(terms, dict):
        return {}
    given = {name: value for name, value in terms.items() if name in TERMS}
    return {**given, "tools": tuple(given["tools"])} if given.get("tools") is not None else given
