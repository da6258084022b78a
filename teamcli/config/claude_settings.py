"""Claude Code's settings files in our words: `~/.claude/settings.json` and two in the project's `.claude/`.

Nothing in them stops a start: what cannot be read is dropped with a line, and what means nothing here is ignored. The
project's are subject to the same trust as ours, which `project` sees to.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from teamcli.claude_code.flags import mode_of
from teamcli.claude_code.names import INHERIT
from teamcli.claude_code.unused import Unused
from teamcli.config.environment import is_kept_back
from teamcli.config.options import Mode
from teamcli.config.settings import HOOK_EVENTS, settings_problem
from teamcli.errors import ConfigError
from teamcli.storage.files import LARGEST_DOCUMENT, Json, leads_out, read_regular
from teamcli.text.escaping import one_line

CONFIG_DIR = "CLAUDE_CONFIG_DIR"
FOLDER = ".claude"
PROJECT, LOCAL = f"{FOLDER}/settings.json", f"{FOLDER}/settings.local.json"
USER = "~/.claude/settings.json"
_RULES = ("allow", "ask", "deny")
_MODES = frozenset(Mode)
_RELIED_ON = ("agent", "apiKeyHelper", "outputStyle", "sandbox", "statusLine")
"""Settings that change what a user sees there, and have no effect here."""


class ClaudeSettings(NamedTuple):
    user: Json
    project: Mapping[str, Json]
    """By the name of the file."""
    rules: frozenset[str]
    """All permission rules in these files: one that is not valid is noted, and stops nothing."""
    problems: tuple[str, ...]
    """A line for each file or entry that is dropped."""
    unused: Unused
    excludes: tuple[str, ...] = ()
    """Patterns of instruction files that are not read."""
    disables_hooks: bool = False
    """The user wants no hooks of Claude Code, wherever they are from."""


def read_claude_settings(directory: Path, config_dir: Path, repository: Path | None = None) -> ClaudeSettings:
    """`config_dir` is where Claude Code keeps what belongs to the user. `repository` is the root of the repository, if
    the directory is below it."""
    reader = _SettingsReader()
    user_file = config_dir / "settings.json"
    user = reader.read(user_file, USER, config_dir)
    project: dict[str, Json] = {}
    if os.path.realpath(directory / PROJECT) != os.path.realpath(user_file):  # the same if this is the user's home
        project = _read_project(reader, directory, repository)
    rules = frozenset(rule for raw in (user, *project.values()) for rule in _rules_in(raw))
    return ClaudeSettings(
        user, project, rules, tuple(reader.problems), reader.unused, tuple(reader.excludes), USER in reader.disabling
    )


def _read_project(reader: _SettingsReader, directory: Path, repository: Path | None) -> dict[str, Json]:
    is_above = repository is not None and not os.path.lexists(directory / LOCAL)
    own = repository if repository is not None and is_above else directory
    places = {PROJECT: directory, LOCAL: own}
    if not any(os.path.lexists(place / FOLDER) for place in places.values()):
        return {}
    found = {name: reader.read(place / name, name, None, place) for name, place in places.items()}
    # A project may switch off its own hooks, but not the user's.
    if reader.disabling & found.keys():
        for raw in found.values():
            raw.pop("hooks", None)
    return found


def read_hooks(raw: object, shown: str, unused: Unused) -> Json:
    """Hooks from another place, such as a plugin, in our words. `unused` gathers what cannot be used."""
    reader = _SettingsReader()
    hooks = reader.hooks(raw, shown)["hooks"] if isinstance(raw, dict) else {}
    unused.take(reader.unused)
    for problem in reader.problems:
        unused.add("hook", problem)
    return hooks


def read_given_settings(text: str, unused: Unused) -> Json:
    """The settings of `--settings`, in our words: JSON, or the name of a file. `unused` collects what is not used.

    Raises: ConfigError
    """
    is_inline = text.lstrip().startswith("{")
    try:
        raw = json.loads(text if is_inline else read_regular(Path(text), LARGEST_DOCUMENT))
        if not isinstance(raw, dict):
            raise ValueError("it is not a JSON object")
    except (OSError, ValueError, RecursionError) as e:
        named = "the JSON" if is_inline else one_line(text)
        raise ConfigError(f"--settings: {named} cannot be read: {getattr(e, 'strerror', None) or e}") from e
    reader = _SettingsReader(unused)
    translated = reader.translate(raw, "--settings", None if is_inline else Path(text).absolute().parent)
    if reader.problems:
        raise ConfigError(reader.problems[0])
    return translated


def _rules_in(raw: Json) -> Iterator[str]:
    permissions = raw.get("permissions", {})
    return (rule for kind in _RULES for rule in permissions.get(kind, ()))


class _SettingsReader:
    def __init__(self, unused: Unused | None = None) -> None:
        self.problems: list[str] = []
        self.excludes: list[str] = []
        self.unused = Unused() if unused is None else unused
        self.disabling: set[str] = set()
        """The files that switch hooks off."""

    def read(self, path: Path, shown: str, anchor: Path | None, inside: Path | None = None) -> Json:
        """One file in our words. `anchor` is what `/` means in its rules, if that is not the project."""
        try:
            if inside is not None and leads_out(path.parent, inside):
                raise ValueError("a link that leads out of the project")
            raw = json.loads(read_regular(path, LARGEST_DOCUMENT, os.O_NOFOLLOW if inside else 0))
            if not isinstance(raw, dict):
                raise ValueError("not a JSON object")
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, RecursionError) as e:
            self._drop(shown, "it", e.strerror or str(e) if isinstance(e, OSError) else str(e))
            return {}
        return self.translate(raw, shown, anchor)

    def translate(self, raw: Json, shown: str, anchor: Path | None) -> Json:
        translated: Json = {}
        for key, translate in self._keys().items():
            if raw.get(key) is not None:
                translated |= self._checked(translate(raw[key], shown), shown)
        if anchor is not None:
            permissions = translated.get("permissions", {})
            for kind in permissions.keys() & set(_RULES):
                permissions[kind] = [_with_anchor(rule, anchor) for rule in permissions[kind]]
        if raw.get("claudeMdExcludes"):
            self.excludes += self._texts(raw["claudeMdExcludes"], "claudeMdExcludes", shown)
        if raw.get("disableAllHooks") is True:
            self.disabling.add(shown)
            translated.pop("hooks", None)
        for name in _RELIED_ON:
            if raw.get(name):
                self.unused.add("setting", name, f"in {shown}")
        return translated

    def _keys(self) -> Mapping[str, Callable[[Any, str], Json]]:
        return {
            "permissions": self._permissions,
            "hooks": self.hooks,
            "env": self._variables,
            "model": self._model,
            "additionalDirectories": lambda value, shown: {"additional_directories": value},
            "disabledMcpjsonServers": lambda value, shown: {"disabled_mcp_servers": value},
        }

    def _checked(self, part: Json, shown: str) -> Json:
        """What is valid as settings of ours."""
        for key in tuple(part):
            if problem := settings_problem({key: part[key]}):
                self._drop(shown, key, problem)
                del part[key]
        return part

    def _permissions(self, value: Any, shown: str) -> Json:
        if not isinstance(value, dict):
            return {"permissions": value}
        permissions: Json = {}
        for kind in _RULES:
            if kind in value:
                permissions[kind] = self._texts(value[kind], f"permissions.{kind}", shown)
        mode = value.get("defaultMode", "")
        if isinstance(mode, str) and mode_of(mode) in _MODES:
            permissions["mode"] = mode_of(mode)
        elif mode:
            self.unused.add("setting", f"permissions.defaultMode {mode}", "there is no such mode here")
        if value.get("disableBypassPermissionsMode"):
            self.unused.add("setting", "permissions.disableBypassPermissionsMode", f"in {shown}")
        directories = value.get("additionalDirectories")
        more = {"additional_directories": directories} if directories is not None else {}
        return {"permissions": permissions, **more}

    def _texts(self, value: Any, field: str, shown: str) -> list[str]:
        if not isinstance(value, list):
            self._drop(shown, field, "it should be a list")
            return []
        texts = [each for each in value if isinstance(each, str) and each.strip()]
        if len(texts) < len(value):
            self._drop(shown, f"{len(value) - len(texts)} of {field}", "each should be a text")
        return list(dict.fromkeys(texts))

    def _variables(self, value: Any, shown: str) -> Json:
        if not isinstance(value, dict):
            return {"env": value}
        variables: dict[str, str] = {}
        for name, each in value.items():
            if is_kept_back(name):
                self.unused.add("variable", name, "it names an endpoint or a key, or acts outside the sandbox")
            elif (
                not (name.isascii() and name.isidentifier())
                or not isinstance(each, str | int | float)
                or "\0" in str(each)
            ):
                self._drop(shown, f"env.{name}", "it should be a text")
            else:
                # `true`, as JSON writes it: Python would say `True`.
                variables[name] = str(each).lower() if isinstance(each, bool) else str(each)
        return {"env": variables}

    def _model(self, value: Any, shown: str) -> Json:
        return {} if value in ("", "default", INHERIT) else {"model": value}

    def hooks(self, value: Any, shown: str) -> Json:
        if not isinstance(value, dict):
            return {"hooks": value}
        found = {event: list(self._groups(event, groups, shown)) for event, groups in value.items()}
        return {"hooks": {event: groups for event, groups in found.items() if groups}}

    def _groups(self, event: str, groups: Any, shown: str) -> Iterator[Json]:
        for group in groups if isinstance(groups, list) else [groups]:
            matcher = group.get("matcher") or "" if isinstance(group, dict) else None
            handlers = group.get("hooks") if isinstance(group, dict) else None
            if not isinstance(matcher, str) or not isinstance(handlers, list):
                self._drop(shown, f"hooks.{event}", "each should have a list of hooks, and a matcher that is a text")
            elif not _is_expression(matcher):
                self.unused.add("hook", f"{event} {matcher}", "its matcher is not a regular expression")
            elif hooks := list(self._handlers(event, handlers, shown)):
                yield {"matcher": matcher, "hooks": hooks, "source": shown}

    def _handlers(self, event: str, handlers: list[Any], shown: str) -> Iterator[Json]:
        for handler in handlers:
            kind = handler.get("type", "command") if isinstance(handler, dict) else None
            if kind == "command" and isinstance(handler.get("command"), str):
                if event not in HOOK_EVENTS:
                    self.unused.add("hook", f"{event} `{handler['command']}`", "there is no such event here")
                yield {"type": kind, "command": handler["command"], "raw": handler, **_timeout(handler)}
            elif isinstance(kind, str) and kind != "command":
                self.unused.add("hook", f"{event} of type {kind}", f"in {shown}")
            else:
                self._drop(shown, f"a hook of {event}", "it should have a command that is a text")

    def _drop(self, shown: str, what: str, reason: str) -> None:
        self.problems.append(one_line(f"{shown}: {what} is not used: {reason}", 300))


def _with_anchor(rule: str, anchor: Path) -> str:
    """`/src` in a file outside the project means a path below the directory of that file."""
    base = re.sub(r"([\\*?\[\]])", r"\\\1", anchor.as_posix().strip("/"))
    return re.sub(r"^(Read|Edit)\(/(?!/)", lambda found: f"{found[1]}(//{base}/", rule)


def _is_expression(matcher: str) -> bool:
    try:
        re.compile("" if matcher == "*" else matcher)  # `*` means all there: it is not a valid expression by itself
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _timeout(handler: Json) -> Json:
    seconds: Any = handler.get("timeout")
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return {"timeout": seconds} if is_number and 0 < seconds < 1e9 else {}
