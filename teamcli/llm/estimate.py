"""How many tokens a call has used where its endpoint does not say: a guess from the bytes that were sent and received.

Some gateways report zeros, and the counts of an answer come at its end, which a call that is broken off never sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from teamcli.llm.types import Reply, Request

BYTES_PER_TOKEN = 3.5
"""A cautious guess for text that no model has counted yet."""


def guess_tokens(size_bytes: int) -> int:
    return int(size_bytes / BYTES_PER_TOKEN)


def counted(reply: Reply, request: Request, received: Callable[[], int], is_whole: bool) -> Reply:
    """The reply with estimates in place of counts that are missing; `received` measures what has come of it."""
    usage = reply.usage
    missing: dict[str, int] = {}
    has_output = is_whole and usage.output_tokens > 1  # the beginning of a stream says 1
    if not usage.prompt_tokens and not has_output:
        missing["input_tokens"] = guess_tokens(len(request.encoded))
    if not has_output:
        written = guess_tokens(received())
        if written > usage.output_tokens:
            missing["output_tokens"] = written
    return reply._replace(usage=replace(usage, **missing, is_estimated=True)) if missing else reply
