"""Frames around text from other sources, so that a model knows whose words it reads. No text can end its frame.

Messages have a stricter frame, in `team/message.py`.
"""

from __future__ import annotations

import re


def tagged(tag: str, text: str, before: str = "\n", after: str = "\n") -> str:
    """`text` inside `<tag>`, unchanged except for anything that would end that frame."""
    return f"<{tag}>{before}{without_end(tag, text)}{after}</{tag}>"


def without_end(tag: str, text: str) -> str:
    """`</tag`, in any spelling that a model might read as the end, becomes `<\\/tag`."""
    if "<" not in text:
        return text
    return re.sub(rf"<(?=\s*[/\u2044\u2215\uff0f]\s*{re.escape(tag)}\b)", "<\\\\", text, flags=re.IGNORECASE)


def without_tag(tag: str, text: str) -> str:
    """The same for both `<tag` and `</tag`: no text can look like the beginning or end of that frame."""
    if tag not in text.lower():
        return text
    return re.sub(rf"<(?=\s*(?:[/\u2044\u2215\uff0f]\s*)?{re.escape(tag)}\b)", "<\\\\", text, flags=re.IGNORECASE)


def one_fact(text: str, limit: int = 200) -> str:
    """A name that others chose, safe inside one of our lines: no line breaks, no tags, not too long."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat[:limit].replace("<", "&lt;").replace(">", "&gt;")
