"""A crowd that waits in one room of the HTTP service keeps nobody out of the others, and is served in the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from psycopg import Connection

from pipelines.types import Vector
from tests.fakes.eight_dimensions import EightDimensions
from tests.fakes.http_service import client_of
from worker.embedded import Services
from worker.process import wait_for
from worker.receivers.app import create_http_app
from worker.receivers.context import Context
from worker.receivers.lanes import EMBEDDING, INTAKE, SEARCH
from worker.settings import Settings

CROWD = 60
"""More than the service has threads or connections."""
WAIT = 100.0
"""Seconds, for what takes few unless the machine stands still."""

DOCUMENT = ("POST", "/ingest/text", {"content": "The pump is serviced in May."}, 202)
LIST = ("GET", "/sources", None, 200)
KEYWORD = ("POST", "/search", {"query": "pump", "mode": "keyword"}, 200)
HYBRID = ("POST", "/search", {"query": "pump"}, 200)
SUPABASE = ("POST", "/rest/v1/rpc/hybrid_search", {"query_text": "pump"}, 200)
VECTOR = [1.0] + 7 * [0.0]
N8N = ("POST", "/rest/v1/rpc/match_documents", {"query_embedding": VECTOR, "match_count": 4}, 200)
ROW = ("POST", "/rest/v1/documents", {"content": "The pump leaks.", "embedding": VECTOR}, 201)
EMBED = ("POST", "/v1/embeddings", {"input": ["pump"]}, 200)


class Thoughtful(EightDimensions):
    """Thinks about questions until it may answer."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = threading.Event()
        self.may_answer.set()

    def embed_query(self, text: str) -> Vector:
        assert self.may_answer.wait(WAIT)
        return super().embed_query(text)


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> Thoughtful:
    found = Thoughtful()
    monkeypatch.setattr(Context, "embedder", lambda _self: found)
    return found


@pytest.fixture
def app(tmp_path: Path, services: Services, dsn: str, embedder: Thoughtful) -> FastAPI:
    return create_http_app(Settings(home=tmp_path / "home"), Services(dsn, services.broker_url))


@pytest.fixture
def http(app: FastAPI) -> Iterator[httpx.Client]:
    with client_of(app) as client:
        client.timeout = httpx.Timeout(WAIT)
        yield client


@contextmanager
def locked(database: Connection[Any], table: str) -> Iterator[None]:
    """Whoever looks at the table waits."""
    with database.transaction():
        database.execute(f"lock table {table} in access exclusive mode".encode())
        yield


@contextmanager
def thinking(embedder: Thoughtful) -> Iterator[None]:
    """Whoever has a question embedded waits."""
    embedder.may_answer.clear()
    try:
        yield
    finally:
        embedder.may_answer.set()


@pytest.mark.parametrize(
    ("crowd", "others"),
    [
        ("documents", [KEYWORD, HYBRID, SUPABASE, N8N, EMBED]),
        ("questions for the embedder", [DOCUMENT, LIST, KEYWORD, N8N, ROW]),
        ("questions for the database", [DOCUMENT, LIST, EMBED]),
    ],
)
def test_a_crowd_keeps_nobody_else_waiting(
    app: FastAPI,
    http: httpx.Client,
    embedder: Thoughtful,
    database: Connection[Any],
    crowd: str,
    others: list[Any],
) -> None:
    lanes = app.state.context.lanes
    guest, wait, lane, most = {
        "documents": (DOCUMENT, locked(database, "sources"), lanes.intake, INTAKE),
        "questions for the embedder": (HYBRID, thinking(embedder), lanes.embedding, EMBEDDING),
        "questions for the database": (KEYWORD, locked(database, "documents"), lanes.search, SEARCH),
    }[crowd]

    def send(request: Any) -> bool:
        method, path, body, status = request
        return http.request(method, path, json=body).status_code == status

    assert all(map(send, others)), "without a crowd"
    with ThreadPoolExecutor(CROWD) as pool:
        with wait:
            guests = [pool.submit(send, guest) for _ in range(CROWD)]
            assert wait_for(lambda: lane.busy >= most, 30)
            for other in others:
                assert send(other), other
            assert not any(one.done() for one in guests)
            assert lane.busy == most
        assert [one.result() for one in guests] == [True] * CROWD
