"""A server on stdio, in both eras, that behaves."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, McpError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.sandbox.plan import SandboxSettings
from teamcli.exec.sandbox.sandbox import Sandbox
from teamcli.mcp.client import McpClient
from teamcli.mcp.server import (
    CallProgress,
    Elicitation,
    ElicitationAnswer,
    PromptArgument,
    ServerConfig,
    ServerTimeouts,
)
from teamcli.mcp.stdio import named_paths, open_stdio
from tests.mcp.servers import FAKE, SECONDS, Recorder, call, connect, json_of, make_host, text_of
from tests.redteam.conftest import need_sandbox
from tests.support.program import ROOT
from tests.support.waiting import wait_until

ERAS = ("legacy", "modern")


@pytest.fixture(scope="module", params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def client(era: str) -> Iterator[McpClient]:
    """One server for all tests that leave it as it was."""
    recorder = Recorder()
    with connect(era, ask=recorder.accept, recorder=recorder) as client:
        yield client


def is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_its_status_says_what_it_is(client: McpClient, era: str) -> None:
    client.start(CancelScope())
    status = client.status
    assert (status.state, status.era, status.error) == ("ready", era, "")
    assert (status.server_name, status.server_version, status.instructions) == ("fake", "1", "Be kind.")


def test_its_tools_are_listed_without_those_that_make_no_sense(client: McpClient) -> None:
    names = [tool.name for tool in client.tools(CancelScope())]
    assert names[0] == "echo"
    assert len(names) == len(set(names))


def test_a_tool_comes_with_description_and_schema(client: McpClient) -> None:
    tool = client.tools(CancelScope())[0]
    assert (tool.description, tool.input_schema) == ("Does echo", {"type": "object"})


def test_a_call_returns_what_the_tool_said(client: McpClient) -> None:
    assert text_of(call(client, "echo", text="héllo\nworld")) == "héllo\nworld"


def test_an_error_of_the_tool_is_a_result(client: McpClient) -> None:
    result = call(client, "fails")
    assert (text_of(result), result.is_error) == ("it broke", True)


def test_a_refused_call_is_an_error_result(client: McpClient) -> None:
    result = call(client, "refuse")
    assert (text_of(result), result.is_error) == ("no such thing (error -32602)", True)


def test_prompts_and_their_texts_are_read(client: McpClient) -> None:
    (prompt,) = client.prompts(CancelScope())
    assert (prompt.name, prompt.arguments) == ("review", (PromptArgument("file", "", True),))
    (message,) = client.get_prompt("review", {"file": "a.py"}, CancelScope()).messages
    assert json.loads(message.content["text"])["arguments"] == {"file": "a.py"}


def test_resources_and_templates_are_read(client: McpClient) -> None:
    assert [(each.uri, each.size) for each in client.resources(CancelScope())] == [("file:///a", 3)]
    assert [each.uri_template for each in client.templates(CancelScope())] == ["file:///{x}"]
    text, blob = client.read_resource("file:///a", CancelScope())
    assert (text.uri, text.text, blob.blob) == ("file:///a", "abc", "AA==")


def test_progress_is_reported_in_order(client: McpClient) -> None:
    reports: list[CallProgress] = []
    client.call("steps", {"count": 3}, CancelScope(), reports.append)
    assert reports == [CallProgress(number, 3, "step") for number in (1, 2, 3)]


def test_a_question_of_the_server_reaches_the_user_and_the_answer_the_server(client: McpClient, era: str) -> None:
    answer = json_of(call(client, "form"))
    assert answer["result"] == {"action": "accept", "content": {"name": "alice"}}
    assert answer.get("state") == ("opaque" if era == "modern" else None)


def test_a_call_that_needs_a_visit_first_is_repeated_after_it(era: str) -> None:
    recorder = Recorder()
    with connect(era, ask=recorder.accept) as client:
        assert text_of(call(client, "link")) == "linked"
    assert recorder.questions == [Elicitation("fake", "Visit", url="https://example.com/x")]


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("ping", {"result": {}}),
        ("sampling/createMessage", {"error": {"code": -32601, "message": "Method not found"}}),
        ("roots/list", {"result": {"roots": [{"uri": "file:///", "name": ""}]}}),
    ],
)
@pytest.mark.parametrize("id", [0, 1, "a"])
def test_requests_of_the_server_are_answered_whatever_their_id(
    client: McpClient, method: str, answer: object, id: object
) -> None:
    assert json_of(call(client, "asks", id=id, method=method)) == {"jsonrpc": "2.0", "id": id, **answer}  # type: ignore[dict-item]


def test_eight_threads_call_at_once_and_each_gets_its_own_answer(client: McpClient) -> None:
    def ask(number: int) -> bool:
        return text_of(call(client, "echo", text=f"{number}" * 50)) == f"{number}" * 50

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(400)))


def test_a_question_stops_the_clock_of_the_call() -> None:
    release = threading.Event()

    def ask(question: Elicitation, cancel: CancelScope) -> ElicitationAnswer:
        release.wait(SECONDS)
        return ElicitationAnswer("accept", {"name": "bo"})

    # The call would time out long before the person answers.
    with connect(ask=ask, timeouts=ServerTimeouts(SECONDS, SECONDS, 0.3, 0.3)) as client:
        timer = threading.Timer(1.0, release.set)
        timer.start()
        assert json_of(call(client, "form"))["result"] == {"action": "accept", "content": {"name": "bo"}}


def test_without_a_user_questions_are_declined_and_not_even_invited() -> None:
    with connect() as client:
        assert json_of(call(client, "form"))["error"]["code"] == -32601
        first = json_of(call(client, "history"))[0]
    assert first["params"]["capabilities"] == {}


def test_without_a_user_a_modern_server_gets_its_question_declined() -> None:
    with connect("modern") as client:
        assert json_of(call(client, "form"))["result"] == {"action": "decline"}


def test_a_server_that_asks_for_ever_is_given_up() -> None:
    recorder = Recorder()
    with connect("modern", ask=recorder.accept) as client, pytest.raises(McpError, match="more than 10 times"):
        call(client, "form", forever=True)
    assert len(recorder.questions) == 10


def test_a_legacy_server_that_asks_for_ever_is_refused() -> None:
    recorder = Recorder()
    with connect(ask=recorder.accept) as client:
        refusal = json_of(call(client, "form", forever=True))["error"]["message"]
    assert refusal == "too many questions"
    assert len(recorder.questions) == 100


def test_a_question_about_a_cancelled_call_is_withdrawn() -> None:
    asked, scope = threading.Event(), CancelScope()

    def ask(question: Elicitation, cancel: CancelScope) -> ElicitationAnswer:
        asked.set()
        cancel.wait(SECONDS)
        raise Cancelled(cancel.reason)

    def interrupt() -> None:
        asked.wait(SECONDS)
        scope.cancel()

    with connect(ask=ask) as client:
        threading.Thread(target=interrupt).start()
        with pytest.raises(Cancelled):
            client.call("form", {}, scope)
        wait_until(lambda: '"result": {"action": "cancel"}' in text_of(call(client, "history")))


@pytest.mark.parametrize("params", [{"mode": "url", "url": "file:///etc/passwd"}, {"mode": "dance"}])
def test_a_question_that_cannot_be_shown_is_refused(params: dict[str, str]) -> None:
    with connect(ask=Recorder().accept) as client:
        assert json_of(call(client, "form", params=params))["error"]["code"] == -32602


def test_nothing_is_sent_between_the_start_and_its_confirmation() -> None:
    with connect() as client:
        methods = [message["method"] for message in json_of(call(client, "history"))]
    assert methods == ["initialize", "notifications/initialized", "tools/call"]


def test_a_modern_server_is_recognized_when_it_rejects_the_old_start() -> None:
    with connect("modern") as client:
        methods = [message["method"] for message in json_of(call(client, "history"))]
    assert methods[:2] == ["initialize", "server/discover"]


def test_a_modern_server_is_asked_to_report_changes() -> None:
    recorder = Recorder()
    with connect("modern", recorder=recorder) as client:
        client.start(CancelScope())
        wait_until(lambda: "subscriptions/listen" in text_of(call(client, "history")))
        call(client, "change", count=3)
        assert recorder.wait_until(lambda: recorder.changes == ["tools"])


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18"])
def test_older_versions_are_accepted(version: str) -> None:
    with connect(f"version:{version}") as client:
        client.start(CancelScope())
        assert client.status.protocol_version == version


def test_pages_are_followed() -> None:
    with connect("pages:7") as client:
        assert [tool.name for tool in client.tools(CancelScope())] == [f"t{number}" for number in range(7)]


def test_a_cancelled_call_returns_at_once_and_the_server_is_notified(client: McpClient) -> None:
    cancel = CancelScope()
    threading.Timer(0.1, cancel.cancel, ("stopped by the user",)).start()
    with pytest.raises(Cancelled, match="stopped by the user"):
        client.call("late", {}, cancel)
    notices = [each for each in json_of(call(client, "history")) if each.get("method") == "notifications/cancelled"]
    assert notices[-1]["params"]["reason"] == "stopped by the user"


def test_the_late_answer_to_a_cancelled_call_disturbs_nothing(client: McpClient) -> None:
    cancel = CancelScope()
    cancel.cancel()
    with pytest.raises(Cancelled):
        client.call("late", {}, cancel)
    assert text_of(call(client, "echo", text="x")) == "x"


def test_a_change_of_the_lists_is_reported_once_for_a_burst() -> None:
    recorder = Recorder()
    with connect(recorder=recorder) as client:
        call(client, "change", count=500)
        assert recorder.wait_until(lambda: bool(recorder.changes))
        assert recorder.changes == ["tools"]


def test_it_runs_in_the_workspace_with_the_variables_it_was_given(tmp_path: Path) -> None:
    with connect(root=tmp_path, env={"GIVEN": "x=y z"}) as client:
        assert json_of(call(client, "where"))["cwd"] == str(tmp_path)
        assert json_of(call(client, "environment"))["GIVEN"] == "x=y z"


def test_it_sees_no_key_except_those_given_to_it() -> None:
    keys = {
        "ANTHROPIC_API_KEY": "sk-one-12345678",
        "GITHUB_TOKEN": "two-12345678",
        "MY_PASSWORD": "three-12345678",
        "DATABASE_URL": "postgres://u:four-12345678@localhost/x",
        "PATH": os.environ["PATH"],
    }
    with make_host(keys) as host, connect(host=host, env={"OPENAI_API_KEY": "given"}) as client:
        seen = json_of(call(client, "environment"))
    assert seen["OPENAI_API_KEY"] == "given"
    assert "12345678" not in json.dumps(seen)


def test_it_ends_when_its_input_does() -> None:
    with connect() as client:
        pid = json_of(call(client, "where"))["pid"]
    assert is_dead(pid)


def test_a_stubborn_server_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teamcli.mcp.stdio.EOF_PATIENCE_SECONDS", 0.1)
    with connect("stubborn") as client:
        pid = json_of(call(client, "where"))["pid"]
    assert is_dead(pid)


def test_it_ends_with_teamcli_even_by_sigkill() -> None:
    in_place_of_teamcli = """
from tests.mcp.servers import *
with connect("stubborn") as client:
    print(json_of(call(client, "where"))["pid"], flush=True)
    threading.Event().wait()
"""
    command = [sys.executable, "-c", in_place_of_teamcli]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: is_dead(pid))


def test_after_close_nothing_is_started() -> None:
    with connect() as client:
        client.close()
        with pytest.raises(McpError, match="closed"):
            client.tools(CancelScope())
        assert client.status.state == "closed"


@pytest.fixture
def confined(tmp_path: Path, clean_environment: Path) -> Iterator[CommandHost]:
    """What runs commands in the sandbox of `tmp_path / "work"`, with a key that commands see."""
    need_sandbox()
    settings = SandboxSettings((tmp_path / "work",), clean_environment)
    (tmp_path / "work").mkdir()
    host = CommandHost({**os.environ, "GITHUB_TOKEN": "of-commands"}, (), False, lambda: Sandbox(settings), True)
    yield host
    host.close()


def test_in_the_sandbox_it_reads_its_own_folder_and_writes_only_in_the_workspace(
    tmp_path: Path, clean_environment: Path, confined: CommandHost
) -> None:
    root, outside, secret = tmp_path / "work", tmp_path / "outside", clean_environment / ".ssh/id"
    secret.parent.mkdir()
    secret.write_text("secret")
    with connect(root=root, host=confined) as client:
        assert json_of(call(client, "touch", path=str(root / "inside"))) == "written"
        assert "Read-only" in json_of(call(client, "touch", path="/usr/touched"))
        assert "secret" not in json_of(call(client, "read", path=str(secret)))
        call(client, "touch", path=str(outside))
        assert not outside.exists()  # it has a /tmp of its own
        assert "Usage: fake_server.py" in json_of(call(client, "read", path=FAKE))


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (".claude/server.py", "server.py is in a directory that the sandbox closes"),
        ("open('/usr/x', 'w')", "the sandbox lets commands write in the workspace"),
    ],
)
def test_in_the_sandbox_the_end_of_a_server_is_explained(
    tmp_path: Path, clean_environment: Path, confined: CommandHost, script: str, said: str
) -> None:
    (clean_environment / ".claude").mkdir()
    (clean_environment / ".claude/server.py").touch()
    arguments = ("-c", script) if "open" in script else (str(clean_environment / script),)
    config = ServerConfig("x", "/usr/bin/env", ("python3", *arguments))
    root = tmp_path / "work"
    client = McpClient(config, lambda receiver: open_stdio(config, confined, root, receiver), root)
    with pytest.raises(McpError, match=said):
        client.tools(CancelScope())
    client.close()


def test_in_the_sandbox_commands_and_other_servers_do_not_see_its_keys_nor_it_theirs(
    tmp_path: Path, confined: CommandHost
) -> None:
    root, started = tmp_path / "work", threading.Event()
    command = confined.start("echo started; sleep 600", root)
    following = threading.Thread(target=command.follow, args=(lambda text: started.set(), lambda text: None))
    following.start()
    assert started.wait(SECONDS)
    look = "cat /proc/*/environ 2> /dev/null || true"
    with (
        connect(root=root, host=confined, env={"A_KEY": "of-one"}) as one,
        connect(root=root, host=confined, env={"A_KEY": "of-another"}) as other,
    ):
        call(other, "echo")
        seen = json_of(call(one, "variables_of_others"))
        pieces: list[str] = []
        confined.start(look, root).follow(pieces.append, lambda text: None)
    command.stop()
    following.join(SECONDS)
    assert "of-one" in seen
    assert "of-another" not in seen
    assert "of-commands" not in seen
    assert "of-commands" in "".join(pieces)
    assert "of-one" not in "".join(pieces)


@pytest.mark.parametrize(
    ("word", "cwd", "seen"),
    [
        ("{}/own/server.py", "", {"own/data"}),
        ("{}/own/bin/server.py", "", {"own/data"}),
        ("{}/own", "", {"own/data"}),
        ("{}/project/dist/server.js", "", {"project/data"}),
        ("{}/installed/node_modules/.bin/server", "", {"installed/node_modules/needed/data"}),
        ("{}/links/link.py", "", {"own/data"}),
        ("--script={}/own/server.py", "", {"own/data"}),
        ("server.py", "{}/own", {"own/data"}),
        ("{}/busy/server.py", "", {"busy/server.py"}),
        ("{}/busy", "", set()),
        ("{}/gone/server.py", "", set()),
        ("x" * 5_000 + "/", "", set()),
    ],
)
def test_in_the_sandbox_it_sees_of_a_temp_directory_only_what_its_configuration_names(
    tmp_path: Path, confined: CommandHost, word: str, cwd: str, seen: set[str]
) -> None:
    names = ("own/data", "busy/server.py", "busy/data", "other/data", "project/data", "installed/data")
    names = (*names, "installed/node_modules/needed/data")
    others = ("own/server.py", "own/bin/server.py", "project/package.json", "project/dist/server.js", "links/x")
    installed = ("installed/node_modules/s/dist/server.js", "installed/node_modules/s/package.json")
    for name in (*names, *others, *installed, "installed/node_modules/.bin/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "links/link.py").symlink_to("../own/server.py")
    (tmp_path / "installed/node_modules/.bin/server").symlink_to("../s/dist/server.js")
    config = ServerConfig("x", "true", (word.format(tmp_path),), cwd=cwd.format(tmp_path))
    pieces: list[str] = []
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(tmp_path / "busy/socket"))
        own = confined.separate(os.environ, named_paths(config, tmp_path / "work"))
        own.start(f"find {tmp_path} -type f", tmp_path / "work").follow(pieces.append, lambda text: None)
    found = "".join(pieces).splitlines()
    assert {name for name in names if str(tmp_path / name) in found} == seen
