"""`send_message`: write to one agent of the team, or to several."""

from __future__ import annotations

import json
from typing import Annotated, Any, NamedTuple

from pydantic_core import PydanticCustomError, ValidationError

from teamcli.agent.tool import Display, ToolOutput
from teamcli.tools.base.context import CallContext, TeamPort
from teamcli.tools.base.tool import show_words, team_tool
from teamcli.tools.base.tool_input import Check, Words


def _check_names(raw: Any, check: Check) -> Any:
    """One clear sentence for a union of types; pydantic has a cryptic one for each of them."""
    try:
        names = check(_names_in_text(raw))
    except ValidationError:
        names = None
    if not names:
        raise PydanticCustomError("names", "must be a name or a list of names")
    return names


def _names_in_text(raw: Any) -> Any:
    """Several names in one text, separated by commas or as a JSON list. No name contains a comma or a bracket."""
    if not isinstance(raw, str):
        return raw
    if raw.lstrip().startswith("["):
        try:
            return json.loads(raw)
        except ValueError:
            return raw
    names = [name for each in raw.split(",") if (name := each.strip())]
    return names if len(names) > 1 else "".join(names)


class SendMessageInput(NamedTuple):
    """Write to a teammate or to lead. An idle teammate wakes and acts on it, a working one sees it at its next step.
    Answers come to you by themselves."""

    to: Annotated[str | tuple[str, ...], "A name, or several with commas between them", _check_names]
    content: Words
    summary: Annotated[str, "A few words for the user"] = ""


def run(args: SendMessageInput, team: TeamPort, agent: str, call: CallContext) -> ToolOutput:
    # A name that occurs twice gets the message once.
    to = args.to if isinstance(args.to, str) else tuple(dict.fromkeys(args.to))
    return ToolOutput(team.mail.send(agent, to, args.content, args.summary, call.key))


def show(args: SendMessageInput) -> Display:
    names = args.to if isinstance(args.to, str) else ", ".join(args.to)
    return show_words(f"message to {names}", args.content, headline=args.summary)


SEND_MESSAGE = team_tool("send_message", SendMessageInput, run, show)
