"""Plugins made for Claude Code: folders with roles, commands, skills and hooks that belong together.

They are found in the project's `.claude/plugins` and where `--plugin-dir` points. A project's plugin is used once the
user has agreed to every file in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from teamcli.claude_code.unused import Unused
from teamcli.config.claude_settings import FOLDER, read_hooks
from teamcli.config.custom_commands import SKILL_FILE
from teamcli.config.front_matter import Covers, Folder, NotAgreed
from teamcli.config.trust import Agreement
from teamcli.storage.files import LARGEST_DOCUMENT, Json, leads_out, read_regular
from teamcli.text.escaping import one_line

PLUGINS = f"{FOLDER}/plugins"
MOST_PLUGINS = 200
MANIFEST, MARKETPLACE = ".claude-plugin/plugin.json", ".claude-plugin/marketplace.json"
_PARTS = ("commands", "agents", "skills")
_NOT_USED = ("output-styles", "monitors", ".lsp.json")
_SIGNS = (MANIFEST, *_PARTS, "hooks", ".mcp.json", SKILL_FILE)


class Plugin(NamedTuple):
    name: str
    root: Path
    agents: tuple[Folder, ...]
    commands: tuple[Folder, ...]
    skills: tuple[Folder, ...]
    hooks: Json
    """In the form of settings."""
    servers: Json
    """Its MCP servers. Their names contain that of the plugin."""


class Plugins(NamedTuple):
    found: tuple[Plugin, ...] = ()
    problems: tuple[str, ...] = ()

    def folders(self, kind: str) -> tuple[Folder, ...]:
        """Those of all plugins with `agents`, `commands` or `skills`."""
        return tuple(folder for plugin in self.found for folder in getattr(plugin, kind))

    @property
    def settings(self) -> list[Json]:
        return [{"hooks": plugin.hooks} for plugin in self.found if plugin.hooks]


def find_plugins(directory: Path, given: Iterable[Path], agreement: Agreement, unused: Unused) -> Plugins:
    """The plugins that the user has `given`, and those of the project. Of two with the same name, the first is used."""
    found: dict[str, Plugin] = {}
    problems: list[str] = []
    sources: list[tuple[Path, Agreement | None]] = [(path.expanduser().absolute(), None) for path in given]
    sources += [(path, agreement) for path in _entries(directory / PLUGINS)]
    for path, needed in sources:
        try:
            if needed is not None:
                if leads_out(path, directory):
                    raise ValueError("it is a link that leads out of the project")
                needed.check_folder(path)
            for root in _plugin_roots(path):
                plugin = _PluginReader(root, directory if needed else None, needed, unused).read()
                found.setdefault(plugin.name, plugin)
        except NotAgreed:  # the start has reported it
            pass
        except (OSError, ValueError, RecursionError) as e:
            problems.append(one_line(f"The plugin in {path} is not used: {e}.", 300))
    return Plugins(tuple(found.values()), tuple(problems))


def _entries(directory: Path) -> list[Path]:
    if not os.path.lexists(directory):
        return []
    return sorted(path for path in directory.iterdir() if path.is_dir())[:MOST_PLUGINS]


def _plugin_roots(path: Path) -> Iterator[Path]:
    """The plugin itself, or the plugins of a marketplace that are in its folder.

    Raises: ValueError, OSError
    """
    if not any(os.path.lexists(path / sign) for sign in _SIGNS) and (path / MARKETPLACE).is_file():
        market = _object(_read(path / MARKETPLACE))
        below = _object(market.get("metadata")).get("pluginRoot")
        for entry in market.get("plugins", ()):
            source = entry.get("source") if isinstance(entry, dict) else None
            if isinstance(source, str):
                place = path if source.startswith(".") or not isinstance(below, str) else path / below
                if not leads_out(place / source, path):
                    yield place / source
    elif path.is_dir():
        yield path
    else:
        raise ValueError("it is not a folder")


class _PluginReader:
    def __init__(self, root: Path, project: Path | None, agreement: Agreement | None, unused: Unused) -> None:
        self._root = root
        self._project = project
        self._covers: Covers | None = agreement.covers if agreement else None
        self._unused = unused
        self._manifest = _object(_read(root / MANIFEST)) if (root / MANIFEST).is_file() else {}
        name = self._manifest.get("name")
        self._name = name if isinstance(name, str) and name.strip() else root.resolve().name

    def read(self) -> Plugin:
        """Raises: ValueError, OSError."""
        for name in _NOT_USED:
            if os.path.lexists(self._root / name):
                self._unused.add("plugin part", f"{self._name}/{name}")
        folders = {kind: tuple(self._folders(kind)) for kind in _PARTS}
        servers = self._servers()
        return Plugin(self._name, self._root, **folders, hooks=self._hooks(), servers=servers)

    def _folders(self, kind: str) -> Iterator[Folder]:
        """Where parts of a kind are: what the manifest names instead of, or for skills in addition to, the usual."""
        named = self._manifest.get(kind)
        paths = [named] if isinstance(named, str) else named if isinstance(named, list) else []
        inside = [self._inside(each) for each in paths if isinstance(each, str)]
        if kind == "skills":
            inside = list(dict.fromkeys((self._root / kind, self._root, *inside)))
        files: dict[Path, list[str]] = {}
        for path in inside or [self._root / kind]:
            if path.is_file() or (kind == "skills" and os.path.lexists(path / SKILL_FILE)):
                files.setdefault(path.parent, []).append(path.name)
            elif path != self._root:
                yield self._folder(path)
        for parent, names in files.items():
            yield self._folder(parent)._replace(only=tuple(names))

    def _folder(self, path: Path) -> Folder:
        return Folder(path, self._project, self._covers, True, self._name, self._root)

    def _inside(self, name: str) -> Path:
        """Raises: ValueError, if the path leaves the plugin."""
        path = Path(os.path.normpath(self._root / name.replace("${CLAUDE_PLUGIN_ROOT}", ".")))
        if not path.is_relative_to(self._root) or leads_out(path, self._root):
            raise ValueError(f"{name!r:.80} is outside of it")
        return path

    def _hooks(self) -> Json:
        raw = self._part("hooks", "hooks/hooks.json", "hooks")
        hooks = read_hooks(raw, f"plugin {self._name}", self._unused) if raw else {}
        groups = (group for each in hooks.values() for group in each)
        for group in groups:
            group["plugin"] = str(self._root)
        return hooks

    def _servers(self) -> Json:
        found = self._part("mcpServers", ".mcp.json", "mcpServers")
        root = json.dumps(str(self._root))[1:-1]
        servers: Json = json.loads(json.dumps(found).replace("${CLAUDE_PLUGIN_ROOT}", root))
        return {f"plugin_{self._name}_{name}": entry for name, entry in servers.items()}

    def _part(self, field: str, usual: str, key: str) -> Json:
        """A part that is in the usual file, in others that the manifest names, and in the manifest itself."""
        named = self._manifest.get(field)
        named = named if isinstance(named, list) else [named]
        files = dict.fromkeys((self._root / usual, *(self._inside(each) for each in named if isinstance(each, str))))
        parts = [_object(_read(path)) for path in files if path.is_file()]
        parts += [each for each in named if isinstance(each, dict)]
        found: Json = {}
        for part in parts:
            inside = _object(part.get(key, {} if field == "hooks" and "description" in part else part))
            for name, value in inside.items():
                both_lists = isinstance(value, list) and isinstance(found.get(name), list)
                found[name] = [*found[name], *value] if both_lists else value
        return found


def _read(path: Path) -> Any:
    try:
        return json.loads(read_regular(path, LARGEST_DOCUMENT))
    except (ValueError, RecursionError) as e:
        raise ValueError(f"{path.name} cannot be read: {e}") from e


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
