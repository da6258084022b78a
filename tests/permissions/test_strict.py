"""What is read of a line, and what is rejected with a hint."""

from __future__ import annotations

import pytest

from teamcli.permissions.shell.strict import MAX_LENGTH, Command, NotUnderstood, read_line


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("git status", ["git", "status"]),
        ("  git\t status  ", ["git", "status"]),
        ("g'i't \"status\"", ["git", "status"]),
        ("git commit -m 'it'\\''s'", ["git", "commit", "-m", "it's"]),
        ('echo "a \\"b\\" \\$c \\x"', ["echo", 'a "b" $c \\x']),
        ('grep "a$" f', ["grep", "a$", "f"]),
        ("git show HEAD~2 HEAD^ @{u} a#b", ["git", "show", "HEAD~2", "HEAD^", "@{u}", "a#b"]),
        ("find . -name {} a", ["find", ".", "-name", "{}", "a"]),
        ("echo '' \"\"", ["echo", "", ""]),
        ("echo \\\n  a \\\n  b", ["echo", "a", "b"]),
        ("echo 'a\nb'", ["echo", "a\nb"]),
        ("echo \"$(cat <<'END'\na $(b)\n`c`\n\nEND\n)\"", ["echo", "a $(b)\n`c`"]),
        ('echo "$(cat <<"END"\nEND\n)"', ["echo", ""]),
        ("git log 2>&1 >/dev/null < /dev/null", ["git", "log"]),
        ("echo 'é' \"€\" \\é", ["echo", "é", "€", "é"]),
    ],
)
def test_words_are_read_as_the_program_gets_them(line: str, words: list[str]) -> None:
    assert read_line(line) == (Command(tuple(words)),)


@pytest.mark.parametrize("line", ["a && b", "a||b", "a;b", "a | b", "a\nb", "a;\nb", "a &&\n b", "\na; b;\n", "a|b"])
def test_commands_are_joined_in_these_ways(line: str) -> None:
    assert read_line(line) == (Command(("a",)), Command(("b",)))


def test_redirections_to_files_and_variables_are_noted() -> None:
    assert read_line("CI=1 LANG=C a > f 2>> 'g h' b &> i") == (
        Command(("a", "b"), ("CI=1", "LANG=C"), ("f", "g h", "i")),
    )


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("a $X", "single quotes"),
        ('a "$X"', "single quotes"),
        ("a `b`", "back-quotes"),
        ("a *", "name the files"),
        ("a {b,c}", "write the words out"),
        ("a ~", "write the path out"),
        ("a k=~", "write the path out"),
        ("a k:~", "write the path out"),
        ("(a)", "parentheses"),
        ("a &", "background"),
        ("a < f", "as an argument"),
        ("a <<E\nE", "as an argument"),
        ("a <<< b", "as an argument"),
        ("a # b", "comment"),
        ("! a", "quote it"),
        ("a 'b", "not closed"),
        ("a é", "quote it"),
        ("a\u00a0b", "quote it"),
        ("a\rb", "control characters"),
        ("a \ud800", "control characters"),
        ("", "no command"),
        ("a ;; b", "quote it"),
        ("a; ; b", "join commands"),
        ("a &&", "join commands"),
        ("> f", "no command"),
        ("X=1 a", "leave that out"),
        ("CI=1", "no command"),
        ("CI+=1 a", "leave that out"),
        ("CI='a b' a", "leave it out"),
        ("if a", "simple commands"),
        ("time a", "simple commands"),
        ("[ -f a ]", "quote it"),
        ("a=b", "leave that out"),
        ("a >& f", "&> FILE"),
        ("a {b}> f", "braces"),
        ("a 10> f", "quote it"),
        ("a >", "name a file"),
        ("a b\\\nc", "join the lines"),
        ('echo "$(cat <<END\nx\nEND\n)"', "single quotes"),
        ("echo \"$(cat <<'END'\nx\n)\"", "single quotes"),
        ('echo "$(cat <<\'E\'\nx\nE)"; evil; "\nE\n)"', "single quotes"),
        ('echo "$(cat <<\'E\'\nx\nEx)"; evil; "\nE\n)"', "single quotes"),
        ("a" * (MAX_LENGTH + 1), "several calls"),
    ],
)
def test_anything_else_is_rejected_with_a_hint(line: str, hint: str) -> None:
    with pytest.raises(NotUnderstood, match=hint.replace("&>", "&>")):
        read_line(line)


def test_a_backslash_after_a_letter_that_is_not_ascii_is_not_understood() -> None:
    """In GBK and Shift JIS it may be the second byte of that letter, and then the quote ends earlier."""
    with pytest.raises(NotUnderstood):
        read_line('echo "中\\" $(date) "')
    assert read_line('echo "中 \\""')[0].words == ("echo", '中 "')
