"""Checks whether a model and its server do what an agent needs, with a request like an agent's, tools included."""

from __future__ import annotations

import time
from typing import NamedTuple

from teamcli.agent.prompt import LEAD_PROMPT, LEAD_TEAM_PROMPT
from teamcli.cancel import CancelScope
from teamcli.config.settings import Settings
from teamcli.errors import StreamInterrupted
from teamcli.llm.backoff import Backoff
from teamcli.llm.client import connect
from teamcli.llm.credentials import Endpoint
from teamcli.llm.estimate import guess_tokens
from teamcli.llm.types import CallOpened, Message, Preamble, Reply, Request, StreamEvent, Usage
from teamcli.tools.catalog import LEAD_TOOLS

ASKED = "This tests the connection. Call the tool list_teammates now; write nothing else."
ENOUGH_EVENTS = 500
"""After this many pieces of an answer without a tool call, there will be none."""
READ_TOO_LITTLE = 3
"""A server that counts fewer than one in this many tokens has cut the request."""


class Trial(NamedTuple):
    seconds: float
    calls_tools: bool
    read_tokens: int
    """What the server says it has read; 0 if it does not count."""
    sent_tokens: int
    """An estimate of what was sent."""

    @property
    def trouble(self) -> str:
        """Why agents cannot work with it; empty if they can."""
        if self.calls_tools:
            return ""
        if 0 < self.read_tokens < self.sent_tokens / READ_TOO_LITTLE:
            why = f"it read {self.read_tokens:,} of about {self.sent_tokens:,} tokens: give the server a longer context"
        else:
            why = "use a model that can, and check that the server passes tools on (llama.cpp: --jinja)"
        return f"but called no tool when asked to, and agents need tools: {why}"


def try_model(endpoint: Endpoint, model: str, settings: Settings) -> Trial:
    """Make one call like the lead's, and stop it once the outcome is clear.

    Raises: ModelError, ConfigError
    """
    request = Request(
        Preamble(
            model,
            f"{LEAD_PROMPT}\n\n{LEAD_TEAM_PROMPT}",
            tuple(tool.spec for tool in LEAD_TOOLS),
            settings.max_tokens,
            settings.prompt_caching,
            {"thinking": settings.thinking} if settings.thinking else {},
        ),
        (Message("user", ({"type": "text", "text": ASKED},)),),
    )
    started = time.monotonic()
    reply, calls_tools = _ask(endpoint, request)
    sent = guess_tokens(len(request.encoded))
    read = 0 if reply.usage.is_estimated else reply.usage.prompt_tokens
    return Trial(time.monotonic() - started, calls_tools, read, sent)


def _ask(endpoint: Endpoint, request: Request) -> tuple[Reply, bool]:
    enough = CancelScope()
    seen: list[StreamEvent] = []

    def look(event: StreamEvent) -> None:
        seen.append(event)
        if isinstance(event, CallOpened) or len(seen) >= ENOUGH_EVENTS:
            enough.cancel()

    # No retries: doctor reports the first error as it is.
    client = connect(endpoint, Backoff(patience_seconds=0), retries=0)
    try:
        reply = client.stream(request, look, enough)
    except StreamInterrupted as e:
        reply = e.partial or Reply((), "interrupted", Usage())
    finally:
        client.close()
    return reply, any(isinstance(event, CallOpened) for event in seen)
