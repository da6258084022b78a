"""The lines above the prompt after each event."""

from __future__ import annotations

import re

import pytest

from teamcli.agent import events
from teamcli.agent.conversation import INTERRUPTED_CALL, text_block
from teamcli.agent.events import Event, Outcome
from teamcli.agent.tool import Display
from teamcli.llm.types import Message
from teamcli.text.console import cell_width
from teamcli.ui.render.answers import HELD_ROWS, TAIL_LINES
from teamcli.ui.render.event_renderer import EventRenderer, Screen
from teamcli.ui.render.style import AgentColors, TerminalStyle


def look(width: int = 80, has_color: bool = False, is_unicode: bool = True) -> TerminalStyle:
    return TerminalStyle(has_color, is_unicode, lambda: width)


def shown(*happened: Event, scroll: EventRenderer | None = None) -> str:
    scroll = scroll or EventRenderer(look(), AgentColors())
    return "".join(scroll.show(event) for event in happened)


def tool(content: str = "ok", agent: str = "lead", title: str = "$ make", **more: object) -> events.ToolFinished:
    made = events.ToolFinished(agent, "c1", "bash", Display(title), content, False, 1.25)
    return made._replace(**more)


def recorded(agent: str = "lead") -> events.Recorded:
    return events.Recorded(agent, Message("assistant", (text_block("x"),)))


def test_an_answer_appears_in_finished_blocks_and_the_rest_is_the_tail() -> None:
    scroll = EventRenderer(look(), AgentColors())
    out = shown(events.TextArrived("lead", "# One\n\nfirst *part*\n\nsec"), scroll=scroll)
    assert "One" in out
    assert "first part" in out
    assert "sec" not in out
    assert scroll.growing() == [[], [("sec", "")]]
    assert shown(events.TextArrived("lead", "ond"), recorded(), scroll=scroll).strip() == "second"
    assert scroll.growing() == []


def test_the_tail_of_a_running_command_is_bounded_and_wrapped() -> None:
    scroll = EventRenderer(look(width=21), AgentColors())
    shown(events.ToolProgress("lead", "c1", "word " * 100), scroll=scroll)
    blank, *tail = scroll.growing()
    assert blank == []
    assert len(tail) == TAIL_LINES
    assert tail[0] == [("…", "dim")]
    assert all(len(line[0][0]) <= 20 for line in tail)


def test_a_long_paragraph_is_printed_as_it_arrives_and_stays_one_line() -> None:
    scroll = EventRenderer(look(width=21), AgentColors(), Screen(continues_lines=True))
    words = "word " * 100
    printed = "".join(shown(events.TextArrived("lead", words[at : at + 7]), scroll=scroll) for at in range(0, 500, 7))
    assert len(scroll.growing()) <= HELD_ROWS + 1
    assert "\n" not in printed
    assert len(printed) > 400
    assert printed + shown(recorded(), scroll=scroll) == " ".join(words.split()) + "\n"


def test_what_others_do_is_not_printed_inside_a_paragraph() -> None:
    scroll = EventRenderer(look(width=21), AgentColors())
    assert shown(events.TextArrived("lead", "word " * 30), scroll=scroll) != ""
    assert shown(tool(agent="alice"), scroll=scroll) == ""
    assert "alice ✓ $ make" in shown(events.TextArrived("lead", "\n\n"), scroll=scroll)


def test_thoughts_wrap_at_words_below_their_mark() -> None:
    scroll = EventRenderer(look(width=30), AgentColors())
    scroll.set_verbose(True)
    shown(events.ThinkingArrived("lead", "considering the possibilities of wrapping words"), scroll=scroll)
    lines = shown(events.TextArrived("lead", "So."), scroll=scroll).splitlines()
    assert [line.rstrip() for line in lines[-3:]] == ["  considering the", "  possibilities of wrapping", "  words"]


def test_code_appears_line_by_line_and_only_the_unfinished_line_is_the_tail() -> None:
    scroll = EventRenderer(look(), AgentColors())
    assert shown(events.TextArrived("lead", "```py\na = 1\nb ="), scroll=scroll) == "```py\na = 1\n"
    assert scroll.growing() == [[("b =", "")]]
    assert shown(events.TextArrived("lead", " 2\n"), scroll=scroll) == "b = 2\n"
    assert scroll.growing() == []


def test_what_others_do_is_not_printed_between_two_lines_of_code() -> None:
    scroll = EventRenderer(look(), AgentColors())
    shown(events.TextArrived("lead", "```\na\n"), scroll=scroll)
    assert shown(tool(agent="alice"), scroll=scroll) == ""
    out = shown(events.TextArrived("lead", "b\n```\n"), scroll=scroll)
    assert out.startswith("b\n```\n\n  alice ✓ $ make")


def test_a_dumb_terminal_gets_a_code_block_at_once() -> None:
    scroll = EventRenderer(look(), AgentColors(), Screen(is_dumb=True))
    assert shown(events.TextArrived("lead", "```\na\nb\n"), scroll=scroll) == ""
    assert shown(events.TextArrived("lead", "```\n"), scroll=scroll) == "```\na\nb\n```\n"


def test_what_a_failed_call_had_streamed_is_dropped() -> None:
    scroll = EventRenderer(look(), AgentColors())
    out = shown(
        events.TextArrived("lead", "void"),
        events.RetryScheduled("lead", 12.0, 1, 540, "It is overloaded"),
        scroll=scroll,
    )
    assert out.strip() == "It is overloaded. Retrying in 12 s, for 9 more minutes. Esc stops."
    assert scroll.growing() == []


def test_a_call_is_one_line_with_its_outcome() -> None:
    assert shown(tool("a\nb\nc")) == "  ✓ $ make  1.2s · 3 lines\n"
    assert shown(tool("done")) == "  ✓ $ make  1.2s · done\n"
    assert shown(tool("(no output)\n[exit code 2]")) == "  ✗ $ make  1.2s · exit code 2\n"
    assert shown(tool("Error: no such thing", is_error=True)) == "  ✗ $ make  1.2s · failed\n    Error: no such thing\n"
    assert shown(tool(INTERRUPTED_CALL, is_error=True)) == "  ✗ $ make  1.2s · interrupted\n"


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        (
            "Traceback (most recent call last):\n  File\nModuleNotFoundError: No module named 'x'",
            "ModuleNotFoundError: No",
        ),
        ("building\nmain.c:3:5: error: 'x' undeclared", "main.c:3:5: error: 'x' undeclared"),
        ("\x1b[31mfatal: not a repository\x1b[0m", "fatal: not a repository"),
        ("x" * 5000, "x" * 70),
    ],
)
def test_a_failed_command_shows_the_line_that_says_why(printed: str, line: str) -> None:
    first, second, *others = shown(tool(f"{printed}\n[exit code 1]")).splitlines()
    assert first.endswith("exit code 1")
    assert second.startswith(f"    {line}")
    assert (len(second) < 80, others) == (True, [])


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (events.Refusal("you"), "  ⊘ $ make  refused by you\n"),
        (events.Refusal("you", "use tee\ninstead"), "  ⊘ $ make  refused by you\n    use tee instead\n"),
        (events.Refusal("plan mode"), "  ⊘ $ make  refused by plan mode\n"),
        (events.Refusal("the rule bash(make:*)"), "  ⊘ $ make  refused by the rule bash(make:*)\n"),
        (events.Refusal("a hook", "not on Friday"), "  ⊘ $ make  refused by a hook\n    not on Friday\n"),
        (events.Refusal(reason="nobody can be asked"), "  ⊘ $ make  refused: nobody can be asked\n"),
    ],
)
def test_a_refused_call_is_not_a_failed_one(refusal: events.Refusal, expected: str) -> None:
    assert shown(tool("Error: it was refused", is_error=True, refusal=refusal)) == expected


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_refused_call_fits_the_width(width: int) -> None:
    scroll = EventRenderer(look(width, is_unicode=False), AgentColors())
    refusal = events.Refusal("the rule " + "long " * 60, "reason " * 60)
    out = shown(tool(agent="alice", title="$ " + "long " * 60, refusal=refusal, is_error=True), scroll=scroll)
    assert max(map(len, out.splitlines())) < width
    assert (out.isascii(), "failed" in out) == (True, False)


def test_a_change_that_was_not_made_shows_no_diff() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1,1 +1,1 @@\n-old\n+new"
    assert "+new" not in shown(tool("Error: no", is_error=True, display=Display("edit x", diff=diff)))


def test_calls_whose_outcome_is_mail_are_not_shown_twice() -> None:
    assert shown(tool("Sent message to bob", tool="send_message")) == ""
    assert shown(tool("delivered to [bob]; unknown: []", tool="send_message")) == ""
    assert "unknown: [carol]" in shown(tool("delivered to [bob]; unknown: [carol]", tool="send_message"))
    assert "failed" in shown(tool("Error: unknown", tool="send_message", is_error=True))


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_call_fits_the_width(width: int) -> None:
    scroll = EventRenderer(look(width), AgentColors())
    out = shown(tool("a\nb", agent="alice", title="$ " + "long " * 60), scroll=scroll)
    assert out.count("\n") == 1
    assert len(out.strip("\n")) < width
    assert out.rstrip().endswith("2 lines")


def test_an_edit_shows_its_diff_and_a_long_one_is_folded() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1,1 +1,40 @@\n-old\n" + "\n".join(f"+new {n}" for n in range(40))
    scroll = EventRenderer(look(has_color=True), AgentColors())
    out = shown(tool("Edited x", display=Display("edit x", diff=diff)), scroll=scroll)
    assert "+40 -1" in out
    assert "\x1b[31m    -old\x1b[0m" in out
    assert "\x1b[32m    +new 0\x1b[0m" in out
    assert "new 39" not in out
    assert "18 more lines (Ctrl-O)" in out
    assert "new 39" in scroll.expand(1)


def test_a_removed_line_that_looks_like_a_file_name_is_shown_and_counted() -> None:
    diff = "--- a/x.sql\n+++ b/x.sql\n@@ -1,2 +1,2 @@\n--- old\n+++ new\n x\n... (9 more)"
    out = shown(tool("Edited x.sql", display=Display("edit x.sql", diff=diff)))
    assert out.endswith("+1 -1\n    @@ -1,2 +1,2 @@\n    --- old\n    +++ new\n     x\n    ... (9 more)\n")


def test_teammates_are_named_in_their_color_and_only_the_leads_text_is_shown() -> None:
    scroll = EventRenderer(look(has_color=True), AgentColors())
    out = shown(events.TextArrived("alice", "murmur\n\n"), tool(agent="alice"), tool(agent="bob"), scroll=scroll)
    alice, bob = re.findall(r"\x1b\[(\d+)m(?:alice|bob) \x1b", out)
    assert alice != bob
    assert "murmur" not in out


def test_verbose_shows_teammates_text_output_and_thoughts() -> None:
    scroll = EventRenderer(look(), AgentColors())
    scroll.set_verbose(True)
    out = shown(
        events.ThinkingArrived("alice", "hm"),
        events.TextArrived("alice", "murmur\n\n"),
        tool("one\ntwo", agent="alice"),
        scroll=scroll,
    )
    assert "hm" in out
    assert "alice │ murmur" in out
    assert "    one\n    two" in out


def test_thinking_is_folded() -> None:
    scroll = EventRenderer(look(), AgentColors())
    out = shown(events.ThinkingArrived("lead", "deep thought"), events.TextArrived("lead", "so\n\n"), scroll=scroll)
    assert "deep" not in out
    assert "thought" in out
    assert "deep thought" in scroll.expand(1)


def test_mail_is_one_line_but_what_the_user_asked_for_is_whole() -> None:
    long = "word " * 60
    mail = events.MailSent("alice", "lead", "result", long, {})
    assert shown(mail).count("\n") == 1
    assert "alice → lead result: word" in shown(mail)
    assert shown(mail).rstrip().endswith("…")
    assert long.strip() in shown(mail._replace(fields={"by_user": True}))
    assert long.strip() in shown(mail._replace(type="error"))


def test_a_long_line_of_the_users_is_echoed_in_part() -> None:
    out = shown(events.LineTaken("lead", "\n".join(f"line {n}" for n in range(200))))
    assert out.startswith("team >> line 0\nline 1\n")
    assert "192 more lines" in out


def test_a_recap_shows_the_last_task_and_the_last_answer() -> None:
    scroll = EventRenderer(look(), AgentColors())
    words = [("user", "first"), ("assistant", "one"), ("user", "second"), ("user", "<message>m</message>")]
    messages = [Message(role, (text_block(text),)) for role, text in [*words, ("assistant", "*two*")]]
    assert scroll.recap(messages) == "team >> second\n\ntwo\n"
    assert scroll.recap([]) == ""
    assert scroll.recap(messages[-1:]) == ""


def test_a_recap_shows_the_last_of_several_lines_without_an_answer() -> None:
    content = ("first", "<note>the turn was interrupted</note>", "second", "<message>m</message>")
    scroll = EventRenderer(look(), AgentColors())
    assert scroll.recap([Message("user", tuple(map(text_block, content)))]) == "team >> second\n"


def test_an_interruption_is_shown_for_the_lead_only() -> None:
    assert shown(events.TurnEnded("lead", Outcome.INTERRUPTED, "", 1.0)) == "Interrupted\n"
    assert shown(events.TurnEnded("alice", Outcome.INTERRUPTED, "", 1.0)) == ""


def test_nothing_in_any_text_controls_the_terminal() -> None:
    evil = "\x1b[2J\x1b]0;x\x07"
    scroll = EventRenderer(look(), AgentColors())
    scroll.set_verbose(True)
    out = shown(
        events.LineTaken("lead", evil),
        events.TextArrived("lead", f"a{evil}\n\n"),
        events.TextArrived("alice", f"```\n{evil}\n```\n"),
        events.ThinkingArrived("lead", evil),
        recorded(),
        tool(evil, title=evil, display=Display(evil, diff=f"+{evil}")),
        tool(evil, is_error=True),
        events.MailSent("alice", "lead", "error", evil, {}),
        events.Notice("alice", evil),
        events.RetryScheduled("lead", 1.0, 1, 2, evil),
        events.LimitHit("alice", evil, "turns", False),
        scroll=scroll,
    )
    assert "\x1b" not in out + scroll.expand(1) + scroll.output(evil)
    assert "\x07" not in out
    assert "␛" in out


def test_without_unicode_only_ascii_is_shown() -> None:
    scroll = EventRenderer(look(is_unicode=False), AgentColors())
    out = shown(tool(), tool("x\ny", agent="bob"), events.MailSent("a", "b", "message", "x", {}), scroll=scroll)
    assert out.isascii()


def test_folds_are_bounded_and_counted_from_the_newest() -> None:
    scroll = EventRenderer(look(), AgentColors())
    assert "Nothing is folded" in scroll.expand(1)
    for number in range(300):
        shown(tool(f"output {number}"), scroll=scroll)
    assert "output 299" in scroll.expand(1)
    assert "output 298" in scroll.expand(2)
    assert "Only 200" in scroll.expand(201)


def test_a_call_in_wide_characters_fits_the_width() -> None:
    line = shown(tool(title="$ echo " + "日本語" * 40), scroll=EventRenderer(look(60), AgentColors())).rstrip("\n")
    assert "\n" not in line
    assert 50 < cell_width(line) <= 60


def test_output_of_the_users_command_keeps_its_blank_lines_and_controls_nothing() -> None:
    scroll = EventRenderer(look(), AgentColors())
    assert scroll.output("a\n") + scroll.output("\x1b[2J\nc") == "a\n\n␛[2J\nc\n"


def test_what_is_expanded_is_shown_to_its_end() -> None:
    scroll = EventRenderer(look(), AgentColors())
    diff = "--- a/x\n+++ b/x\n@@ -0,0 +1,5000 @@\n" + "\n".join(f"+new {n} {'x' * 400}" for n in range(5000))
    shown(tool("line\n" * 3000 + "the last line", display=Display("edit x", diff=diff)), scroll=scroll)
    out = scroll.expand(1)
    assert (out.count("\n+new"), out.count("\nline")) == (5000, 3000)
    assert "the last line" in out
    assert "more" not in out
    assert "/expand 1" in scroll.expand(2)


def test_expanded_thoughts_wrap_between_words() -> None:
    scroll = EventRenderer(look(), AgentColors())
    shown(events.ThinkingArrived("lead", "a deep thought " * 20), events.TextArrived("lead", "x"), scroll=scroll)
    _, *lines = scroll.expand(1).strip().splitlines()
    assert "\n".join(lines).split() == ["a", "deep", "thought"] * 20
    assert max(map(len, lines)) < 80


def test_typed_lines_are_echoed_without_an_indent() -> None:
    scroll = EventRenderer(look(), AgentColors())
    assert scroll.typed("fix this:\ndef f():\n    pass") == "team >> fix this:\ndef f():\n    pass\n"


def test_the_newest_call_or_message_is_expanded_even_if_a_thought_follows() -> None:
    scroll = EventRenderer(look(), AgentColors())
    shown(tool("of the lead"), tool("of alice", agent="alice"), scroll=scroll)
    shown(events.ThinkingArrived("lead", "deep thought"), events.TextArrived("lead", "x"), scroll=scroll)
    assert "of alice" in scroll.expand(0)
    assert "deep thought" in scroll.expand(1)
    shown(events.MailSent("alice", "lead", "message", "short", {}), scroll=scroll)
    assert "alice → lead  (/expand 1 of 4)\nshort" in scroll.expand(0)


def test_folds_keep_a_bounded_amount_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teamcli.ui.render.folds.MOST_CHARACTERS", 1000)
    scroll = EventRenderer(look(), AgentColors())
    shown(tool("a" * 600), tool("b" * 600), scroll=scroll)
    assert "bbb" in scroll.expand(1)
    assert "Only 1" in scroll.expand(2)
    shown(tool("c" * 5000), scroll=scroll)
    assert "c" * 5000 in scroll.expand(1)


def test_a_hire_is_not_shown_twice() -> None:
    hire = events.ToolFinished("lead", "c1", "spawn_teammate", Display("spawn al (coder)"), "Spawned 'al'", False, 0.1)
    assert shown(hire) == "  ✓ spawn al (coder)  0.1s\n"
    assert "failed" in shown(hire._replace(is_error=True))
