from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import tempfile
import threading
from pathlib import Path

import pytest

from teamcli.errors import StateError
from teamcli.storage.append_log import AppendLog
from teamcli.storage.debug_log import log_to
from teamcli.storage.files import read_json, read_lines, write_atomic, write_json
from teamcli.storage.team_dir import TeamDir
from tests.tools.file_agent import as_an_ordinary_user


def lines_of(path: Path) -> list[dict[str, object] | None]:
    return [row for _, row in read_lines(path)]


def test_appended_values_come_back_in_order_and_only_the_owner_may_read_them(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "log.jsonl"
    log = AppendLog(path)
    log.append({"n": 1}, {"n": 2})
    log.append({"text": "日本 🚀 \x1b \u2028"})
    assert lines_of(path) == [{"n": 1}, {"n": 2}, {"text": "日本 🚀 \x1b \u2028"}]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_torn_tail_is_cut_off_and_returned(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"n":1}\n{"n":2,"te')
    log = AppendLog(path)
    log.append({"n": 3})
    assert (log.torn, lines_of(path)) == (b'{"n":2,"te', [{"n": 1}, {"n": 3}])


@pytest.mark.parametrize("size", [1, 70_000, 200_000])
def test_a_torn_tail_of_any_size_is_cut_off(tmp_path: Path, size: int) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"n":1}\n' + b"x" * size)
    assert len(AppendLog(path).torn) == size
    assert path.read_bytes() == b'{"n":1}\n'


def test_a_file_that_is_all_torn_becomes_empty(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"x" * 100_000)
    AppendLog(path)
    assert path.read_bytes() == b""


def test_lines_that_are_not_objects_are_reported_with_their_offset(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"n":1}\nnonsense\n[1]\n{"n":2}\nunfinished')
    assert list(read_lines(path)) == [(0, {"n": 1}), (8, None), (17, None), (21, {"n": 2})]
    assert list(read_lines(path, (b":2", b":9"))) == [(21, {"n": 2})]


def test_threads_and_processes_lose_nothing_and_tear_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=append_many, args=(path, f"p{n}")) for n in range(2)]
    log = AppendLog(path, durable=False)
    threads = [threading.Thread(target=append_to, args=(log, f"t{n}")) for n in range(4)]
    for worker in (*processes, *threads):
        worker.start()
    for worker in (*processes, *threads):
        worker.join()
    rows = lines_of(path)
    for writer in ("p0", "p1", "t0", "t1", "t2", "t3"):
        assert [row["n"] for row in rows if row and row["writer"] == writer] == list(range(200))


def append_many(path: Path, writer: str) -> None:
    append_to(AppendLog(path, durable=False), writer)


def append_to(log: AppendLog, writer: str) -> None:
    for n in range(200):
        log.append({"writer": writer, "n": n, "padding": "x" * 500})


def test_a_full_disk_leaves_the_log_as_it_was_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    AppendLog(path).append({"n": 1})
    before = path.read_bytes()
    child = os.fork()
    if child == 0:  # a file-size limit stands in for a full disk; it belongs to the whole process, hence a child
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, len(before) + 100))
        try:
            AppendLog(path).append({"big": "x" * 1000})
        except StateError as e:
            os._exit(0 if "File too large" in str(e) and str(path) in str(e) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert path.read_bytes() == before


def test_replacing_a_document_is_atomic_for_readers(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    write_json(path, {"n": 0})
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            write_json(path, {"n": n, "padding": "x" * 5000})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2000):
            assert json.loads(path.read_bytes())["n"] >= 0
    finally:
        stop.set()
        writer.join()
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def test_a_document_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(StateError, match=r"cannot write .*config\.json"):
        write_atomic(blocker / "config.json", b"")


@pytest.mark.parametrize(("text", "problem"), [("{", "not valid JSON"), ("[]", "must hold a JSON object")])
def test_a_broken_document_is_a_clear_error(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text)
    with pytest.raises(StateError, match=problem):
        read_json(path)
    assert read_json(tmp_path / "absent.json") is None


def test_names_that_are_not_valid_text_survive_in_a_document(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"caf\udce9": "é"})
    assert read_json(tmp_path / "a.json") == {"caf\udce9": "é"}


def test_a_long_line_without_an_end_is_cut_in_one_pass(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}\n" + b"x" * 60_000_000)
    log = AppendLog(path)
    assert len(log.torn) == 60_000_000
    assert path.read_bytes() == b"{}\n"
    log.close()


def test_a_directory_that_cannot_be_read_is_a_clear_error(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    with as_an_ordinary_user():
        with pytest.raises(StateError, match="Permission denied"):
            AppendLog(closed / "a.jsonl")
        with pytest.raises(StateError, match="Permission denied"):
            TeamDir(closed).prepare()
        log_to(closed, debug=False)


def test_a_directory_that_cannot_be_synced_is_a_clear_error() -> None:
    with tempfile.TemporaryDirectory() as listless:  # not in tmp_path: an ordinary user must get there
        Path(listless).chmod(0o333)
        with as_an_ordinary_user():
            with pytest.raises(StateError, match=f"cannot sync {listless}: Permission denied"):
                write_atomic(Path(listless, "config.json"), b"")
            with pytest.raises(StateError, match=f"cannot sync {listless}: Permission denied"):
                AppendLog(Path(listless, "a.jsonl")).append({"n": 1})
        Path(listless).chmod(0o700)
        assert Path(listless, "a.jsonl").read_bytes() == b""  # what was refused is not there
