"""What the parsers of all commands share: options of every subcommand, and checks of values."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from teamcli.errors import UsageError


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (try {self.prog} --help)")


def subparser(name: str, description: str, epilog: str = "") -> Parser:
    """`epilog` is printed as it is, below the options."""
    form = argparse.RawDescriptionHelpFormatter if epilog else argparse.HelpFormatter
    names: dict[str, Any] = {"prog": f"teamcli {name}", "description": description, "epilog": epilog}
    parser = Parser(**names, formatter_class=form, allow_abbrev=False)
    parser.add_argument("--cwd", type=Path, metavar="DIR", help="use this directory")
    return parser


def looking_parser(name: str, description: str, epilog: str = "") -> Parser:
    """For commands that also work on a team in a database."""
    parser = subparser(name, description, epilog)
    parser.add_argument("--store", metavar="URL", help="the database of the team (default: TEAMCLI_STORE)")
    parser.add_argument(
        "--team", default="", metavar="NAME", help="which team of the database (of any repository: NAME@ROOT)"
    )
    return parser


def parse(parser: Parser, argv: Sequence[str]) -> argparse.Namespace:
    """Raises: UsageError."""
    # parse_intermixed_args does not know that only operands follow `--`
    parse_all = parser.parse_args if "--" in argv else parser.parse_intermixed_args
    arguments = parse_all(list(argv))
    enter_directory(arguments.cwd)
    return arguments


def enter_directory(directory: Path | None) -> None:
    try:
        if directory is not None:
            os.chdir(directory)
    except OSError as e:
        raise UsageError(f"--cwd: cannot enter {directory}: {e.strerror}") from e
    try:
        Path.cwd()
    except OSError as e:
        raise UsageError("the current directory no longer exists; change to another one") from e


def at_least_one(text: str) -> int:
    value = int(text) if text.isdecimal() and len(text) < 19 else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 up, not '{text}'")
    return value


def dollars(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be an amount of dollars above 0, not '{text}'")
    return value
