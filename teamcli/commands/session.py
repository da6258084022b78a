"""`/clear`, `/compact`, `/model`, `/permissions`, `/sessions` and `/quit`."""

from __future__ import annotations

from teamcli.agent.transcript_sessions import list_sessions
from teamcli.cancel import CancelScope
from teamcli.commands.base import ArgumentKind, Choice, CommandResult, Job, Leave, Option, command
from teamcli.commands.reports.sessions import describe_session
from teamcli.errors import UsageError
from teamcli.llm.pricing import built_in_prices
from teamcli.permissions.policy import Mode
from teamcli.session.session import EMBEDDED, Session
from teamcli.team.message import find_name
from teamcli.text.counting import counted
from teamcli.text.escaping import one_line

MODES = {
    Mode.DEFAULT: "asks before commands and file changes",
    Mode.ACCEPT_EDITS: "asks before commands",
    Mode.PLAN: "refuses commands and file changes",
    Mode.BYPASS_PERMISSIONS: "asks nothing",
}
NOTHING_TO_COMPACT = "There is nothing to compact: the conversation is no longer than its newest turn."
NOTHING_FOR_EMBEDDED = "There is nothing to compact: the embedded model writes no summaries, and no old result is long."


@command("clear")
def clear(session: Session, arguments: str) -> str:
    """Start a new session with an empty conversation.

    The team, its mail and your history stay. /sessions brings the old conversation back.
    """
    session.conversation.clear()
    return f"A new session: {session.id}"


@command("compact", usage="[FOCUS]", arguments=(ArgumentKind.TEXT,))
def compact(session: Session, arguments: str) -> Job:
    """Shorten the context, keeping FOCUS above all.

    Old tool results are shortened. If that does not halve the context, or with FOCUS, the model writes a summary that
    replaces all but the newest turn. Nothing is lost on disk. It happens automatically when the context is nearly full.
    """

    def run(cancel: CancelScope) -> str:
        if session.conversation.compact(arguments, cancel):
            return ""  # the Compacted event is shown instead
        return NOTHING_FOR_EMBEDDED if session.model == EMBEDDED else NOTHING_TO_COMPACT

    return Job(run, "" if session.model == EMBEDDED else "Compacting; Ctrl-C ends it.")


@command("model", usage="[ID]", arguments=(ArgumentKind.MODEL,))
def model(session: Session, arguments: str) -> CommandResult:
    """Show the models, or use another from now on.

    Applies to the lead from its next model call; teammates keep theirs. Any name that the endpoint knows works; the
    list has those with a known price.
    """

    def choose(name: str) -> str:
        session.use_model(name)
        return f"Model: {session.model}"

    if arguments:
        return choose(arguments)
    if session.model == EMBEDDED:
        return f"Model: {EMBEDDED}. There is no other without a key: teamcli doctor says how to add one."
    return Choice(f"Model: {session.model}", model_options(session), choose)


@command("permissions", usage="[MODE]", arguments=(ArgumentKind.MODE,))
def permissions(session: Session, arguments: str) -> CommandResult:
    """Show the permission mode and rules, or switch the mode.

    Applies to all agents at once. A deny rule wins in every mode. Answering a question with `a` adds an allow rule to
    .team/settings.local.json.
    """

    def choose(wanted: str) -> str:
        if (name := find_name(wanted, Mode)) is None:
            raise UsageError(f"unknown mode '{wanted}': there are {', '.join(Mode)}")
        session.live_policy.set_mode(Mode(name))
        return f"Mode: {session.live_policy.policy.mode}"

    if arguments:
        return choose(arguments)
    policy = session.live_policy.policy
    # In the order in which they apply: the first verdict with a matching rule wins.
    found = ((verdict, str(rule)) for verdict in ("deny", "ask", "allow") for rule in getattr(policy, verdict))
    rules = dict.fromkeys(found)  # one rule in Claude Code's form may be several of ours
    title = "\n".join([f"Mode: {policy.mode}", *(f"  {verdict:<5}  {one_line(rule)}" for verdict, rule in rules)])
    return Choice(title, mode_options(session), choose)


@command("sessions", usage="[ID]", arguments=(ArgumentKind.SESSION,))
def sessions(session: Session, arguments: str) -> CommandResult:
    """List the sessions here, or resume one.

    The lead resumes that conversation where it ended; the team and the mail stay as they are. The start of an ID is
    enough. From a shell: teamcli --continue, teamcli --resume ID
    """

    def choose(wanted: str) -> str:
        session.conversation.resume(wanted, session.state.lead_transcript)
        messages = counted(len(session.lead.agent.conversation.messages), "message")
        return f"This is session {session.id} now, with {messages}."

    if arguments:
        return choose(arguments)
    options = session_options(session)
    return Choice("Sessions, newest first:", options, choose) if options else "No sessions here yet."


@command("quit", aliases=("exit", "q"))
def leave(session: Session, arguments: str) -> str:
    """Leave; q, exit and Ctrl-D do the same.

    Working teammates are interrupted and can be resumed next time. Resume with: teamcli --continue
    """
    raise Leave


def model_options(session: Session) -> tuple[Option, ...]:
    prices = built_in_prices().prices
    # The current model comes first, even if the catalog does not know it.
    return tuple(
        Option(
            name,
            f"${price.input:g} in, ${price.output:g} out per million tokens" if (price := prices.get(name)) else "",
            name == session.model,
        )
        for name in dict.fromkeys((session.model, *session.catalog.models))
    )


def mode_options(session: Session) -> tuple[Option, ...]:
    return tuple(Option(mode, what, mode == session.live_policy.policy.mode) for mode, what in MODES.items())


def session_options(session: Session) -> tuple[Option, ...]:
    """Raises: StateError."""
    found = list_sessions(session.state.lead_transcript)
    return tuple(Option(each.id, "  ".join(describe_session(each)), each.id == session.id) for each in found)
