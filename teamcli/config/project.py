"""The directory teamcli was started in: what it brings along, and what of that the user has agreed to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from teamcli.config.environment import Environment, read_environment
from teamcli.config.project_files import FoundFile, brought_state, find_files
from teamcli.config.project_settings import (
    RESTRICTING,
    Rules,
    hooked_commands,
    hooks_digest,
    hooks_in,
    lost_restrictions,
    restrictions_of,
    setting_digest,
    settings_to_agree,
    what_counts,
)
from teamcli.config.settings import read_settings_file
from teamcli.config.trust import Agreement, Change, Trusted, TrustStore, home_dir
from teamcli.errors import StateError
from teamcli.storage.files import Json
from teamcli.storage.team_dir import TeamDir
from teamcli.text.escaping import one_line
from teamcli.text.redaction import register_secrets
from teamcli.workspace.bounds import TEAM_DIR

DETAILS_IN_A_LINE, DETAILS_IN_A_QUESTION = 5, 40
MOST_SETTINGS = 2000
"""Of a file. Further ones are never agreed to."""
LINES_OF_CONTENT, LINE_LENGTH = 30, 160
_STATE = "state"
"""Under this name the state that git has brought is agreed to."""


class Offer(NamedTuple):
    """Something that the user can agree to."""

    id: str
    """Changes with its content."""
    title: str
    details: tuple[str, ...] = ()
    show_content: Callable[[], list[str]] = list
    """How the content begins, or what has changed in it."""

    @property
    def line(self) -> str:
        """All of it in a line, safe to print."""
        more = f" and {len(self.details) - DETAILS_IN_A_LINE} more" if len(self.details) > DETAILS_IN_A_LINE else ""
        listed = "; ".join(self.details[:DETAILS_IN_A_LINE]) + more
        return f"{self.title}: {listed}" if listed else self.title

    @property
    def lines(self) -> list[str]:
        """As the question shows it, safe to print."""
        shown = self.details[:DETAILS_IN_A_QUESTION]
        more = [f"and {len(self.details) - len(shown)} more"] if len(self.details) > len(shown) else []
        return [f"  - {self.title}", *(f"      {line}" for line in (*shown, *more, *self.show_content()))]


class Project:
    """What a directory brings along, read once: what the user is asked about is what is then used."""

    def __init__(self, directory: Path, home: Path, trusted: Trusted, given: Mapping[str, str]) -> None:
        """`given` are variables that a program sets instead of the environment.

        Raises: ConfigError
        """
        self.directory = directory
        self.home = home
        self.team = TeamDir.of(directory)
        self._store = TrustStore(home)
        self.notes: tuple[str, ...] = ()
        """What the user should know about how far the directory is trusted."""
        self._variables = {**os.environ, **given}
        self.trusted = trusted
        self._files = find_files(directory)
        self._settings = {
            f"{TEAM_DIR}/{path.name}": read_settings_file(path)
            for path in (self.team.settings, self.team.local_settings)
        }
        self._hooks = hooks_digest(*map(hooks_in, self._settings.values()))
        self._brought_state = brought_state(directory) if self.team.has_state else ""

    @cached_property
    def environment(self) -> Environment:
        """Raises: ConfigError."""
        environment = read_environment(self._variables, self.directory / ".env", self.trusted.endpoint)
        register_secrets(environment.secrets)
        return environment

    @cached_property
    def pending(self) -> tuple[Offer, ...]:
        """What is not used until the user agrees."""
        return tuple(self._pending())

    @property
    def is_stranger(self) -> bool:
        """Whether there is something to ask: it brings more than was refused before."""
        return bool({offer.id for offer in self.pending} - set(self.trusted.refused))

    @property
    def offers(self) -> tuple[str, ...]:
        """What is pending, in a line each."""
        return tuple(offer.line for offer in self.pending)

    @property
    def may_use_state(self) -> bool:
        """Whether team, mail and conversations were made here, or the user has agreed to them."""
        agreed = self.trusted.agreed.get(_STATE, ())
        return self.trusted.state and (not self._brought_state or self._brought_state in agreed)

    @property
    def settings(self) -> list[Json]:
        """What of its settings files counts."""
        may_hook = self.trusted.hooks == self._hooks
        agreed, remembered = self.trusted.agreed, self.trusted.restrictions
        return [
            what_counts(raw, agreed.get(name, ()), remembered.get(name, {}), may_hook)
            for name, raw in self._settings.items()
        ]

    @cached_property
    def agreement(self) -> Agreement:
        """Shared by all that read its files in a session."""
        found = {file.name: file.digest for file in self._files}
        return Agreement(self.directory, self.trusted, found, self._store)

    def trust(self) -> Project:
        """The same directory, with everything agreed to that is pending here.

        Raises: ConfigError
        """
        settings = {name: _digests(raw) for name, raw in self._settings.items()}

        def change(trusted: Trusted) -> Trusted:
            for file in self._files:
                trusted = trusted.agreeing_to_file(file.name, file.digest) if file.digest else trusted
            if self._brought_state:
                trusted = trusted.agreeing_to_file(_STATE, self._brought_state)
            return trusted._replace(
                config=True,
                state=True,
                endpoint=self.environment.untrusted_endpoint or trusted.endpoint,
                hooks=self._hooks,
                agreed={**trusted.agreed, **settings},
                restrictions=self._restrictions,
                refused=(),
            )

        return self._remember(change, {file.digest: file.content for file in self._files if file.content})

    def refuse(self) -> Project:
        """The same directory, with the user's no remembered.

        Raises: ConfigError
        """
        refused = tuple(offer.id for offer in self.pending)
        has_state = self.team.has_state
        return self._remember(lambda trusted: trusted._replace(state=trusted.state or not has_state, refused=refused))

    def claim(self) -> Project:
        """The same directory, marked as known when an agent starts to work in it: state that comes later was made here.

        Raises: ConfigError
        """
        if self.notes:  # it could not be remembered before
            return self
        is_empty, has_state, present = not self.pending, self.team.has_state, self._restrictions

        def change(trusted: Trusted) -> Trusted:
            known = {name: _union(trusted.restrictions, present, name) for name in {**trusted.restrictions, **present}}
            state = trusted.state if trusted.token else not has_state
            return trusted._replace(config=trusted.config or is_empty, state=state, restrictions=known)

        if self.trusted.token and change(self.trusted) == self.trusted:
            return self
        return self._remember(change, failure="This directory cannot be remembered as yours")

    def _remember(
        self,
        change: Change,
        contents: Mapping[str, bytes] = MappingProxyType({}),
        failure: str = "How far you trust this directory holds for this run only",
    ) -> Project:
        self.team.prepare()
        try:
            trusted = self._store.change(self.directory, self.team, change, contents)
        except StateError as e:  # a home that cannot be written (a container, say) must not stop the work
            trusted = change(self.trusted)
            self.notes = (f"{failure}: {e}.",)
        return self._trusting(trusted)

    def _trusting(self, trusted: Trusted) -> Project:
        """The same as it was read: what the user was asked about is what is used."""
        project = copy(self)
        project.trusted = trusted
        for derived in ("environment", "pending", "agreement"):
            project.__dict__.pop(derived, None)
        return project

    @property
    def _restrictions(self) -> dict[str, Rules]:
        found = {name: restrictions_of(raw) for name, raw in self._settings.items()}
        return {name: rules for name, rules in found.items() if any(rules.values())}

    def _pending(self) -> Iterator[Offer]:
        if url := self.environment.untrusted_endpoint:
            yield Offer(f"endpoint {url}", f"an endpoint in .env: {one_line(url)} would receive your requests")
        for name, raw in self._settings.items():
            yield from self._pending_hooks(name, raw)
            yield from self._pending_settings(name, raw)
        for group, files in groupby(self._files, lambda file: file.group):
            yield from self._pending_files(group, list(files))
        if self.team.has_state and not self.may_use_state:
            yield Offer(
                f"{_STATE} {self._brought_state}".strip(), "a team and conversations in .team/ that were not made here"
            )

    def _pending_hooks(self, name: str, raw: Json) -> Iterator[Offer]:
        hooks = hooks_in(raw)
        if hooks and self._hooks != self.trusted.hooks:
            changed = ", new or changed since you agreed to them" if self.trusted.hooks else ""
            commands = tuple(f"`{one_line(command)}`" for command in dict.fromkeys(hooked_commands(hooks)))
            yield Offer(
                f"hooks {name} {self._hooks}", f"hooks in {name}{changed}, which run commands by themselves", commands
            )

    def _pending_settings(self, name: str, raw: Json) -> Iterator[Offer]:
        agreed = self.trusted.agreed.get(name, ())
        fresh = [each for each in settings_to_agree(raw) if each.digest not in agreed]
        if fresh:
            id = setting_digest((name,), [each.digest for each in fresh])
            yield Offer(id, f"settings in {name} that loosen or redirect", tuple(one_line(str(each)) for each in fresh))
        lost = lost_restrictions(raw, self.trusted.restrictions.get(name, {}))
        if lost:
            rules = tuple(one_line(f"{kind}: {rule}") for kind, rule in lost)
            yield Offer(setting_digest((name, "lost"), lost), f"rules that are gone from {name} and still apply", rules)

    def _pending_files(self, group: str, files: list[FoundFile]) -> Iterator[Offer]:
        agreed = self.trusted.agreed
        fresh = [file for file in files if file.digest and file.digest not in agreed.get(file.name, ())]
        if fresh:
            id = setting_digest((group,), [file.digest for file in fresh])
            state = "changed" if any(file.name in agreed for file in files) else "new"
            title = f"{files[0].source.kind} in {one_line(group)}, {state}"
            files_in_it = [file for file in fresh if file.name != group]
            details = [
                f"{one_line(file.name.removeprefix(f'{group}/'))} ({_state(file, agreed)})" for file in files_in_it
            ]
            yield Offer(id, title, tuple(details), partial(self._changes_in, fresh))

    def _changes_in(self, files: list[FoundFile]) -> list[str]:
        """What is new in files, safe to print."""
        shown: list[str] = []
        for file in files:
            digests = self.trusted.agreed.get(file.name)
            before = self._store.content_of(self.directory, file.name, digests[-1]) if digests else b""
            if before is None or not file.content:
                shown.append(f"({one_line(file.name)} is not shown: look at it there)")
            else:
                shown += _difference(before, file.content)
        more = len(shown) - LINES_OF_CONTENT
        return shown if more <= 0 else [*shown[:LINES_OF_CONTENT], f"… and {more} more lines"]


def _difference(before: bytes, after: bytes) -> list[str]:
    """Added and removed lines."""
    import difflib  # late: hardly any start asks

    old, new = (text.decode("utf-8", "replace").splitlines() for text in (before, after))
    lines = list(difflib.unified_diff(old, new, lineterm="", n=0))[2:]
    return [f"{line[0]} {one_line(line[1:], LINE_LENGTH)}" for line in lines if line[0] in "+-" and line[1:].strip()]


def _digests(raw: Json) -> tuple[str, ...]:
    return tuple(each.digest for each in settings_to_agree(raw)[:MOST_SETTINGS])


def _union(one: Mapping[str, Rules], other: Mapping[str, Rules], name: str) -> Rules:
    both = [rules for rules in (one.get(name), other.get(name)) if rules]
    return {kind: tuple(dict.fromkeys(rule for rules in both for rule in rules[kind])) for kind in RESTRICTING}


def _state(file: FoundFile, agreed: Mapping[str, tuple[str, ...]]) -> str:
    return "changed" if file.name in agreed else "new"


def look_around(directory: Path, home: Path | None = None, given: Mapping[str, str] = MappingProxyType({})) -> Project:
    """See what a directory brings along. Changes nothing. `given` are variables that a program sets.

    Raises: ConfigError
    """
    home = home or home_dir()
    project = Project(directory, home, TrustStore(home).of(directory, TeamDir.of(directory)), given)
    _ = project.environment  # hides its keys before anything is printed
    return project
