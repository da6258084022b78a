"""Takes the files of a checkout away: removed, or kept under another name."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from typing import Any

from teamcli.errors import StateError, ToolError
from teamcli.storage.files import cannot
from teamcli.worktrees.checkout import Checkout


def move_aside(checkout: Checkout) -> str:
    """Keep a checkout that has something which was never pushed, under another name; returns it, if there was one.

    Raises: ToolError
    """
    if not os.path.lexists(checkout.path):
        return ""
    names = (checkout.path.with_name(f"{checkout.member}.left-{number}") for number in itertools.count(1))
    aside = next(path for path in names if not os.path.lexists(path))
    try:
        checkout.path.rename(aside)
    except OSError as e:
        raise ToolError(cannot("rename", checkout.path, e)) from e
    return "/".join(aside.parts[-3:])


def remove_files(checkout: Checkout) -> None:
    """Raises: StateError"""

    def open_and_retry(function: Callable[[str], object], path: str, _: Any) -> None:
        os.chmod(os.path.dirname(path), 0o700)  # noqa: PTH101, PTH120 - tools make directories read-only
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
            os.chmod(path, 0o700)  # noqa: PTH101
            shutil.rmtree(path)
        else:
            function(path)

    try:
        if os.path.lexists(checkout.path):
            shutil.rmtree(checkout.path, onerror=open_and_retry)
    except OSError as e:
        raise StateError(cannot("remove", checkout.path, e)) from e
