"""Servers that crash, hang or talk nonsense. None of them hangs or breaks the one that calls."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, McpError
from teamcli.mcp.client import close_all
from teamcli.mcp.server import CallProgress, ServerTimeouts
from tests.mcp.servers import SECONDS, Recorder, call, connect, json_of, text_of

SOON = ServerTimeouts(0.5, 0.5, 0.5, 2.0)


def test_a_program_that_is_not_there_is_named_with_what_the_shell_said() -> None:
    with connect(command="no-such-server") as client, pytest.raises(McpError, match="fake has ended") as e:
        client.start(CancelScope())
    assert "no-such-server" in e.value.detail


def test_a_server_that_ends_at_once_fails_its_start_with_its_words() -> None:
    with connect("dies:cannot read config") as client:
        with pytest.raises(McpError, match=r"has ended \(exit code 1\)") as e:
            client.start(CancelScope())
        assert client.status.state == "failed"
    assert e.value.detail == "cannot read config"


def test_a_server_that_closes_its_output_is_ended() -> None:
    with connect("closes") as client, pytest.raises(McpError, match="has closed its output"):
        client.start(CancelScope())


def test_a_silent_server_fails_its_start_within_the_time_bound() -> None:
    with connect("silent", timeouts=SOON) as client, pytest.raises(McpError, match=r"within 0\.5 seconds"):
        client.start(CancelScope())


def test_waiting_for_a_silent_server_can_be_cancelled() -> None:
    cancel = CancelScope()
    with connect("silent") as client:
        threading.Timer(0.1, cancel.cancel).start()
        with pytest.raises(Cancelled):
            client.tools(cancel)
        assert client.status.state == "starting"


def test_a_server_that_knows_no_start_is_refused_with_its_words() -> None:
    with connect("rejects") as client, pytest.raises(McpError, match="no protocol version") as e:
        client.start(CancelScope())
    assert e.value.detail == "unsupported (-32601); unsupported (-32601)"


def test_an_unknown_version_is_refused() -> None:
    with connect("version:2099-01-01") as client, pytest.raises(McpError, match="no protocol version"):
        client.start(CancelScope())


def test_a_greeting_that_is_not_a_message_is_skipped() -> None:
    with connect("garbage") as client:
        assert text_of(call(client, "echo", text="x")) == "x"


def test_wrong_ids_and_lines_that_are_not_messages_are_ignored() -> None:
    with connect() as client:
        assert text_of(call(client, "noise")) == "right"


def test_a_crash_fails_every_call_at_once_with_the_end_of_the_error_output() -> None:
    with connect() as client, ThreadPoolExecutor(8) as pool:
        client.start(CancelScope())
        waiting = [pool.submit(call, client, "hang") for _ in range(7)]
        with pytest.raises(McpError, match="exit code 3"):
            call(client, "crash")
        errors = [each.exception(SECONDS) for each in waiting]
    assert {getattr(error, "detail", None) for error in errors} == {"the database is on fire"}


def test_a_crash_is_seen_in_the_status() -> None:
    recorder = Recorder()
    with connect(recorder=recorder) as client:
        with pytest.raises(McpError):
            call(client, "crash")
        assert recorder.wait_until(lambda: recorder.statuses[-1].state == "failed")
    assert [status.state for status in recorder.statuses[:3]] == ["starting", "ready", "failed"]


def test_after_a_crash_the_next_call_starts_it_again_and_the_lists_count_as_changed() -> None:
    recorder = Recorder()
    with connect(recorder=recorder) as client:
        with pytest.raises(McpError):
            call(client, "crash")
        assert text_of(call(client, "echo", text="again")) == "again"
        assert recorder.wait_until(lambda: len(recorder.changes) == 3)


def test_a_server_that_keeps_crashing_is_not_started_in_a_loop() -> None:
    with connect() as client:
        for _ in range(3):
            with pytest.raises(McpError, match="exit code 3"):
                call(client, "crash")
        with pytest.raises(McpError, match="3 times within a minute") as e:
            call(client, "echo", text="x")
        assert e.value.detail == "the database is on fire"
        client.reconnect(CancelScope())
        assert text_of(call(client, "echo", text="x")) == "x"


def test_a_call_without_an_answer_times_out_and_the_server_continues() -> None:
    with connect(timeouts=ServerTimeouts(SECONDS, SECONDS, 0.5, SECONDS)) as client:
        with pytest.raises(McpError, match=r"not answered tools/call within 0\.5 seconds"):
            call(client, "hang")
        assert text_of(call(client, "echo", text="x")) == "x"
        assert json_of(call(client, "history"))[-3]["params"]["reason"] == "timeout"


def test_progress_keeps_a_call_alive_beyond_the_silence_that_is_allowed() -> None:
    with connect(timeouts=ServerTimeouts(SECONDS, SECONDS, 2.0, SECONDS)) as client:
        began = time.monotonic()
        assert text_of(call(client, "steps", count=5, seconds=0.5)) == "done"
        assert time.monotonic() - began > 2.0


def test_progress_cannot_keep_a_call_alive_for_ever() -> None:
    with (
        connect(timeouts=ServerTimeouts(SECONDS, SECONDS, 1.0, 1.5)) as client,
        pytest.raises(McpError, match=r"within 1\.5 seconds"),
    ):
        call(client, "steps", count=1000, seconds=0.1)


def test_a_flood_of_notifications_pings_and_progress_does_no_harm() -> None:
    reports: list[CallProgress] = []
    with connect() as client:
        result = client.call("flood", {"count": 3000}, CancelScope(), reports.append)
    assert text_of(result) == "done"


def test_a_message_that_is_too_large_fails_its_call_and_nothing_else() -> None:
    with connect() as client:
        with pytest.raises(McpError, match="more than 16,000,000 bytes"):
            call(client, "huge", bytes=36_000_000)
        assert text_of(call(client, "echo", text="x")) == "x"


def test_messages_larger_than_a_pipe_pass_in_both_directions() -> None:
    with connect() as client:
        assert len(text_of(call(client, "echo", text="x" * 3_000_000))) == 3_000_000


def test_json_that_is_nested_too_deep_is_an_error() -> None:
    with connect() as client:
        assert call(client, "deep", levels=101).is_error
        assert not call(client, "deep", levels=90).is_error


@pytest.mark.parametrize(
    "result",
    [
        "null",
        "5",
        "[]",
        '{"content":5}',
        '{"content":[null,"x",[]]}',
        '{"isError":"yes","content":null}',
        '{"resultType":5}',
    ],
)
def test_a_result_of_the_wrong_shape_is_empty_or_an_error(result: str) -> None:
    with connect() as client:
        try:
            assert call(client, "odd", result=result).content == ()
        except McpError as e:
            assert "unknown type" in str(e)


def test_lone_surrogates_and_numbers_that_json_does_not_have_are_replaced() -> None:
    with connect() as client:
        result = call(client, "odd", result='{"content":[{"text":"a\\ud800b \\ud83d\\ude00"}],"structuredContent":NaN}')
    assert (text_of(result), result.structured) == ("a?b 😀", None)


def test_a_list_without_an_end_is_cut() -> None:
    with connect("endless") as client:
        assert len(client.tools(CancelScope())) == 5_000


def test_a_server_that_never_reads_does_not_block_the_caller() -> None:
    with connect("-c", "sleep 600", command="sh", timeouts=SOON) as client, pytest.raises(McpError, match="answered"):
        client.start(CancelScope())


def test_closing_ends_the_calls_that_wait() -> None:
    with connect() as client, ThreadPoolExecutor(1) as pool:
        client.start(CancelScope())
        waiting = pool.submit(call, client, "hang")
        while not any(each.get("method") == "tools/call" for each in json_of(call(client, "history"))[:-1]):
            pass
        client.close()
        assert "closed" in str(waiting.exception(SECONDS))


def test_several_stubborn_servers_are_closed_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teamcli.mcp.stdio.EOF_PATIENCE_SECONDS", 0.1)
    with ExitStack() as stack:
        clients = [stack.enter_context(connect("stubborn")) for _ in range(3)]
        for client in clients:
            client.start(CancelScope())
        began = time.monotonic()
        close_all(clients)
        assert time.monotonic() - began < 5
        assert {client.status.state for client in clients} == {"closed"}


def test_a_server_that_died_while_nobody_called_is_started_again_unnoticed() -> None:
    recorder = Recorder()
    with connect(recorder=recorder) as client:
        pid = json_of(call(client, "where"))["pid"]
        os.kill(pid, signal.SIGKILL)
        assert recorder.wait_until(lambda: recorder.statuses[-1].state == "failed")
        assert recorder.statuses[-1].error == "MCP server fake has ended (killed by signal 9 (SIGKILL))"
        assert text_of(call(client, "echo", text="x")) == "x"


def test_calls_that_race_with_crashes_all_end() -> None:
    with connect() as client, ThreadPoolExecutor(8) as pool:
        client.start(CancelScope())
        calls = [pool.submit(call, client, "crash" if number % 20 == 10 else "echo", text="x") for number in range(100)]
        outcomes = [each.exception(SECONDS) for each in calls]
    assert {type(each) for each in outcomes} <= {type(None), McpError}


def test_many_threads_start_one_server_once() -> None:
    with connect() as client, ThreadPoolExecutor(8) as pool:
        pids = {json_of(each)["pid"] for each in pool.map(lambda _: call(client, "where"), range(8))}
    assert len(pids) == 1


def test_a_list_that_takes_too_long_is_an_error_that_says_so() -> None:
    with (
        connect("pages:100", "pause:0.2", timeouts=SOON) as client,
        pytest.raises(McpError, match=r"has not listed its tools within 0\.5 s"),
    ):
        client.tools(CancelScope())


@pytest.mark.parametrize("text", ["x", "x\n", '{"method":"notifications/message"}\n'])
def test_a_server_that_writes_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("teamcli.mcp.stdio._MOST_UNASKED", 1_000_000)
    monkeypatch.setattr("teamcli.mcp.stdio.LARGEST_MESSAGE", 300_000)
    recorder = Recorder()
    with connect(recorder=recorder) as client:
        with pytest.raises(McpError):
            call(client, "pour", text=text)
        assert recorder.wait_until(lambda: "without an answer" in recorder.statuses[-1].error)
        assert text_of(call(client, "echo", text="again")) == "again"
