"""Published MCP servers, run in the sandbox as teamcli runs them."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled
from teamcli.exec.command_host import CommandHost
from teamcli.exec.sandbox.plan import SandboxSettings
from teamcli.exec.sandbox.sandbox import Sandbox
from teamcli.mcp.authorizer import NoAuthorizer
from teamcli.mcp.client import McpClient
from teamcli.mcp.http import HttpTransport
from teamcli.mcp.server import CallProgress, ServerConfig
from tests.interop.installed import PYTHON_SERVERS, SERVERS, install_npm, install_python
from tests.mcp.servers import PATIENT, Recorder, call, connect, text_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop


@pytest.fixture(scope="session")
def node_servers() -> Path:
    return install_npm("servers", SERVERS)


@pytest.fixture(scope="session")
def python_servers() -> Path:
    return install_python("python-servers", PYTHON_SERVERS)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    return root


@pytest.fixture
def host(root: Path, clean_environment: Path) -> Iterator[CommandHost]:
    """With a sandbox, if there is one here."""
    make_sandbox = partial(Sandbox, SandboxSettings((root,), clean_environment))
    host = CommandHost(os.environ, owns_process=False, make_sandbox=make_sandbox)
    yield host
    host.close()


class TestEverything:
    @pytest.fixture
    def recorder(self) -> Recorder:
        return Recorder()

    @pytest.fixture(params=["stdio", "http"])
    def client(
        self, request: pytest.FixtureRequest, node_servers: Path, host: CommandHost, root: Path, recorder: Recorder
    ) -> Iterator[McpClient]:
        program = str(node_servers / "mcp-server-everything")
        if request.param == "stdio":
            connecting = connect("stdio", command=program, root=root, host=host, recorder=recorder, ask=recorder.accept)
        else:
            connecting = over_http(program, recorder)
        with connecting as client:
            yield client

    def test_its_tools_prompts_resources_and_templates_are_listed(self, client: McpClient) -> None:
        cancel = CancelScope()
        counts = [len(list_all(cancel)) for list_all in (client.tools, client.prompts, client.resources)]
        assert counts == [15, 4, 7]
        assert len(client.templates(cancel)) == 2

    def test_a_call_a_prompt_and_a_resource_are_answered(self, client: McpClient) -> None:
        assert text_of(call(client, "get-sum", a=1, b=2)) == "The sum of 1 and 2 is 3."
        (message,) = client.get_prompt("args-prompt", {"city": "Bern"}, CancelScope()).messages
        assert "Bern" in message.content["text"]
        uri = client.resources(CancelScope())[0].uri
        assert client.read_resource(uri, CancelScope())[0].text

    def test_an_image_and_structured_content_arrive(self, client: McpClient) -> None:
        kinds = [block["type"] for block in call(client, "get-tiny-image").content]
        assert "image" in kinds
        assert call(client, "get-structured-content", location="New York").structured

    def test_its_question_is_answered(self, client: McpClient) -> None:
        assert "- Name: alice" in text_of(call(client, "trigger-elicitation-request"))

    def test_progress_arrives_in_order(self, client: McpClient) -> None:
        reports: list[CallProgress] = []
        client.call("trigger-long-running-operation", {"duration": 1, "steps": 4}, CancelScope(), reports.append)
        assert [report.progress for report in reports] == [1, 2, 3, 4]

    def test_a_cancelled_call_returns_at_once_and_others_still_work(self, client: McpClient) -> None:
        cancel = CancelScope()
        client.start(cancel)
        threading.Timer(0.3, cancel.cancel).start()
        with pytest.raises(Cancelled):
            client.call("trigger-long-running-operation", {"duration": 60, "steps": 60}, cancel)
        assert text_of(call(client, "echo", message="x")) == "Echo: x"

    def test_bad_arguments_and_unknown_tools_are_error_results(self, client: McpClient) -> None:
        assert call(client, "get-sum", a="x").is_error
        assert call(client, "no-such-tool").is_error


@contextmanager
def over_http(program: str, recorder: Recorder) -> Iterator[McpClient]:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environment = {**os.environ, "PORT": str(port)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([program, "streamableHttp"], env=environment, **quiet) as server:  # type: ignore[call-overload]
        try:
            wait_until(lambda: listens(port))
            config = ServerConfig("everything", url=f"http://127.0.0.1:{port}/mcp", timeouts=PATIENT)
            client = McpClient(
                config, lambda receiver: HttpTransport(config, receiver, NoAuthorizer()), Path("/"), recorder.accept
            )
            yield client
            client.close()
        finally:
            server.terminate()


def listens(port: int) -> bool:
    import socket

    try:
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    except OSError:
        return False


def test_the_filesystem_server_reads_and_writes_in_the_workspace(
    node_servers: Path, host: CommandHost, root: Path
) -> None:
    program = str(node_servers / "mcp-server-filesystem")
    with connect(str(root), command=program, root=root, host=host) as client:
        assert not call(client, "write_file", path=str(root / "a.txt"), content="hello").is_error
        assert (root / "a.txt").read_text() == "hello"
        assert text_of(call(client, "read_text_file", path=str(root / "a.txt"))) == "hello"
        assert call(client, "read_text_file", path="/etc/passwd").is_error


def test_the_time_server_tells_the_time(python_servers: Path, host: CommandHost, root: Path) -> None:
    program = str(python_servers / "mcp-server-time")
    with connect("--local-timezone", "UTC", command=program, root=root, host=host) as client:
        assert [tool.name for tool in client.tools(CancelScope())] == ["get_current_time", "convert_time"]
        answer = json.loads(text_of(call(client, "get_current_time", timezone="Europe/Zurich")))
        assert answer["timezone"] == "Europe/Zurich"


def test_the_git_server_reports_the_status(python_servers: Path, host: CommandHost, root: Path) -> None:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / "new.txt").touch()
    program = str(python_servers / "mcp-server-git")
    with connect("-r", str(root), command=program, root=root, host=host) as client:
        assert "new.txt" in text_of(call(client, "git_status", repo_path=str(root)))
