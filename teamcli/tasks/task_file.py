"""A task as a JSON document. Anyone can edit the files, so nothing in them is trusted."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from pathlib import Path
from typing import Any, NamedTuple

from teamcli.errors import StateError
from teamcli.storage.files import VERSION, Json, as_number, cannot, refuse_newer
from teamcli.tasks.board import Task, TaskStatus

LARGEST_FILE = 2_000_000
LARGEST_ID = 999_999_999
_LONGEST_NAME = 64
_SMALL = 16_000
_NUMBERED = re.compile(r"([1-9][0-9]{0,8})\.(json|bad)")
_UNREADABLE = (errno.ELOOP, errno.EACCES, errno.ENXIO)

Signature = tuple[int, int, int, int]
"""Inode, size and times: another one means that the content may have changed."""


class Damaged(Exception):
    """The file does not hold a task; the message continues `it is …` or names the field."""


class StoredTask(NamedTuple):
    task: Task
    signature: Signature
    unknown: Json
    """Fields that this version does not know, kept as they are."""

    def to_json(self) -> Json:
        return {"v": VERSION, **self.task._asdict(), **self.unknown}


def number_of(name: str) -> tuple[int, bool]:
    """The number in a file's name and whether it is a task's file. 0 for other files."""
    match = _NUMBERED.match(name)
    return (int(match[1]), name == f"{match[1]}.json") if match else (0, False)


def signature_of(found: os.stat_result) -> Signature:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_task(path: Path, id: int, signature: Signature) -> StoredTask | None:
    """None if the file is gone.

    Raises: Damaged; StateError for a file that a newer version wrote, or that cannot be read now
    """
    try:
        data = _read(path)
    except FileNotFoundError:
        return None
    except OSError as e:
        if e.errno in _UNREADABLE:
            raise Damaged("a symbolic link" if e.errno == errno.ELOOP else "not readable") from e
        raise StateError(cannot("read", path, e)) from e
    return parse_task(data, id, path, signature)


def parse_task(data: bytes, id: int, path: Path, signature: Signature = (0, 0, 0, 0)) -> StoredTask:
    """The task in a document; `path` names it in messages.

    Raises: Damaged; StateError for one that a newer version wrote
    """
    try:
        raw = json.loads(data.decode())
    except (ValueError, RecursionError) as e:
        raise Damaged(str(e)) from e
    if not isinstance(raw, dict):
        raise Damaged("not a JSON object")
    refuse_newer(path, raw)
    unknown = {} if raw.keys() <= _FIELDS else {key: value for key, value in raw.items() if key not in _FIELDS}
    return StoredTask(_task(raw, id), signature, unknown)


def _read(path: Path) -> bytes:
    """As `read_regular`, without a buffer for the largest file: a board has many small ones.

    Raises: OSError, Damaged
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):  # a FIFO would never end
            raise Damaged("not a regular file")
        if found.st_size > LARGEST_FILE:
            raise Damaged(f"larger than {LARGEST_FILE:,} bytes")
        return os.read(fd, LARGEST_FILE if found.st_size > _SMALL else _SMALL)
    finally:
        os.close(fd)


def _task(raw: Json, id: int) -> Task:
    if raw.get("id") != id or type(raw["id"]) is not int:
        raise Damaged(f"the id must be {id}, as in the name of the file")
    status, owner = _status(raw), _text(raw, "owner", None, _LONGEST_NAME) or None
    if status is TaskStatus.IN_PROGRESS and owner is None:
        status = TaskStatus.PENDING  # nobody works on it, so anyone may take it
    return Task(
        id,
        _text(raw, "subject"),
        _text(raw, "description", ""),
        status,
        owner,
        _blockers(raw.get("blocked_by", [])),
        _text(raw, "created_by", "", _LONGEST_NAME),
        as_number(raw.get("created")),
        as_number(raw.get("updated")),
        _text(raw, "result", ""),
        max(0, int(as_number(raw.get("assigned")))),
    )


def _status(raw: Json) -> TaskStatus:
    try:
        return TaskStatus(raw.get("status", TaskStatus.PENDING))
    except (ValueError, TypeError) as e:
        raise Damaged(f"the status cannot be {raw['status']!r:.40}") from e


def _text(raw: Json, field: str, default: Any = ..., longest: int = LARGEST_FILE) -> Any:
    value = raw.get(field, default)
    if value is None and default is None:
        return None
    if not isinstance(value, str) or len(value) > longest:
        raise Damaged(f"{field} cannot be {'missing' if value is ... else repr(value)[:40]}")
    return value


def _blockers(raw: object) -> tuple[int, ...]:
    if not isinstance(raw, list) or not all(type(each) is int and 0 < each <= LARGEST_ID for each in raw):
        raise Damaged(f"blocked_by cannot be {raw!r:.40}")
    return tuple(sorted(set(raw)))


_FIELDS = frozenset({"v", *Task._fields})
