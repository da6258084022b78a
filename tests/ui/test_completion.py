"""What Tab offers at the prompt."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from teamcli.agent.mentions import unknown_mentions
from teamcli.commands.arguments import VALUES as ARGUMENT_VALUES
from teamcli.commands.base import ArgumentKind, Option, SlashCommand
from teamcli.commands.budget import AMOUNTS
from teamcli.commands.catalog import COMMANDS
from teamcli.ui.terminal import file_index
from teamcli.ui.terminal.completion import MOST_SHOWN, LineCompleter
from teamcli.ui.terminal.file_index import FileIndex, best_matches
from teamcli.workspace.bounds import Workspace
from tests.support.waiting import wait_until

TEAM = [Option("alice", "coder, working"), Option("bob", "tester, idle")]
AGENTS = [Option("lead", ""), *TEAM]
VALUES = {
    ArgumentKind.MODE: [Option("plan", "only reading"), Option("default", "")],
    ArgumentKind.AGENT: AGENTS,
    ArgumentKind.ANY_AGENT: AGENTS,
    ArgumentKind.TEXT: [],
    ArgumentKind.BUDGET: [Option("session", ""), Option("team", ""), *TEAM],
    ArgumentKind.AMOUNT: AMOUNTS,
}


@pytest.fixture(autouse=True)
def wait_for_the_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The results must not depend on the speed of the machine."""
    monkeypatch.setattr(file_index, "WAIT_SECONDS", 30.0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in (
        "readme.md",
        "src/main.py",
        "src/team/manager.py",
        "src/my file.txt",
        "build/out.py",
        ".github/ci.yml",
        ".team/config.json",
        "alpha.txt",
    ):
        path = tmp_path / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (tmp_path / "work" / ".gitignore").write_text("build/\n")
    return tmp_path / "work"


def offered(root: Path, text: str, commands: Sequence[SlashCommand] = COMMANDS) -> list[tuple[str, str]]:
    """Each line that accepting a completion would give, and what is shown next to the completion."""
    found = completer_of(root, commands).get_completions(Document(text), CompleteEvent(text_inserted=True))
    return [(text[: len(text) + each.start_position] + each.text, each.display_meta_text) for each in found]


def completer_of(root: Path, commands: Sequence[SlashCommand] = COMMANDS) -> LineCompleter:
    workspace = Workspace(root)
    names = {each.value for each in TEAM}
    return LineCompleter(
        lambda: commands,
        lambda: TEAM,
        lambda kind: VALUES[kind],
        lambda text: unknown_mentions(text, workspace, names),
        root,
    )


def lines(root: Path, text: str) -> list[str]:
    return [line for line, _ in offered(root, text)]


class TestCommands:
    def test_a_slash_offers_commands_with_their_help(self, root: Path) -> None:
        found = dict(offered(root, "/inb"))
        assert list(found) == ["/inbox "]
        assert "messages" in found["/inbox "].lower()
        assert lines(root, "/exi") == ["/quit"]
        assert len(lines(root, "/")) == MOST_SHOWN

    def test_a_custom_command_is_offered_too(self, root: Path) -> None:
        own = SlashCommand("review", "[FILE]", "Look at \x1b[31mit.", lambda session, arguments: "")
        assert offered(root, "/rev", (own,)) == [("/review", "Look at ␛[31mit.")]

    def test_budgets_and_amounts_are_offered(self, root: Path) -> None:
        assert lines(root, "/budget te") == ["/budget team"]
        assert offered(root, "/budget alice 1") == [
            ("/budget alice 10 min", "of work"),
            *offered(root, "/budget alice +1"),
        ]
        assert "/budget alice off" in lines(root, "/budget alice ")

    def test_every_kind_of_argument_has_values(self) -> None:
        assert set(ARGUMENT_VALUES) == set(ArgumentKind)

    def test_arguments_are_offered_by_their_kind(self, root: Path) -> None:
        assert offered(root, "/permissions p") == [("/permissions plan", "only reading")]
        assert offered(root, "/send a") == [("/send alice", "coder, working"), ("/send lead", "")]
        assert lines(root, "/send bo") == ["/send bob"]
        assert lines(root, "/send bob a") == []
        assert lines(root, "/inbox ") == ["/inbox lead", "/inbox alice", "/inbox bob"]

    def test_nothing_is_offered_outside_a_command(self, root: Path) -> None:
        for text in ("", "read", "what is /inb", "/no-such ", "!ls @rea", "text\n/inb", "/log 5 "):
            assert lines(root, text) == []


class TestMentions:
    def test_teammates_come_first_with_role_and_status(self, root: Path) -> None:
        assert offered(root, "@al") == [("@alice", "coder, working"), ("@alpha.txt", "")]

    def test_a_mention_may_be_anywhere_but_inside_a_word(self, root: Path) -> None:
        assert lines(root, "look at (@read") == ["look at (@readme.md"]
        assert lines(root, "/send bob look at @readm") == ["/send bob look at @readme.md"]
        assert lines(root, "first\nthen @readm") == ["first\nthen @readme.md"]
        assert lines(root, "me@readm") == []

    def test_files_are_found_by_some_letters_and_names_rank_first(self, root: Path) -> None:
        assert lines(root, "@ma") == ["@src/main.py", "@src/team/manager.py"]
        assert lines(root, "@STMGR") == ["@src/team/manager.py"]
        assert lines(root, "@pha") == ["@alpha.txt"]

    def test_directories_end_in_a_slash_and_their_files_follow(self, root: Path) -> None:
        assert lines(root, "@tea") == ["@src/team/", "@src/team/manager.py"]
        assert lines(root, "@src/team/") == ["@src/team/", "@src/team/manager.py"]

    def test_a_path_with_a_space_is_quoted(self, root: Path) -> None:
        assert lines(root, "see @myf") == ['see @"src/my file.txt"']
        assert lines(root, 'see @"src/my f') == ['see @"src/my file.txt"']

    def test_ignored_files_are_found_only_by_their_directory_and_hidden_ones_by_a_dot(self, root: Path) -> None:
        assert lines(root, "@out") == []
        assert lines(root, "@build/o") == ["@build/out.py"]
        assert lines(root, "@ci.yml") == []
        assert lines(root, "@.gith") == ["@.github/", "@.github/ci.yml"]
        assert lines(root, "@.team/") == lines(root, "@.team/conf") == []

    def test_nothing_outside_is_offered(self, root: Path) -> None:
        (root.parent / "outside").mkdir()
        (root.parent / "outside" / "zebra.txt").touch()
        (root / "way-out").symlink_to(root.parent / "outside")
        (root / "zebra-link").symlink_to(root.parent / "outside" / "zebra.txt")
        for text in ("@zebra", "@way", "@way-out/z", "@../outside/z", f"@{root.parent}/outside/z", "@~/", "@a\0/"):
            assert lines(root, text) == []

    def test_names_that_would_garble_the_screen_or_cannot_be_typed_are_not_offered(self, root: Path) -> None:
        for name in (b"evil\x1b[2J", b"evil\nname", b'evil"quote', b"evil\xff", "evil\u202e".encode()):
            Path(os.fsdecode(os.fsencode(root) + b"/" + name)).touch()
        (root / "evil-but-fine").touch()
        assert lines(root, "@evil") == ["@evil-but-fine"]

    def test_only_a_few_completions_are_offered(self, root: Path) -> None:
        for number in range(100):
            (root / f"x{number}").touch()
        assert len(lines(root, "@x")) == MOST_SHOWN
        assert lines(root, "@")[:2] == ["@alice", "@bob"]
        assert all("/" not in line.rstrip("/") for line in lines(root, "@"))


class TestEnter:
    @pytest.mark.parametrize(
        ("typed", "completed", "can_be_sent"),
        [
            ("/mo", "/model", True),
            ("/INB", "/inbox", True),
            ("/exi", "/quit", True),
            ("/sen", "/send ", False),
            ("/shut", "/shutdown ", False),
            ("@bo", "@bob", False),
            ("look at @mngr", "look at @src/team/manager.py", False),
            ("look at (@readm", "look at (@readme.md", False),
            ("see @myfile", 'see @"src/my file.txt"', False),
            ("/send bob see @alph", "/send bob see @alpha.txt", False),
        ],
    )
    def test_it_takes_the_only_completion(self, root: Path, typed: str, completed: str, can_be_sent: bool) -> None:
        assert completer_of(root).only(typed) == (completed, can_be_sent)

    @pytest.mark.parametrize(
        "typed",
        ["/model", "/q", "/team", "/model cl", "/send bo", "@bob", "@alpha.txt", "@src", "@src/main.py:3", "@BOB,", ""],
    )
    def test_it_leaves_a_line_alone_that_is_complete_as_typed(self, root: Path, typed: str) -> None:
        assert completer_of(root).only(typed) is None

    def test_it_leaves_a_file_alone_that_has_just_disappeared(self, root: Path) -> None:
        (root / "gone.txt").touch()
        completer = completer_of(root)
        wait_until(lambda: completer.only("@gone") == ("@gone.txt", False))
        (root / "gone.txt").unlink()
        assert completer.only("@gone.txt") is None

    @pytest.mark.parametrize("typed", ["/", "/re", "/p", "@ma", "@al", "@", "/xyz", "@xyz", "@types/node", "a@readm"])
    def test_it_leaves_a_line_alone_that_has_no_completion_or_several(self, root: Path, typed: str) -> None:
        assert completer_of(root).only(typed) is None

    def test_it_takes_no_file_while_not_all_files_are_known(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        completer = completer_of(root)
        assert completer.only("@readm") is not None
        monkeypatch.setattr(FileIndex, "is_complete", False)
        assert completer.only("@readm") is None


class TestHints:
    @pytest.mark.parametrize(
        ("typed", "hint"),
        [
            ("@nobody do it", "@nobody: no such file or teammate"),
            ("see @nope.py, and @src/nope", "@nope.py: no such file or teammate"),
            ("see @nope.py, @src/nope now", "@nope.py, @src/nope: no such file or teammate"),
            ("see @a\x1b[31m now", "@a␛[31m: no such file or teammate"),
        ],
    )
    def test_unknown_words_are_named(self, root: Path, typed: str, hint: str) -> None:
        assert completer_of(root).hint(typed) == hint

    @pytest.mark.parametrize(
        "typed",
        [
            "@alice look at @readme.md, (@src/main.py:3) and @src.",
            "mail me@nope.org now",
            "```\n@property\ndef x\n``` and `@cached` now",
            "install @types/node and @angular/core@17.1 now",
            "an @ alone",
            "@Bob: hello",
        ],
    )
    def test_nothing_else_is_mentioned(self, root: Path, typed: str) -> None:
        assert completer_of(root).hint(typed) == ""

    def test_the_word_that_is_being_typed_counts_once_it_has_no_completion(self, root: Path) -> None:
        completer = completer_of(root)
        assert completer.hint("see @read") == ""
        assert completer.hint("see @readx") == ""
        assert not list(completer.get_completions(Document("see @readx"), CompleteEvent(text_inserted=True)))
        assert completer.hint("see @readx") == "@readx: no such file or teammate"


class TestFileIndex:
    def test_new_files_are_found_after_a_while(self, root: Path) -> None:
        now = 0.0
        index = FileIndex(root, lambda: now)
        assert index.find("brandnew", 5) == []
        (root / "brandnew").touch()
        assert index.find("brandnew", 5) == []
        now = file_index.FRESH_SECONDS + 1
        wait_until(lambda: index.find("brandnew", 5) == ["brandnew"])

    def test_files_found_so_far_are_offered_during_the_walk(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(file_index, "MAX_ENTRIES", 3)
        index = FileIndex(root)
        wait_until(lambda: index.find("a", 100) != [])
        assert len(index.find("", 100)) == 3
        assert index.find("src/team/m", 100) == ["src/team/manager.py"]

    def test_a_directory_with_very_many_files_does_not_hide_those_at_the_top(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(file_index, "MAX_ENTRIES", 10)
        (tmp_path / "data").mkdir()
        for number in range(20):
            (tmp_path / "data" / f"{number}.csv").touch()
        (tmp_path / "setup.py").touch()
        index = FileIndex(tmp_path)
        wait_until(lambda: index.find("setup", 5) == ["setup.py"])

    def test_better_matches_come_first(self) -> None:
        paths = ["zz/a/b/c", "abc/x", "x/abc.py", "x/long/abc.py", "x/zabc", "abc"]
        assert best_matches("abc", paths, 10) == ["abc", "x/abc.py", "x/long/abc.py", "abc/x", "x/zabc", "zz/a/b/c"]
