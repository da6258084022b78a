"""A bare repository of teamcli's own, next to the user's clone: the only one in which git fetches and pushes.

Fetch and push need the network and the user's keys, so they run outside the sandbox. In the clone they would obey what
agents can write there: files that its configuration includes, links among its refs and objects. This repository is in
the user's home, where no agent can write. Its configuration is written at each start, before an agent runs: from the
clone it has the addresses of the remote and nothing else. Commits cross between the two as packs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from teamcli.errors import GitError
from teamcli.exec.command_host import CommandHost
from teamcli.storage.files import as_state_error, make_private_dir, write_atomic
from teamcli.text.escaping import one_line
from teamcli.worktrees.git import NO_PROGRAMS, Git, config_line, options_for

USUAL_REMOTE = "origin"
REMOTE = "teamcli"
"""What the remote is called in the private repository. What the clone calls it could be an option of git."""
_USERS_SCOPES = ("system", "global")
_LIST = ("config", "--null", "--includes", "--show-scope", "--list")
_URLS = ("config", "--null", "--local", "--no-includes", "--get-regexp", r"^remote\..*\.(url|pushurl)$")
_SSH = "ssh -oBatchMode=yes -oConnectTimeout=20 -oServerAliveInterval=20"
_PATIENCE = {"http.lowspeedlimit": "1", "http.lowspeedtime": "60"}
"""A connection on which nothing moves ends after a minute."""


class UsersGit(Git):
    """Git with the network, the keys and the configuration of the user."""

    def __init__(self, host: CommandHost, directory: Path, is_private: bool = False) -> None:
        """`directory` is a bare repository of ours (`is_private`), or a clone, of which only configuration is read."""
        super().__init__(host, directory)
        # Git looks there for ssh and for what knows the user's passwords.
        path = {"PATH": host.programs.search_path}
        # Nobody is there to type a password: an empty one fails at once, and a question would wait forever.
        protocols = {"GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh", "GIT_ASKPASS": "true"}
        place = {"GIT_DIR": str(directory)} if is_private else {}
        self._variables = {**self._variables, **path, **protocols, **place}
        # A `gc` in the background would be ended with the command that has started it.
        self._options = options_for({**NO_PROGRAMS, "push.gpgSign": "false", "gc.autoDetach": "false"})

    def users_settings(self) -> list[tuple[str, str]]:
        """What the user and the system have set, as it applies to this repository, in git's order.

        Raises: GitError
        """
        words = os.fsdecode(self.run(*_LIST)).split("\0")
        entries = zip(words[::2], words[1::2], strict=False)
        return [_entry(text) for scope, text in entries if scope in _USERS_SCOPES]


class RemoteAddress(NamedTuple):
    """Where a remote is, as the clone says."""

    name: str
    urls: tuple[str, ...]
    push_urls: tuple[str, ...]
    """Empty if they are the same."""

    def settings(self) -> list[tuple[str, str]]:
        """For the private repository."""
        section = f"remote.{REMOTE}"
        urls = [(f"{section}.url", url) for url in self.urls]
        return [*urls, *((f"{section}.pushurl", url) for url in self.push_urls)]

    def refuse_in_reach(self, is_out_of_reach: Callable[[Path], bool]) -> None:
        """The hooks of a repository where agents can write would run outside the sandbox.

        Raises: GitError
        """
        for url in (*self.urls, *self.push_urls):
            path = path_of(url)
            if path is not None and not is_out_of_reach(path):
                raise GitError(f"the remote '{self.name}' is where agents can write")


def read_address(clone: UsersGit) -> RemoteAddress:
    """The clone's `origin`, or its only remote. What agents may have written into included files is not looked at.

    Raises: GitError, with the reason why there is none
    """
    found: dict[str, tuple[list[str], list[str]]] = {}
    settings = clone.users_settings()
    rewritten = tuple(value for key, value in settings if key.startswith("url.") and key.endswith("insteadof"))
    for text in os.fsdecode(clone.run(*_URLS, check=False)).split("\0"):
        key, url = _entry(text)
        name, _, kind = key.removeprefix("remote.").rpartition(".")
        if name and url:
            absolute = url if url.startswith(rewritten) else absolute_url(clone.directory, url)
            found.setdefault(name, ([], []))[kind == "pushurl"].append(absolute)
    with_url = [name for name, (urls, _) in found.items() if urls]
    if not with_url:
        raise GitError("the repository has no remote: add one (git remote add origin URL) and start teamcli again here")
    if USUAL_REMOTE not in with_url and len(with_url) > 1:
        names = one_line(", ".join(with_url), 200)
        raise GitError(f"the repository has several remotes ({names}), and none is called '{USUAL_REMOTE}'")
    name = USUAL_REMOTE if USUAL_REMOTE in with_url else with_url[0]
    urls, push_urls = found[name]
    return RemoteAddress(name, tuple(urls), tuple(push_urls))


def absolute_url(root: Path, url: str) -> str:
    """Git takes a relative path as seen from the top of the clone."""
    if not is_path(url) or url.startswith("/"):
        return url
    place = root
    for part in url.split("/"):
        place = place.parent if part == ".." else place / part
    return str(place)


def is_path(url: str) -> bool:
    """Whether git takes it for a path, not for an address such as `host:path`."""
    before_colon, colon, _ = url.partition(":")
    return not colon or "/" in before_colon


def path_of(url: str) -> Path | None:
    """The path that git takes from this address; None if it is not one of this machine.

    Raises: GitError
    """
    if not url.startswith("file://"):
        return Path(url) if is_path(url) else None
    # Git decodes `%67` and keeps `%00`. It leaves out a host, and everything before the end of one in brackets.
    address = os.fsdecode(unquote_to_bytes(url.removeprefix("file://").replace("%00", "%2500")))
    if address.startswith("[") or "@[" in address:
        raise GitError("the address of a remote has a host in brackets; write file:///PATH")
    return Path("/", address.partition("/")[2])


def open_private_repository(host: CommandHost, clone: UsersGit, place: Path, address: RemoteAddress) -> UsersGit:
    """The private repository of a clone, made if it is not there. Nobody else may use it at the same time.

    Raises: GitError, StateError
    """
    format = clone.text("rev-parse", "--show-object-format")
    description = os.fsencode(f"What teamcli fetches and pushes for {clone.directory} ({format}). It can be deleted.\n")
    if _read_description(place) != description:
        shutil.rmtree(place, ignore_errors=True)
        for directory in (place.parent, place, *(place / name for name in ("objects/info", "objects/pack", "refs"))):
            make_private_dir(directory)
        write_atomic(place / "HEAD", b"ref: refs/heads/none\n")  # without one, git sees no repository here
    with as_state_error("remove", place):
        for lock in place.rglob("*.lock"):  # of a git that was killed
            lock.unlink(missing_ok=True)
    core = [("core.bare", "true"), ("core.repositoryformatversion", "0")]
    if format != "sha1":
        core = [("core.bare", "true"), ("core.repositoryformatversion", "1"), ("extensions.objectformat", format)]
    private = UsersGit(host, place, is_private=True)
    write_config(place, core)
    here, there = clone.users_settings(), private.users_settings()
    # What the user has set under a condition, such as one about the directory of the clone, does not reach this one.
    more = list((Counter(here) - Counter(there)).elements())
    usual = {**_PATIENCE, **({} if _has_own_ssh(here, host.environment) else {"core.sshcommand": _SSH})}
    known = {key for key, _ in here}
    usual = {key: value for key, value in usual.items() if key not in known}
    write_config(place, [*core, *usual.items(), *more, *address.settings()])
    write_atomic(place / "description", description)  # last: without it, the next start begins anew
    return private


def _has_own_ssh(settings: Iterable[tuple[str, str]], environment: Mapping[str, str]) -> bool:
    variables = ("GIT_SSH", "GIT_SSH_COMMAND")
    return any(name in environment for name in variables) or any(key == "core.sshcommand" for key, _ in settings)


def place_of(home: Path, root: Path, host_name: str) -> Path:
    """Each host that works in a clone has its own: no other process uses it."""
    digest = hashlib.sha256(b"\0".join((os.fsencode(root), os.fsencode(host_name)))).hexdigest()[:12]
    return home / "remotes" / f"{root.name or 'root'}-{digest}.git"


def write_config(place: Path, settings: Iterable[tuple[str, str]]) -> None:
    """Raises: StateError"""
    text = "".join(config_line(key, value) for key, value in settings)
    write_atomic(place / "config", os.fsencode(text))


def _read_description(place: Path) -> bytes:
    try:
        return (place / "description").read_bytes()
    except OSError:
        return b""


def _entry(text: str) -> tuple[str, str]:
    key, newline, value = text.partition("\n")
    return key, value if newline else "true"
