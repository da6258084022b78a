"""Where a team's state is, and which key belongs to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from teamcli.errors import ConfigError, StateError, UsageError
from teamcli.store.location import (
    check_team_name,
    find_key,
    find_store,
    key_path,
    load_key_of_team,
    make_key,
    root_commit,
    shown_url,
)
from teamcli.text.redaction import MASK, redact
from tests.support.file_team import git, repository

URL = "postgresql://team@db.example/teams"
UID = "0123456789abcdef0123456789abcdef"


def test_the_command_line_wins_over_the_environment_and_that_over_the_settings(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(json.dumps({"store": f"{URL}3"}))
    environment = {"TEAMCLI_STORE": f"{URL}2"}
    found = [find_store(URL, environment, tmp_path), find_store(None, environment, tmp_path)]
    assert [*found, find_store(None, {}, tmp_path)] == [URL, f"{URL}2", f"{URL}3"]


def test_an_empty_variable_means_files_whatever_the_settings_say(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(json.dumps({"store": URL}))
    assert find_store(None, {"TEAMCLI_STORE": ""}, tmp_path) == ""


def test_without_any_of_them_the_state_is_in_files(tmp_path: Path) -> None:
    assert find_store(None, {}, tmp_path) == ""


@pytest.mark.parametrize(
    "url",
    [
        "mysql://db/teams",
        "db/teams",
        "postgresql://team:50%secret@db/teams",
        "postgresql://team:se/cret@db/teams",
        "postgresql://team:se@cret@db/teams",
        "postgresql://[db/teams",
    ],
)
def test_a_url_that_is_not_valid_is_refused_without_repeating_it(tmp_path: Path, url: str) -> None:
    with pytest.raises(UsageError) as refused:
        find_store(url, {}, tmp_path)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [URL, "postgres://a:1,b:2/x", "postgresql:///x?host=/run/postgresql", "postgresql://[::1]:5432/x", "postgresql://"],
)
def test_the_urls_that_the_library_knows_are_accepted(tmp_path: Path, url: str) -> None:
    assert find_store(url, {}, tmp_path) == url


@pytest.mark.parametrize(
    "url",
    ["postgresql://team:cor%40rect-horse-1@db/x", "postgresql://db/x?password=cor%40rect-horse-1&sslmode=require"],
)
def test_the_password_of_a_url_is_redacted_everywhere(tmp_path: Path, url: str) -> None:
    find_store(url, {}, tmp_path)
    assert redact("it is cor@rect-horse-1 or cor%40rect-horse-1") == f"it is {MASK} or {MASK}"


def test_a_shown_url_has_no_password_and_no_parameters() -> None:
    assert shown_url("postgresql://team:secret@db:5432/x?password=secret") == "postgresql://team@db:5432/x"


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 65, "-x", "a\nb"])
def test_a_name_that_could_confuse_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        check_team_name(name)


def test_every_clone_and_directory_of_a_repository_has_the_same_root(tmp_path: Path) -> None:
    first = repository(tmp_path / "one")
    (first / "sub").mkdir()
    git(tmp_path, "clone", "-q", str(first), "two")
    git(tmp_path / "two", "commit", "-q", "--allow-empty", "-m", "more")
    roots = {root_commit(first / "sub"), root_commit(tmp_path / "two"), git(first, "rev-parse", "HEAD")}
    assert len(roots) == 1


def test_of_several_roots_the_smallest_counts(tmp_path: Path) -> None:
    place = repository(tmp_path / "one")
    first = git(place, "rev-parse", "HEAD")
    git(place, "checkout", "-q", "--orphan", "other")
    git(place, "commit", "-q", "--allow-empty", "-m", "another start")
    second = git(place, "rev-parse", "HEAD")
    git(place, "merge", "-q", "--allow-unrelated-histories", "-m", "join", "main")
    assert root_commit(place) == min(first, second)


def test_variables_of_git_do_not_lead_to_another_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = repository(tmp_path / "one", "one"), repository(tmp_path / "two", "two")
    monkeypatch.setenv("GIT_DIR", str(two / ".git"))
    found = root_commit(one)
    monkeypatch.delenv("GIT_DIR")
    assert found == git(one, "rev-parse", "HEAD")


def test_a_directory_without_a_commit_gets_a_sentence_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="git commit --allow-empty"):
        root_commit(tmp_path)


def test_a_shallow_clone_is_refused_since_it_does_not_know_its_first_commit(tmp_path: Path) -> None:
    git(repository(tmp_path / "one"), "commit", "-q", "--allow-empty", "-m", "more")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{tmp_path}/one", "two")
    with pytest.raises(ConfigError, match="--unshallow"):
        root_commit(tmp_path / "two")


def test_a_key_is_private_and_the_same_each_time(tmp_path: Path) -> None:
    key = make_key(tmp_path, UID)
    mode = key_path(tmp_path, UID).stat().st_mode & 0o777
    assert (len(key), mode, find_key(tmp_path, UID)) == (32, 0o600, key)


def test_a_key_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    make_key(tmp_path, UID)
    key_path(tmp_path, UID).chmod(0o644)
    find_key(tmp_path, UID)
    assert key_path(tmp_path, UID).stat().st_mode & 0o777 == 0o600


def test_a_machine_without_the_key_says_what_to_copy_from_where(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=rf"copy .*/teams/{UID}\.key from build-1 \(scp build-1:.*/teams/{UID}\.key "):
        load_key_of_team(tmp_path / ".teamcli", UID, "build-1")
