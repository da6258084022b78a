"""Many threads at once above one prompt."""

from __future__ import annotations

import io
import threading
from collections import defaultdict

import pytest

from teamcli.agent import events
from teamcli.ui.render.event_renderer import EventRenderer
from teamcli.ui.render.style import AgentColors, Line, TerminalStyle
from teamcli.ui.terminal import render_thread as painting_thread
from teamcli.ui.terminal.render_thread import RenderThread
from teamcli.ui.terminal.status import StatusBoard
from teamcli.ui.terminal.views import Views

THREADS, LINES = 8, 1250


class Paper(io.StringIO):
    def put(self, text: str, growing: list[Line]) -> None:
        self.write(text)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who leaves is not kept waiting; here all is written, however busy the machine is."""
    monkeypatch.setattr(painting_thread, "LEAVING_SECONDS", 60.0)


def painter(out: Paper) -> RenderThread:
    look = TerminalStyle(False, True, lambda: 80)
    views = Views(EventRenderer(look, AgentColors()), lambda name: EventRenderer(look, AgentColors(), focus=name))
    return RenderThread(views, StatusBoard("lead"), out, lambda: None)


def test_ten_thousand_lines_of_eight_threads_arrive_whole_and_in_order() -> None:
    out = Paper()
    painting = painter(out)
    painting.start()

    def speak(name: str) -> None:
        for number in range(LINES):
            painting(events.Notice(name, f"line {number} of {name} ends"))

    threads = [threading.Thread(target=speak, args=(f"t{number}",)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    painting.stop()
    found: dict[str, list[int]] = defaultdict(list)
    for line in out.getvalue().splitlines():
        who, _, number, _, name, end = line.split()
        assert end == "ends"
        assert who == f"{name}:"
        found[name].append(int(number))
    assert found == {f"t{number}": list(range(LINES)) for number in range(THREADS)}


def test_an_event_that_cannot_be_shown_does_not_end_the_thread() -> None:
    out = Paper()
    painting = painter(out)
    painting.render(lambda scroll: 1 / 0)  # type: ignore[arg-type, return-value]
    painting(events.Notice("lead", "still here"))
    painting.start()
    painting.stop()
    assert out.getvalue() == "still here\n"
