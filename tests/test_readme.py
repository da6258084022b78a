from __future__ import annotations

from teamcli.commands.__main__ import with_table
from tests.support.program import ROOT


def test_the_table_of_commands_is_the_list() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert with_table(readme) == readme
