"""Printing tables."""

from __future__ import annotations

import shutil
import sys

from teamcli.text.table import Table


def print_table(table: Table) -> None:
    """As wide as the terminal; on a pipe as wide as needed, because programs read it line by line."""
    print(table.to_text(shutil.get_terminal_size().columns - 1 if sys.stdout.isatty() else None))
