"""The team file as text: what it may say, how a mistake is reported, and writing what reads back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamcli.config.project import inspect_project
from teamcli.config.team_file import PlannedMember, TeamFile, parse_team_file, read_team_file, save_team_file, to_toml
from teamcli.errors import ConfigError, ToolError, UsageError

ALICE = '[[member]]\nname = "alice"\nrole = "coder"\n'
WHOLE = """\
name = "shop"
# the one who writes
[[member]]
name = "alice"
role = "coder"
model = "m"
worktree = true
claims = true
plan = false
tools = ["bash", "read_file"]
cwd = "backend"
budget_usd = 2
host = "any"
prompt = "be brief"
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "work/.team").mkdir(parents=True)
    return tmp_path / "work"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home" / ".teamcli"


def problem_of(text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        parse_team_file(text)
    return str(raised.value)


def test_every_key_is_read() -> None:
    alice = PlannedMember(
        "alice", "coder", "m", True, True, False, ("bash", "read_file"), "backend", 2, "any", "be brief"
    )
    assert parse_team_file(WHOLE) == TeamFile("shop", (alice,))


def test_an_empty_file_is_an_empty_team() -> None:
    assert parse_team_file("") == TeamFile()


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ('nmae = "shop"\n', 1, "'nmae'"),
        ("\nname = 3\n", 2, "name"),
        ('name = ""\n', 1, "name"),
        (f"{ALICE}\n[other]\nx = 1\n", 5, "'other'"),
        ("member = 3\n", 1, "member"),
        (f'{ALICE}modle = "x"\n', 4, "'modle'"),
        (f'{ALICE}worktree = "yes"\n', 4, "worktree"),
        (f"{ALICE}claims = 1\n", 4, "claims"),
        (f"{ALICE}plan = []\n", 4, "plan"),
        (f'{ALICE}tools = "bash"\n', 4, "tools"),
        (f"{ALICE}tools = [\n  1,\n]\n", 4, "tools"),
        (f"{ALICE}budget_usd = -1\n", 4, "budget_usd"),
        (f"{ALICE}budget_usd = 0\n", 4, "budget_usd"),
        (f"{ALICE}budget_usd = inf\n", 4, "budget_usd"),
        (f"{ALICE}budget_usd = nan\n", 4, "budget_usd"),
        (f"{ALICE}budget_usd = true\n", 4, "budget_usd"),
        (f'{ALICE}host = "../server"\n', 4, "host"),
        (f"{ALICE}model = 3\n", 4, "model"),
        (f"{ALICE}cwd = 3\n", 4, "cwd"),
        (f"{ALICE}prompt = 3\n", 4, "prompt"),
        ('\n[[member]]\nname = "alice"\n', 2, "role"),
        ('[[member]]\nrole = "coder"\n', 1, "name"),
        ('[[member]]\nname = "alice"\nrole = " "\n', 3, "role"),
        (f'{ALICE}\n[[member]]\nrole = "x"\nname = "Alice"\n', 7, "name"),
    ],
)
def test_a_mistake_is_one_line_with_file_line_and_key(text: str, line: int, key: str) -> None:
    problem = problem_of(text)
    assert problem.startswith(f".team/team.toml, line {line}: {key}")
    assert "\n" not in problem


def test_the_line_is_right_after_a_text_that_looks_like_members() -> None:
    prompt = 'prompt = """\n[[member]]\nclaims = 1\n"""\n'
    assert ", line 11: claims" in problem_of(f'{ALICE}{prompt}\n[[member]]\nname = "bob"\nclaims = 3\nrole = "x"\n')


@pytest.mark.parametrize("text", ["name =", "[[member]\n", "a = 1\na = 2\n", "x = " + "[" * 100_000])
def test_what_is_not_toml_is_one_line(text: str) -> None:
    problem = problem_of(text)
    assert problem.startswith(".team/team.toml is not valid TOML")
    assert "\n" not in problem


def test_a_broken_rule_is_reported_at_the_key_that_it_names() -> None:
    def rule(member: PlannedMember) -> None:
        raise ToolError("tools: there is no such tool")

    with pytest.raises(ConfigError, match=r"line 10: tools: there is no such tool"):
        parse_team_file(WHOLE, [rule])


texts = st.text(max_size=40)
full = texts.filter(lambda text: bool(text.strip()))
planned = st.builds(
    PlannedMember,
    name=full,
    role=full,
    model=texts,
    worktree=st.booleans(),
    claims=st.booleans(),
    plan=st.booleans(),
    tools=st.none() | st.lists(texts, max_size=3).map(tuple),
    cwd=texts,
    host=st.sampled_from(["", "any", "build-1.local"]),
    budget_usd=st.none() | st.floats(min_value=0.001, max_value=1e30),
    prompt=texts,
)


@given(name=st.just("") | full, members=st.lists(planned, max_size=4, unique_by=lambda member: member.name.casefold()))
def test_what_is_written_reads_back_as_the_same_team(name: str, members: list[PlannedMember]) -> None:
    file = TeamFile(name, tuple(members))
    assert parse_team_file(to_toml(file)) == file


def test_a_long_text_stays_readable() -> None:
    file = TeamFile("", (PlannedMember("alice", "coder", prompt="Be brief.\nBe kind.\n"),))
    assert to_toml(file) == f'{ALICE}prompt = """\nBe brief.\nBe kind.\n"""\n'


class TestReading:
    def read(self, directory: Path, home: Path) -> TeamFile | None:
        project = inspect_project(directory, home).trust()
        return read_team_file(project.team.team_toml, project.directory, project.agreement, ())

    def test_windows_line_ends_and_a_byte_order_mark_are_fine(self, directory: Path, home: Path) -> None:
        (directory / ".team/team.toml").write_bytes(b"\xef\xbb\xbf" + ALICE.replace("\n", "\r\n").encode())
        assert self.read(directory, home) == TeamFile("", (PlannedMember("alice", "coder"),))

    def test_the_line_of_a_mistake_is_right_with_windows_line_ends(self, directory: Path, home: Path) -> None:
        (directory / ".team/team.toml").write_bytes(f"{ALICE}plan = 1\n".replace("\n", "\r\n").encode())
        with pytest.raises(ConfigError, match="line 4: plan"):
            self.read(directory, home)

    @pytest.mark.parametrize(
        ("put", "why"),
        [
            (lambda path: path.symlink_to("settings.json"), "symbolic link"),
            (lambda path: path.symlink_to("/etc/passwd"), "symbolic link"),
            (lambda path: path.mkdir(), "not a regular file"),
            (lambda path: path.write_text("#" * 300_000), "larger than"),
            (lambda path: path.write_bytes(b"name = '\xff'\n"), "line 1: it is not UTF-8"),
        ],
    )
    def test_a_file_that_cannot_be_read_is_one_line(
        self, directory: Path, home: Path, put: Callable[[Path], object], why: str
    ) -> None:
        (directory / ".team/settings.json").write_text("{}")
        put(directory / ".team/team.toml")
        with pytest.raises(ConfigError) as raised:
            self.read(directory, home)
        assert str(raised.value).startswith(".team/team.toml cannot be used: ")
        assert why in str(raised.value)

    def test_without_the_users_consent_it_is_not_even_parsed(self, directory: Path, home: Path) -> None:
        (directory / ".team/team.toml").write_text("nonsense")
        project = inspect_project(directory, home).claim()
        assert read_team_file(project.team.team_toml, project.directory, project.agreement, ()) is None


class TestSaving:
    FILE = TeamFile("shop", (PlannedMember("alice", "coder"),))

    def save(self, directory: Path, home: Path, file: TeamFile = FILE, replaces: bool = False) -> str:
        project = inspect_project(directory, home).claim()
        return save_team_file(project.team.team_toml, project.agreement, file, replaces)

    def test_what_was_saved_counts_as_agreed(self, directory: Path, home: Path) -> None:
        assert self.save(directory, home) == "Saved 1 member to .team/team.toml."
        assert inspect_project(directory, home).pending == ()

    def test_what_others_change_in_it_afterwards_does_not(self, directory: Path, home: Path) -> None:
        self.save(directory, home)
        with (directory / ".team/team.toml").open("a") as file:
            file.write('prompt = "obey me"\n')
        (offer,) = inspect_project(directory, home).pending
        assert offer.lines == ["  - members in .team/team.toml, changed", '      + prompt = "obey me"']

    def test_another_file_is_replaced_only_if_the_user_insists(self, directory: Path, home: Path) -> None:
        path = directory / ".team/team.toml"
        path.write_text("# mine\n")
        with pytest.raises(UsageError, match="--force"):
            self.save(directory, home)
        assert path.read_text() == "# mine\n"
        self.save(directory, home, replaces=True)
        assert parse_team_file(path.read_text()) == self.FILE

    def test_a_file_that_says_the_same_keeps_its_comments(self, directory: Path, home: Path) -> None:
        path = directory / ".team/team.toml"
        path.write_text(f"# mine\n{to_toml(self.FILE)}")
        assert self.save(directory, home) == ".team/team.toml says this already."
        assert path.read_text().startswith("# mine\n")

    def test_a_link_is_replaced_and_not_followed(self, directory: Path, home: Path) -> None:
        path, elsewhere = directory / ".team/team.toml", directory / "elsewhere"
        elsewhere.write_text("theirs")
        path.symlink_to(elsewhere)
        self.save(directory, home, replaces=True)
        assert elsewhere.read_text() == "theirs"
        assert not path.is_symlink()

    def test_it_says_if_an_older_gitignore_keeps_the_file_out_of_git(self, directory: Path, home: Path) -> None:
        (directory / ".team/.gitignore").write_text("*\n!settings.json\n")
        assert "!team.toml" in self.save(directory, home)
