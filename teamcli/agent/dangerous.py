"""The commands that no mode and no rule lets through. Judged on words, never on text: `echo sudoku` is fine."""

from __future__ import annotations

import posixpath
import re

from teamcli.agent.shell_commands import program_name
from teamcli.agent.shell_words import Script, SimpleCommand, Word, names

_OTHER_USER = names("sudo sudoedit doas su pkexec")
_POWER = names("shutdown reboot halt poweroff")
_POWER_ARGUMENTS = {
    "init": names("0 6"),
    "telinit": names("0 6"),
    "systemctl": names("reboot poweroff halt kexec"),
    "loginctl": names("reboot poweroff halt"),
}
_FORMATTING = re.compile(r"mkfs(\..+)?|mke2fs")
_DEVICE = re.compile(
    r"/dev/(?!(null|zero|full|random|urandom|stdin|stdout|stderr|tty\w*|ptmx)$|(fd|shm|pts|tcp|udp)/).+"
)
_RECURSIVE = re.compile(r"-[A-Za-z]*[rR][A-Za-z]*|--r(e(c(u(r(s(i(v(e)?)?)?)?)?)?)?)?")
_EVERYTHING = re.compile(r"[*?.]+|\[.*\]|\{.*\}")
_HOME = re.compile(r"~[\w.-]*|\$HOME|\$\{HOME\}")


def danger_of(script: Script) -> str:
    """What is dangerous about it, in a few words; empty where nothing is."""
    if script.has_fork_bomb:
        return "a function that only starts itself again and again"
    return next(filter(None, map(_danger_of_command, (*script.commands, *script.guesses))), "")


def _danger_of_command(command: SimpleCommand) -> str:
    device = next((target.value for target in command.writes if _is_device(target.value)), "")
    if device:
        return f"it writes to the device {device}"
    name = program_name(command)
    arguments = command.words[1:]
    if name in _OTHER_USER:
        return f"`{name}` runs a command as another user"
    if name in _POWER or any(word.value in _POWER_ARGUMENTS.get(name, ()) for word in arguments):
        return f"`{name}` stops the machine"
    if _FORMATTING.fullmatch(name):
        return f"`{name}` erases a file system"
    if name == "dd":
        return _danger_of_dd(arguments)
    return _danger_of_rm(arguments) if name == "rm" else ""


def _danger_of_dd(arguments: tuple[Word, ...]) -> str:
    outputs = [word.value.removeprefix("of=") for word in arguments if word.value.startswith("of=")]
    return next((f"`dd` writes to the device {path}" for path in outputs if _is_device(path)), "")


def _danger_of_rm(arguments: tuple[Word, ...]) -> str:
    options = True
    is_recursive = False
    targets = []
    for word in arguments:
        if options and word.value == "--":
            options = False
        elif options and word.value.startswith("-") and len(word.value) > 1:
            is_recursive = is_recursive or _RECURSIVE.fullmatch(word.value) is not None
        else:
            targets.append(word)
    target = next((word.value for word in targets if is_recursive and _is_root_or_home(word)), "")
    return f"`rm` would delete everything below {target}" if target else ""


def _is_device(path: str) -> bool:
    return path.startswith("/") and _DEVICE.fullmatch(_normal(path)) is not None


def _is_root_or_home(target: Word) -> bool:
    path = _normal(target.value)
    while not target.is_static and "/" in path and _EVERYTHING.fullmatch(posixpath.basename(path)):
        path = posixpath.dirname(path)
    return path == "/" or (not target.is_static and _HOME.fullmatch(path) is not None)


def _normal(path: str) -> str:
    return posixpath.normpath(re.sub("/+", "/", path)) if path else ""
