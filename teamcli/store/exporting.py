"""Writes a team from a database into a directory, as the files of `.team/`. They appear once all are written."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from teamcli.errors import StateError, UsageError
from teamcli.storage.files import as_state_error, sync_directory
from teamcli.storage.team_dir import LeadLock, TeamDir
from teamcli.store.documents import TOKEN, Documents
from teamcli.store.mirror import Mirror
from teamcli.store.team_files import MOVED, move_aside
from teamcli.team.message_line import LineCodec
from teamcli.team.signing import ensure_token, key_of

if TYPE_CHECKING:
    from teamcli.store.postgres.team_rows import Team


def export_team(
    team: Team,
    target: TeamDir,
    user_key: bytes,
    is_forced: bool = False,
    progress: Callable[[str], None] = lambda text: None,
    warn: Callable[[str], None] = lambda text: None,
) -> Path | None:
    """Write all files. If the directory has a team already, that is an error, or with `is_forced` its files move aside;
    returns where they are then.

    Raises: StateError, UsageError
    """
    parts = (target.config, target.inbox, target.transcripts, target.events, target.tasks)
    if any(part.exists() for part in parts) and not is_forced:
        raise UsageError(f"{target.root} has a team already: name another directory, or move it aside with --force")
    with as_state_error("create", target.root):
        target.root.parent.mkdir(parents=True, exist_ok=True)
        # Next to the target, and so in the same file system: then each part can be put in place by a rename.
        new = TeamDir(Path(tempfile.mkdtemp(prefix=f"{target.root.name}-export-", dir=target.root.parent)))
    try:
        _write(team, new, user_key, progress, warn)
        target.prepare()
        lock = LeadLock.take(target.lock)
        if lock is None:
            raise StateError(f"teamcli is running in {target.root.parent}: stop it, then export")
        try:
            return _put_in_place(new, target)
        finally:
            lock.release()
    finally:
        shutil.rmtree(new.root, ignore_errors=True)


def _write(
    team: Team, new: TeamDir, user_key: bytes, progress: Callable[[str], None], warn: Callable[[str], None]
) -> None:
    # With the token that the directory had before the import, the user who imported it gets the same signatures.
    kept = team.database.run(lambda cursor: Documents(team).read_one(cursor, TOKEN))
    token = ensure_token(new.inbox, kept.encode() if kept else None)
    files, rows = LineCodec(key_of(token, user_key)), LineCodec(key_of(team.uid.encode(), team.key))
    mirror = Mirror(team, new, sign_again=lambda line: files.sign_again(line, rows), warn=warn)
    mirror.bring_all(progress)


def _put_in_place(new: TeamDir, target: TeamDir) -> Path | None:
    old = [target.root / name for name in MOVED if (target.root / name).exists()]
    aside = move_aside(target.root, old, "before-export") if old else None
    with as_state_error("write", target.root):
        for path in sorted(new.root.iterdir()):
            path.rename(target.root / path.name)
    sync_directory(target.root)
    return aside
