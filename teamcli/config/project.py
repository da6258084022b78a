"""The directory that teamcli was started in: what it contains that could act, and what the user has agreed to."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from copy import copy
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from types import MappingProxyType

from teamcli.config.claude_settings import CONFIG_DIR, FOLDER, LOCAL, PROJECT, read_claude_settings
from teamcli.config.environment import Environment, read_environment
from teamcli.config.mcp_file import CLAUDE_JSON, MCP_FILE, read_mcp_file, read_users_servers
from teamcli.config.offers import Offer
from teamcli.config.plugins import Plugins, find_plugins
from teamcli.config.project_files import FoundFile, brought_state, find_files, parents_in_repository
from teamcli.config.project_settings import (
    RESTRICTING,
    Rules,
    Setting,
    applying,
    hooked_commands,
    hooks_digest,
    hooks_in,
    lost_restrictions,
    restrictions_of,
    setting_digest,
    settings_to_agree,
)
from teamcli.config.settings import read_settings_file
from teamcli.config.sources import ALL_SOURCES, Sources
from teamcli.config.trust import Agreement, Change, Trusted, TrustStore, home_dir
from teamcli.errors import StateError
from teamcli.storage.files import Json
from teamcli.storage.team_dir import TeamDir
from teamcli.text.counting import counted
from teamcli.text.escaping import one_line
from teamcli.text.redaction import register_secrets
from teamcli.workspace.bounds import TEAM_DIR

MOST_SETTINGS = 2000
"""Of a file. The user cannot agree to more."""
LINES_OF_CONTENT, LINE_LENGTH = 30, 160
LONGEST_SETTING, LONGEST_SERVER = 200, 4000
_STATE = "state"
"""The name under which the user agrees to state that git brought."""


class Project:
    """The contents of a directory, read once, so that what the user is asked about is exactly what is used."""

    def __init__(
        self,
        directory: Path,
        home: Path,
        trusted: Trusted,
        given: Mapping[str, str],
        sources: Sources = ALL_SOURCES,
    ) -> None:
        """`given` are variables that override the environment.

        Raises: ConfigError
        """
        self.sources = sources
        self.directory = directory
        self.home = home
        self.team = TeamDir.of(directory)
        self._store = TrustStore(home)
        self.notes: tuple[str, ...] = ()
        """What the user should know about the trust in this directory."""
        self._variables = {**os.environ, **given}
        self.trusted = trusted
        self._files = find_files(directory)
        repository = next(iter(parents_in_repository(directory)[-1:]), None)
        config_dir = self._variables.get(CONFIG_DIR)
        claude = read_claude_settings(directory, Path(config_dir or home.parent / FOLDER), repository)
        # Usually this file is next to the directory of Claude Code, and in it only if the variable names one.
        claude_json = (Path(config_dir) if config_dir else home.parent) / CLAUDE_JSON
        own, problems = read_users_servers(claude_json, directory) if sources.user else ({}, ())
        users = {**claude.user, **({"mcpServers": own} if own else {})} if sources.user else {}
        self.claude = claude._replace(user=users, problems=(*claude.problems, *problems))
        """What applies to Claude Code here."""
        shared, private = (read_settings_file(path) for path in (self.team.settings, self.team.local_settings))
        theirs = self.claude.project
        servers, self.problems = read_mcp_file(directory)
        """What its `.mcp.json` contains, and a line for what is wrong with it."""
        settings = {  # later ones win: ours over Claude Code's, those of the person over those of the project
            **servers,
            PROJECT: theirs.get(PROJECT, {}),
            f"{TEAM_DIR}/{self.team.settings.name}": shared,
            LOCAL: theirs.get(LOCAL, {}),
            f"{TEAM_DIR}/{self.team.local_settings.name}": private,
        }
        counts = (*(sources.project for _ in servers), sources.project, sources.project, sources.local, sources.local)
        self._settings = {name: raw for (name, raw), does in zip(settings.items(), counts, strict=True) if does}
        # Without hooks in Claude Code's files the digest is as it was before these were read.
        self._hooks = hooks_digest(*map(hooks_in, (shared, private)), *filter(None, map(hooks_in, theirs.values())))
        self._plugins: Plugins | None = None
        self._given_plugins: tuple[Path, ...] = ()
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
        return tuple(self._find_pending())

    @property
    def must_ask(self) -> bool:
        """Whether there is something to agree to that the user has not already refused."""
        return bool({offer.id for offer in self.pending} - set(self.trusted.refused))

    @property
    def offers(self) -> tuple[str, ...]:
        """One line for each pending offer."""
        return tuple(offer.line for offer in self.pending)

    def has_pending_setting(self, *path: str) -> bool:
        """Whether the user has still to agree to the setting at this path."""
        agreed = self.trusted.agreed
        return any(
            each.path == path and each.digest not in agreed.get(name, ())
            for name, raw in self._settings.items()
            for each in settings_to_agree(raw)
        )

    @property
    def may_use_state(self) -> bool:
        """Whether team, mail and conversations were created here, or the user has agreed to them."""
        agreed = self.trusted.agreed.get(_STATE, ())
        return self.trusted.state and (not self._brought_state or self._brought_state in agreed)

    @property
    def settings(self) -> list[Json]:
        """The parts of its settings files that apply."""
        may_hook = self.trusted.hooks == self._hooks
        agreed, remembered = self.trusted.agreed, self.trusted.restrictions
        return [
            applying(raw, agreed.get(name, ()), remembered.get(name, {}), may_hook)
            for name, raw in self._settings.items()
        ]

    def pending_servers(self) -> list[tuple[str, str]]:
        """File and name of each MCP server that the user has still to agree to."""
        agreed = self.trusted.agreed
        return [
            (file, each.path[-1])
            for file, raw in self._settings.items()
            for each in settings_to_agree(raw)
            if each.path[0] == "mcpServers" and each.digest not in agreed.get(file, ())
        ]

    def source_of_server(self, name: str, entry: object) -> str:
        """The file that configures an MCP server; empty if none of the project or of Claude Code does."""
        files = zip(self._settings, self.settings, strict=True)
        found = [file for file, applies in files if name in applies.get("mcpServers", {})]
        is_claudes = self.claude.user.get("mcpServers", {}).get(name) == entry
        return found[-1] if found else f"~/{CLAUDE_JSON}" if is_claudes else ""

    @cached_property
    def agreement(self) -> Agreement:
        """Shared by all readers of its files in a session."""
        found = {file.name: file.digest for file in self._files}
        contents = {file.name: file.content for file in self._files}
        return Agreement(self.directory, self.trusted, found, self._store, contents)

    def plugins(self, given: tuple[Path, ...] = ()) -> Plugins:
        """The plugins that the user has `given` and has agreed to. Read once: the first call says which are given."""
        if self._plugins is None:
            self._given_plugins = given or self._given_plugins  # known already if only the trust has changed
            self._plugins = find_plugins(self.directory, self._given_plugins, self.agreement, self.claude.unused)
        return self._plugins

    def trust(self) -> Project:
        """The same project after the user has agreed to everything that is pending.

        Raises: ConfigError
        """
        settings = {
            name: tuple(each.digest for each in settings_to_agree(raw)[:MOST_SETTINGS])
            for name, raw in self._settings.items()
        }

        def change(trusted: Trusted) -> Trusted:
            for file in self._files:
                trusted = trusted.agreeing_to_file(file.name, file.digest) if file.digest else trusted
            if self._brought_state:  # with its digest: mail that a later pull brings is asked about again
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
        """The same project after the user has refused what is pending.

        Raises: ConfigError
        """
        refused = tuple(offer.id for offer in self.pending)
        has_state = self.team.has_state
        return self._remember(lambda trusted: trusted._replace(state=trusted.state or not has_state, refused=refused))

    def claim(self) -> Project:
        """The same project, marked as known once an agent works in it. State that appears later was created here.

        Raises: ConfigError
        """
        if self.notes:  # it could not be saved before
            return self
        is_empty, has_state, present = not self.pending, self.team.has_state, self._restrictions

        def change(trusted: Trusted) -> Trusted:
            known = {name: _union(trusted.restrictions, present, name) for name in {**trusted.restrictions, **present}}
            # In a directory that was never used, state that is already there was created by someone else.
            state = trusted.state if trusted.token else not has_state
            return trusted._replace(config=trusted.config or is_empty, state=state, restrictions=known)

        if self.trusted.token and change(self.trusted) == self.trusted:
            return self
        return self._remember(change, failure="This directory cannot be saved as yours")

    def _remember(
        self,
        change: Change,
        contents: Mapping[str, bytes] = MappingProxyType({}),
        failure: str = "Your trust in this directory applies to this run only",
    ) -> Project:
        self.team.prepare()
        try:
            trusted = self._store.change(self.directory, self.team, change, contents)
        except StateError as e:  # a read-only home, as in some containers, must not stop the work
            trusted = change(self.trusted)
            self.notes = (f"{failure}: {e}.",)
        project = copy(self)  # not read again: what the user was asked about is what is used
        project.trusted = trusted
        project._plugins = None
        for derived in ("environment", "pending", "agreement"):  # cached, and they depend on the trust
            project.__dict__.pop(derived, None)
        return project

    @property
    def _restrictions(self) -> dict[str, Rules]:
        found = {name: restrictions_of(raw) for name, raw in self._settings.items()}
        return {name: rules for name, rules in found.items() if any(rules.values())}

    def _find_pending(self) -> Iterator[Offer]:
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
                f"hooks {name} {self._hooks}", f"hooks in {name}{changed}, which run commands on their own", commands
            )

    def _pending_settings(self, name: str, raw: Json) -> Iterator[Offer]:
        agreed = self.trusted.agreed.get(name, ())
        fresh = [each for each in settings_to_agree(raw) if each.digest not in agreed]
        if fresh:
            id = setting_digest((name,), [each.digest for each in fresh])
            title = f"settings in {name} that loosen or redirect"
            if name == MCP_FILE:
                title = f"MCP servers in {name}, which are programs that run here or get what agents send"
            yield Offer(id, title, tuple(one_line(str(each), _longest(each)) for each in fresh))
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
            has_hooks = any(file.source.kind == "role" and b"\nhooks:" in (file.content or b"") for file in fresh)
            more = ", with hooks, which run commands on their own" if has_hooks else ""
            title = f"{files[0].source.kind} in {one_line(group)}, {state}{more}"
            details = tuple(
                f"{one_line(file.name.removeprefix(f'{group}/'))} ({'changed' if file.name in agreed else 'new'})"
                for file in fresh
                if file.name != group
            )
            yield Offer(id, title, details, partial(self._changes_in, fresh))

    def _changes_in(self, files: list[FoundFile]) -> list[str]:
        """What is new in these files, safe to print."""
        shown: list[str] = []
        for file in files:
            digests = self.trusted.agreed.get(file.name)
            before = self._store.content_of(self.directory, file.name, digests[-1]) if digests else b""
            if before is None or not file.content:
                shown.append(f"({one_line(file.name)} is not shown here; open the file to see it)")
            else:
                shown += _difference(before, file.content)
        more = len(shown) - LINES_OF_CONTENT
        return shown if more <= 0 else [*shown[:LINES_OF_CONTENT], f"… and {counted(more, 'more line')}"]


def _longest(setting: Setting) -> int:
    """A server is shown whole: its end may be what matters."""
    return LONGEST_SERVER if setting.path[0] == "mcpServers" else LONGEST_SETTING


def _difference(before: bytes, after: bytes) -> list[str]:
    """Added and removed lines."""
    import difflib  # late: most starts ask nothing

    old, new = (text.decode("utf-8", "replace").splitlines() for text in (before, after))
    lines = list(difflib.unified_diff(old, new, lineterm="", n=0))[2:]
    return [f"{line[0]} {one_line(line[1:], LINE_LENGTH)}" for line in lines if line[0] in "+-" and line[1:].strip()]


def _union(one: Mapping[str, Rules], other: Mapping[str, Rules], name: str) -> Rules:
    both = [rules for rules in (one.get(name), other.get(name)) if rules]
    return {kind: tuple(dict.fromkeys(rule for rules in both for rule in rules[kind])) for kind in RESTRICTING}


def inspect_project(
    directory: Path,
    home: Path | None = None,
    given: Mapping[str, str] = MappingProxyType({}),
    sources: Sources = ALL_SOURCES,
) -> Project:
    """Find out what a directory contains. Changes nothing. `given` are variables that override the environment.

    Raises: ConfigError
    """
    home = home or home_dir()
    project = Project(directory, home, TrustStore(home).of(directory, TeamDir.of(directory)), given, sources)
    _ = project.environment  # registers its keys for redaction before anything is printed
    return project
