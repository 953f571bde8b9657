"""`/sources`, `/search` and the health of the service over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest
from psycopg import Connection
from psycopg.types.json import Jsonb

from pipelines.errors import PermanentError
from pipelines.types import PageReport
from tests.fakes.http_service import client_of
from tests.integration.test_page_ranges import park, read, take
from worker.database import open_ledger
from worker.embedded import Services
from worker.ledger import Ledger
from worker.page_ranges import PageRanges
from worker.process import wait_for
from worker.receivers import health
from worker.receivers.app import create_http_app
from worker.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path)


@pytest.fixture
def client(settings: Settings, services: Services, dsn: str) -> Iterator[httpx.Client]:
    with client_of(create_http_app(settings, Services(dsn, services.broker_url))) as client:
        yield client


def add(client: httpx.Client, uri: str) -> int:
    answer = client.post("/ingest/text", json={"content": f"text of {uri}", "uri": uri})
    assert answer.status_code == 202
    return int(answer.json()["sources"][0]["id"])


def fail(settings: Settings, database: Connection[Any]) -> None:
    ledger = open_ledger(settings, database)
    claim = ledger.claim()
    assert claim is not None
    ledger.fail(claim, PermanentError("encrypted", "it is encrypted", "unlock it"))


def test_a_source_tells_how_far_it_is(client: httpx.Client, settings: Settings, database: Connection[Any]) -> None:
    id = add(client, "doc:1")
    ledger = open_ledger(settings, database)
    claim = ledger.claim()
    assert claim is not None
    ledger.renew(claim, pages_done=3, pages=10)
    found = client.get(f"/sources/{id}").json()
    assert (found["state"], found["pages_done"], found["pages"]) == ("leased", 3, 10)
    ledger.fail(claim, PermanentError("encrypted", "it is encrypted", "unlock it"))
    found = client.get(f"/sources/{id}").json()
    assert (found["state"], found["code"], found["cause"], found["remedy"]) == (
        "failed",
        "encrypted",
        "it is encrypted",
        "unlock it",
    )
    assert found["created_at"] and "token" not in found and "location" not in found


def test_a_scan_tells_how_many_pages_are_read(client: httpx.Client, database: Connection[Any]) -> None:
    id = park(Ledger(database), 10)
    ranges = PageRanges(database)
    ranges.save(take(ranges), read(1))
    ranges.save(take(ranges), read(6))
    found = client.get(f"/sources/{id}").json()
    assert (found["state"], found["pages_done"], found["pages"]) == ("reading", 2, 10)
    assert [one["id"] for one in client.get("/sources?state=reading").json()["sources"]] == [id]


def test_pages_tell_how_they_were_read(client: httpx.Client, settings: Settings, database: Connection[Any]) -> None:
    id = add(client, "doc:1")
    assert client.get(f"/sources/{id}/pages").json() == {"id": id, "pages": []}
    pages = [
        PageReport(1, "text", "text"),
        PageReport(2, "ocr", "no-text", 91.5, 90, "eng"),
        PageReport(3, "ocr", "no-text", problem="worker-died"),
        PageReport(4, "failed", "crashed"),
    ]
    report = Jsonb({"pages": [asdict(page) for page in pages]})
    database.execute("update sources set report = %s where id = %s", (report, id))
    found = client.get(f"/sources/{id}/pages").json()["pages"]
    assert [page["number"] for page in found] == [1, 2, 3, 4]
    assert found[1] == {
        "number": 2, "decision": "ocr", "reason": "no-text", "confidence": 91.5, "rotation": 90, "languages": "eng",
        "warning": "", "problem": "",
    }  # fmt: skip
    failed = client.get(f"/sources/{id}/pages?decision=failed").json()["pages"]
    assert [(page["number"], page["reason"]) for page in failed] == [(4, "crashed")]
    unread = client.get(f"/sources/{id}/pages?unread=true").json()["pages"]
    assert [(page["number"], page["problem"]) for page in unread] == [(3, "worker-died"), (4, "")]
    assert client.get(f"/sources/{id}/pages?decision=x").status_code == 422
    assert client.get(f"/sources/{id + 1}/pages").status_code == 404
    other = open_ledger(settings.model_copy(update={"tenant": "other"}), database).record("doc:x")
    assert client.get(f"/sources/{other.source_id}/pages").status_code == 404


def test_the_list_comes_in_pages_and_by_state_and_uri(
    client: httpx.Client, settings: Settings, database: Connection[Any]
) -> None:
    ids = [add(client, f"doc:{number}") for number in range(5)]
    fail(settings, database)
    first = client.get("/sources", params={"limit": 2}).json()
    assert [source["id"] for source in first["sources"]] == [ids[4], ids[3]] and first["next"] == ids[3]
    rest = client.get("/sources", params={"limit": 3, "after": first["next"]}).json()
    assert [source["id"] for source in rest["sources"]] == [ids[2], ids[1], ids[0]] and rest["next"] is None
    assert [one["id"] for one in client.get("/sources?state=failed").json()["sources"]] == [ids[0]]
    assert [one["id"] for one in client.get("/sources?uri=doc:2").json()["sources"]] == [ids[2]]


def test_other_tenants_are_not_to_be_seen(client: httpx.Client, settings: Settings, database: Connection[Any]) -> None:
    other = open_ledger(settings.model_copy(update={"tenant": "other"}), database).record("doc:x")
    assert client.get("/sources").json()["sources"] == []
    assert client.get(f"/sources/{other.source_id}").status_code == 404
    assert client.delete(f"/sources/{other.source_id}").status_code == 404
    assert client.delete("/sources?uri=doc:x").status_code == 404


def test_deleting_by_id_and_by_uri(client: httpx.Client) -> None:
    one, two = add(client, "doc:1"), add(client, "doc:2")
    assert client.delete(f"/sources/{one}").json() == {"deleted": one, "uri": "doc:1"}
    assert client.delete("/sources", params={"uri": "doc:2"}).json() == {"deleted": two, "uri": "doc:2"}
    assert client.delete(f"/sources/{one}").status_code == 404
    assert client.get(f"/sources/{one}").json()["state"] == "deleted"
    again = client.post("/ingest/text", json={"content": "text of doc:1", "uri": "doc:1"}).json()["sources"][0]
    assert (again["id"], again["unchanged"], again["state"]) == (one, False, "pending")


def test_trying_again_one_and_all(client: httpx.Client, settings: Settings, database: Connection[Any]) -> None:
    ids = [add(client, f"doc:{number}") for number in range(3)]
    for _ in ids:
        fail(settings, database)
    database.execute("update sources set state = 'dead' where id = %s", (ids[2],))
    assert client.post(f"/sources/{ids[0]}/retry").json() == {"retried": [ids[0]]}
    refused = client.post(f"/sources/{ids[0]}/retry")
    assert (refused.status_code, refused.json()["code"]) == (409, "not_failed")
    assert client.post("/sources/retry?state=dead").json() == {"retried": [ids[2]]}
    assert client.post("/sources/retry").json() == {"retried": [ids[1]]}
    assert client.post("/sources/retry").json() == {"retried": []}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/sources/0", 422),
        ("GET", "/sources/-1", 422),
        ("GET", "/sources/x", 422),
        ("GET", f"/sources/{10**40}", 422),
        ("GET", f"/sources/{2**63 - 1}", 404),
        ("GET", "/sources?state=lost", 422),
        ("GET", "/sources?limit=0", 422),
        ("GET", "/sources?limit=1001", 422),
        ("GET", "/sources?after=x", 422),
        ("GET", "/sources?uri=%00", 422),
        ("GET", "/sources?uri=%ff", 200),
        ("DELETE", "/sources", 422),
        ("DELETE", "/sources?uri=", 422),
        ("DELETE", "/sources?uri=%00", 422),
        ("DELETE", "/sources?uri=nothing", 404),
        ("POST", "/sources/7/retry", 404),
        ("POST", "/sources/retry?state=done", 422),
        ("PATCH", "/sources", 405),
        ("GET", "/nothing", 404),
    ],
)
def test_bad_questions_about_sources(client: httpx.Client, method: str, path: str, status: int) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status, answer.text
    if status >= 400:
        assert answer.headers["content-type"] == "application/problem+json"


# --- search ----------------------------------------------------------------------------------------------------


@pytest.fixture
def indexed(database: Connection[Any]) -> None:
    for content, metadata in (("The pump P-4711 leaks.", '{"site": "a"}'), ("The pump runs.", '{"site": "b"}')):
        database.execute("insert into documents (content, metadata) values (%s, %s)", (content, metadata))


@pytest.mark.usefixtures("indexed")
@pytest.mark.parametrize(
    ("question", "count"),
    [
        ({"query": "pump"}, 2),
        ({"query": "pump", "k": 1}, 1),
        ({"query": "pump", "top_k": 1}, 1),
        ({"query": "pump", "match_count": 1}, 1),
        ({"query": "pump", "filter": {"site": "b"}}, 1),
        ({"query": "pump", "filter": None}, 2),
        ({"query": "pump", "filter": {"site": "' or 1=1 --"}}, 0),
        ({"query": "pump\0\ud83d"}, 2),
        ({"query": "pump", "sources": [1]}, 0),
        ({"query": "pump", "sources": []}, 0),
        ({"query": "pump", "since": "2099-01-01T00:00:00Z"}, 0),
        ({"query": "pump", "until": "2099-01-01"}, 2),
        ({"query": "pump", "language": "en", "query_language": "en"}, 2),
        ({"query": "P-4711", "alpha": 0.5, "rrf_k": 20, "highlight": True, "neighbours": 1}, 1),
    ],
)
def test_search(client: httpx.Client, question: dict[str, Any], count: int) -> None:
    answer = client.post(
        "/search",
        content=json.dumps(question | {"mode": "keyword"}),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 200, answer.text
    assert (len(answer.json()["hits"]), answer.json()["mode"]) == (count, "keyword")


@pytest.mark.usefixtures("indexed")
def test_a_hit_has_what_a_citation_needs(client: httpx.Client) -> None:
    (hit,) = client.post("/search", json={"query": "P-4711", "mode": "keyword", "highlight": True}).json()["hits"]
    assert hit["content"] == "The pump P-4711 leaks." and hit["metadata"]["site"] == "a"
    assert hit["score"] > 0 and hit["ranks"]["vector"] is None and hit["ranks"]["identifier"] == 1
    assert hit["similarity"] is None and "4711" in hit["snippet"]


@pytest.mark.parametrize(
    ("question", "status"),
    [
        (b"", 422),
        (b"{", 400),
        (b"[" * 100_000, 400),
        (b'{"query": 7}', 422),
        (b'{"query": ""}', 422),
        (b'{"query": "  ", "mode": "keyword"}', 422),
        (b'{"query": "x", "k": 0}', 422),
        (b'{"query": "x", "k": 1001}', 422),
        (b'{"query": "x", "k": 1' + b"0" * 400 + b"}", 422),
        (b'{"query": "x", "k": 1' + b"0" * 5000 + b"}", 400),
        (b'{"query": "x", "mode": "magic"}', 422),
        (b'{"query": "x", "limit": 3}', 422),
        (b'{"query": "x", "filter": [1]}', 422),
        (b'{"query": "x", "filter": {"a": NaN}}', 422),
        (b'{"query": "x", "alpha": 2}', 422),
        (b'{"query": "x", "alpha": NaN}', 422),
        (b'{"query": "x", "sources": [9223372036854775808]}', 422),
        (b'{"query": "x", "since": "yesterday"}', 422),
        (b'{"query": "x", "language": "klingon", "mode": "keyword"}', 422),
        (b'{"query": "x", "query_language": "a.b.c", "mode": "keyword"}', 422),
        (b'{"query": "' + b"x" * 20_001 + b'"}', 422),
    ],
    ids=lambda value: str(value)[:60],
)
def test_bad_questions(client: httpx.Client, question: bytes, status: int) -> None:
    answer = client.post("/search", content=question, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


# --- health ----------------------------------------------------------------------------------------------------


def test_ready_once_a_worker_answers(tmp_path: Path, services: Services, dsn: str, client: httpx.Client) -> None:
    def without_a_worker() -> bool:
        answer = client.get("/readyz")
        checks = answer.json()["checks"]
        assert (answer.status_code, checks["worker"]["ok"]) == (503, False)
        return bool(checks["database"]["ok"] and checks["broker"]["ok"])

    # Each look gives them two seconds, which may be over before a busy machine has made the first connection.
    assert wait_for(without_a_worker, 30)

    given = {"HOME": str(tmp_path), "DATABASE_URL": dsn, "BROKER_URL": services.broker_url, "EMBEDDER": "openai"}
    environment = os.environ | {f"GRISTMILL_{name}": value for name, value in given.items()}
    argv = [sys.executable, "-m", "celery", "-q", "-A", "worker.app", "worker", "-P", "solo", "-Q", "search"]
    worker = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert wait_for(lambda: client.get("/readyz").status_code == 200, 60)
    finally:
        worker.terminate()
        worker.wait(30)


def test_not_ready_without_database_and_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PING_SECONDS", 0.3)
    gone = Services("postgresql://gristmill@127.0.0.1:1/x", "redis://127.0.0.1:1/0")
    with client_of(create_http_app(Settings(home=tmp_path), gone)) as client:
        answer = client.get("/readyz")
        assert client.get("/healthz").status_code == 200
    assert (answer.status_code, answer.json()["status"]) == (503, "not ready")
    assert [check["ok"] for check in answer.json()["checks"].values()] == [False, False, False]
    assert "127.0.0.1" not in answer.text
