"""The commands that no mode and no rule lets through. Judged by words, not by text: `echo sudo` is fine."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from itertools import takewhile

from teamcli.permissions.shell.commands import read_commands
from teamcli.permissions.shell.loose import FoundCommand, Word
from teamcli.permissions.shell.scanner import names

_OTHER_USER = names("sudo sudoedit doas su pkexec")
_POWER = names("shutdown reboot halt poweroff")
_POWER_ARGUMENTS = {
    "init": names("0 6"),
    "telinit": names("0 6"),
    "systemctl": names("reboot poweroff halt kexec"),
    "loginctl": names("reboot poweroff halt"),
}
_FORMATTING = re.compile(r"mkfs(\..+)?|mke2fs|wipefs|blkdiscard")
_DEVICE = re.compile(
    r"/dev/(?!(null|zero|full|random|urandom|stdin|stdout|stderr|tty\w*|ptmx)$|(fd|shm|pts|tcp|udp)/).+"
)
_RECURSIVE = re.compile(r"-[A-Za-z]*[rR][A-Za-z]*|--r(e(c(u(r(s(i(v(e)?)?)?)?)?)?)?)?")
_EVERYTHING = re.compile(r"[*?.]+|\[.*\]|\{.*\}")
_SYSTEM = re.compile(
    r"/(bin|boot|dev|etc|home|lib\w*|opt|proc|root|sbin|srv|sys|usr|var|Users|System|Library|Applications)"
)
_FORK_BOMB = re.compile(r"(?<![^\s(){};&|])([^\s(){};&|]+)\s*\(\)\s*\{\s*\1\s*\|\s*\1\s*&?\s*;?\s*\}")
_HOME = re.compile(r"~[\w.-]*|\$HOME|\$\{HOME\}")


def danger_of(line: str) -> str:
    """What is dangerous about a command line, in a few words; empty if nothing is."""
    # A function definition is nothing that the reader of commands knows, so this one is matched as text.
    if _FORK_BOMB.search(line):
        return "a function that only starts itself again and again"
    return next(filter(None, map(_danger_of_command, read_commands(line).commands)), "")


def _danger_of_command(command: FoundCommand) -> str:
    device = next((target.value for target in command.writes if _is_device(target.value)), "")
    if device:
        return f"it writes to the device {device}"
    if not command.words:
        return ""
    name = command.words[0].value.rsplit("/", 1)[-1]
    arguments = command.words[1:]
    if name in _OTHER_USER:
        return f"`{name}` runs a command as another user"
    if name in _POWER or any(word.value in _POWER_ARGUMENTS.get(name, ()) for word in arguments):
        return f"`{name}` stops the machine"
    if _FORMATTING.fullmatch(name):
        return f"`{name}` erases a file system"
    judge = _JUDGES.get(name)
    return judge(name, arguments) if judge else ""


def _danger_of_copying(name: str, arguments: tuple[Word, ...]) -> str:
    if name == "dd":
        written = tuple(Word(word.value[3:]) for word in arguments if word.value.startswith("of="))
    else:
        written = arguments if name in ("tee", "shred", "truncate") else arguments[-1:]
    device = next((word.value for word in written if _is_device(word.value)), "")
    return f"`{name}` writes to the device {device}" if device else ""


def _danger_of_owning(name: str, arguments: tuple[Word, ...]) -> str:
    targets = _operands(arguments)[1:] if _is_recursive(arguments) else []
    target = next((word.value for word in targets if _whole(word) == "/"), "")
    return f"`{name}` would change everything below {target}" if target else ""


def _danger_of_kill(name: str, arguments: tuple[Word, ...]) -> str:
    targets = arguments[1:] if arguments and arguments[0].value.startswith("-") else arguments
    return f"`{name}` would end every process" if any(word.value == "-1" for word in targets) else ""


def _danger_of_find(name: str, arguments: tuple[Word, ...]) -> str:
    starts = list(takewhile(lambda word: not word.value.startswith(("-", "(", "!")), arguments))
    deletes = any(word.value == "-delete" for word in arguments)
    filters = any(word.value.startswith(("-name", "-path", "-iname", "-user", "-mtime", "-size")) for word in arguments)
    target = next((word.value for word in starts if deletes and not filters and _is_root_or_home(word)), "")
    return f"`{name}` would delete everything below {target}" if target else ""


def _danger_of_rm(name: str, arguments: tuple[Word, ...]) -> str:
    targets = _operands(arguments) if _is_recursive(arguments) else []
    target = next((word.value for word in targets if _is_root_or_home(word) or _SYSTEM.fullmatch(_whole(word))), "")
    return f"`{name}` would delete everything below {target}" if target else ""


def _is_recursive(arguments: tuple[Word, ...]) -> bool:
    options = takewhile(lambda word: word.value != "--", arguments)
    return any(_RECURSIVE.fullmatch(word.value) for word in options)


def _operands(arguments: tuple[Word, ...]) -> list[Word]:
    """What is not an option; after `--` nothing is one."""
    end = next((i for i, word in enumerate(arguments) if word.value == "--"), len(arguments))
    before = [word for word in arguments[:end] if not word.value.startswith("-") or word.value == "-"]
    return [*before, *arguments[end + 1 :]]


def _is_device(path: str) -> bool:
    return path.startswith("/") and _DEVICE.fullmatch(_normal(path)) is not None


def _is_root_or_home(target: Word) -> bool:
    return _whole(target) == "/" or (bool(target.source) and _HOME.fullmatch(_whole(target)) is not None)


def _whole(target: Word) -> str:
    """The directory of which a target means all: `/etc/*` is `/etc`."""
    path = _normal(target.value)
    while target.source and "/" in path and _EVERYTHING.fullmatch(posixpath.basename(path)):
        path = posixpath.dirname(path)
    return path


def _normal(path: str) -> str:
    return posixpath.normpath(re.sub("/+", "/", path)) if path else ""


_JUDGES: dict[str, Callable[[str, tuple[Word, ...]], str]] = {
    "rm": _danger_of_rm,
    "kill": _danger_of_kill,
    "find": _danger_of_find,
    **dict.fromkeys(names("chmod chown chgrp"), _danger_of_owning),
    **dict.fromkeys(names("cp mv dd tee shred install truncate"), _danger_of_copying),
}
