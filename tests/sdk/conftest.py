from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from teamcli import Session
from teamcli.text import redaction as masking
from tests.support.fake_api import FakeAPI

Open = Callable[..., Session]


@pytest.fixture(autouse=True)
def nothing_is_masked_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may begin a key is held back from a stream, and the process remembers the keys of earlier tests."""
    monkeypatch.setattr(masking, "_known", masking.Redactor())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "work"
    directory.mkdir()
    return directory


@pytest.fixture
def opened(place: Path) -> Iterator[Open]:
    """Opens sessions that the test's end closes; with an `api` as the model's endpoint."""
    with ExitStack() as stack:

        def open_one(api: FakeAPI | None = None, directory: Path = place, **options: Any) -> Session:
            if api is not None:
                options |= {"api_key": "test-key-0123456789", "base_url": api.url, "model": "test-model"}
            return stack.enter_context(Session(directory, **options))

        yield open_one
