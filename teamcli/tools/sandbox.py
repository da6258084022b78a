"""The sandbox around the commands of agents: which options of `bwrap` draw it, and the directories that it needs.

Writable are the workspace, a private temp and private tool caches; the rest can only be read, and the user's secrets
not even that. `make_plan` only looks; it is made anew when something it depends on has appeared or been replaced, for a
mount goes away with the file that it covers.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from teamcli.errors import ToolError
from teamcli.files import PRIVATE_DIR
from teamcli.tools import command_supervisor
from teamcli.tools.host_proxy import PORT, HostProxy, proxy_variables
from teamcli.tools.sandbox_places import (
    CACHES,
    CLOSED_IN_HOME,
    CLOSED_IN_SYSTEM,
    CLOSED_WITH_A_SECRET,
    HOST_KEYS,
    KEPT_CAPABILITIES,
    SECRET_LOOK,
    STARTUP_FILES,
    WAYS_OUT,
)
from teamcli.workspace import TEAM_DIR, USER_DIR

BWRAP = "bwrap"
_PREFIX, _LOCK = "teamcli-sandbox-", "lock"
_TEMPS = ("/tmp", "/var/tmp")
_SOCKETS = ("/run", "/var/run")
_CACHES_INSIDE = Path("/run/teamcli-caches")
_NO_NETWORK = r"Network is unreachable|resolve host|name resolution|ENETUNREACH|EAI_AGAIN|Name or service not known"
_REFUSED_BY_PROXY = rf"{_NO_NETWORK}|tunnel|proxy|403"
CHANGED = "what it opens or guards has changed while it was made; try again"
_MOST_DIRECTORIES = 1000
"""Looked at for repositories inside the workspace."""

Identity = tuple[int, int] | None
"""Which file stands at a path; None for none."""


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

    @property
    def has_network(self) -> bool:
        return self.network == "on"

    def paths(self, texts: Iterable[str]) -> list[Path]:
        """As written in the settings: absolute, from `~`, or from the workspace."""
        return [_real(self.roots[0] / re.sub(r"^~(?=/|$)", lambda _: str(self.home), text)) for text in texts]


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
    def empty_file(self) -> Path:
        return self.temp / "nothing"


class Plan(NamedTuple):
    options: tuple[str, ...]
    environment: Mapping[str, str]
    hosts: tuple[str, ...] | None
    """Those that can be reached, where the network is closed but for some."""
    depends_on: tuple[tuple[Path, Identity], ...]
    mounted: tuple[tuple[Path, Identity], ...]
    """What is seen inside as it is outside, each as a mount of its own."""
    writable: tuple[Path, ...]
    """Those of them that are open to commands with all that is in them."""

    @property
    def to_check(self) -> tuple[bytes, ...]:
        return tuple(os.fsencode(path) for path, _ in self.mounted)

    def objection(self, identities: Iterable[bytes], mounts: bytes) -> str:
        planned = [b"%d %d" % identity if identity else b"" for _, identity in self.mounted]
        return "" if planned == list(identities) and not self._unplanned(mounts) else CHANGED

    def _unplanned(self, mounts: bytes) -> bool:
        """Whether something can be written that should not be."""
        fields = [line.split() for line in mounts.splitlines()]
        points = [Path(os.fsdecode(_unescaped(each[4]))) for each in fields if b"rw" in each[5].split(b",")]
        inside = [Path("/dev"), Path("/proc"), *self.writable]  # what the user has mounted there comes along
        return any(point not in _mount_points(self.options) and not _is_in_any(point, inside) for point in points)

    @property
    def port(self) -> int | None:
        return None if self.hosts is None else PORT

    def serve(self, listener: socket.socket) -> Callable[[], None]:
        return HostProxy(listener, self.hosts or ()).close

    @property
    def is_outdated(self) -> bool:
        return any(_identity(path) != known for path, known in self.depends_on)


class Sandbox:
    """The sandbox of one program. `close` removes what it has made for it."""

    def __init__(self, wanted: Wanted) -> None:
        """Raises: ToolError, where there can be none."""
        program = shutil.which(BWRAP)
        if sys.platform != "linux":
            raise ToolError(f"there is none for {sys.platform}")
        if program is None:
            raise ToolError("bwrap is not installed (the package is called bubblewrap)")
        self.program = program
        self.wanted = wanted
        _remove_leftovers()
        temp = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = os.open(temp / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._private = _make_private(temp, wanted)

    def plan(self, environment: Mapping[str, str]) -> Plan:
        """Raises: OSError."""
        make_mount_points(self.wanted, self._private, environment)
        return make_plan(self.wanted, self._private, environment)

    def explain(self, output: str) -> str:
        """What to tell a model whose command has met the sandbox without knowing."""
        return explain(output, self.wanted)

    def close(self) -> None:
        shutil.rmtree(self._private.temp, ignore_errors=True)
        os.close(self._lock)


def _remove_leftovers() -> None:
    """Directories of programs that were killed: nobody holds their lock any more."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # another user's, or just being made
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)


def explain(output: str, wanted: Wanted) -> str:
    if re.search(r"Read-only file system|EROFS|\.git/config.*Device or resource busy", output, re.IGNORECASE):
        return (
            "the sandbox lets commands write in the workspace, /tmp and caches, but not to hooks or config of git; "
            "the user can open more with `sandbox_writable`, or run it as !command"
        )
    if isinstance(wanted.network, tuple) and re.search(_REFUSED_BY_PROXY, output, re.IGNORECASE):
        listed = ", ".join(wanted.network) or "none"
        return f"the user lets commands reach only these hosts, by the setting `sandbox_network`: {listed}"
    if not wanted.has_network and re.search(_NO_NETWORK, output, re.IGNORECASE):
        return "the user has closed the network to commands with `sandbox_network`"
    return ""


def _make_private(temp: Path, wanted: Wanted) -> Private:
    """Raises: OSError."""
    for name in ("tmp", "var-tmp", "empty"):
        (temp / name).mkdir(PRIVATE_DIR)
    (temp / "nothing").touch(0o400)
    caches = temp / "caches" if wanted.is_trial else _caches_of(wanted)
    try:
        for directory in (caches.parents[1], caches.parents[0], caches):
            directory.mkdir(PRIVATE_DIR, exist_ok=True)
    except OSError:  # a home that cannot be written: then they last as long as the program
        caches = temp / "caches"
        caches.mkdir(PRIVATE_DIR)
    return Private(temp, caches)


def _caches_of(wanted: Wanted) -> Path:
    """Of each project its own: what one has put into a cache must not be run in another."""
    root = wanted.roots[0]
    name = f"{root.name or 'root'}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:12]}"
    return wanted.home / USER_DIR / "sandbox" / name


def make_mount_points(wanted: Wanted, private: Private, environment: Mapping[str, str]) -> None:
    """Nothing can be mounted where nothing is: make the empty directories that the tools would make themselves.

    Raises: OSError
    """
    for cache in CACHES:
        for part in ("", *cache.parts):
            (private.caches / cache.own(part)).mkdir(PRIVATE_DIR, exist_ok=True)
    if wanted.is_trial:
        return
    for root in wanted.roots:
        if _is_directory(root / ".git") and not _is_link(root / ".git" / "hooks"):
            _try_mkdir(root / ".git" / "hooks")
    for cache in CACHES:
        top = Path(environment.get(cache.variable) or wanted.home / cache.directory)
        for part in cache.parts if _is_directory(top) else ():
            _try_mkdir(top / part)


def _try_mkdir(path: Path) -> None:
    try:
        path.mkdir(exist_ok=True)
    except OSError:
        return  # not ours to write: then neither is it a command's


def make_plan(wanted: Wanted, private: Private, environment: Mapping[str, str]) -> Plan:
    """Only looks, changes nothing. Later options go on top of earlier ones, so what is closed comes last."""
    writable = _writable(wanted)
    repositories = [repository for root in wanted.roots for repository in _repositories(root)]
    guarded = [*(path for repository in repositories for path in _guarded_in(repository)), *_guarded(wanted.roots)]
    guarded += [path for path in _startup_files(wanted.home) if _is_in_any(path, writable)]
    guarded = [path for path in guarded if path not in wanted.paths(wanted.writable)]
    closed = [path for path in _closed(wanted) if path not in writable]
    caches, variables = _caches(wanted, private, environment)
    memories = _memories(wanted)
    options = [
        *_namespaces(wanted.has_network),
        *(("--bind", "/", "/") if Path("/") in writable else ("--ro-bind", "/", "/")),
        *("--dev", "/dev", "--proc", "/proc"),
        *_hidden_sockets(wanted.has_network, environment),
        *_private_temp(private, writable),
        *_visible_again(wanted.home, environment),
        *_each("--tmpfs", (path for path in closed if _is_above_any(path, writable))),
        *_each("--bind-try", (path for path in writable if path != Path("/")), twice=True),
        *caches,
        # A mount cannot be renamed: nobody puts another directory in the place of one whose parts are guarded.
        *_each("--bind", repositories, twice=True),
        *_each("--ro-bind-try", guarded, twice=True),
        *_each("--bind-try", memories, twice=True),
        *(option for path in closed if not _is_above_any(path, writable) for option in _close(path, private)),
    ]
    mounted = dict.fromkeys((*writable, *repositories, *guarded, *memories))
    watched = dict.fromkeys((*mounted, *_watched(wanted)))
    hosts = wanted.network if isinstance(wanted.network, tuple) else None
    if hosts is not None:
        variables |= proxy_variables()
    identities = {path: _identity(path) for path in watched}
    return Plan(
        tuple(options),
        _environment(environment, variables),
        hosts,
        tuple(identities.items()),
        tuple((path, identities[path]) for path in mounted if not _is_in_any(path, closed)),
        tuple(writable),
    )


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
    hidden = list(dict.fromkeys(_real(Path(name)) for name in _SOCKETS if _is_directory(Path(name))))
    yield from _each("--tmpfs", hidden)
    kept = [_real(Path("/etc/resolv.conf")).parent] if has_network else []
    kept += [path for path in _search_path(environment) if _is_directory(path)]
    yield from _each("--ro-bind-try", (path for path in kept if _is_below_any(path, hidden)), twice=True)


def _private_temp(private: Private, writable: list[Path]) -> Iterator[str]:
    for name in _TEMPS:
        place = _real(Path(name))
        if _is_directory(place) and place not in writable:
            yield from ("--bind", str(private.temp / name.strip("/").replace("/", "-")), str(place))


def _visible_again(home: Path, environment: Mapping[str, str]) -> list[str]:
    """What stands in a temp directory and is needed all the same: the home, programs, and our own."""
    programs = (Path(sys.prefix), Path(sys.base_prefix), Path(command_supervisor.__file__).parent)
    wanted = [*programs, *_search_path(environment), _real(home)]
    temps = [_real(Path(name)) for name in _TEMPS]
    return _each("--ro-bind-try", sorted({path for path in wanted if _is_below_any(path, temps)}), twice=True)


def _search_path(environment: Mapping[str, str]) -> list[Path]:
    """Where programs are; of `…/bin` all of it, for programs need what stands beside them."""
    places = [Path(text) for text in environment.get("PATH", "").split(os.pathsep) if text.startswith("/")]
    return [path.parent if path.name == "bin" else path for path in places]


def _writable(wanted: Wanted) -> list[Path]:
    repositories = [directory for root in wanted.roots if (directory := shared_repository(root))]
    return sorted({*wanted.roots, *wanted.paths(wanted.writable), *repositories})


def shared_repository(root: Path) -> Path | None:
    """The repository behind a git worktree, where it acknowledges `root`: else any text could open any directory."""
    try:
        kept = _real(root / _text_of(root / ".git").removeprefix("gitdir:").strip())
        shared = _real(kept / _text_of(kept / "commondir").strip())
        is_known = _real(Path(_text_of(kept / "gitdir").strip())) == root / ".git"
    except OSError:
        return None
    return shared if is_known and kept.parent == shared / "worktrees" else None


def _text_of(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(4096).decode("utf-8", "surrogateescape")


def _guarded(roots: Iterable[Path]) -> Iterator[Path]:
    """The team's own state, and what belongs to a worktree."""
    for root in roots:
        if shared := shared_repository(root):
            yield root / ".git"
            yield from _guarded_in(shared)
        if _is_directory(root / TEAM_DIR):
            yield _real(root / TEAM_DIR)


def _guarded_in(repository: Path) -> Iterator[Path]:
    """What makes git run something when the user calls it."""
    parts = [repository / name for name in ("hooks", "config", "config.worktree")]
    if any(_is_link(part) for part in parts):  # a link can be replaced: guard what it stands in
        yield repository
        return
    yield from (part for part in parts if _exists(part))
    for module in _modules(repository / "modules"):
        yield from _guarded_in(module)


def _modules(directory: Path) -> Iterator[Path]:
    """Repositories of submodules; a name may have slashes."""
    for entry in _directories(directory):
        if _exists(entry / "HEAD"):
            yield entry
        else:
            yield from _modules(entry)


def _repositories(root: Path) -> list[Path]:
    """`.git` of the workspace, and of directories up to two levels down."""
    found, looked_at, level = [], 0, [root]
    for _ in range(3):
        found += [path / ".git" for path in level if _is_directory(path / ".git") and not _is_link(path / ".git")]
        level = [entry for path in level for entry in _directories(path)][: _MOST_DIRECTORIES - looked_at]
        looked_at += len(level)
    return found


def _directories(path: Path) -> list[Path]:
    skipped = (".git", "node_modules", TEAM_DIR)
    try:
        with os.scandir(path) as entries:
            names = [e.name for e in entries if e.name not in skipped and e.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [path / name for name in sorted(names)]


def _memories(wanted: Wanted) -> list[Path]:
    places = [root / TEAM_DIR / "memory" for root in wanted.roots]
    return [path for path in places if _is_directory(path) and _real(path) == path]


def _startup_files(home: Path) -> list[Path]:
    return [path for name in STARTUP_FILES if _exists(path := _real(home / name))]


def _closed(wanted: Wanted) -> list[Path]:
    """Real paths that exist."""
    places = [home / name for home in _homes(wanted.home) for name in CLOSED_IN_HOME if _is_secret(home, name)]
    if os.geteuid() == 0:
        places += [*map(Path, CLOSED_IN_SYSTEM), *Path("/etc/ssh").glob(HOST_KEYS)]
    real = {_real(path) for path in places} | set(wanted.paths(wanted.closed))
    return sorted(path for path in real if _exists(path) and path != Path("/"))


def _homes(home: Path) -> list[Path]:
    """Root reads the homes of all."""
    others = [Path("/root"), *_directories(Path("/home"))] if os.geteuid() == 0 else []
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
        *(root / name for root in wanted.roots for name in (".git", TEAM_DIR)),
    ]


def _close(path: Path, private: Private) -> tuple[str, str, str]:
    return "--ro-bind", str(private.empty_directory if _is_directory(path) else private.empty_file), str(path)


def _caches(wanted: Wanted, private: Private, environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Options, and variables for those that the home has no place for."""
    options, variables = [], {}
    for cache in CACHES:
        top = _real(Path(environment.get(cache.variable) or wanted.home / cache.directory))
        if _is_directory(top):
            places = {part: top / part for part in cache.parts or ("",) if _is_directory(top / part)}
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


def _is_in_any(path: Path, places: Iterable[Path]) -> bool:
    return any(path.is_relative_to(place) for place in places)


def _is_below_any(path: Path, places: Iterable[Path]) -> bool:
    return any(path != place and path.is_relative_to(place) for place in places)


def _is_above_any(path: Path, places: Iterable[Path]) -> bool:
    return any(place != path and place.is_relative_to(path) for place in places)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


# Not the methods of Path, which raise where a directory above cannot be searched.


def _is_directory(path: Path) -> bool:
    return stat.S_ISDIR(_mode(path))


def _is_link(path: Path) -> bool:
    return stat.S_ISLNK(_mode(path, follow=False))


def _exists(path: Path) -> bool:
    return _mode(path) != 0


def _mode(path: Path, follow: bool = True) -> int:
    try:
        return path.stat(follow_symlinks=follow).st_mode
    except OSError:
        return 0


def _identity(path: Path) -> Identity:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
