"""A worker that is stopped over a document that takes long gives it back, before it is killed."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

import worker.lease
from pipelines.types import Vector
from tests.fakes.eight_dimensions import EightDimensions
from worker.ingest import Ingester
from worker.ledger import Ledger
from worker.settings import Settings
from worker.supervisor import Supervisor, stop_leftovers

SECONDS = 100.0
"""Longer than a whole test: who is busy from its beginning on must not be through before its end."""


class Busy(EightDimensions):
    """An embedder that does not answer before it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let_go = threading.Event(), threading.Event()

    def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        self.asked.set()
        assert self.let_go.wait(SECONDS)
        return super().embed_documents(texts)


@pytest.fixture
def settings(dsn: str, database: Connection[Any], tmp_path: Path) -> Settings:
    database.execute("insert into index_models (model, dimensions) values ('eight', 8)")
    document = tmp_path / "long.txt"
    document.write_text("A document that takes long.\n")
    Ledger(database).record(document.as_uri())
    return Settings(database_url=dsn, home=tmp_path / "home", max_attempts=2)


class Shift:
    """An ingest process, in a thread of this one, that is busy with the document."""

    def __init__(self, settings: Settings) -> None:
        self.embedder = Busy()
        self.ingester = Ingester(settings, self.embedder)
        self.thread = threading.Thread(target=self.ingester.work, kwargs={"seconds": SECONDS})
        self.thread.start()
        assert self.embedder.asked.wait(SECONDS), "it is at work"

    def end(self) -> None:
        self.embedder.let_go.set()
        self.thread.join(SECONDS)
        self.ingester.close()


@pytest.fixture
def shift(settings: Settings) -> Iterator[Callable[[], Shift]]:
    made: list[Shift] = []

    def begin() -> Shift:
        made.append(Shift(settings))
        return made[-1]

    yield begin
    for one in made:
        one.end()


def row(database: Connection[Any]) -> tuple[Any, ...] | None:
    return database.execute("select state, attempts, error_code from sources").fetchone()


def until_given_back(database: Connection[Any]) -> None:
    deadline = time.monotonic() + 45
    while row(database) != ("pending", 0, "worker_stopped"):
        assert time.monotonic() < deadline, row(database)
        time.sleep(0.05)


@pytest.mark.parametrize(("stop", "name"), [(Supervisor, "stop_timeout"), (stop_leftovers, "grace")])
def test_it_is_given_back_before_anybody_is_killed(stop: Callable[..., Any], name: str) -> None:
    """By its own supervisor, or by the one after that if that was killed."""
    seconds = inspect.signature(stop).parameters[name].default
    assert seconds > worker.lease.PATIENCE_SECONDS + 2 * worker.lease.LOOK_SECONDS


def test_a_document_outlives_more_stops_than_it_has_attempts(
    database: Connection[Any],
    shift: Callable[[], Shift],
    shutdown: Callable[[bool], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker.lease, "PATIENCE_SECONDS", 0.0)
    stopped = []
    for _ in range(4):
        stopped.append(shift())
        shutdown(True)
        until_given_back(database)
        shutdown(False)
        database.execute("update sources set next_at = now()")
    last = shift()
    for one in stopped:
        one.end()
    assert row(database) == ("leased", 1, "worker_stopped"), "who gave it back writes nothing more"
    last.end()
    assert row(database) == ("done", 0, None)
    assert database.execute("select count(*) from documents").fetchone() == (1,)


def test_a_document_that_is_through_in_time_is_kept(
    database: Connection[Any], shift: Callable[[], Shift], shutdown: Callable[[bool], None]
) -> None:
    working = shift()
    shutdown(True)
    deadline = time.monotonic() + 2 * worker.lease.LOOK_SECONDS
    while time.monotonic() < deadline:
        assert row(database) == ("leased", 1, None)
    working.end()
    assert row(database) == ("done", 0, None)
