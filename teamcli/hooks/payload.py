"""What a hook reads: the event in our words with Claude Code's in addition, or the other way around."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from teamcli.agent.hooks import HookEvent
from teamcli.claude_code.hook_words import their_fields
from teamcli.claude_code.permission_updates import suggestions
from teamcli.claude_code.tool_inputs import TheirCall, absolute, to_theirs, updated_to_ours
from teamcli.claude_code.tool_responses import CallResult, tool_response

Json = dict[str, Any]


def our_payload(event: HookEvent) -> Json:
    payload = {"hook_event_name": event.name, "agent": event.agent, **event.fields}
    return payload | _about_call(event, is_claudes=False)


def their_payload(event: HookEvent, transcript: str = "", agent_transcript: str = "") -> Json:
    """`transcript` is a file in Claude Code's format; so is that of a sub-agent, if this is about the end of one."""
    fields = their_fields(event.name, event.fields)
    if transcript:
        fields["transcript_path"] = transcript
    if agent_transcript:
        fields["agent_transcript_path"] = agent_transcript
    first: Json = {name: fields.pop(name) for name in ("session_id", "transcript_path", "cwd") if name in fields}
    if rules := fields.pop("suggested_rules", None):
        fields["permission_suggestions"] = suggestions(event.subject, rules)
    if calls := fields.get("tool_calls"):
        fields["tool_calls"] = [_in_their_words(call, _root(event)) for call in calls]
    payload: Json = {**first, "hook_event_name": event.name, **fields, **_about_call(event, is_claudes=True)}
    payload["agent"] = event.agent
    return payload


def file_of(event: HookEvent) -> str:
    """The absolute path of the file that a call is about; empty if there is none."""
    path = _call_in_theirs(event).input.get("file_path", "")
    return path if isinstance(path, str) else ""


def changed_input(event: HookEvent, updated: Mapping[str, Any]) -> Json:
    """The input that a hook returned, in our words."""
    before = event.fields.get("tool_input", {})
    ours = updated_to_ours(event.subject, updated, before, _root(event))
    shown, path = file_of(event), updated.get("file_path")
    if isinstance(path, str) and shown and shown != absolute(before.get("path"), _root(event)):
        # The agent works in a subdirectory, so a path relative to the root would mean another file.
        ours["path"] = updated.get("path", before["path"]) if path == shown else path
    return ours


def _in_their_words(call: Mapping[str, Any], root: Path) -> Json:
    given = call["tool_input"]
    theirs = to_theirs(str(call["tool_name"]), given, root)
    ours = given if isinstance(given, Mapping) else {}
    return {**call, "tool_name": theirs.tool, "tool_input": _joined(theirs.input, ours)}


def _about_call(event: HookEvent, is_claudes: bool) -> Json:
    if "tool_name" not in event.fields:
        return {}
    given = event.fields.get("tool_input")
    call = _call_in_theirs(event)
    ours = given if isinstance(given, Mapping) else {}
    fields: Json = {"tool_name": call.tool if is_claudes else event.fields["tool_name"]}
    fields["tool_input"] = _joined(call.input, ours) if is_claudes else _joined(ours, call.input)
    response = event.fields.get("tool_response")
    if isinstance(response, Mapping) and not (is_claudes and "error" in event.fields):
        content, milliseconds = str(response.get("content", "")), int(event.fields.get("duration_ms", 0))
        theirs = tool_response(CallResult(event.subject, ours, content, _root(event), event.original, milliseconds))
        fields["tool_response"] = _response(response, theirs, is_claudes)
    return fields


def _response(ours: Mapping[str, Any], theirs: Json | str, is_claudes: bool) -> Json | str:
    if isinstance(theirs, str):
        return theirs if is_claudes else dict(ours)
    return _joined(theirs, ours) if is_claudes else _joined(ours, theirs)


def _joined(first: Mapping[str, Any], more: Mapping[str, Any]) -> Json:
    """All fields of the first, and those of the second that it does not have."""
    return {**first, **{name: value for name, value in more.items() if name not in first}}


def _call_in_theirs(event: HookEvent) -> TheirCall:
    given = event.fields.get("tool_input")
    call = to_theirs(str(event.fields.get("tool_name", "")), given, _root(event))
    path = call.input.get("file_path")
    if isinstance(path, str) and event.prepared is not None and event.prepared.given == given:
        # An agent that works in a subdirectory means paths below that.
        meant = getattr(event.prepared.access, "path", None)
        if isinstance(meant, Path) and os.path.realpath(path) != str(meant):
            call.input["file_path"] = str(meant)
    return call


def _root(event: HookEvent) -> Path:
    return Path(str(event.fields.get("cwd", "/")))
