"""What is drawn around the line that is edited: unfinished output, a question and the label above it, the status bar
below it."""

from __future__ import annotations

from collections.abc import Sequence

from prompt_toolkit.formatted_text import StyleAndTextTuples

from teamcli.text.escaping import escape_controls
from teamcli.ui.render.style import BOLD, DIM, REVERSE, YELLOW, Line, TerminalStyle
from teamcli.ui.terminal.fragments import clipped
from teamcli.ui.terminal.line_editor import LineEditor
from teamcli.ui.terminal.prompt_port import PromptPort
from teamcli.ui.terminal.question_view import QuestionView, fitted_keys
from teamcli.ui.terminal.questions import QuestionQueue


class PromptPicture:
    def __init__(self, port: PromptPort, questions: QuestionQueue, style: TerminalStyle) -> None:
        self._port = port
        self._questions = questions
        self._style = style
        self._bar_rows = 2
        self._drawn_message: StyleAndTextTuples | None = None
        self._message_rows = 1
        """How many rows were last drawn above the line that is edited."""

    def begin(self) -> None:
        """Call this before each drawing."""
        self._drawn_message = None

    def message(self, view: QuestionView | None, editor: LineEditor) -> StyleAndTextTuples:
        """What is above the line. For each drawing, prompt_toolkit asks for it about twenty times."""
        if self._drawn_message is None:
            self._drawn_message = self._message(view, editor)
        return self._drawn_message

    def _message(self, view: QuestionView | None, editor: LineEditor) -> StyleAndTextTuples:
        width = self._style.width() - 1
        above = [clipped(line, width) for line in self._port.above()]
        if view is None:
            self._message_rows = len(above or [[]])
            return [*self._format(above or [[]], newline=True), *self._format([[self._port.label()]])]
        above = above if above and above[0] else above[1:]
        question = view.question
        rows = editor.app.output.get_size().rows
        asked = view.rows(width, rows, self._bar_rows)
        waiting = len(self._questions.open)
        asked.append(fitted_keys(question.keys, f" · 1 of {waiting}" if waiting > 1 else "", width))
        # The question comes first: if rows are scarce, less of what streams meanwhile is shown.
        room = max(0, rows - len(asked) - self._bar_rows - 3)
        above = [*above[len(above) - min(room, len(above)) :], *([[]] if above and room else [])]
        # More than that gives way to the status bar, since a long question can be scrolled.
        self._message_rows = min(len(above) + len(asked) + 1, rows // 2)
        return [*self._format([[], *above, *asked], newline=True), *self._format([[(question.label, YELLOW)]])]

    def toolbar(self, view: QuestionView | None, editor: LineEditor, hint: str) -> StyleAndTextTuples:
        """What is below the line. `hint` replaces that of the status bar."""
        width = self._style.width() - 1
        taken = self._message_rows + editor.buffer.document.line_count
        lines = self._port.bar(width, taken, hint)
        if view is None and (wrong := editor.hint):
            lines = [*lines[:-1], clipped([(wrong, YELLOW), ("  ", ""), *lines[-1]], width)]
        if view is not None and len(lines) > self._bar_rows:  # the question has left too little room for it
            editor.redraw_in(0)
        self._bar_rows = len(lines)
        return self._format(lines, newline=True)[:-1]

    def _format(self, lines: Sequence[Line], newline: bool = False) -> StyleAndTextTuples:
        """Lines as prompt_toolkit wants them."""
        formatted: StyleAndTextTuples = []
        for line in lines:
            for text, style in line:
                words = style.split() if self._style.has_color else ()
                names = (word if word in (BOLD, DIM, REVERSE) else f"ansi{word.replace('_', '')}" for word in words)
                formatted.append((" ".join(names), self._style.signs(escape_controls(text))))
            formatted += [("", "\n")] if newline else []
        return formatted
