"""How many tokens a call used if its endpoint does not say: an estimate from the bytes sent and received.

Some gateways report zeros, and an interrupted call never sees the counts, which come at the end of an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from teamcli.llm.types import Reply, Request

BYTES_PER_TOKEN = 3.5
"""A cautious estimate for text that no model has counted yet."""


def guess_tokens(size_bytes: int) -> int:
    return int(size_bytes / BYTES_PER_TOKEN)


def counted(reply: Reply, request: Request, received: Callable[[], int], is_whole: bool) -> Reply:
    """The reply with estimates for missing counts. `received` returns how many bytes of it arrived."""
    usage = reply.usage
    missing: dict[str, int] = {}
    has_output = is_whole and usage.output_tokens > 1  # 1 is what the beginning of a stream says
    if not usage.prompt_tokens and not has_output:
        missing["input_tokens"] = guess_tokens(len(request.encoded))
    if not has_output:
        written = guess_tokens(received())
        if written > usage.output_tokens:
            missing["output_tokens"] = written
    return reply._replace(usage=replace(usage, **missing, is_estimated=True)) if missing else reply
