"""Drives teamcli as the SDK of Claude Code does: JSON objects, one per line, in both directions."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

from tests.support.program import PATIENCE_SECONDS, Program

Json = dict[str, Any]
Answers = Mapping[str, Callable[[Json], Json]]
STARTED = ("--output-format", "stream-json", "--verbose", "--system-prompt", "", "--input-format", "stream-json")


class Driver:
    """Reads everything the program sends while it waits for something, and answers its requests from `answers`."""

    def __init__(self, process: subprocess.Popen[bytes], answers: Answers) -> None:
        self.process = process
        self.messages: list[Json] = []
        """What was sent besides the control protocol."""
        self.asked: list[Json] = []
        """The requests of the program."""
        self._answers = answers
        self._replies: dict[str, Json] = {}
        self._ids = count(1)

    def initialize(self, **fields: Any) -> Json:
        return self.request("initialize", **{"hooks": None, **fields})

    def request(self, subtype: str, **fields: Any) -> Json:
        """Returns the reply."""
        id = self.send_request(subtype, **fields)
        self.read_until(lambda message: id in self._replies)
        return self._replies[id]

    def send_request(self, subtype: str, **fields: Any) -> str:
        id = f"req_{next(self._ids)}"
        self.send({"type": "control_request", "request_id": id, "request": {"subtype": subtype, **fields}})
        return id

    def say(self, text: str) -> None:
        message = {"role": "user", "content": text}
        self.send({"type": "user", "message": message, "parent_tool_use_id": None, "session_id": ""})

    def turn(self, text: str) -> Json:
        """Returns the result."""
        self.say(text)
        return self.result()

    def result(self) -> Json:
        return self.read_until(lambda message: message.get("type") == "result")

    def send(self, message: Json) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def read_until(self, is_wanted: Callable[[Json], bool]) -> Json:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            self._take(message)
            if is_wanted(message):
                return message
        raise AssertionError(f"the program ended: {self.messages}")

    def of_type(self, kind: str) -> list[Json]:
        return [message for message in self.messages if message["type"] == kind]

    def close(self) -> int:
        """End the input; returns the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._take(json.loads(line))
        return self.process.wait(PATIENCE_SECONDS)

    def _take(self, message: Json) -> None:
        if message["type"] == "control_response":
            self._replies[message["response"]["request_id"]] = message["response"]
        elif message["type"] == "control_request":
            self.asked.append(message["request"])
            if answer := self._answers.get(message["request"]["subtype"]):
                response = {"subtype": "success", "response": answer(message["request"])}
                reply = {"request_id": message["request_id"], **response}
                self.send({"type": "control_response", "response": reply})
        else:
            self.messages.append(message)


@contextmanager
def driving(program: Program, *arguments: str, answers: Answers | None = None) -> Iterator[Driver]:
    process = program.start(*STARTED, *arguments, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    driver = Driver(process, answers or {})
    try:
        yield driver
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()
