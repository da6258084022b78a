"""The command line: parses it, loads what it asks for, turns each expected failure into one line and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from teamcli import __version__
from teamcli.cli.streams import have_standard_streams, leave_standard_output
from teamcli.config.options import ExitStatus, Mode, Options
from teamcli.errors import AuthError, ConfigError, ModelNotFound, TeamcliError, TeamError, UsageError, WrongEndpoint
from teamcli.text.escaping import escape_controls


def run(argv: Sequence[str]) -> int:
    """Run the program with these arguments; returns its exit code."""
    have_standard_streams()
    try:
        try:
            return _run(argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if problem := leave_standard_output():
            print(f"teamcli: standard output cannot be written: {problem}", file=sys.stderr)
            return ExitStatus.FAILED
        return ExitStatus.SIGPIPE


def _run(argv: Sequence[str]) -> int:
    try:
        name, arguments = _subcommand(argv)
        if name in SUBCOMMANDS:
            return SUBCOMMANDS[name](arguments)
        return _run_agent(parse_options(argv))
    except TeamcliError as e:
        print(f"teamcli: {escape_controls(str(e))}", file=sys.stderr)
        return (
            ExitStatus.USAGE
            if isinstance(e, UsageError | ConfigError | TeamError | AuthError | ModelNotFound | WrongEndpoint)
            else ExitStatus.FAILED
        )


def _subcommand(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The first word and all others. `--cwd DIR` may stand before it: `teamcli --cwd DIR team` is no task."""
    before = 2 if list(argv[:1]) == ["--cwd"] else 1 if argv and argv[0].startswith("--cwd=") else 0
    return "".join(argv[before : before + 1]), [*argv[:before], *argv[before + 1 :]]


def _run_agent(options: Options) -> int:
    _enter(options.cwd)
    if options.resume == "":
        return _print_sessions()
    from teamcli.app import build as app

    return app.run_headless(options) if options.headless else app.run_repl(options)


def _enter(directory: Path | None) -> None:
    try:
        if directory is not None:
            os.chdir(directory)
    except OSError as e:
        raise UsageError(f"--cwd: cannot enter {directory}: {e.strerror}") from e
    try:
        Path.cwd()
    except OSError as e:
        raise UsageError("the current directory is gone; change to one that is there") from e


def _doctor(argv: Sequence[str]) -> int:
    parser = _subparser("doctor", "Check key, endpoint, model, terminal and .team/, and say how to fix each.")
    parser.add_argument(
        "--explain",
        metavar="COMMAND",
        help="say whether bash would run COMMAND here, and how to write it so that it does",
    )
    arguments = _parse(parser, argv)
    from teamcli.cli.doctor import explain, run_doctor

    return run_doctor() if arguments.explain is None else explain(arguments.explain)


def _sessions(argv: Sequence[str]) -> int:
    _parse(_subparser("sessions", "List this directory's lead sessions, newest first."), argv)
    return _print_sessions()


def _team(argv: Sequence[str]) -> int:
    parser = _subparser("team", "Show who is in this directory's team, also while it works. Changes nothing.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = _parse(parser, argv)
    from teamcli.cli.team import show_team

    return show_team(arguments.json)


def _inbox(argv: Sequence[str]) -> int:
    parser = _subparser("inbox", "Show the messages to an agent, read and unread. Consumes none.")
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="whose inbox (default: lead)")
    parser.add_argument("--unread", action="store_true", help="only those that are unread")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    arguments = _parse(parser, argv)
    from teamcli.cli.team import show_inbox

    return show_inbox(arguments.name, arguments.unread, arguments.json)


def _send(argv: Sequence[str]) -> int:
    parser = _subparser("send", "Send a message to an agent: a running team wakes on it, else it waits there.")
    parser.add_argument("name", metavar="NAME", help="a teammate, or lead")
    parser.add_argument("text", nargs="+", metavar="TEXT", help="the message")
    arguments = _parse(parser, argv)
    from teamcli.cli.team import send

    return send(arguments.name, " ".join(arguments.text))


def _log(argv: Sequence[str]) -> int:
    parser = _subparser("log", "Show the timeline: what each agent did, said and cost.")
    parser.add_argument("-f", "--follow", action="store_true", help="go on as things happen, until Ctrl-C")
    parser.add_argument("-n", type=_at_least_one, metavar="N", help="begin with the last N events (default: all)")
    parser.add_argument("--agent", default="", metavar="NAME", help="only what NAME does, and messages to it")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    arguments = _parse(parser, argv)
    from teamcli.cli.team import show_log

    return show_log(arguments.follow, arguments.agent, arguments.n, arguments.json)


def _demo(argv: Sequence[str]) -> int:
    parser = _Parser(
        prog="teamcli demo",
        description="Show a team of two at work, on the embedded model, in a scratch directory.",
        allow_abbrev=False,
    )
    parser.parse_args(argv)
    from teamcli.cli.demo import run_demo

    return run_demo()


def _subparser(name: str, description: str) -> _Parser:
    parser = _Parser(prog=f"teamcli {name}", description=description, allow_abbrev=False)
    parser.add_argument("--cwd", type=Path, metavar="DIR", help="do it in this directory")
    return parser


def _parse(parser: _Parser, argv: Sequence[str]) -> argparse.Namespace:
    """Raises: UsageError."""
    # the intermixed way does not know that only operands follow `--`
    parse = parser.parse_args if "--" in argv else parser.parse_intermixed_args
    arguments = parse(list(argv))
    _enter(arguments.cwd)
    return arguments


def _print_sessions() -> int:
    from teamcli.commands.reports.sessions import session_table
    from teamcli.storage.team_dir import TeamDir

    print(session_table(TeamDir.of(Path.cwd()).lead_transcript).to_text())
    return ExitStatus.DONE


SUBCOMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "team": _team,
    "inbox": _inbox,
    "send": _send,
    "log": _log,
    "sessions": _sessions,
    "demo": _demo,
    "doctor": _doctor,
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (try {self.prog} --help)")


def parse_options(argv: Sequence[str]) -> Options:
    """Raises: UsageError."""
    end = argv.index("--") if "--" in argv else len(argv)
    arguments = _agent_parser().parse_intermixed_args(list(argv[:end]))
    options = Options(
        prompt=" ".join([*arguments.prompt, *argv[end + 1 :]]).strip(),
        headless=arguments.headless,
        model=arguments.model,
        permission_mode=arguments.permission_mode,
        allowed_tools=tuple(arguments.allowed_tools),
        disallowed_tools=tuple(arguments.disallowed_tools),
        max_turns=arguments.max_turns,
        max_budget_usd=arguments.max_budget_usd,
        continue_last=arguments.continue_last,
        resume=arguments.resume,
        output_format=arguments.output_format or "text",
        append_system_prompt=arguments.append_system_prompt,
        offline=arguments.offline,
        client=arguments.client,
        trust=arguments.trust,
        add_dirs=tuple(arguments.add_dirs),
        no_team=arguments.no_team,
        cwd=arguments.cwd,
        debug=arguments.debug,
    )
    if arguments.output_format and not options.headless:
        raise UsageError("--output-format goes with -p (try teamcli --help)")
    if options.continue_last and options.resume is not None:
        raise UsageError("--continue and --resume exclude each other (try teamcli --help)")
    return options


def _agent_parser() -> _Parser:
    parser = _Parser(
        prog="teamcli",
        usage="teamcli [OPTIONS] [PROMPT]\n       teamcli -p [OPTIONS] [PROMPT]\n       teamcli "
        + " | ".join(SUBCOMMANDS),
        description="A coding agent in the terminal that is a team.",
        epilog="Without a key, teamcli runs on a small embedded model. Try:"
        "  teamcli -p 'spawn alice as greeter: tell lead: hello'",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("prompt", nargs="*", metavar="PROMPT", help="the task; with -p, piped standard input is added to it")
    add(
        "-p", "--print", dest="headless", action="store_true", help="work without a prompt, print the last answer, exit"
    )
    add("--model", metavar="ID", help="the model (else MODEL_ID, else the default)")
    add(
        "--permission-mode",
        choices=[mode.value for mode in Mode],
        help="what is asked for before it runs (default: commands and file changes)",
    )
    add("--allowedTools", dest="allowed_tools", action="append", default=[], metavar="RULES",
        help="never ask for these: 'bash(git status:*),edit_file(src/**)'")  # fmt: skip
    add(
        "--disallowedTools",
        dest="disallowed_tools",
        action="append",
        default=[],
        metavar="RULES",
        help="refuse these, in every mode",
    )
    add("--max-turns", type=_at_least_one, metavar="N", help="stop any one agent after N model calls")
    add("--max-budget-usd", type=_dollars, metavar="X", help="stop when the whole team has cost X dollars")
    add("-c", "--continue", dest="continue_last", action="store_true", help="go on with this directory's last session")
    add("-r", "--resume", nargs="?", const="", metavar="ID", help="go on with session ID; without one, list them")
    add("--output-format", choices=("text", "json", "stream-json"), help="with -p: what to print")
    add("--append-system-prompt", default="", metavar="TEXT", help="add TEXT to the system prompt")
    add("--offline", action="store_true", help="use the embedded model, whatever is configured")
    add("--client", choices=("auto", "direct", "sdk"), help="how to reach the model (default: auto)")
    add("--trust", action="store_true", help="trust what this directory brings along (.team/, an endpoint in .env)")
    add(
        "--add-dir",
        dest="add_dirs",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="let file tools use DIR too",
    )
    add("--no-team", action="store_true", help="one agent, no team tools, nothing kept in .team/")
    add("--cwd", type=Path, metavar="DIR", help="work in DIR")
    add("--debug", action="store_true", help="log more, to .team/logs/")
    add("-V", "--version", action="version", version=f"teamcli {__version__}")
    return parser


def _at_least_one(text: str) -> int:
    value = int(text) if text.isdecimal() and len(text) < 19 else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 up, not '{text}'")
    return value


def _dollars(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be an amount of dollars above 0, not '{text}'")
    return value
