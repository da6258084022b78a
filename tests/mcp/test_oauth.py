"""Logging in to a server over HTTP."""

from __future__ import annotations

import stat
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, LoginNeeded
from teamcli.mcp.oauth import OAuthLogin
from teamcli.mcp.server import ServerConfig
from tests.mcp.fake_http import FakeHttp, serving
from tests.mcp.fake_oauth import FakeOAuth, protecting
from tests.mcp.servers import call, text_of
from tests.mcp.test_http import connected


@pytest.fixture(autouse=True, scope="module")
def needed_package() -> None:
    """Not at the top, where all workers would load it to collect this module."""
    pytest.importorskip("mcp")


@pytest.fixture
def server() -> Iterator[FakeHttp]:
    with serving() as fake:
        yield fake


@pytest.fixture
def authority(server: FakeHttp) -> Iterator[FakeOAuth]:
    with protecting(server) as fake:
        yield fake


def make_login(server: FakeHttp, directory: Path) -> OAuthLogin:
    return OAuthLogin(ServerConfig("web", url=server.url), directory / "mcp")


def visit(address: str) -> None:
    """A browser, in which the user agrees."""

    def follow() -> None:
        with urllib.request.urlopen(address) as page:
            page.read()

    threading.Thread(target=follow, daemon=True).start()


def test_after_a_login_calls_carry_the_token(server: FakeHttp, authority: FakeOAuth, tmp_path: Path) -> None:
    login = make_login(server, tmp_path)
    with connected(server, login) as client:
        with pytest.raises(LoginNeeded):
            client.start(CancelScope())
        login.login(visit, CancelScope())
        assert text_of(call(client, "echo", text="x")) == "x"
    assert server.seen("tools/call")[0]["authorization"] == "Bearer token-1"


def test_the_token_is_kept_for_the_user_alone(server: FakeHttp, authority: FakeOAuth, tmp_path: Path) -> None:
    make_login(server, tmp_path).login(visit, CancelScope())
    (file,) = (tmp_path / "mcp").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert make_login(server, tmp_path).token() == "token-1"


def test_an_expired_token_is_renewed_without_the_user(server: FakeHttp, authority: FakeOAuth, tmp_path: Path) -> None:
    make_login(server, tmp_path).login(visit, CancelScope())
    server.token = "another"
    with connected(server, make_login(server, tmp_path)) as client:
        assert text_of(call(client, "echo", text="x")) == "x"
    assert authority.grants == ["authorization_code", "refresh_token"]


def test_a_renewal_that_is_refused_needs_a_login(server: FakeHttp, authority: FakeOAuth, tmp_path: Path) -> None:
    make_login(server, tmp_path).login(visit, CancelScope())
    server.token, authority.refuses_refresh = "another", True
    with connected(server, make_login(server, tmp_path)) as client:
        with pytest.raises(LoginNeeded):
            client.start(CancelScope())
        assert client.status.state == "needs_login"


def test_a_second_login_uses_the_same_registration_and_address(
    server: FakeHttp, authority: FakeOAuth, tmp_path: Path
) -> None:
    for _ in range(2):
        make_login(server, tmp_path).login(visit, CancelScope())
    assert [each["application_type"] for each in authority.registrations] == ["native"]


def test_a_login_that_nobody_completes_can_be_cancelled(server: FakeHttp, authority: FakeOAuth, tmp_path: Path) -> None:
    cancel = CancelScope()
    with pytest.raises(Cancelled):
        make_login(server, tmp_path).login(lambda address: cancel.cancel(), cancel)


def test_after_logging_out_there_is_no_token(server: FakeHttp, authority: FakeOAuth, tmp_path: Path) -> None:
    login = make_login(server, tmp_path)
    login.login(visit, CancelScope())
    login.log_out()
    assert (login.token(), list((tmp_path / "mcp").iterdir())) == ("", [])


def test_without_the_extra_the_error_says_how_to_install_it(
    server: FakeHttp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.client.auth", None)
    with pytest.raises(LoginNeeded, match=r"pip install 'teamcli\[mcp\]'"):
        make_login(server, tmp_path).login(visit, CancelScope())


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"url":"http://elsewhere","tokens":{"access_token":"x"}}'])
def test_a_file_that_is_damaged_or_of_another_server_counts_as_no_login(
    server: FakeHttp, tmp_path: Path, content: str
) -> None:
    login = make_login(server, tmp_path)
    login._store.update(tokens={"access_token": "x"})
    (file,) = (tmp_path / "mcp").iterdir()
    file.write_text(content)
    assert make_login(server, tmp_path).token() == ""
