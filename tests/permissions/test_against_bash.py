"""What rules allow, run by real bash: no command, word, file or change of the shell that was not foreseen."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from teamcli.permissions.access import Executes
from teamcli.permissions.decide import decide
from teamcli.permissions.policy import Mode, Policy, Verdict
from teamcli.permissions.rules import parse_rules
from teamcli.permissions.shell.steps import steps
from teamcli.permissions.shell.strict import read_line
from tests.permissions.bash_witness import BASH, RECORDED, Seen, Witness
from tests.permissions.random_lines import RandomLines

IS_SOAK = "TEAMCLI_SOAK" in os.environ
ALLOWED_LINES = 500_000 if IS_SOAK else 4_000
BATCH, BATCH_THAT_WRITES = 2_000, 400
needs_bash = pytest.mark.skipif(not BASH.exists(), reason="compares with the real bash")

PROGRAMS = (
    "run show git sed find awk tar rg make echo true printf test export declare eval exec source . trap alias set "
    "shopt read unset command builtin env xargs let hash compgen cd pushd enable mapfile wait jobs time coproc exit "
    "return break bash nice local type pwd kill : umask run.sh ./run.sh"
)
SILENT = {"printf", "pwd", "type", "test"}
"""Real builtins, which nothing records."""
ALWAYS_SUCCEED = {*RECORDED, "./run.sh"}
POLICY = Policy(Mode.ACCEPT_EDITS, parse_rules(", ".join(f"bash({name}:*)" for name in PROGRAMS.split())))


def is_allowed(line: str, root: Path) -> bool:
    return decide(POLICY, "bash", Executes(line), root).verdict is Verdict.ALLOW


def files_of(line: str, root: Path) -> set[str]:
    written = [path for step in steps(read_line(line), root) for path in step.written]
    return {str(path.relative_to(root)) for path in written}


def is_foreseen(line: str, seen: Seen) -> bool:
    """Each call that bash made is a command of the line, word by word; without `||`, each command was made."""
    expected = Counter(command.words for command in read_line(line))
    made = Counter(words[1:] if words[0] == "unexpected" else words for words in seen.calls)
    missing = {words[0] for words in expected - made}
    # What follows `||`, a program that does not exist, a file that cannot be written or a descriptor that is not open
    # may not have run.
    may_fail = any(command.writes or command.words[0] not in ALWAYS_SUCCEED for command in read_line(line))
    may_be_missing = "||" in line or may_fail or re.search(r"[<>]&\s*[3-9]", line) is not None
    return seen.kept_state and made <= expected and (may_be_missing or missing <= SILENT)


class Fuzzer:
    """Collects lines that rules allow, and has bash run them in batches."""

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self.checked = 0
        self._plain: list[str] = []
        self._writing: list[str] = []

    def offer(self, line: str) -> None:
        root = self.witness.work
        if "\0" in line or not is_allowed(line, root):
            return
        if files_of(line, root):
            self._writing.append(line)
        else:
            self._plain.append(line)
        if len(self._plain) >= BATCH or len(self._writing) >= BATCH_THAT_WRITES:
            self.flush()

    def flush(self) -> None:
        for lines in (self._plain, self._writing):
            if lines and (wrong := self._wrong(lines)):
                pytest.fail("bash does more than was read:\n" + "\n".join(map(repr, wrong)))
            self.checked += len(lines)
            lines.clear()

    def _wrong(self, lines: list[str]) -> list[tuple[str, Seen]]:
        root = self.witness.work
        seen, new = self.witness.watch(lines)
        if len(seen) < len(lines):  # the shell ended
            return [(lines[len(seen)], Seen((), False))]
        wrong = [(line, each) for line, each in zip(lines, seen, strict=True) if not is_foreseen(line, each)]
        if wrong or new <= {file for line in lines for file in files_of(line, root)}:
            return wrong
        if len(lines) == 1:
            return [(lines[0], Seen((("wrote", *sorted(new)),), False))]
        half = len(lines) // 2
        return self._wrong(lines[:half]) or self._wrong(lines[half:])


@needs_bash
@pytest.mark.soak
@pytest.mark.timeout(3500 if IS_SOAK else 300)
def test_bash_does_nothing_beyond_what_was_read_of_a_line_that_rules_allow(tmp_path: Path) -> None:
    witness = Witness(tmp_path.resolve())
    witness.prepare()
    fuzzer, lines = Fuzzer(witness), RandomLines(int.from_bytes(os.urandom(4)) if IS_SOAK else 1)
    while fuzzer.checked < ALLOWED_LINES:
        fuzzer.offer(lines.line())
    fuzzer.flush()


@needs_bash
@pytest.mark.parametrize(
    "line", ["run $(evil)", "run; evil", "run >&3; evil", "run 'a' $X", "run a > f; trap evil EXIT", "PATH=.; run"]
)
def test_the_witness_notices_what_was_not_foreseen(tmp_path: Path, line: str) -> None:
    """Else the test above would prove nothing."""
    witness = Witness(tmp_path.resolve())
    [seen], _ = witness.watch([line])
    assert seen.calls != (("run",),) or not seen.kept_state


@needs_bash
def test_the_witness_sees_words_and_files_as_they_are(tmp_path: Path) -> None:
    witness = Witness(tmp_path.resolve())
    line = "run 'a b' \"c\\$d\" e\\ f > out && show \"$(cat <<'E'\nit's $(x)\n\nE\n)\""
    [seen], new = witness.watch([line])
    assert seen == Seen((("run", "a b", "c$d", "e f"), ("show", "it's $(x)")), True)
    assert new == {"out"} == files_of(line, witness.work)
    assert is_foreseen(line, seen)
