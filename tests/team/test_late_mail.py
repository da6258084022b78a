"""Mail that may become needless waits until its reader is done with a step."""

from __future__ import annotations

from teamcli.team.mailbox import LateMail


def test_nothing_is_held_back_from_an_idle_reader() -> None:
    late, sent = LateMail(), list[str]()
    late.add(lambda: sent.append("a"))
    assert sent == ["a"]


def test_what_is_held_back_is_sent_once_when_the_reader_is_done() -> None:
    late, sent = LateMail(), list[str]()
    late.hold()
    late.add(lambda: sent.append("a"))
    assert sent == []
    late.release()
    late.release()
    assert sent == ["a"]


def test_between_two_steps_it_is_sent_and_later_mail_still_waits() -> None:
    late, sent = LateMail(), list[str]()
    late.hold()
    late.add(lambda: sent.append("a"))
    late.flush()
    late.add(lambda: sent.append("b"))
    assert sent == ["a"]


def test_a_reader_that_waits_for_mail_gets_it() -> None:
    late, sent = LateMail(), list[str]()
    late.hold()
    late.add(lambda: sent.append("a"))
    with late.wanted():
        assert sent == ["a"]
        late.add(lambda: sent.append("b"))
        assert sent == ["a", "b"]
    late.add(lambda: sent.append("c"))
    assert sent == ["a", "b"]


def test_a_wait_that_ends_after_its_turn_holds_nothing_back() -> None:
    late, sent = LateMail(), list[str]()
    late.hold()
    with late.wanted():
        late.release()
    late.add(lambda: sent.append("a"))
    assert sent == ["a"]
