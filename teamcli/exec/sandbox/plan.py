"""The options of `bwrap` that draw the sandbox, from what the user wants and what is there.

Writable are the workspace, a private temp and private tool caches; the rest can only be read, and the user's secrets
not even that. A plan is outdated when something it depends on has appeared or been replaced: a mount goes away with the
file that it covers.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from teamcli.exec.programs import SYSTEM_DIRECTORIES
from teamcli.exec.sandbox.git import Guards, above, shared_repository
from teamcli.exec.sandbox.host_proxy import PORT, HostProxy, proxy_variables
from teamcli.exec.sandbox.paths import (
    Identity,
    directories_in,
    exists,
    identity_of,
    is_above_any,
    is_below_any,
    is_directory,
    is_in_any,
    is_link,
    listed_paths,
    real_path,
)
from teamcli.exec.sandbox.places import (
    CACHES,
    CLAUDE_DIR,
    CLOSED_IN_HOME,
    CLOSED_IN_SYSTEM,
    CLOSED_WITH_A_SECRET,
    HISTORY_VARIABLES,
    HOLDS_SKILLS,
    HOST_KEYS,
    KEPT_CAPABILITIES,
    SECRET_LOOK,
    SKILLS,
    STARTUP_FILES,
    WAYS_OUT,
)
from teamcli.exec.supervisor import serve
from teamcli.workspace.bounds import TEAM_DIR

_TEMPS = ("/tmp", "/var/tmp")
_SOCKETS = ("/run", "/var/run")
_SPECIAL = (Path("/dev"), Path("/proc"), Path("/sys"))
_CACHES_INSIDE = Path("/run/teamcli-caches")
_CHANGED = "what it opens or guards has changed while it was made; try again"


class Wanted(NamedTuple):
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
    """Run outside the sandbox, so commands cannot change them."""

    @property
    def has_network(self) -> bool:
        return self.network == "on"

    def paths(self, texts: Iterable[str]) -> list[Path]:
        """As written in the settings: absolute, from `~`, or from the workspace."""
        return listed_paths(texts, self.roots[0], self.home)

    def all_writable(self) -> list[Path]:
        """The workspace, what the user has opened, and the repositories behind worktrees."""
        repositories = [directory for root in self.roots if (directory := shared_repository(root))]
        return sorted({*self.roots, *self.paths(self.writable), *repositories})


class Private(NamedTuple):
    """Directories of ours that commands get in the place of the user's."""

    temp: Path
    """Goes with the program."""
    caches: Path
    """Stays with the project."""

    @property
    def empty_directory(self) -> Path:
        return self.temp / "empty"

    @property
    def only_skills(self) -> Path:
        """Nothing but a place to mount them at."""
        return self.temp / "only-skills"

    @property
    def empty_file(self) -> Path:
        return self.temp / "nothing"


class SandboxPlan(NamedTuple):
    options: tuple[str, ...]
    environment: Mapping[str, str]
    hosts: tuple[str, ...] | None
    """Those that can be reached, where the network is closed but for some."""
    depends_on: tuple[tuple[Path, Identity], ...]
    mounted: tuple[tuple[Path, Identity], ...]
    """What is seen inside as it is outside, each as a mount of its own."""
    writable: tuple[Path, ...]
    """Those of them that are open to commands with all that is in them."""
    read_only: tuple[Path, ...] = ()
    """Mounts that must not be writable."""

    @property
    def to_check(self) -> tuple[bytes, ...]:
        return tuple(os.fsencode(path) for path, _ in self.mounted)

    def objection(self, identities: Iterable[bytes], mounts: bytes) -> str:
        planned = [b"%d %d" % identity if identity else b"" for _, identity in self.mounted]
        return "" if planned == list(identities) and not self._unplanned(mounts) else _CHANGED

    def _unplanned(self, mounts: bytes) -> bool:
        """Whether something can be written that should not be."""
        fields = [line.split() for line in mounts.splitlines()]
        can_write = {Path(os.fsdecode(_unescaped(each[4]))): b"rw" in each[5].split(b",") for each in fields}
        if any(can_write.get(path, True) for path in self.read_only):
            return True
        inside = [Path("/dev"), Path("/proc"), *self.writable]  # what the user has mounted there comes along
        points = [point for point, is_open in can_write.items() if is_open]
        return any(point not in _mount_points(self.options) and not is_in_any(point, inside) for point in points)

    @property
    def port(self) -> int | None:
        return None if self.hosts is None else PORT

    def serve(self, listener: socket.socket) -> Callable[[], None]:
        return HostProxy(listener, self.hosts or ()).close

    @property
    def is_outdated(self) -> bool:
        return any(identity_of(path) != known for path, known in self.depends_on)


def make_plan(
    wanted: Wanted,
    private: Private,
    environment: Mapping[str, str],
    guards: Guards,
) -> SandboxPlan:
    """Only looks, changes nothing. Later options go on top of earlier ones, so what is closed comes last."""
    writable = wanted.all_writable()
    caches, variables = _caches(wanted, private, environment)
    hidden = {Path(place) for place in caches[2::3]}
    opened = [path for path in guards.open if not is_in_any(path, hidden)]
    guarded = [*guards.fixed, *_guarded(wanted.roots, writable)]
    guarded += [path for path in wanted.hook_files if exists(path) and is_below_any(path, writable)]
    guarded += [path for path in _startup_files(wanted.home) if is_in_any(path, writable)]
    at_the_users_word = wanted.paths(wanted.writable)
    guarded = sorted({path for path in guarded if path not in at_the_users_word and not is_in_any(path, hidden)})
    tops = [path for path in writable if path != Path("/")]
    pinned = above([*opened, *guarded, *guards.links], tops)
    closed = [path for path in _closed(wanted, environment) if path not in writable]
    memories = _memories(wanted)
    kernel = _kernel_settings(Path("/") in writable)
    options = [
        *_namespaces(wanted.has_network),
        *(("--bind", "/", "/") if Path("/") in writable else ("--ro-bind", "/", "/")),
        *("--dev", "/dev", "--proc", "/proc"),
        *_each("--ro-bind", kernel, twice=True),
        *_hidden_sockets(wanted.has_network, environment),
        *_private_temp(private, writable),
        *_visible_again(wanted.home, environment),
        *_each("--tmpfs", (path for path in closed if is_above_any(path, writable))),
        *_each("--bind-try", tops, twice=True),
        # A mount cannot be renamed: nobody puts another directory in the place of one whose parts are guarded.
        *_each("--bind", sorted({*pinned, *opened}), twice=True),
        *caches,
        *_each("--ro-bind", guarded, twice=True),
        *_each("--bind-try", memories, twice=True),
        *(option for path in closed if not is_above_any(path, writable) for option in _close(path, private)),
    ]
    mounted = dict.fromkeys((*writable, *opened, *guarded, *memories))
    watched = dict.fromkeys((*mounted, *_watched(wanted)))
    hosts = wanted.network if isinstance(wanted.network, tuple) else None
    if hosts is not None:
        variables |= proxy_variables()
    identities = {path: identity_of(path) for path in watched}
    return SandboxPlan(
        tuple(options),
        _environment(environment, variables),
        hosts,
        tuple(identities.items()),
        tuple((path, identities[path]) for path in mounted if not is_in_any(path, closed)),
        tuple(writable),
        tuple(path for path in (*kernel, *guarded) if not is_in_any(path, closed)),
    )


def make_trial(environment: Mapping[str, str]) -> SandboxPlan:
    """The least that a sandbox needs: where this fails, none can be made."""
    mounts = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
    return SandboxPlan((*_namespaces(has_network=True), *mounts), environment, None, (), (), ())


def _mount_points(options: tuple[str, ...]) -> set[Path]:
    """Those that can be written."""
    arguments = {"--bind": 2, "--bind-try": 2, "--tmpfs": 1}
    return {Path(options[at + arguments[word]]) for at, word in enumerate(options) if word in arguments}


def _unescaped(mount_point: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), mount_point)


def _namespaces(has_network: bool) -> list[str]:
    options = ["--die-with-parent", "--unshare-pid", "--unshare-ipc"]
    if not has_network:
        options.append("--unshare-net")
    if os.geteuid() == 0:
        options += ["--cap-drop", "ALL"]
        options += [option for name in KEPT_CAPABILITIES for option in ("--cap-add", f"CAP_{name}")]
    return options


def _hidden_sockets(has_network: bool, environment: Mapping[str, str]) -> Iterator[str]:
    """Services listen there that would do anything for a command; names of hosts are still looked up."""
    hidden = list(dict.fromkeys(real_path(Path(name)) for name in _SOCKETS if is_directory(Path(name))))
    yield from _each("--tmpfs", hidden)
    kept = [real_path(Path("/etc/resolv.conf")).parent] if has_network else []
    kept += [path for path in _search_path(environment) if is_directory(path)]
    yield from _each("--ro-bind-try", (path for path in kept if is_below_any(path, hidden)), twice=True)


def _private_temp(private: Private, writable: list[Path]) -> Iterator[str]:
    for name in _TEMPS:
        place = real_path(Path(name))
        if is_directory(place) and place not in writable:
            yield from ("--bind", str(private.temp / name.strip("/").replace("/", "-")), str(place))


def _visible_again(home: Path, environment: Mapping[str, str]) -> list[str]:
    """What stands in a temp directory and is needed all the same: the home, programs, and our own."""
    programs = (Path(sys.prefix), Path(sys.base_prefix), Path(serve.__file__).parent)
    wanted = [*programs, *_search_path(environment), real_path(home)]
    temps = [real_path(Path(name)) for name in _TEMPS]
    return _each("--ro-bind-try", sorted({path for path in wanted if is_below_any(path, temps)}), twice=True)


def _search_path(environment: Mapping[str, str]) -> list[Path]:
    """Where programs are; of `…/bin` all of it, for programs need what stands beside them."""
    places = [Path(text) for text in environment.get("PATH", "").split(os.pathsep) if text.startswith("/")]
    return [path.parent if path.name == "bin" else path for path in places]


def _guarded(roots: Iterable[Path], writable: list[Path]) -> Iterator[Path]:
    """What teamcli itself obeys and runs. The target of a link is guarded only if commands could write there."""
    for path in (root / name for root in roots for name in (TEAM_DIR, CLAUDE_DIR)):
        target = real_path(path) if is_link(path) else path
        if is_directory(target) and is_below_any(target, writable) and not is_in_any(target, _SPECIAL):
            yield target
    yield from (
        path for path in SYSTEM_DIRECTORIES if Path("/") in writable and is_directory(path) and not is_link(path)
    )


def _kernel_settings(is_all_writable: bool) -> list[Path]:
    """Where one could give orders to the kernel. bwrap covers some of /proc, but not /proc/sys."""
    with os.scandir("/proc") as entries:
        ours = [entry for entry in entries if not entry.name.isdigit() and not entry.is_symlink()]
        found = [Path(entry.path) for entry in ours if entry.is_dir() or entry.stat().st_mode & 0o222]
    return sorted(found) + ([Path("/sys")] if is_all_writable else [])


def _memories(wanted: Wanted) -> list[Path]:
    places = [root / TEAM_DIR / "memory" for root in wanted.roots]
    return [path for path in places if is_directory(path) and real_path(path) == path]


def _startup_files(home: Path) -> list[Path]:
    return [path for name in STARTUP_FILES if exists(path := real_path(home / name))]


def _closed(wanted: Wanted, environment: Mapping[str, str]) -> list[Path]:
    """Real paths that exist."""
    places = [home / name for home in _homes(wanted.home) for name in CLOSED_IN_HOME if _is_secret(home, name)]
    places += [Path(path) for name in HISTORY_VARIABLES if (path := environment.get(name, "")).startswith("/")]
    if os.geteuid() == 0:
        places += [*map(Path, CLOSED_IN_SYSTEM), *Path("/etc/ssh").glob(HOST_KEYS)]
    real = {real_path(path) for path in places if exists(path)} | set(wanted.paths(wanted.closed))
    return sorted(path for path in real if exists(path) and path != Path("/") and not is_in_any(path, _SPECIAL))


def _homes(home: Path) -> list[Path]:
    """Root reads the homes of all."""
    others = [Path("/root"), *directories_in(Path("/home"))] if os.geteuid() == 0 else []
    return list(dict.fromkeys([home, *others]))


def _is_secret(home: Path, name: str) -> bool:
    if name not in CLOSED_WITH_A_SECRET:
        return True
    try:
        return re.search(SECRET_LOOK, (home / name).read_bytes()) is not None
    except OSError:
        return True


def _watched(wanted: Wanted) -> list[Path]:
    """What would be closed or guarded if it were there."""
    closed = [wanted.home / name for name in CLOSED_IN_HOME]
    return [
        *closed,
        *wanted.paths(wanted.closed),
        *(root / TEAM_DIR for root in wanted.roots),
        *wanted.hook_files,
    ]


def _close(path: Path, private: Private) -> tuple[str, ...]:
    if is_directory(path / SKILLS) and path.name in HOLDS_SKILLS:  # agents read these, and run what comes with them
        skills = str(real_path(path / SKILLS))
        return "--ro-bind", str(private.only_skills), str(path), "--ro-bind-try", skills, str(path / SKILLS)
    return "--ro-bind", str(private.empty_directory if is_directory(path) else private.empty_file), str(path)


def _caches(wanted: Wanted, private: Private, environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Options, and variables for those that the home has no place for."""
    options, variables = [], {}
    for cache in CACHES:
        top = real_path(Path(environment.get(cache.variable) or wanted.home / cache.directory))
        if is_directory(top):
            places = {part: top / part for part in cache.parts or ("",) if is_directory(top / part)}
        elif cache.variable:
            places = {"": _CACHES_INSIDE / cache.own()}
            variables[cache.variable] = str(places[""])
        else:
            continue
        for part, place in places.items():
            options += ["--bind", str(private.caches / cache.own(part)), str(place)]
    return options, variables


def _environment(environment: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in environment.items() if name not in WAYS_OUT}
    temps: dict[str, str] = {name: "/tmp" for name in ("TMPDIR", "TMP", "TEMP") if name in kept}
    return {**kept, **temps, **variables}


def _each(option: str, paths: Iterable[Path], twice: bool = False) -> list[str]:
    return [word for path in paths for word in (option, *([str(path)] * (2 if twice else 1)))]
