"""`send_message`: write to one agent of the team, or to several."""

from __future__ import annotations

import json
from typing import Annotated, Any, NamedTuple

from teamcli.agent.tool import Display, ToolOutput
from teamcli.tools.team_tool import show_words, team_tool
from teamcli.tools.tool_input import Words
from teamcli.tools.toolbox import Running, TeamPort


def _names(raw: Any) -> str | tuple[str, ...]:
    """One clear sentence for a union of types, where each of them would have a riddle of its own."""
    found = _list_in_text(raw)
    if found and isinstance(found, list) and all(isinstance(name, str) for name in found):
        return tuple(found)
    if found and isinstance(found, str):
        return found
    raise ValueError("must be a name or a list of names")


def _list_in_text(raw: Any) -> Any:
    """Where text is possible too, models now and then write the list as text; no name begins with a bracket."""
    if not (isinstance(raw, str) and raw.startswith("[")):
        return raw
    try:
        return json.loads(raw)
    except ValueError:
        return raw


class SendMessageInput(NamedTuple):
    """Write to a teammate or to lead. An idle teammate wakes and acts on it, a working one sees it at its next step.
    Answers come to you by themselves."""

    to: Annotated[str | tuple[str, ...], _names]
    content: Words
    summary: Annotated[str, "A few words for the user"] = ""


def run(args: SendMessageInput, team: TeamPort, agent: str, running: Running) -> ToolOutput:
    to = args.to if isinstance(args.to, str) else tuple(dict.fromkeys(args.to))
    return ToolOutput(team.send(agent, to, args.content, args.summary, running.key))


def show(args: SendMessageInput) -> Display:
    names = args.to if isinstance(args.to, str) else ", ".join(args.to)
    return show_words(f"message to {names}", args.content, headline=args.summary)


SEND_MESSAGE = team_tool("send_message", SendMessageInput, run, show)
