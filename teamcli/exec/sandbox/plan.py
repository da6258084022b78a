"""The options of `bwrap` that make up the sandbox, from what the user wants and what is there.

Commands can write to the workspace, a private temp directory and private tool caches. They can only read the rest, and
cannot even read the user's secrets. A plan is outdated when something it depends on has appeared or was replaced: a
mount disappears with the file that it covers.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from teamcli.exec.programs import SYSTEM_DIRECTORIES
from teamcli.exec.sandbox.git import Guards, above, shared_repository
from teamcli.exec.sandbox.host_proxy import PORT, HostProxy, proxy_variables
from teamcli.exec.sandbox.paths import (
    Identity,
    directories_in,
    exists,
    has_socket,
    identity_of,
    is_above_any,
    is_below_any,
    is_directory,
    is_file,
    is_in_any,
    is_link,
    listed_paths,
    real_path,
)
from teamcli.exec.sandbox.protected_paths import (
    CACHES,
    CLAUDE_DIR,
    CLOSED_IN_HOME,
    CLOSED_IN_SYSTEM,
    CLOSED_WITH_A_SECRET,
    HISTORY_VARIABLES,
    HOLDS_SKILLS,
    HOST_KEYS,
    KEPT_CAPABILITIES,
    NODE_MODULES,
    OUTSIDE_SOCKETS,
    PROJECT_FILES,
    SECRET_LOOK,
    SKILLS,
    STARTUP_FILES,
)
from teamcli.exec.supervisor import serve
from teamcli.workspace.bounds import TEAM_DIR

_ROOT = Path("/")
_TEMPS = ("/tmp", "/var/tmp")
_SOCKETS = ("/run", "/var/run")
_SPECIAL = (Path("/dev"), Path("/proc"), Path("/sys"))
_CACHES_INSIDE = Path("/run/teamcli-caches")
_CHANGED = "what it opens or guards has changed while it was made; try again"


class SandboxSettings(NamedTuple):
    """What the user's settings and options ask of the sandbox."""

    roots: tuple[Path, ...]
    """The workspace and the directories from `--add-dir`, resolved."""
    home: Path
    network: str | tuple[str, ...] = "on"
    """`on`, `off`, or the hosts that can be reached."""
    writable: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    is_trial: bool = False
    """Only to see whether it works: leaves nothing behind."""
    hook_files: tuple[Path, ...] = ()
    """They run outside the sandbox, so commands must not change them."""
    main: tuple[Path, ...] = ()
    """For a member with its own checkout: the directory of the team first, and its repository. They are read-only."""

    @property
    def obeyed(self) -> tuple[Path, ...]:
        """Directories whose `.team/` and `.claude/` count. Those in a checkout are files like any other."""
        return () if self.main else self.roots

    @property
    def has_network(self) -> bool:
        return self.network == "on"

    def paths(self, texts: Iterable[str]) -> list[Path]:
        """As written in the settings: absolute, from `~`, or from the workspace."""
        return listed_paths(texts, self.roots[0], self.home)

    def all_writable(self) -> list[Path]:
        """The workspace, what the user has opened, and the repositories behind worktrees."""
        opened = self.paths(self.writable)
        if self.main:
            closed_to_member = (path for path in opened if is_in_any(path, self.main) or is_above_any(path, self.main))
            return sorted({*self.roots, *opened} - set(closed_to_member))
        repositories = [directory for root in self.roots if (directory := shared_repository(root))]
        return sorted({*self.roots, *opened, *repositories})


class PrivateDirs(NamedTuple):
    """Our directories, which commands see in place of the user's."""

    temp: Path
    """Removed when the program ends."""
    caches: Path
    """Kept for the project."""

    @property
    def empty_directory(self) -> Path:
        return self.temp / "empty"

    @property
    def only_skills(self) -> Path:
        """Empty except for the directory that skills are mounted on."""
        return self.temp / "only-skills"

    @property
    def empty_file(self) -> Path:
        return self.temp / "nothing"


class SandboxPlan(NamedTuple):
    options: tuple[str, ...]
    environment: Mapping[str, str]
    hosts: tuple[str, ...] | None
    """The only hosts that can be reached; None for all or none."""
    depends_on: tuple[tuple[Path, Identity], ...]
    mounted: tuple[tuple[Path, Identity], ...]
    """What looks the same inside as outside, each on a separate mount."""
    writable: tuple[Path, ...]
    """Those of them that are open to commands with everything in them."""
    read_only: tuple[Path, ...] = ()
    """Mounts that must not be writable."""

    @property
    def to_check(self) -> tuple[bytes, ...]:
        return tuple(os.fsencode(path) for path, _ in self.mounted)

    def objection(self, identities: Iterable[bytes], mounts: bytes) -> str:
        """Why a sandbox that finds these files at `to_check`, and has these mounts, is not the one that was planned."""
        planned = [b"%d %d" % identity if identity else b"" for _, identity in self.mounted]
        return "" if planned == list(identities) and not self._is_too_open(mounts) else _CHANGED

    def _is_too_open(self, mounts: bytes) -> bool:
        can_write = {}
        for line in mounts.splitlines():
            fields = line.split()
            point = re.sub(
                rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), fields[4]
            )  # the kernel escapes it
            can_write[Path(os.fsdecode(point))] = b"rw" in fields[5].split(b",")
        # A path that is missing among the mounts is as open as what is around it.
        if any(can_write.get(path, True) for path in self.read_only):
            return True
        arguments = {"--bind": 2, "--bind-try": 2, "--tmpfs": 1}
        planned = {
            Path(self.options[at + arguments[word]]) for at, word in enumerate(self.options) if word in arguments
        }
        inside = [Path("/dev"), Path("/proc"), *self.writable]  # mounts that the user has in there come along
        points = [point for point, is_open in can_write.items() if is_open]
        return any(point not in planned and not is_in_any(point, inside) for point in points)

    @property
    def port(self) -> int | None:
        """Where commands find the proxy, if there is one."""
        return None if self.hosts is None else PORT

    def serve(self, listener: socket.socket) -> Callable[[], None]:
        """Be that proxy, for connections to a socket inside. Returns what ends it."""
        return HostProxy(listener, self.hosts or ()).close

    @property
    def is_outdated(self) -> bool:
        """Whether it no longer closes all that it should: later commands need another one."""
        return any(identity_of(path) != known for path, known in self.depends_on)


def make_plan(
    settings: SandboxSettings,
    private: PrivateDirs,
    environment: Mapping[str, str],
    guards: Guards,
    named: Iterable[Path] = (),
) -> SandboxPlan:
    """Changes nothing. Later options cover earlier ones, so what is closed comes last.

    Files and directories that are `named` are visible even in temp directories.
    """
    writable = settings.all_writable()
    caches, variables = _caches(settings, private, environment)
    hidden = {Path(place) for place in caches[2::3]}  # commands see ours there, so what is below needs no guard
    opened = [path for path in guards.open if not is_in_any(path, hidden)]
    guarded = _guarded(settings, guards, writable, hidden)
    tops = [path for path in writable if path != _ROOT]
    pinned = above([*opened, *guarded, *guards.links], tops)
    closed = [path for path in _closed(settings, environment) if path not in writable]
    memories = [root / TEAM_DIR / "memory" for root in settings.roots]
    memories = [path for path in memories if is_directory(path) and real_path(path) == path]
    kernel = _kernel_settings(_ROOT in writable)
    main = [path for path in settings.main if path != _ROOT]
    options = [
        *_namespaces(settings.has_network),
        *("--bind" if _ROOT in writable else "--ro-bind", "/", "/"),
        *("--dev", "/dev", "--proc", "/proc"),
        *_each("--ro-bind", kernel, twice=True),
        *_hidden_sockets(settings.has_network, environment),
        *_temp(settings.home, private, environment, writable, named),
        # What is closed but contains the workspace: it is emptied first, and the workspace appears in it below.
        *_each("--tmpfs", (path for path in closed if is_above_any(path, writable))),
        *_each("--ro-bind", main, twice=True),
        *_each("--bind-try", tops, twice=True),
        # A mount cannot be renamed, so no other directory can replace one whose parts are guarded.
        *_each("--bind", sorted({*pinned, *opened}), twice=True),
        *caches,
        *_each("--ro-bind", guarded, twice=True),
        *_each("--bind-try", memories, twice=True),
        *(option for path in closed if not is_above_any(path, writable) for option in _close(path, private)),
    ]
    mounted = dict.fromkeys((*writable, *opened, *guarded, *memories, *main))
    # Also what is missing: a plan cannot cover it, so it is outdated once that appears.
    closed_if_there = (*(settings.home / name for name in CLOSED_IN_HOME), *settings.paths(settings.closed))
    guarded_if_there = (*(root / TEAM_DIR for root in settings.obeyed), *settings.hook_files)
    watched = dict.fromkeys((*mounted, *closed_if_there, *guarded_if_there))
    identities = {path: identity_of(path) for path in watched}
    hosts = settings.network if isinstance(settings.network, tuple) else None
    if hosts is not None:
        variables |= proxy_variables()
    return SandboxPlan(
        tuple(options),
        _environment(environment, variables),
        hosts,
        tuple(identities.items()),
        tuple((path, identities[path]) for path in mounted if not is_in_any(path, closed)),
        tuple(writable),
        tuple(path for path in (*kernel, *guarded, *main) if not is_in_any(path, closed)),
    )


def make_trial(environment: Mapping[str, str]) -> SandboxPlan:
    """The simplest sandbox: if this fails, none can be made. Nothing in it depends on the workspace."""
    mounts = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
    return SandboxPlan((*_namespaces(has_network=True), *mounts), environment, None, (), (), ())


def _namespaces(has_network: bool) -> list[str]:
    options = ["--die-with-parent", "--unshare-pid", "--unshare-ipc"]
    if not has_network:
        options.append("--unshare-net")
    if os.geteuid() == 0:  # bwrap leaves root all capabilities otherwise
        options += ["--cap-drop", "ALL"]
        options += [option for name in KEPT_CAPABILITIES for option in ("--cap-add", f"CAP_{name}")]
    return options


def _hidden_sockets(has_network: bool, environment: Mapping[str, str]) -> Iterator[str]:
    """Services listen there that would do anything for a command. Host names can still be resolved."""
    hidden = list(dict.fromkeys(real_path(Path(name)) for name in _SOCKETS if is_directory(Path(name))))
    yield from _each("--tmpfs", hidden)
    kept = [real_path(Path("/etc/resolv.conf")).parent] if has_network else []
    kept += [path for path in _search_path(environment) if is_directory(path)]
    yield from _each("--ro-bind-try", (path for path in kept if is_below_any(path, hidden)), twice=True)


def _temp(
    home: Path,
    private: PrivateDirs,
    environment: Mapping[str, str],
    writable: Iterable[Path],
    named: Iterable[Path],
) -> Iterator[str]:
    """Private temp directories, in which the home directory and programs, including our own, stay visible."""
    temps = {name: real_path(Path(name)) for name in _TEMPS}
    for name, place in temps.items():
        if is_directory(place) and place not in writable:
            yield from ("--bind", str(private.temp / name.strip("/").replace("/", "-")), str(place))
    programs = (Path(sys.prefix), Path(sys.base_prefix), Path(serve.__file__).parent)
    needed = {*programs, *_search_path(environment), real_path(home)}
    needed |= {place for path in named for place in _places_of(path, temps.values())}
    yield from _each("--ro-bind-try", sorted(path for path in needed if is_below_any(path, temps.values())), twice=True)


def _places_of(named: Path, temps: Collection[Path]) -> Iterator[Path]:
    """The directory of a program, because it needs what is next to it; only the file if others use that, too."""
    for path in {real_path(named.parent) / named.name, real_path(named)}:
        is_a_directory = is_directory(path) and not is_link(path)
        directory = _project_of(path if is_a_directory else path.parent, temps)
        if is_below_any(directory, temps) and not has_socket(directory):
            yield directory
        elif is_file(path):
            yield path


def _project_of(directory: Path, temps: Collection[Path]) -> Path:
    """What a program in this directory was installed with."""
    around = [path for path in (directory, *directory.parents) if is_below_any(path, temps)]
    modules = [path for path in around if path.name == NODE_MODULES]
    projects = [path for path in around if any(exists(path / name) for name in PROJECT_FILES)]
    return (modules[-1:] or projects[:1] or [_with_neighbors(directory)])[0]


def _search_path(environment: Mapping[str, str]) -> list[Path]:
    """Where programs are."""
    places = [Path(text) for text in environment.get("PATH", "").split(os.pathsep) if text.startswith("/")]
    return list(map(_with_neighbors, places))


def _with_neighbors(directory: Path) -> Path:
    """For `…/bin` its parent, because programs need the directories next to it."""
    return directory.parent if directory.name == "bin" else directory


def _guarded(settings: SandboxSettings, guards: Guards, writable: list[Path], hidden: Iterable[Path]) -> list[Path]:
    """What teamcli, git and the user's shell obey. Targets of links are guarded only if commands could write there."""
    guarded = list(guards.fixed)
    for path in (root / name for root in settings.obeyed for name in (TEAM_DIR, CLAUDE_DIR)):
        target = real_path(path) if is_link(path) else path
        if is_directory(target) and is_below_any(target, writable) and not is_in_any(target, _SPECIAL):
            guarded.append(target)
    if _ROOT in writable:  # otherwise they are read-only with everything else
        guarded += [path for path in SYSTEM_DIRECTORIES if is_directory(path) and not is_link(path)]
    guarded += [path for path in settings.hook_files if exists(path) and is_below_any(path, writable)]
    startup_files = [real_path(settings.home / name) for name in STARTUP_FILES]
    guarded += [path for path in startup_files if exists(path) and is_in_any(path, writable)]
    # What the user has named exactly stays open, whatever it is.
    opened_by_user = settings.paths(settings.writable)
    return sorted({path for path in guarded if path not in opened_by_user and not is_in_any(path, hidden)})


def _kernel_settings(is_all_writable: bool) -> list[Path]:
    """Where one could change the kernel. bwrap covers some of /proc, but not /proc/sys."""
    with os.scandir("/proc") as entries:
        ours = [entry for entry in entries if not entry.name.isdigit() and not entry.is_symlink()]
        found = [Path(entry.path) for entry in ours if entry.is_dir() or entry.stat().st_mode & 0o222]
    return sorted(found) + ([Path("/sys")] if is_all_writable else [])


def _closed(settings: SandboxSettings, environment: Mapping[str, str]) -> list[Path]:
    """Real paths that exist."""
    homes, places = {settings.home}, []
    if os.geteuid() == 0:  # root can read every home directory
        homes |= {Path("/root"), *directories_in(Path("/home"))}
        places += [*map(Path, CLOSED_IN_SYSTEM), *Path("/etc/ssh").glob(HOST_KEYS)]
    places += [home / name for home in homes for name in CLOSED_IN_HOME if _is_secret(home, name)]
    places += [Path(path) for name in HISTORY_VARIABLES if (path := environment.get(name, "")).startswith("/")]
    real = {real_path(path) for path in places if exists(path)} | set(settings.paths(settings.closed))
    # HISTFILE=/dev/null is common, and must not replace the device.
    return sorted(path for path in real if exists(path) and path != _ROOT and not is_in_any(path, _SPECIAL))


def _is_secret(home: Path, name: str) -> bool:
    if name not in CLOSED_WITH_A_SECRET:
        return True
    try:
        return re.search(SECRET_LOOK, (home / name).read_bytes()) is not None
    except OSError:  # nobody can tell, so it stays closed
        return True


def _close(path: Path, private: PrivateDirs) -> tuple[str, ...]:
    if is_directory(path / SKILLS) and path.name in HOLDS_SKILLS:  # agents read these, and run what comes with them
        skills = str(real_path(path / SKILLS))
        return "--ro-bind", str(private.only_skills), str(path), "--ro-bind-try", skills, str(path / SKILLS)
    return "--ro-bind", str(private.empty_directory if is_directory(path) else private.empty_file), str(path)


def _caches(
    settings: SandboxSettings, private: PrivateDirs, environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Options, and variables for the caches that have no directory in the home directory."""
    options, variables = [], {}
    for cache in CACHES:
        top = real_path(Path(environment.get(cache.variable) or settings.home / cache.directory))
        if is_directory(top):
            places = {part: top / part for part in cache.parts or ("",) if is_directory(top / part)}
        elif cache.variable:
            places = {"": _CACHES_INSIDE / cache.replacement()}
            variables[cache.variable] = str(places[""])
        else:
            continue
        for part, place in places.items():
            options += ["--bind", str(private.caches / cache.replacement(part)), str(place)]
    return options, variables


def _environment(environment: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in environment.items() if name not in OUTSIDE_SOCKETS}
    # Inside, /tmp is private, and commands can write there. Another directory may be neither.
    temps: dict[str, str] = {name: "/tmp" for name in ("TMPDIR", "TMP", "TEMP") if name in kept}
    return {**kept, **temps, **variables}


def _each(option: str, paths: Iterable[Path], twice: bool = False) -> list[str]:
    return [word for path in paths for word in (option, *([str(path)] * (2 if twice else 1)))]
