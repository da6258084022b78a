"""Questions of a server to the user, as they come over the wire in either era."""

from __future__ import annotations

from teamcli.mcp.messages import RpcError
from teamcli.mcp.server import Elicitation, ElicitationAnswer, Json

MOST_ROUNDS = 10
"""How often one call may come back with questions."""
MOST_QUESTIONS = 10
"""In one round."""
_INVALID_PARAMS = -32602
_LONGEST_MESSAGE = 10_000
_LONGEST_URL = 4_000


def parse_question(server: str, params: Json) -> Elicitation:
    """Raises: RpcError, for one that cannot be shown"""
    message, mode, url = params.get("message"), params.get("mode", "form"), params.get("url")
    text = message[:_LONGEST_MESSAGE] if isinstance(message, str) else ""
    if mode == "url":
        if not isinstance(url, str) or not url.startswith(("https://", "http://")) or len(url) > _LONGEST_URL:
            raise RpcError(_INVALID_PARAMS, "url: should be a web address")
        return Elicitation(server, text, url=url)
    schema = params.get("requestedSchema")
    if mode != "form" or not isinstance(schema, dict):
        raise RpcError(_INVALID_PARAMS, "only the modes form, with a requestedSchema, and url are supported")
    return Elicitation(server, text, schema)


def encode_answer(question: Elicitation, answer: ElicitationAnswer) -> Json:
    if answer.action == "accept" and not question.url:
        return {"action": "accept", "content": dict(answer.content)}
    return {"action": answer.action}
