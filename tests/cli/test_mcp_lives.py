"""Lives of MCP servers from the outside: over HTTP, with a login, changing, and ending with the program."""

from __future__ import annotations

import signal
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_mcp import ALLOW, fake, outside, result, use
from tests.mcp.fake_http import serving
from tests.mcp.fake_oauth import protecting
from tests.support.answers import tool_results
from tests.support.fake_api import text, tool
from tests.support.program import Program
from tests.support.waiting import wait_until

CALL = tool("mcp__web__echo", text="hello")
ALLOW_WEB = ("--allowedTools", "mcp__web")


class TestOverHttp:
    @pytest.mark.parametrize(
        "form", [{"era": "legacy"}, {"era": "legacy", "is_stream": True}, {"era": "modern", "is_stream": True}]
    )
    def test_its_tools_are_called_with_the_configured_headers(self, program: Program, form: dict[str, Any]) -> None:
        program.variables["TEAM_TOKEN"] = "t-12345678"
        with serving(**form) as server, program.against([CALL, text("done")]) as api:
            use(program, web={"type": "http", "url": server.url, "headers": {"X-Token": "${TEAM_TOKEN}"}})
            ran = program.run("-p", "x", *ALLOW_WEB)
        assert ran.code == 0, ran.err
        assert result(api) == '<outside-text from="MCP server web">\nhello\n</outside-text>'
        assert {headers["x-token"] for _, headers, _ in server.requests} == {"t-12345678"}

    def test_a_redirect_to_another_host_gets_nothing(self, program: Program) -> None:
        with serving() as other, serving(redirect=other.url) as server, program.against([CALL, text("done")]) as api:
            use(program, web={"type": "http", "url": server.url, "headers": {"X-Token": "secret"}})
            program.run("-p", "x", *ALLOW_WEB)
        assert "which is not followed" in result(api)
        assert other.requests == []


class TestLoggingIn:
    def browser(self, program: Program) -> None:
        """One that agrees to everything."""
        page = program.home / "browser.py"
        page.write_text("import sys, urllib.request\nurllib.request.urlopen(sys.argv[1]).read()")
        program.variables["BROWSER"] = f"{sys.executable} {page} %s"

    def test_mcp_login_opens_the_browser_and_later_runs_need_no_login(self, program: Program) -> None:
        pytest.importorskip("mcp")
        self.browser(program)
        with serving() as server, protecting(server), program.against([CALL, text("no"), CALL, text("yes")]) as api:
            use(program, web={"type": "http", "url": server.url})
            program.run("-p", "x", *ALLOW_WEB)
            ran = program.run(stdin="/mcp login web\n")
            program.run("-p", "x", *ALLOW_WEB)
        assert "needs a login; log in with /mcp" in result(api, 1)
        assert "Log in with your browser: http://127.0.0.1" in ran.out + ran.err
        assert "mcp__web__echo" in ran.out, ran.out + ran.err
        assert "hello" in result(api, 3)
        (kept,) = (program.home / ".teamcli/mcp").glob("*.json")
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert "The login to web is forgotten." in program.run(stdin="/mcp logout web\n").out
        assert not kept.exists()

    def test_a_server_that_cannot_be_reached_is_not_logged_in_to(self, program: Program) -> None:
        self.browser(program)
        use(program, web={"type": "http", "url": "http://127.0.0.1:9/mcp"}, own=fake("few"))
        ran = program.run(stdin="/mcp login web\n/mcp login own\n")
        assert "cannot be reached at http://127.0.0.1:9" in ran.out
        assert "own is a program on this machine, which needs no login" in ran.out


def test_a_changed_list_is_read_again_and_searched(program: Program) -> None:
    use(program, fake=fake())
    lists = program.home / ".teamcli/mcp/lists"

    def script(request: dict[str, Any], n: int) -> Any:
        if n == 1:
            wait_until(lambda: any("newcomer" in path.read_text() for path in lists.glob("*.json")))
        calls = [tool("mcp__fake__change", count=1), tool("tool_search", query="newcomer"), text("done")]
        return calls[n]

    with program.against(script) as api:
        program.run("-p", "x", *ALLOW)
    assert "mcp__fake__newcomer" not in outside(api.requests[0])
    assert outside(api.requests[2]) == outside(api.requests[0])
    assert "mcp__fake__newcomer: Does newcomer" in result(api, 2)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, None])
def test_servers_and_what_they_started_end_with_the_program(program: Program, how: signal.Signals | None) -> None:
    mark = f"mark:{program.directory}"
    use(program, fake=fake("stubborn", "forks", mark))

    def processes() -> int:
        return sum(mark.encode() in command_line(path) for path in Path("/proc").glob("[0-9]*"))

    def script(request: dict[str, Any], n: int) -> Any:
        if how is None:
            return text("done") if tool_results(request) else tool("mcp__fake__where")
        return tool("mcp__fake__hang")

    with program.against(script):
        running = program.start("-p", "x", *ALLOW)
        wait_until(lambda: processes() >= 2)
        if how is not None:
            running.send_signal(how)
        running.communicate(timeout=60)
        wait_until(lambda: processes() == 0)


def command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:  # it has just ended
        return b""
