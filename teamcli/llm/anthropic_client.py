"""The way through the `anthropic` package: everything its credential chain and platform clients can reach.

The package takes more than a second to load. That happens with the first request, in a thread that can be abandoned.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from teamcli import __version__
from teamcli.cancel import CancelScope
from teamcli.errors import AuthError, ServerFault
from teamcli.llm.connection import Connection, Connections, Timeouts
from teamcli.llm.credentials import API_KEY, Endpoint, header_names
from teamcli.llm.faults import Faults, refuse_unless_stream
from teamcli.llm.transport import EventStream
from teamcli.llm.types import Request

_PLATFORM_CLIENTS = {"bedrock": "AnthropicBedrock", "vertex": "AnthropicVertex", "foundry": "AnthropicFoundry"}


class SdkTransport:
    def __init__(self, endpoint: Endpoint, timeouts: Timeouts) -> None:
        self._endpoint = endpoint
        self._faults = Faults(endpoint)
        self._connections = Connections(lambda: Connection(endpoint.base_url, timeouts))
        self._client: tuple[Any, Connection] | None = None
        """An `Anthropic` or a platform client (they share no useful type), and the connection that it uses."""

    def open(self, request: Request, cancel: CancelScope) -> EventStream:
        model = request.preamble.model
        with _explained(self._faults, model), self._connections.take(cancel) as connection:
            stream = self._client_on(connection).messages.create(**_arguments(request))
            refuse_unless_stream(stream.response, self._faults, model)

        def close() -> None:
            stream.close()
            self._connections.put_back(connection)

        return EventStream(self._events(stream, model), connection.shut_down, close)

    def reopen(self, request: Request, cancel: CancelScope, on_sent: Callable[[], None]) -> EventStream | None:
        return None  # it may have to fetch a token first, so it always needs a thread

    def warm_up(self) -> None:
        with _explained(self._faults, model=""):
            self._connections.warm_up()

    def close(self) -> None:
        self._connections.close()

    def _events(self, stream: Any, model: str) -> Iterator[dict[str, Any]]:
        with _explained(self._faults, model):
            for event in stream:
                yield event.to_dict(warnings=False)  # the SDK need not know every kind of block

    def _client_on(self, connection: Connection) -> Any:
        if self._client is None:
            client = self._make_client(connection)
        else:
            client, used = self._client
            if used is not connection:
                client = client.copy(http_client=connection.http)  # keeps the tokens that it fetched
        self._client = (client, connection)
        return client

    def _make_client(self, connection: Connection) -> Any:
        import anthropic

        endpoint = self._endpoint
        # The package adds the headers from the environment by itself. Only `endpoint` knows whether they may be sent.
        headers: dict[str, Any] = dict.fromkeys(header_names(os.environ), anthropic.omit)
        headers |= {"user-agent": f"teamcli/{__version__}", **endpoint.own_headers}
        options: dict[str, Any] = {
            "http_client": connection.http,
            "timeout": connection.http.timeout,
            "max_retries": 0,
            "default_headers": headers,
        }
        if endpoint.base_url:
            options["base_url"] = endpoint.base_url
        if endpoint.profile:
            options["profile"] = endpoint.profile
        if endpoint.secret:
            options["api_key" if endpoint.source == API_KEY else "auth_token"] = endpoint.secret
            headers.setdefault("authorization", anthropic.omit)
        return getattr(anthropic, _PLATFORM_CLIENTS.get(endpoint.platform or "", "Anthropic"))(**options)


def _arguments(request: Request) -> dict[str, Any]:
    """The SDK requires some fields by name. The rest goes as it is: this SDK may not know all fields."""
    body = json.loads(request.encoded)  # from the bytes, in which invalid Unicode is already replaced
    named = {name: body.pop(name) for name in ("model", "max_tokens", "messages", "stream")}
    return {**named, "extra_body": body}


@contextmanager
def _explained(faults: Faults, model: str) -> Iterator[None]:
    """Raises: ModelError, for anything that the SDK or its HTTP layer raises inside the block."""
    import anthropic
    import httpx2

    try:
        yield
    except anthropic.APIStatusError as e:
        if e.status_code < 300:  # an error in the middle of a stream
            raise faults.from_event(e.body if isinstance(e.body, dict) else {"error": e.body}, model) from None
        body = e.body if isinstance(e.body, str) else json.dumps(e.body)
        raise faults.from_answer(e.status_code, e.response.headers, body, model) from None  # `e` quotes the endpoint
    except anthropic.APIConnectionError as e:
        raise faults.from_http_error(e.__cause__ or e) from e
    except (httpx2.HTTPError, httpx2.InvalidURL) as e:
        raise faults.from_http_error(e) from e
    except json.JSONDecodeError as e:
        raise ServerFault("The endpoint sent a malformed event.") from e
    except (anthropic.AnthropicError, ImportError, RuntimeError, TypeError, ValueError) as e:
        # All of these can mean credentials that are missing or incomplete, or a platform whose extra is not installed.
        raise AuthError(f"The SDK cannot use {faults.endpoint.source}: {faults.clean(str(e))}") from e
