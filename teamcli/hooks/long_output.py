"""What a hook says goes to a file if it is too long for a conversation. The model reads the beginning and the path."""

from __future__ import annotations

import itertools
from pathlib import Path

from teamcli.agent.hooks import HookResult
from teamcli.errors import StateError
from teamcli.storage.files import make_private_dir, write_atomic
from teamcli.text.redaction import redact

LONGEST = 10_000
_PREVIEW = 2_000
_MOST_FILES = 100
"""Of one run: a hook that talks much at each call must not fill the disk."""


class LongOutput:
    """Safe for threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count(1)

    def shortened(self, result: HookResult) -> HookResult:
        if max(map(len, (result.objection or "", result.context))) <= LONGEST:
            return result
        objection = result.objection if result.objection is None else self._short(result.objection)
        return result._replace(objection=objection, context=self._short(result.context))

    def _short(self, text: str) -> str:
        if len(text) <= LONGEST:
            return text
        where = self._saved(text)
        return f"{text[:_PREVIEW]}\n[... {len(text) - _PREVIEW:,} more characters{where}]"

    def _saved(self, text: str) -> str:
        path = self._directory / f"output-{next(self._numbers) % _MOST_FILES}.txt"
        try:
            make_private_dir(self._directory)
            write_atomic(path, redact(text).encode("utf-8", "replace"))
        except StateError:  # the beginning has to do
            return ""
        return f"; all of it is in {path}, which bash can read"
