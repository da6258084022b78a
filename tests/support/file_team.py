"""A small team in files, as teamcli leaves it, and a repository for it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from teamcli.storage.append_log import AppendLog
from teamcli.storage.team_dir import TeamDir
from teamcli.tasks.stored_board import StoredBoard
from teamcli.tasks.task_files import TaskFiles
from teamcli.team.inbox_state import Position
from teamcli.team.mailbox import Mailbox
from teamcli.team.message import Message, MessageType, new_id
from teamcli.team.message_bus import FileBus
from teamcli.team.roster_file import Member, Status, TeamConfig

KEY = b"the key of the user, for tests.."


def git(directory: Path, *words: str) -> str:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", "-C", str(directory), *identity, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def repository(directory: Path, message: str = "start") -> Path:
    directory.mkdir(exist_ok=True)
    git(directory, "init", "-q", "-b", "main")
    git(directory, "commit", "-q", "--allow-empty", "-m", message)
    return directory


def make_team(root: Path) -> TeamDir:
    """A small team as teamcli leaves it: read and unread mail, a conversation that was begun anew, tasks, events."""
    root.parent.mkdir(exist_ok=True)
    directory = TeamDir(root)
    directory.prepare()
    bus = FileBus(directory.inbox, KEY, durable=False, rotate_bytes=100)
    for number in range(3):
        bus.send(Message(MessageType.MESSAGE, "lead", "alice", f"hello {number} ünï\u2028", 1.0, new_id()))
    mailbox = Mailbox(bus, "alice", {})
    log = AppendLog(directory.transcripts / "alice.jsonl", durable=False)
    log.append({"kind": "user", "content": "x", "marks": dict(mailbox.take().marks)})
    log.close()
    bus.rotate(
        "alice", Position.from_mark(json.loads((directory.transcripts / "alice.jsonl").read_text())["marks"]["inbox"])
    )
    bus.send(Message(MessageType.RESULT, "alice", "lead", "done", 2.0, new_id()))
    bus.send(Message(MessageType.MESSAGE, "user", "alice", "more", 3.0, new_id()))
    with (directory.inbox / "lead.jsonl").open("ab") as file:
        file.write(b'{"type":"message","from":"make","content":"built","timestamp":2.5}\nnot json\n')
    bus.close()
    (directory.transcripts / "archive").mkdir()
    (directory.transcripts / "archive" / "alice.1763481234000000000.jsonl").write_text('{"kind":"joined"}\n')
    directory.lead_transcript.write_text('{"v":1,"kind":"session","id":"s","ts":1.0,"model":"m"}\n')
    directory.config.write_bytes(TeamConfig(members=(Member("alice", "coder", Status.IDLE, incarnation=2),)).encode())
    board = StoredBoard(TaskFiles(directory.tasks, print), lambda: ["alice"])
    board.create("user", "first")
    board.create("user", "second", blocked_by=[1])
    directory.events.write_text('{"ts":2.0,"agent":"lead","event":"x"}\n{"ts":1.0,"agent":"lead","event":"y"}\n')
    return directory
