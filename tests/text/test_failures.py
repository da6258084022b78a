"""The line that says what went wrong, found in what commands print when they fail."""

from __future__ import annotations

import pytest

from teamcli.text.failures import failed_exit, first_error_line

TRACEBACK = """Loading 3 files
Traceback (most recent call last):
  File "/home/you/project/a.py", line 3, in <module>
    main()
  File "/home/you/project/a.py", line 2, in main
    raise ValueError("missing colon in error: x")
ValueError: 'x' is not a number
[exit code 1]"""
PYTEST = """F.                                                                       [100%]
=================================== FAILURES ===================================
__________________________________ test_total __________________________________

    def test_total():
>       assert total([1, 2]) == 4
E       assert 3 == 4
E        +  where 3 = total([1, 2])

test_total.py:5: AssertionError
=========================== short test summary info ============================
FAILED test_total.py::test_total - assert 3 == 4
1 failed, 1 passed in 0.02s
[exit code 1]"""
MAKE = """gcc -c main.c -o main.o
main.c: In function 'main':
main.c:3:5: error: 'x' undeclared (first use in this function)
    3 |     x = 1;
make: *** [Makefile:2: main.o] Error 1
[exit code 2]"""
CARGO = """   Compiling app v0.1.0 (/home/you/project)
error[E0308]: mismatched types
 --> src/main.rs:2:18
error: could not compile `app` (bin "app") due to 1 previous error
[exit code 101]"""
GO = """--- FAIL: TestTotal (0.00s)
    total_test.go:7: got 3, want 4
FAIL
exit status 1
[exit code 1]"""
NPM = """npm ERR! code ENOENT
npm ERR! syscall open
[exit code 254]"""
JEST = """
> app@1.0.0 test
> jest

FAIL src/total.test.js
  ● adds
[exit code 1]"""
TSC = """src/a.ts(3,5): error TS2322: Type 'string' is not assignable to type 'number'.
[exit code 2]"""
RUFF = """F401 [*] `os` imported but unused
 --> a.py:1:8
Found 1 error.
[exit code 1]"""

GIT = """warning: Not a git repository. Use --no-index to compare two paths
usage: git diff --no-index [<options>] <path> <path>
    --check               warn if changes introduce whitespace errors
[exit code 129]"""


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("cat: nope.txt: No such file or directory\n[exit code 1]", "cat: nope.txt: No such file or directory"),
        ("bash: line 1: nope: command not found\n[exit code 127]", "bash: line 1: nope: command not found"),
        ("a\nb\nfatal: not a git repository\n[exit code 128]", "fatal: not a git repository"),
        (TRACEBACK, "ValueError: 'x' is not a number"),
        (PYTEST, "assert 3 == 4"),
        (MAKE, "main.c:3:5: error: 'x' undeclared (first use in this function)"),
        (CARGO, "error[E0308]: mismatched types"),
        (GO, "--- FAIL: TestTotal (0.00s)"),
        (NPM, "npm ERR! code ENOENT"),
        (JEST, "FAIL src/total.test.js"),
        (TSC, "src/a.ts(3,5): error TS2322: Type 'string' is not assignable to type 'number'."),
        (RUFF, "F401 [*] `os` imported but unused"),
        (GIT, "warning: Not a git repository. Use --no-index to compare two paths"),
        ("0 errors in a.py\nb.py cannot be read\n[exit code 1]", "b.py cannot be read"),
        ("1c1\n< a\n---\n> b\n[exit code 1]", "1c1"),
        ("\x1b[31merror\x1b[0m: no config\n[exit code 1]", "error: no config"),
    ],
)
def test_the_line_that_says_what_went_wrong_is_found(content: str, line: str) -> None:
    assert first_error_line(content) == line


@pytest.mark.parametrize("content", ["", "(no output)\n[exit code 1]", "[exit code 1]", "\n\n[exit code 1]"])
def test_a_command_that_printed_nothing_has_no_such_line(content: str) -> None:
    assert first_error_line(content) == ""


def test_a_note_below_the_output_is_not_what_went_wrong() -> None:
    note = "[the sandbox allows no writes outside of the workspace, so a write there failed]"
    assert first_error_line(f"touch: cannot touch '/x'\n[exit code 1]\n{note}") == "touch: cannot touch '/x'"


def test_what_a_hook_says_is_not_what_went_wrong() -> None:
    note = "<note>The user's PostToolUse hook says:\nError: format it</note>"
    assert first_error_line(f"hm\n[exit code 1]\n{note}") == "hm"


@pytest.mark.parametrize(
    ("content", "ending"),
    [
        ("hm\n[exit code 3]", "exit code 3"),
        ("hm\n[killed by signal 9 (SIGKILL)]", "killed by signal 9 (SIGKILL)"),
        ("hm\n[exit code 1]\n[a note of the sandbox]", "exit code 1"),
        ("hm\n[exit code 1]\n<note>of a hook\n[exit code 7]</note>", "exit code 1"),
        ("all good", ""),
        ("[exit code 1] is what it printed\nand it succeeded", ""),
    ],
)
def test_how_a_failed_command_ended_is_found(content: str, ending: str) -> None:
    assert failed_exit(content) == ending


def test_a_long_output_takes_no_time() -> None:
    content = "a" * 20_000 + "\n" + "error " * 3000 + "\n" + "=" * 10_000 + "x\n[exit code 1]"
    assert first_error_line(content).startswith("error error")
