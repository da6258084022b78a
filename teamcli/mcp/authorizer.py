"""Tokens for servers that are reached over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Authorizer(Protocol):
    """Gives the tokens of a server. Called in several threads."""

    def token(self) -> str:
        """Empty if there is none."""
        ...

    def renew(self, refused: str, status: int, headers: Mapping[str, str]) -> bool:
        """Whether `token` now gives another one than the one that was `refused`. Never asks the user."""
        ...


class NoAuthorizer:
    def token(self) -> str:
        return ""

    def renew(self, refused: str, status: int, headers: Mapping[str, str]) -> bool:
        return False
