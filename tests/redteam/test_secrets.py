"""Attacks on the user's keys: an agent, a file, a hook and a server that try to get one out in any form.

One run of the program makes all the attempts; each test looks for what became of one of them, or into one place where a
key could turn up. The key is found again here by code that shares nothing with the program's own.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import stat
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from teamcli.agent.events import Event, MailSent, Notice, ToolStarted
from teamcli.agent.tool import Display
from teamcli.cancel import CancelScope
from teamcli.config.environment import visible_variables
from teamcli.errors import ModelError
from teamcli.llm.credentials import Endpoint
from teamcli.llm.faults import Faults
from teamcli.llm.redacted_model import RedactedModel
from teamcli.llm.types import OnEvent, Preamble, Reply, Request, StreamEvent, TextDelta
from teamcli.session.event_bus import EventBus
from teamcli.storage.debug_log import log_to
from teamcli.team.signing import load_key
from teamcli.text import redaction as masking
from teamcli.text.redaction import MASK, RedactedStream, Redactor
from tests.redteam.shared import made_once
from tests.sdk.models import Model
from tests.support.answers import Part, answer, result_text, status, thinking, tool_results
from tests.support.fake_api import FakeAPI, text, tool
from tests.support.program import Program
from tests.support.team_script import TeamScript
from tests.tools.shell import needs_proc

KEY = 'sk-ant-api03-R3d"Team\\+/=%Qx7Zk9Lm2Vn5Bp8'
DOTENV_KEY = "sk-dotenv-only-4Hd8Sj2Kq6Wn0"
BYPASS = ("--permission-mode", "bypassPermissions")
PIECE = 12
"""So many characters of a key in a row are a leak as well."""


def forms(key: str) -> list[str]:
    """The key, and what it looks like after the usual ways of encoding it."""
    around = [base64.b64encode(before + key.encode() + b"zz").decode() for before in (b"", b"a", b"ab")]
    return [key, quote(key, safe=""), json.dumps(key)[1:-1], key.encode().hex(), *(each[6:-8] for each in around)]


def leaks(text: str, *keys: str) -> list[str]:
    flat = "".join(text.split())
    return [form for key in keys or (KEY, DOTENV_KEY) for form in forms(key) if form in text or form in flat]


def pieces_of(key: str) -> list[str]:
    return [key[start : start + PIECE] for start in range(len(key) - PIECE + 1)]


class Attack(NamedTuple):
    call: Part
    is_masked: bool = True
    """The result shows that something stood there; else it must simply not be there."""


def shell(command: str, is_masked: bool = True, **more: Any) -> Attack:
    return Attack(tool("bash", command=command, **more), is_masked)


PADDING = 14_980
ATTACKS: dict[str, Attack] = {
    "cat prints a file with the key": shell("cat plain.txt"),
    "the key comes on standard error": shell("cat plain.txt >&2"),
    "the key comes in two pieces": shell("head -c 20 plain.txt; sleep 0.2; tail -c +21 plain.txt"),
    "the key comes letter by letter": shell(
        'while IFS= read -rn1 letter; do printf %s "$letter"; sleep 0.002; done < plain.txt'
    ),
    "the output is cut inside the key": shell(
        f"head -c {PADDING} /dev/zero | tr '\\0' x; cat plain.txt; head -c 40000 /dev/zero | tr '\\0' y", False
    ),
    "the output is cut just before the key's end": shell(
        f"head -c {PADDING - 24} /dev/zero | tr '\\0' x; cat plain.txt; head -c 40000 /dev/zero | tr '\\0' y"
    ),
    "the command runs out of time after it": shell("cat plain.txt; sleep 30", timeout_seconds=3),
    "the command fails after it": shell("cat plain.txt; exit 3"),
    "base64 of the file": shell("base64 -w0 plain.txt"),
    "base64 broken over lines": shell("base64 -w20 plain.txt"),
    "base64 with something before it": shell("(printf a; cat plain.txt) | base64 -w0"),
    "base64 of an authorization header": shell("(printf user:; cat plain.txt) | base64 -w0"),
    "hex": shell("od -An -v -tx1 plain.txt | tr -d ' \\n'"),
    "percent-encoded": shell("cat url.txt"),
    "as a string of JSON": shell("cat json.txt"),
    "fold breaks it over lines": shell("fold -w 10 plain.txt"),
    "read_file of a file with the key": Attack(tool("read_file", path="plain.txt")),
    "read_file of .env": Attack(tool("read_file", path=".env")),
    "read_file cuts a long line inside the key": Attack(tool("read_file", path="long.txt"), False),
    "read_file cuts a line of wide characters inside the key": Attack(tool("read_file", path="wide.txt"), False),
    "grep finds the key": Attack(tool("grep", pattern="sk-ant", path="plain.txt")),
    "grep cuts a long line inside the key": Attack(tool("grep", pattern="needle", path="around.txt"), False),
    "grep shows it as context": Attack(tool("grep", pattern="below", path="context.txt", context=1)),
    "edit_file shows a diff with it": Attack(
        tool("edit_file", path="edited.txt", old_text="old", new_text="new"), False
    ),
    "the model itself writes it into a file": Attack(tool("write_file", path="written.txt", content=f"k={KEY}"), False),
    "the model itself writes it into a command": shell(f"echo '{KEY}' | wc -c", False),
    "a file is named like it": shell("cd named && ls"),
    "env": shell("env", False),
    "export -p": shell("export -p", False),
    "the environment in /proc of itself": shell("tr '\\0' '\\n' < /proc/self/environ", False),
    "the environment in /proc of all its ancestors": shell(
        "p=$$; while [ $p -gt 1 ]; do tr '\\0' '\\n' < /proc/$p/environ;"
        " p=$(awk '/^PPid/{print $2}' /proc/$p/status); done 2>/dev/null; true",
        False,
    ),
    "the memory of the program": shell(
        "p=$$; while [ $p -gt 1 ]; do head -c 100 /proc/$p/mem; cat /proc/$p/cmdline;"
        " p=$(awk '/^PPid/{print $2}' /proc/$p/status); done 2>/dev/null | tr '\\0' ' '; true",
        False,
    ),
    "the same key under another name": shell("echo ${COPY_OF_THE_KEY:-unset} ${IN_A_URL:-unset}", False),
    "the token beside the key": shell("echo ${ANTHROPIC_AUTH_TOKEN:-unset}", False),
    "a variable that the settings hide": shell("echo ${DEPLOY_SECRET_A:-unset} ${DEPLOY_SECRET_B:-unset}", False),
    "a hidden variable in a file": shell("cat deploy.txt"),
    "the key of .env, which no environment holds": shell("cat .env"),
    "a password of the proxy in a log": shell("cat proxy.log"),
    "in the background": shell("cat plain.txt", False, background=True),
}
HOOK_EVENTS = ("PreToolUse", "PostToolUse", "UserPromptSubmit", "SessionStart", "Stop", "TeammateIdle", "SessionEnd")


class Ran(NamedTuple):
    directory: str
    requests: list[dict[str, Any]]
    results: dict[str, str]
    out: str
    err: str

    def read(self, pattern: str) -> str:
        found = [path for path in Path(self.directory).glob(pattern) if path.is_file()]
        assert found, f"nothing is called {pattern}"
        return "\n".join(path.read_bytes().decode("utf-8", "replace") for path in found)


def prepare(program: Program) -> None:
    place = program.directory
    for name, content in {
        "plain.txt": KEY,
        "url.txt": quote(KEY, safe=""),
        "json.txt": json.dumps({"key": KEY}),
        "long.txt": "x" * 1985 + KEY + "x" * 500,
        "wide.txt": "𝔘" * 1985 + KEY + "x" * 9000,
        "around.txt": "x" * 400 + KEY + "y" * 80 + "needle" + "z" * 190 + KEY + "x" * 500,
        "context.txt": f"{KEY}\nbelow\n",
        "edited.txt": f"{KEY}\nold\n{KEY}\n",
        "deploy.txt": "deploy-token-77-abcdef",
        "proxy.log": "CONNECT via http://someone:pa55word@proxy.invalid:3128",
        ".env": f"ANTHROPIC_AUTH_TOKEN={DOTENV_KEY}\n",
        "CLAUDE.md": f"The key is {KEY}.\n",
    }.items():
        (place / name).write_text(content)
    (place / "named").mkdir()
    (place / "named" / f"{DOTENV_KEY}.txt").touch()
    look = "cat >> hook-input.txt; (env; tr '\\0' '\\n' < /proc/$PPID/environ) >> hook-env.txt; cat plain.txt"
    hooks = {name: [{"hooks": [{"type": "command", "command": look}]}] for name in HOOK_EVENTS}
    hooks["Stop"] = [{"hooks": [{"type": "command", "command": "cat plain.txt >&2; exit 1"}]}]
    program.settings(hooks=hooks, hidden_variables=["DEPLOY_SECRET_*"], retries=0)
    program.key = KEY
    program.variables |= {
        "COPY_OF_THE_KEY": KEY,
        "IN_A_URL": f"https://x/?key={KEY}",
        "ANTHROPIC_AUTH_TOKEN": "sk-ant-token-000111222333",
        "DEPLOY_SECRET_A": "deploy-token-77-abcdef",
        "DEPLOY_SECRET_B": "deploy-token-88-abcdef",
        "HTTPS_PROXY": "http://someone:pa55word@proxy.invalid:3128",
    }


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(**made_once(tmp_path_factory, "secrets", lambda: try_everything(tmp_path_factory)))


def try_everything(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The whole run: every attack in one answer, then a model and a teammate that say the key themselves."""
    directory, home = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("home")
    program = Program(directory, home)
    prepare(program)
    names = list(ATTACKS)
    script = TeamScript(
        lead=[
            answer(*(attack.call for attack in ATTACKS.values())),
            answer(
                tool("spawn_teammate", name="alice", role=f"holder of {KEY}", prompt=f"keep {KEY}"),
                tool("send_message", to="alice", content=f"it is {KEY}", summary=KEY),
                tool("bash_output", id="bg-1"),
            ),
            text("waiting"),
            answer(thinking(f"I know {KEY} now."), text(f"The key is {KEY}, I think. ({DOTENV_KEY})", pieces=40)),
            *[text("done")] * 3,
        ],
        alice=lambda request, n: text(f"my key: {KEY}", pieces=30),
    )
    with program.against(script) as api:
        prompt = f"Use {KEY} and look at @plain.txt"
        done = program.run("-p", prompt, *BYPASS, "--debug", "--output-format", "stream-json")
        results = dict(zip(names, map(result_text, tool_results(script.requests["lead"][1])), strict=True))
    return Ran(str(directory), api.requests, results, done.out, done.err)._asdict()


@pytest.mark.parametrize("name", ATTACKS)
def test_no_tool_gets_a_key_out(ran: Ran, name: str) -> None:
    result = ran.results[name]
    assert leaks(result) == []
    assert (MASK in result) or not ATTACKS[name].is_masked, result[:500]
    assert not any(piece in result for piece in pieces_of(KEY)), "a part of the key is left"


def test_hidden_variables_are_unset_for_commands(ran: Ran) -> None:
    assert ran.results["a variable that the settings hide"] == "unset unset"
    assert ran.results["the same key under another name"] == "unset unset"
    assert ran.results["the token beside the key"] == "unset"


def everything_sent(ran: Ran) -> str:
    return json.dumps(ran.requests, ensure_ascii=False)


PLACES: dict[str, Callable[[Ran], str]] = {
    "the requests to the model": everything_sent,
    "standard output as stream-json": lambda ran: ran.out,
    "standard error": lambda ran: ran.err,
    "the lead's transcript": lambda ran: ran.read(".team/transcripts/lead.jsonl"),
    "a teammate's transcript": lambda ran: ran.read(".team/transcripts/alice.jsonl"),
    "events.jsonl": lambda ran: ran.read(".team/events.jsonl"),
    "the inboxes": lambda ran: ran.read(".team/inbox/*.jsonl"),
    "the roster": lambda ran: ran.read(".team/config.json"),
    "what hooks read": lambda ran: ran.read("hook-input.txt"),
    "what hooks see in the environment": lambda ran: ran.read("hook-env.txt"),
    "the file that the model wrote": lambda ran: ran.read("written.txt"),
    "all else under .team/": lambda ran: ran.read(".team/**/*"),
}


@pytest.mark.parametrize("place", PLACES)
def test_no_key_reaches_a_place_that_it_must_not(ran: Ran, place: str) -> None:
    found = PLACES[place](ran)
    assert found
    assert leaks(found) == []


def test_a_mask_is_not_written_over_the_key(program: Program) -> None:
    """An agent that has read `.env` writes back what it has seen."""
    (program.directory / ".env").write_text(f"ANTHROPIC_API_KEY={KEY}\nMODEL_ID=m\n")
    write = tool("write_file", path=".env", content=f"ANTHROPIC_API_KEY={MASK}\nMODEL_ID=n\n")
    edit = tool("edit_file", path=".env", old_text="MODEL_ID=m", new_text="MODEL_ID=n")
    with FakeAPI([tool("read_file", path=".env"), answer(write, edit), text("x")]) as api:
        program.url, program.key = api.url, KEY
        program.run("-p", "x", *BYPASS)
    refused, _ = map(result_text, tool_results(api.requests[2]))
    assert "change its other lines with edit_file" in refused
    assert (program.directory / ".env").read_text() == f"ANTHROPIC_API_KEY={KEY}\nMODEL_ID=n\n"


def test_the_users_file_keeps_its_key(ran: Ran) -> None:
    assert ran.read("edited.txt") == f"{KEY}\nnew\n{KEY}\n"


def test_files_with_conversation_are_private(ran: Ran) -> None:
    for path in (Path(ran.directory) / ".team").rglob("*"):
        if path.name != ".gitignore":
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


SLOWLY = "!head -c 20 plain.txt; sleep 0.3; tail -c +21 plain.txt"
ECHO = (
    f"bad header authorization: Bearer {KEY} / {quote(KEY, safe='')}"
    f" / {base64.b64encode(f'user:{KEY}'.encode()).decode()}"
)


def test_an_error_that_echoes_the_headers_of_the_request_is_redacted(program: Program) -> None:
    with FakeAPI([status(400, message=ECHO), status(500, body=ECHO)]) as api:
        program.url, program.key = api.url, KEY
        program.settings(retries=0)
        for _ in range(2):
            ran = program.run("-p", "x", "--debug")
            assert ran.code == 1
            assert leaks(ran.err + ran.out) == []
            assert MASK in ran.err
    kept = "".join(path.read_text() for path in (program.directory / ".team").rglob("*") if path.is_file())
    assert leaks(kept) == []


@pytest.mark.parametrize("code", [302, 400, 401, 403, 404, 413, 429, 500, 529])
def test_no_sentence_about_an_answer_holds_the_key(code: int) -> None:
    faults = Faults(Endpoint("direct", "ANTHROPIC_API_KEY", "https://x", KEY, headers=(("x-gate", "g8te-s3cret-1"),)))
    body = json.dumps({"type": "error", "error": {"type": "x", "message": f"{ECHO} g8te-s3cret-1"}})
    said = str(faults.from_answer(code, {"location": f"https://y/?k={quote(KEY)}", "content-type": KEY}, body, KEY))
    assert leaks(said) == []
    assert "g8te-s3cret-1" not in said


def test_a_key_that_the_user_types_at_the_prompt_is_redacted(program: Program) -> None:
    """`!cmd`, `/diff`, a custom command and `/log`, all at once."""
    (program.directory / "plain.txt").write_text(KEY)
    (program.home / ".teamcli/commands").mkdir(parents=True)
    (program.home / ".teamcli/commands/leak.md").write_text(f"Say {KEY}.")
    (program.directory / "f.txt").write_text(f"{KEY}\nold\n")
    script = [
        answer(tool("read_file", path="f.txt"), tool("edit_file", path="f.txt", old_text="old", new_text=f"{KEY}2"))
    ]
    with FakeAPI([*script, text("a"), text("b")]) as api:
        program.url, program.key = api.url, KEY
        ran = program.run(
            *BYPASS, stdin=f"!cat plain.txt\n{SLOWLY}\n!cat plain.txt >&2\nwork\n/leak\n/diff\n/log\n/inbox\n/team\n"
        )
    assert "f.txt" in ran.out
    assert leaks(ran.out + ran.err) == []
    assert ran.out.count(MASK) >= 4
    assert not any(piece in ran.out for piece in pieces_of(KEY))
    assert leaks(json.dumps(api.requests, ensure_ascii=False)) == []


def test_a_key_typed_at_the_shell_is_not_kept_in_an_inbox(program: Program) -> None:
    program.run("-p", "run true", *BYPASS)
    program.run("send", "lead", f"use {KEY}", env={"ANTHROPIC_API_KEY": KEY})
    inbox = (program.directory / ".team/inbox/lead.jsonl").read_text()
    assert MASK in inbox
    assert leaks(inbox) == []


def test_a_traceback_in_the_log_is_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_known", Redactor([KEY]))
    log = logging.getLogger("teamcli")
    before = log.handlers, log.propagate, log.level
    try:
        log_to(tmp_path, debug=True)
        try:
            raise ValueError(f"header {KEY} is wrong")
        except ValueError:
            log.exception("it failed with %s", KEY)
    finally:
        log.handlers, log.propagate, log.level = before
    written = (tmp_path / "teamcli.log").read_text()
    assert "Traceback" in written
    assert leaks(written) == []
    assert written.count(MASK) >= 2


def test_an_event_of_any_kind_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one whose words come from a place that nobody has thought of."""
    monkeypatch.setattr(masking, "_known", Redactor([KEY]))
    heard: list[Event] = []
    tell = EventBus()
    tell.subscribe(heard.append)
    tell(Notice("lead", f"it says {KEY}"))
    tell(ToolStarted("lead", "t", "bash", Display(KEY, diff=f"+{KEY}", text=KEY)))
    tell(MailSent("lead", "alice", "message", KEY, {"summary": [KEY, {KEY: 1}]}))
    assert leaks(repr(heard)) == []
    assert repr(heard).count(MASK) == 7


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20, 64])
def test_a_stream_cut_into_pieces_of_any_size_is_redacted(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(masking, "_known", Redactor([KEY, DOTENV_KEY]))
    whole = f"before {KEY} between {DOTENV_KEY}{KEY} sk-ant-api and after"
    stream = RedactedStream()
    out = [stream.feed(whole[start : start + size]) for start in range(0, len(whole), size)] + [stream.end()]
    assert "".join(out) == f"before {MASK} between {MASK}{MASK} sk-ant-api and after"


def test_an_answer_that_fails_halfway_is_shown_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where that could have become a key."""
    monkeypatch.setattr(masking, "_known", Redactor([KEY]))

    def break_off(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        on_event(TextDelta(f"the end is {KEY[:5]}"))
        raise ModelError("the endpoint is gone")

    heard: list[StreamEvent] = []
    with pytest.raises(ModelError):
        RedactedModel(Model(break_off)).stream(Request(Preamble("m", "", (), 9), ()), heard.append, CancelScope())
    assert heard == [TextDelta("the end is "), TextDelta(KEY[:5])]


@pytest.mark.parametrize("word", ["ollama", "not-needed", "anything", "dummy-key", "local"])
def test_a_placeholder_instead_of_a_key_garbles_no_text(word: str) -> None:
    assert visible_variables({"ANTHROPIC_API_KEY": word, "X": f"{word} here"}) == {"X": f"{word} here"}
    assert Redactor(filter(masking.is_secret, [word])).redact(f"all {word} stays") == f"all {word} stays"


UNDER = 'umask {umask}; exec "$0" "$@"'


@pytest.mark.parametrize("umask", ["000", "077"])
def test_files_are_private_under_any_umask(program: Program, umask: str) -> None:
    command = program.command(["-p", "run echo hi then spawn bob as x: run true", *BYPASS])
    subprocess.run(
        ["sh", "-c", UNDER.format(umask=umask), *command],
        cwd=program.directory,
        env=program.env(),
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    for top in (program.directory / ".team", program.home / ".teamcli"):
        for path in (top, *top.rglob("*")):
            if path.name != ".gitignore":
                assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_directories_that_are_open_to_others_are_made_private(program: Program) -> None:
    for place in (program.directory / ".team", program.home / ".teamcli"):
        place.mkdir()
        place.chmod(0o777)
    (program.home / ".teamcli/key").write_bytes(b"k" * 32)
    (program.home / ".teamcli/key").chmod(0o666)
    assert program.run("-p", "run echo hi", *BYPASS).code == 0
    assert stat.S_IMODE((program.directory / ".team").stat().st_mode) == 0o700
    assert stat.S_IMODE((program.home / ".teamcli").stat().st_mode) == 0o700
    assert stat.S_IMODE((program.home / ".teamcli/key").stat().st_mode) == 0o600


@pytest.mark.parametrize("how", ["a link", "a FIFO", "a directory", "another user's"])
def test_a_signing_key_of_another_user_is_not_used(tmp_path: Path, how: str) -> None:
    path, known = tmp_path / ".teamcli/key", tmp_path / "known"
    path.parent.mkdir(mode=0o700)
    known.write_bytes(b"k" * 32)
    if how == "a link":
        path.symlink_to(known)
    elif how == "a FIFO":
        os.mkfifo(path)
    elif how == "a directory":
        path.mkdir()
    else:
        if os.geteuid() != 0:
            pytest.skip("only root can make another user's file")
        path.write_bytes(b"k" * 32)
        os.chown(path, 12345, 12345)
    key = load_key(path.parent)
    assert len(key) == 32
    assert key != b"k" * 32
    assert key != load_key(path.parent)
    assert known.read_bytes() == b"k" * 32


def test_a_trust_file_that_others_can_write_is_refused(program: Program) -> None:
    program.run("-p", "run true", *BYPASS)
    (program.home / ".teamcli/trust.json").chmod(0o666)
    ran = program.run("-p", "run true", *BYPASS)
    assert ran.code == 2
    assert "trust.json can be changed by other users" in ran.err
    assert ran.err.count("\n") == 1


@needs_proc
def test_no_process_is_started_with_the_key_in_its_arguments(program: Program) -> None:
    own = uuid.uuid4().hex  # all processes of the machine are looked at, also those of other tests
    pattern = f"{own[:9]}[{own[9]}]{own[10:]}"  # which does not find itself
    look = f"for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; done 2>/dev/null | grep -c '{pattern}'; true"
    with FakeAPI([tool("bash", command=look), text("x")]) as api:
        program.url, program.key = api.url, f"sk-ant-api03-{own}"
        program.run("-p", "x", *BYPASS)
    assert result_text(tool_results(api.requests[1])[0]) == "0"
