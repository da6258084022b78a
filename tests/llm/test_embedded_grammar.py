from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamcli.llm.embedded.grammar import HelpAsked, Imperative, Unparsed, parse


def calls(text: str) -> list[tuple[str, dict[str, str]]]:
    items = parse(text)
    assert all(isinstance(item, Imperative) for item in items), items
    return [(item.tool, item.input) for item in items if isinstance(item, Imperative)]


def bash(command: str) -> tuple[str, dict[str, str]]:
    return "bash", {"command": command}


def read(path: str) -> tuple[str, dict[str, str]]:
    return "read_file", {"path": path}


def write(path: str, content: str) -> tuple[str, dict[str, str]]:
    return "write_file", {"path": path, "content": content}


def tell(to: str, content: str) -> tuple[str, dict[str, str]]:
    return "send_message", {"to": to, "content": content}


def spawn(name: str, role: str, prompt: str) -> tuple[str, dict[str, str]]:
    return "spawn_teammate", {"name": name, "role": role, "prompt": prompt}


WAIT = ("wait_for_message", dict[str, str]())
LIST = ("list_teammates", dict[str, str]())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run ls -l", bash("ls -l")),
        ("read src/a.py", read("src/a.py")),
        ("write notes.txt: buy milk", write("notes.txt", "buy milk")),
        ("spawn alice as coder: run ls", spawn("alice", "coder", "run ls")),
        ("tell alice: hello there", tell("alice", "hello there")),
        ("broadcast: stand up", ("broadcast", {"content": "stand up"})),
        ("merge alice", ("merge_teammate", {"name": "alice"})),
        ("merge @alice.", ("merge_teammate", {"name": "alice"})),
        ("wait", WAIT),
        ("list", LIST),
    ],
)
@pytest.mark.parametrize(
    "manner", [str, str.capitalize, lambda text: text.split(" ")[0].upper() + text[len(text.split(" ")[0]) :]]
)
def test_each_verb_becomes_its_tool_call_in_any_case(text, expected, manner) -> None:
    ((tool, given_input),) = calls(manner(text))
    assert tool == expected[0]
    assert {key: value.lower() for key, value in given_input.items()} == {k: v.lower() for k, v in expected[1].items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("task run ls then read x", [("task_create", {"subject": "run ls then read x"})]),
        ("run ls then task: read x. run pwd", [bash("ls"), ("task_create", {"subject": "read x. run pwd"})]),
        (
            "task run ls then read x then task wait then tasks",
            [
                ("task_create", {"subject": "run ls then read x"}),
                ("task_create", {"subject": "wait"}),
                ("task_list", {}),
            ],
        ),
        ("spawn alice as coder: task a then tasks", [spawn("alice", "coder", "task a then tasks")]),
        ("claim task #12.", [("task_update", {"id": 12, "status": "in_progress"})]),
        ("done 3 then tasks", [("task_update", {"id": 3, "status": "completed"}), ("task_list", {})]),
        (
            "spawn alice as coder on host box: wait",
            [("spawn_teammate", {"name": "alice", "role": "coder", "host": "box", "prompt": "wait"})],
        ),
        (
            "spawn alice as coder who claims tasks: wait",
            [("spawn_teammate", {"name": "alice", "role": "coder", "claims": True, "prompt": "wait"})],
        ),
    ],
)
def test_the_board_has_verbs(text, expected) -> None:
    assert calls(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run echo a then b", [bash("echo a then b")]),
        ("run echo a then read x", [bash("echo a"), read("x")]),
        ("run echo a. b. c", [bash("echo a. b. c")]),
        ("run echo a. b. read c", [bash("echo a. b"), read("c")]),
        ("run echo a THEN Read x", [bash("echo a"), read("x")]),
        ("Run ls. Then read x. Please run pwd", [bash("ls"), read("x"), bash("pwd")]),
        ("run ls, then read x, and then wait", [bash("ls"), read("x"), WAIT]),
        ("run a\nrun b\r\nrun c", [bash("a"), bash("b"), bash("c")]),
        ("wait then list", [WAIT, LIST]),
        ("wait. list.", [WAIT, LIST]),
        ("tell bob: sit down then wait until noon", [tell("bob", "sit down then wait until noon")]),
        ("tell bob: sit down then wait", [tell("bob", "sit down"), WAIT]),
        ("tell bob: stay. Write me soon", [tell("bob", "stay. Write me soon")]),
        ("tell bob: look then list the files", [tell("bob", "look then list the files")]),
        ("write a.txt: one then two. three then read a.txt", [write("a.txt", "one then two. three"), read("a.txt")]),
        ("run cp a . then read b", [bash("cp a ."), read("b")]),
        ("run ls .. then read b", [bash("ls .."), read("b")]),
        ("run find . -exec ls {} \\; then read b", [bash("find . -exec ls {} \\;"), read("b")]),
        ("run sed s/a.b/c/ x.txt", [bash("sed s/a.b/c/ x.txt")]),
        ("run python3.11 -V then run ls a.b", [bash("python3.11 -V"), bash("ls a.b")]),
        ("run thenceforth then strengthen", [bash("thenceforth then strengthen")]),
    ],
)
def test_a_line_splits_only_where_another_imperative_follows(text, expected) -> None:
    assert calls(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('run echo "a. run b"', [bash('echo "a. run b"')]),
        ('run echo "a then read b" then read c', [bash('echo "a then read b"'), read("c")]),
        ("run echo `a. run b`", [bash("echo `a. run b`")]),
        (r'run echo "say \" then read b"', [bash(r'echo "say \" then read b"')]),
        ('write a.json: {"k": "x. run y"} then read a.json', [write("a.json", '{"k": "x. run y"}'), read("a.json")]),
        ('tell bob: a 5" disk then run ls', [tell("bob", 'a 5" disk'), bash("ls")]),
        ('tell bob: a 5" disk\ntell amy: a 6" disk', [tell("bob", 'a 5" disk'), tell("amy", 'a 6" disk')]),
        ('run echo "oops\nrun echo "fine"', [bash('echo "oops'), bash('echo "fine"')]),
        ("run echo `oops\nrun echo fine`", [bash("echo `oops"), bash("echo fine`")]),
        ('write a.txt: "one\ntwo. run x"\nread a.txt', [write("a.txt", "one\ntwo. run x"), read("a.txt")]),
        ("write a.py: ```python\nif x:\n    run()\n```\nrun ls", [write("a.py", "if x:\n    run()\n"), bash("ls")]),
    ],
)
def test_quoted_text_never_splits(text, expected) -> None:
    assert calls(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run `ls -l`", bash("ls -l")),
        ("run `ls -l`.", bash("ls -l")),
        ('run "ls -l"', bash("ls -l")),
        (r'run "echo \"hi\""', bash('echo "hi"')),
        ('run "a b" "c"', bash('"a b" "c"')),
        ("run ls.", bash("ls")),
        ("run echo the end.", bash("echo the end.")),
        ("read `a b.txt`", read("a b.txt")),
        ("read my file.txt", read("my file.txt")),
        ("read README.md.", read("README.md")),
        ("read ..", read("..")),
        ('write "a b.txt": x', write("a b.txt", "x")),
        ('write a.txt: "x"', write("a.txt", "x")),
        ('write a.txt: ""', write("a.txt", "")),
        ('write a.txt: "x" and "y"', write("a.txt", '"x" and "y"')),
        ("write a.txt:x: y", write("a.txt", "x: y")),
        ("write a.txt: The end.", write("a.txt", "The end.")),
        ('tell bob: "run a then read b"', tell("bob", "run a then read b")),
        ("tell @bob: hi", tell("bob", "hi")),
        ("spawn al as a senior coder: run x", spawn("al", "senior coder", "run x")),
    ],
)
def test_quotes_around_a_whole_argument_and_a_stop_after_a_file_name_are_not_part_of_it(text, expected) -> None:
    assert calls(text) == [expected]


@pytest.mark.parametrize(
    "task", ["run ls then tell lead: done. wait", 'write a: "b" then read a', "wait. then list", "do it: now. run x"]
)
def test_the_task_of_a_spawn_runs_to_the_end_of_its_line(task) -> None:
    assert calls(f"spawn alice as coder: {task}\nrun ls") == [spawn("alice", "coder", task), bash("ls")]
    assert calls(f"run ls then spawn alice as coder: {task}") == [bash("ls"), spawn("alice", "coder", task)]


def test_lists_and_please_are_welcome() -> None:
    text = "- run a\n* read b\n1. run c. read d\n2) please run e\n\n   then run f\nPlease, read g"
    assert calls(text) == [bash("a"), read("b"), bash("c"), read("d"), bash("e"), bash("f"), read("g")]


@pytest.mark.parametrize("text", ["help", "Help!", "?", "HELP."])
def test_help_can_be_asked_for(text) -> None:
    assert [type(item) for item in parse(text)] == [HelpAsked]


@pytest.mark.parametrize(
    ("text", "usage"),
    [
        ("make me a sandwich", ""),
        ("hello", ""),
        ("running late", ""),
        ("run", "run CMD"),
        ("tell bob hi", "tell NAME: TEXT"),
        ("write a poem about rain: short", "write FILE: TEXT"),
        ("write notes.txt:", "write FILE: TEXT"),
        ("spawn alice: run ls", "spawn NAME as ROLE: TASK"),
        ("broadcast hello", "broadcast: TEXT"),
        ("list files", "list"),
        ("done with it", "done N"),
        ("claim", "claim N"),
    ],
)
def test_text_that_is_not_a_command_comes_back_with_a_hint_if_there_is_one(text, usage) -> None:
    assert parse(text) == (Unparsed(text, usage),)


def test_understood_and_not_understood_keep_their_order() -> None:
    kinds = [type(item) for item in parse("Hello. run ls\nsing\nread x")]
    assert kinds == [Unparsed, Imperative, Unparsed, Imperative]


@pytest.mark.parametrize("text", ["", "  \n\t\r\n ", "\n\n"])
def test_nothing_asks_for_nothing(text) -> None:
    assert parse(text) == ()


words = st.lists(
    st.sampled_from(["run", "read x", "then", "wait", "list", ". ", "tell bob: hi", "a", "'", "spawn a as b: c"]),
    min_size=1,
).map(" ".join)


@given(words, st.sampled_from('"`'))
def test_no_words_in_quotes_ever_split(text, quote) -> None:
    command = f"echo {quote}{text}{quote} end"
    assert calls(f"run {command} then read x") == [bash(command), read("x")]


@given(st.text() | st.text(alphabet='run echo."`then\\\n: wait', max_size=80))
def test_any_text_is_split_without_an_error_and_without_empty_parts(text) -> None:
    assert all(item.text.strip() == item.text != "" for item in parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "`" * 50_000,
        "``` ` " * 10_000,
        '"' * 50_000,
        'run "' + '\\"' * 30_000,
        "a" + " " * 100_000 + "b",
        "a. " * 30_000,
    ],
)
def test_pathological_text_takes_no_unreasonable_time(text) -> None:
    started = time.monotonic()
    assert len(parse(text)) == 1
    assert time.monotonic() - started < 30
