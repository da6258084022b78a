"""What is not used is named once, with a count."""

from __future__ import annotations

from teamcli.claude_code.unused import Unused


def test_nothing_is_said_about_nothing() -> None:
    assert (Unused().line, Unused().details, bool(Unused())) == ("", [], False)


def test_each_kind_has_a_count_and_its_first_names() -> None:
    unused = Unused()
    for name in ("A", "B", "C", "D", "A"):
        unused.add("permission rule", name, "no such tool")
    unused.add("hook", "H")
    assert unused.line == "Not used of what Claude Code would use: 4 permission rules (A, B, C, …); 1 hook (H)."


def test_the_details_have_the_reasons() -> None:
    unused = Unused()
    unused.add("hook", "H", "of type prompt")
    unused.add("hook", "I")
    assert unused.details == ["hook H: of type prompt", "hook I"]


def test_names_cannot_write_to_the_terminal() -> None:
    unused = Unused()
    unused.add("hook", "a\x1b[2J\nb")
    assert all("\x1b" not in line and "\n" not in line for line in (unused.line, *unused.details))
