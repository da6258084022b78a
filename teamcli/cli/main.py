"""The command line: parses it, loads what it needs, and turns expected failures into one line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from teamcli import __version__
from teamcli.claude_code.flags import mode_of, translate
from teamcli.cli.claude_options import add_claude_options, read_claude_options, unknown_option
from teamcli.cli.parsing import (
    Parser,
    at_least_one,
    dollars,
    enter_directory,
    looking_parser,
    parse,
    subparser,
)
from teamcli.cli.streams import abandon_standard_output, prepare_standard_streams
from teamcli.config.options import ExitStatus, Mode, Options
from teamcli.errors import AuthError, ConfigError, ModelNotFound, TeamcliError, TeamError, UsageError, WrongEndpoint
from teamcli.text.escaping import escape_controls


def run(argv: Sequence[str]) -> int:
    """Run the program with these arguments; returns its exit code."""
    prepare_standard_streams()
    try:
        try:
            name, arguments = _subcommand(argv)
            if name in SUBCOMMANDS:
                return SUBCOMMANDS[name](arguments)
            return _run_agent(parse_options(argv))
        except TeamcliError as e:
            print(f"teamcli: {escape_controls(str(e))}", file=sys.stderr)
            users = (UsageError, ConfigError, TeamError, AuthError, ModelNotFound, WrongEndpoint)
            return ExitStatus.USAGE if isinstance(e, users) else ExitStatus.FAILED
        finally:
            # Here, not at exit: only here a closed pipe still becomes an exit code.
            sys.stdout.flush()
    except BrokenPipeError:
        if problem := abandon_standard_output():
            print(f"teamcli: standard output cannot be written: {problem}", file=sys.stderr)
            return ExitStatus.FAILED
        return ExitStatus.SIGPIPE  # as for any program whose reader, such as `head`, has read enough


def _subcommand(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The first word and the other arguments. `--cwd DIR` may precede it, as in `teamcli --cwd DIR team`."""
    before = 2 if list(argv[:1]) == ["--cwd"] else 1 if argv and argv[0].startswith("--cwd=") else 0
    return "".join(argv[before : before + 1]), [*argv[:before], *argv[before + 1 :]]


def _run_agent(options: Options) -> int:
    enter_directory(options.cwd)
    if options.resume == "":
        return _print_sessions(options.store, options.team)
    from teamcli.app import run as app  # late: `--help` and usage errors do not need it

    return app.run_headless(options) if options.headless else app.run_repl(options)


def _doctor(argv: Sequence[str]) -> int:
    parser = looking_parser(
        "doctor", "Check key, endpoint, model, terminal and .team/, and say how to fix what is wrong."
    )
    parser.add_argument(
        "--explain",
        metavar="COMMAND",
        help="say whether bash would run COMMAND here, and how to write it so that a rule applies",
    )
    arguments = parse(parser, argv)
    # Late, as in the other subcommands: `--help` and usage errors load nothing, and each loads only its own needs.
    from teamcli.cli.doctor import explain, run_doctor

    return run_doctor(arguments.store, arguments.team) if arguments.explain is None else explain(arguments.explain)


def _sessions(argv: Sequence[str]) -> int:
    arguments = parse(looking_parser("sessions", "List this directory's lead sessions, newest first."), argv)
    return _print_sessions(arguments.store, arguments.team)


def _team(argv: Sequence[str]) -> int:
    parser = looking_parser("team", "Show this directory's team, running or not. Changes nothing.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parse(parser, argv)
    from teamcli.cli.team import open_snapshot, show_team

    with open_snapshot(arguments.store, arguments.team) as snapshot:
        return show_team(snapshot, arguments.json)


def _up(argv: Sequence[str]) -> int:
    parser = looking_parser("up", "Let the members of .team/team.toml join this directory's team. Calls no model.")
    parser.add_argument("--trust", action="store_true", help="trust the configuration in this directory")
    arguments = parse(parser, argv)
    from teamcli.app.up import run_up

    return run_up(Options(store=arguments.store or "", team=arguments.team, trust=arguments.trust))


def _inbox(argv: Sequence[str]) -> int:
    parser = looking_parser("inbox", "Show an agent's messages, read and unread. Consumes nothing.")
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="whose inbox (default: lead)")
    parser.add_argument("--unread", action="store_true", help="only unread messages")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    arguments = parse(parser, argv)
    from teamcli.cli.team import open_snapshot, show_inbox

    with open_snapshot(arguments.store, arguments.team) as snapshot:
        return show_inbox(snapshot, arguments.name, arguments.unread, arguments.json)


def _send(argv: Sequence[str]) -> int:
    parser = looking_parser(
        "send", "Send a message to an agent. A running team reacts at once; otherwise the message waits."
    )
    parser.add_argument("name", metavar="NAME", help="a teammate, or lead")
    parser.add_argument("text", nargs="+", metavar="TEXT", help="the message")
    arguments = parse(parser, argv)
    from teamcli.cli.team import open_snapshot, send

    with open_snapshot(arguments.store, arguments.team, changes=True) as snapshot:
        return send(snapshot, arguments.name, " ".join(arguments.text))


def _log(argv: Sequence[str]) -> int:
    parser = looking_parser("log", "Show the timeline: what each agent did, said and cost.")
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing new events, until Ctrl-C")
    parser.add_argument("-n", type=at_least_one, metavar="N", help="start with the last N events (default: all)")
    parser.add_argument("--agent", default="", metavar="NAME", help="only what NAME does, and its messages")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    arguments = parse(parser, argv)
    from teamcli.cli.team import open_snapshot, show_log

    with open_snapshot(arguments.store, arguments.team, arguments.follow) as snapshot:
        return show_log(snapshot, arguments.follow, arguments.agent, arguments.n, arguments.json)


def _watch(argv: Sequence[str]) -> int:
    parser = looking_parser("watch", "Watch an agent at work, or all of them, until Ctrl-C. Changes nothing.")
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="a teammate, or lead (default: everyone)")
    parser.add_argument("--verbose", action="store_true", help="also show thoughts and the output of calls")
    parser.add_argument("--json", action="store_true", help="print one JSON object per event")
    parser.add_argument("--tmux", action="store_true", help="open a tmux pane for each teammate, or for NAME")
    arguments = parse(parser, argv)
    if arguments.tmux:
        from teamcli.cli.tmux import open_panes

        return open_panes(arguments.name, arguments.verbose, arguments.store)
    from teamcli.cli.team import open_snapshot
    from teamcli.cli.watch import run_watch

    with open_snapshot(arguments.store, arguments.team, follows=True) as snapshot:
        return run_watch(snapshot, arguments.name, arguments.verbose, arguments.json)


def _tasks(argv: Sequence[str]) -> int:
    parser = looking_parser("tasks", "Show the task board, add a task (add TEXT) or complete one (done N).")
    parser.add_argument("words", nargs="*", metavar="N | add TEXT | done N", help="which task, or what to do")
    parser.add_argument("--owner", default="", metavar="NAME", help="with add: who gets the task")
    parser.add_argument("--blocked-by", default="", metavar="N,…", help="with add: the tasks that must be done first")
    parser.add_argument("--json", action="store_true", help="print an array of the tasks as their files hold them")
    arguments = parse(parser, argv)
    from teamcli.cli.tasks import run_tasks
    from teamcli.cli.team import open_snapshot

    changes = arguments.words[:1] in (["add"], ["done"])
    with open_snapshot(arguments.store, arguments.team, changes=changes) as snapshot:
        return run_tasks(snapshot, arguments.words, arguments.owner, arguments.blocked_by, arguments.json)


def _merge(argv: Sequence[str]) -> int:
    parser = subparser("merge", "Merge the branch of a teammate that works in its own worktree, after the gate.")
    parser.add_argument("name", metavar="NAME", help="the teammate")
    parser.add_argument("-m", "--message", default="", metavar="TEXT", help="for what it has not committed")
    arguments = parse(parser, argv)
    from teamcli.cli.merge import merge

    return merge(arguments.name, arguments.message)


def _mcp(argv: Sequence[str]) -> int:
    # Everything after `--` is the command of a server, also words that look like options.
    end = list(argv).index("--") if "--" in argv else len(argv)
    parser = subparser(
        "mcp", "List, show, add or remove MCP servers: list, get NAME, add NAME -- COMMAND, remove NAME."
    )
    parser.add_argument("verb", choices=("list", "get", "add", "remove"), help="what to do (default: list)", nargs="?")
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="the server")
    parser.add_argument("words", nargs="*", metavar="COMMAND | URL", help="with add: how to reach it")
    parser.add_argument("-t", "--transport", choices=("stdio", "http"), default="stdio", help="with add")
    parser.add_argument("-e", "--env", action="append", default=[], metavar="NAME=VALUE", help="with add: a variable")
    parser.add_argument("-H", "--header", action="append", default=[], metavar="'NAME: VALUE'", help="with add, http")
    parser.add_argument("-s", "--scope", choices=("local", "project", "user"), help="which file (default: local)")
    arguments = parse(parser, argv[:end])
    if arguments.verb not in (None, "list") and not arguments.name:
        raise UsageError(f"teamcli mcp {arguments.verb} needs the name of a server (try teamcli mcp --help)")
    from teamcli.cli import mcp

    match arguments.verb:
        case "get":
            return mcp.run_get(arguments.name)
        case "add":
            return mcp.run_add(arguments, argv[end + 1 :])
        case "remove":
            return mcp.run_remove(arguments.name, arguments.scope or "")
        case _:
            return mcp.run_list()


_MODE_HELP = "as of teamcli; what it does not decide is asked at the lead's prompt"
_WORKER_NEEDS = """\
It runs until Ctrl-C, which hands its members over. Before you start it:
  - the team exists: start teamcli once with the same database, in any clone
  - this machine has the team's key: copy ~/.teamcli/teams/ID.key from where that was
  - this clone can push to the remote that all clones share
The lead says who runs here: "spawn alice as coder on host HOST"."""


def _worker(argv: Sequence[str]) -> int:
    parser = subparser("worker", "Run members of a team in a database on this machine, in this clone.", _WORKER_NEEDS)
    parser.add_argument("--store", default="", metavar="URL", help="the team's PostgreSQL database (or TEAMCLI_STORE)")
    parser.add_argument("--team", default="", metavar="NAME", help="which team of the store (default: the only one)")
    parser.add_argument("--name", default="", metavar="HOST", help="what this host is called (default: the machine)")
    parser.add_argument("--slots", type=at_least_one, default=8, metavar="N", help="run at most N members (default: 8)")
    parser.add_argument("--trust", action="store_true", help="trust the configuration in this directory")
    parser.add_argument("--offline", action="store_true", help="use the embedded model, whatever is configured")
    parser.add_argument("--permission-mode", choices=[mode.value for mode in Mode], type=mode_of, help=_MODE_HELP)
    parser.add_argument("--debug", action="store_true", help="write a detailed log to .team/logs/")
    given = parse(parser, argv)
    from teamcli.app.worker import run_worker

    names = ("store", "team", "trust", "offline", "permission_mode", "debug")
    return run_worker(Options(host=given.name, **{name: getattr(given, name) for name in names}), given.slots)


_VERBS = """\
migrate  create the tables, or bring them up to date; begin with this
teams    list the teams, and the hosts that run them
export   write a team to DIR as files
import   move the team in DIR into the database
delete   delete a team that no host runs
roles    print SQL for roles with few rights

  teamcli store migrate --store postgresql://USER@HOST/DATABASE"""


def _store(argv: Sequence[str]) -> int:
    parser = looking_parser("store", "The database behind teams.", _VERBS)
    verbs = ("migrate", "teams", "export", "import", "delete", "roles")
    parser.add_argument("verb", choices=verbs, help="what to do: see below")
    parser.add_argument("directory", nargs="?", metavar="DIR", help="with export and import: where (default: ./.team)")
    parser.add_argument("--force", action="store_true", help="with export: move a team aside that is there")
    parser.add_argument("--yes", action="store_true", help="with delete: do not ask")
    parser.add_argument("--json", action="store_true", help="with teams: print one JSON object per line")
    arguments = parse(parser, argv)
    from teamcli.cli.store import run_store

    return run_store(arguments)


def _demo(argv: Sequence[str]) -> int:
    # Without --cwd: the demo works in a directory that it creates.
    parser = Parser(
        prog="teamcli demo",
        description="Watch a team of two at work, on the embedded model, in a scratch directory.",
        allow_abbrev=False,
    )
    parser.parse_args(argv)
    from teamcli.cli.demo import run_demo

    return run_demo()


def _print_sessions(store: str | None, team: str) -> int:
    from teamcli.cli.tables import print_table
    from teamcli.cli.team import open_snapshot
    from teamcli.commands.reports.sessions import session_table

    with open_snapshot(store, team) as snapshot:
        print_table(session_table(snapshot.lead_transcript()))
    return ExitStatus.DONE


SUBCOMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "team": _team,
    "up": _up,
    "inbox": _inbox,
    "send": _send,
    "log": _log,
    "watch": _watch,
    "tasks": _tasks,
    "merge": _merge,
    "mcp": _mcp,
    "worker": _worker,
    "store": _store,
    "sessions": _sessions,
    "demo": _demo,
    "doctor": _doctor,
}


def parse_options(argv: Sequence[str]) -> Options:
    """Raises: UsageError."""
    argv, without_effect = translate(argv, _is_our_tool)
    # Everything after `--` is the prompt, also words that look like options.
    end = argv.index("--") if "--" in argv else len(argv)
    parser = _agent_parser()
    # Every option's name in the parser is a field of Options.
    parsed, unknown = parser.parse_known_intermixed_args(argv[:end])
    if unknown:
        raise UsageError(unknown_option(unknown, parser))
    given: dict[str, Any] = {**vars(parsed), "without_effect": without_effect}
    read_claude_options(given)
    if given["output_format"] and not given["headless"]:
        raise UsageError("--output-format requires -p (try teamcli --help)")
    if given["continue_last"] and given["resume"] is not None:
        raise UsageError("--continue and --resume exclude each other (try teamcli --help)")
    given["prompt"] = " ".join([*given["prompt"], *argv[end + 1 :]]).strip()
    given["output_format"] = given["output_format"] or "text"  # not before: without -p, giving it is an error
    for several in ("allowed_tools", "disallowed_tools", "add_dirs", "plugin_dirs", "mcp_config"):
        given[several] = tuple(given[several])
    return Options(**given)


def _is_our_tool(name: str) -> bool:
    from teamcli.tools.catalog import ALL_TOOLS  # late: asked only about words that follow a rule

    return name in {tool.name for tool in ALL_TOOLS}


def _agent_parser() -> Parser:
    parser = Parser(
        prog="teamcli",
        usage="teamcli [OPTIONS] [PROMPT]\n       teamcli -p [OPTIONS] [PROMPT]\n       teamcli "
        + " | ".join(SUBCOMMANDS),
        description="A coding agent in the terminal that is a team.",
        epilog="Without a key, teamcli runs on a small embedded model. Try:"
        "  teamcli -p 'spawn alice as greeter: tell lead: hello'",
        allow_abbrev=False,
        add_help=False,
    )
    # Groups with the names of argparse's own. The parser itself measures the terminal for each argument, and loads
    # modules for that.
    parser.add_argument_group("positional arguments").add_argument(
        "prompt", nargs="*", metavar="PROMPT", help="the task; with -p, piped standard input is appended"
    )
    add = parser.add_argument_group("options").add_argument
    several = partial(add, action="append", default=[])
    add("-h", "--help", action="help", help="show this help message and exit")
    add("-p", "--print", dest="headless", action="store_true", help="run without a prompt, print the last answer, exit")
    add("--model", metavar="ID", help="the model (default: MODEL_ID, or the built-in default)")
    modes = [mode.value for mode in Mode]
    add(
        "--permission-mode",
        choices=modes,
        type=mode_of,
        help="what needs your permission (default: commands and file changes)",
    )
    allowed = "run these without asking: 'bash(git status:*),edit_file(src/**)'"
    several("--allowedTools", dest="allowed_tools", metavar="RULES", help=allowed)
    several("--disallowedTools", dest="disallowed_tools", metavar="RULES", help="refuse these in every mode")
    add("--max-turns", type=at_least_one, metavar="N", help="stop any agent after N model calls")
    add("--max-budget-usd", type=dollars, metavar="X", help="stop when the whole team has cost X dollars")
    add("-c", "--continue", dest="continue_last", action="store_true", help="resume the last session of this directory")
    add("-r", "--resume", nargs="?", const="", metavar="ID", help="resume session ID; without an ID, list the sessions")
    add("--output-format", choices=("text", "json", "stream-json"), help="with -p: the format of the output")
    add("--append-system-prompt", default="", metavar="TEXT", help="append TEXT to the system prompt")
    add("--offline", action="store_true", help="use the embedded model, whatever is configured")
    add("--client", choices=("auto", "direct", "sdk"), help="how to reach the model (default: auto)")
    add("--trust", action="store_true", help="trust the configuration in this directory (.team/, an endpoint in .env)")
    several("--add-dir", dest="add_dirs", type=Path, metavar="DIR", help="let file tools use DIR, too")
    several("--mcp-config", metavar="FILE", help="use the MCP servers in FILE, or in JSON text")
    add("--strict-mcp-config", action="store_true", help="use no other MCP servers")
    add("--no-team", action="store_true", help="one agent, no team tools, no state in .team/")
    add("--store", default="", metavar="URL", help="keep the team in this PostgreSQL database")
    add(
        "--team",
        default="",
        metavar="NAME",
        help="which team of the store (default: the only one, or a new one called default)",
    )
    add("--host", default="", metavar="NAME", help="what this machine is called in the team (default: its name)")
    add("--cwd", type=Path, metavar="DIR", help="work in DIR")
    add("--verbose", action="store_true", help="show more: with -p each step on stderr, else as /verbose does")
    add("--debug", action="store_true", help="write a detailed log to .team/logs/")
    add("-V", "--version", action="version", version=f"teamcli {__version__}")
    add_claude_options(parser)
    return parser
