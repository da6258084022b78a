"""Text from models, tools and messages on its way to a terminal: control sequences become visible signs."""

from __future__ import annotations

import os
from typing import TextIO

from teamcli.masking import masked

_KEPT = "\n\t"
# C0 controls have visible twins at U+2400; DEL, C1 controls and the bidirectional overrides show as their code.
_SIGNS = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT}
_SIGNS |= {code: f"<{code:02x}>" for code in (*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def neutralise(text: str) -> str:
    """No sequence in the result can move the cursor, set the title or pose as another line."""
    return masked(text).replace("\r\n", "\n").translate(_SIGNS)


def one_line(text: str, limit: int = 200) -> str:
    """The text on one line, shortened."""
    flat = " ".join(neutralise(text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def has_colour(stream: TextIO) -> bool:
    """Whether text written there may be coloured."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
