"""Where a team's state is: the database, which team of it, and the key that signs its rows.

A team is known by the first commit of its repository and by its name, so that every clone on every machine finds it.
Its key is in the user's home and never in the database: who can write to the database cannot give orders.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from teamcli.config.environment import STORE
from teamcli.config.settings import read_settings_file
from teamcli.errors import ConfigError, StateError, UsageError
from teamcli.exec.programs import Programs
from teamcli.storage.files import make_private_dir, write_atomic
from teamcli.storage.team_dir import TeamDir
from teamcli.team.signing import KEY_BYTES, read_key
from teamcli.text.redaction import register_secrets

DEFAULT_TEAM = "default"
_SCHEMES = ("postgresql", "postgres")
_HOSTS = re.compile(r"(\[[0-9a-fA-F:.]*\]|[^:/@\[\]]*)(:\d*)?(,(\[[0-9a-fA-F:.]*\]|[^:/@\[\]]*)(:\d*)?)*")
_BAD_PERCENT = re.compile(r"%(?![0-9a-fA-F]{2})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_COMMIT = re.compile(r"[0-9a-f]{4,64}")
_UID = re.compile(r"[0-9a-f]{32}")
_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
_GIT_SECONDS = 30


def find_store(given: str | None, environment: Mapping[str, str], home: Path) -> str:
    """The URL of the store: as given on the command line, by the environment, or by the user's own settings, never by
    those of a project. Empty if the state is in files; an empty variable says so, whatever the settings say.

    Raises: UsageError, ConfigError
    """
    url, source = given or "", "--store"
    if not url and STORE in environment:
        url, source = environment[STORE], STORE
    elif not url:
        settings = home / "settings.json"
        url, source = read_settings_file(settings, may_be_link=True).get("store") or "", f"`store` in {settings}"
    if url:
        _check_url(url, source)
        register_secrets(_passwords(url))
    return url


def shown_url(url: str) -> str:
    """The URL without its password and without its other parameters."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{hosts}{parts.path}"


def check_team_name(name: str) -> str:
    """Raises: UsageError"""
    if not _NAME.fullmatch(name):
        raise UsageError(f"--team: '{name}' is not a valid name: use up to 64 letters, digits, dots and dashes")
    return name


def split_team_name(given: str) -> tuple[str, str]:
    """A name, and in the form NAME@ROOT the first digits of the repository's first commit.

    Raises: UsageError
    """
    name, at, root = given.partition("@")
    if at and not _COMMIT.fullmatch(root):
        raise UsageError(
            f"--team: '{given}' is not valid: after @, write the first digits of what teamcli store teams shows as"
            " REPOSITORY"
        )
    return check_team_name(name), root


def refuse_without_store(team: str, host: str = "") -> None:
    """Raises: UsageError, if an option was given that means nothing to a team in files"""
    if option := "--team" if team else "--host" if host else "":
        raise UsageError(f"{option} is for a team in a database: name that with --store URL, or set {STORE}")


def refuse_files(directory: TeamDir) -> None:
    """A directory with a team in files is not used for one in a database: there would be two truths.

    Raises: ConfigError
    """
    if directory.holds_team:
        raise ConfigError(
            f"{directory.root} holds a team in files: move it into the database with teamcli store import, or use the"
            f" files, without --store and with an empty {STORE}"
        )


def root_commit(directory: Path) -> str:
    """The first commit of the repository that contains a directory; of several, the smallest.

    Raises: ConfigError
    """
    if _git(directory, "rev-parse", "--is-shallow-repository") == "true":
        raise ConfigError(
            f"the clone in {directory} is shallow, so its first commit is not known: git fetch --unshallow"
        )
    return min(_git(directory, "rev-list", "--max-parents=0", "HEAD").split())


def root_or_nothing(directory: Path, name: str) -> str:
    """The same; empty outside of a repository, if a team is named.

    Raises: ConfigError
    """
    try:
        return root_commit(directory)
    except ConfigError:
        if not name:
            raise
        return ""


def _git(directory: Path, *arguments: str) -> str:
    import subprocess  # only here: most runs do not need it

    program = Programs(writable=[directory.resolve()]).find("git")
    if program is None:
        raise ConfigError("a team in a database is known by its git repository, and git was not found: install it")
    # Variables such as GIT_DIR would lead git to another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            [program, *_GIT[1:], "-C", str(directory), *arguments],
            env={**environment, "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise ConfigError(f"git does not answer in {directory}: {e}") from e
    if done.returncode:
        raise ConfigError(
            f"a team in a database is known by the first commit of its git repository, and {directory} has none: "
            "use a clone, or commit once (git init && git commit --allow-empty -m start)"
        )
    return done.stdout.decode("utf-8", "replace").strip()


def new_uid() -> str:
    """The id of a new team."""
    return secrets.token_hex(16)


def key_path(home: Path, uid: str) -> Path:
    """Anyone who can write to the database can choose the id: it must not name another file.

    Raises: StateError, if it is not one that teamcli has made
    """
    if not _UID.fullmatch(uid):
        raise StateError("the id of the team in the database is not one that teamcli has made: see who writes to it")
    return home / "teams" / f"{uid}.key"


def find_key(home: Path, uid: str) -> bytes | None:
    """The key of a team; None if this machine does not have it.

    Raises: StateError
    """
    return read_key(key_path(home, uid))


def load_key_of_team(home: Path, uid: str, created_on: str) -> bytes:
    """Raises: StateError, which says what to copy from where, if this machine does not have the key."""
    if key := find_key(home, uid):
        return key
    raise StateError(missing_key(home, uid, created_on))


def missing_key(home: Path, uid: str, created_on: str) -> str:
    """The machine is named in the database, and the user copies the command into a shell."""
    path = key_path(home, uid)
    machine = created_on if _MACHINE.fullmatch(created_on) else ""
    source = shlex.quote(f"{machine or 'HOST'}:{path.relative_to(home.parent)}")
    where = f"from {machine}" if machine else "from a machine that has it"
    with suppress(StateError):
        make_private_dir(path.parent)  # scp makes none
    command = f"scp {source} {shlex.quote(str(path))}"
    return f"this machine does not have the key of the team: copy {path} {where} ({command})"


def make_key(home: Path, uid: str) -> bytes:
    """Make the key of a new team.

    Raises: StateError
    """
    path, key = key_path(home, uid), secrets.token_bytes(KEY_BYTES)
    make_private_dir(path.parent)
    write_atomic(path, key)
    return key


def this_host() -> str:
    return os.uname().nodename


def _check_url(url: str, source: str) -> None:
    """Before the library sees it: its messages quote the part that is wrong, which may be a password."""
    scheme = url.partition("://")[0]
    if scheme not in _SCHEMES or "://" not in url:
        raise UsageError(f"{source}: a store is given as postgresql://USER@HOST/DATABASE")
    try:
        hosts = urlsplit(url).netloc.rpartition("@")[2]
    except ValueError as e:
        raise UsageError(f"{source}: the URL of the store is not valid ({e})") from e
    if _BAD_PERCENT.search(url) or not _HOSTS.fullmatch(hosts) or url.partition("?")[0].count("@") > 1:
        raise UsageError(
            f"{source}: the URL of the store is not valid; in a password, write special characters as %XX, "
            "or leave it out and put it into ~/.pgpass"
        )


def _passwords(url: str) -> list[str]:
    parts = urlsplit(url)
    written = parts.netloc.rpartition("@")[0].partition(":")[2]
    parameters = (each.partition("=") for each in parts.query.split("&"))
    given = [value for name, _, value in parameters if name in ("password", "sslpassword")]
    return [form for each in (written, *given) if each for form in (each, unquote(each))]
