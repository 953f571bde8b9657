"""Webhooks that are pushes to a sync: from a signed event of Notion to the visit of its page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from psycopg import Connection

from tests.fakes.http_service import client_of, serving
from tests.fakes.notion import NotionServer, Webhooks, World, signature
from worker.broker import SYNC_QUEUE, Broker
from worker.connectors.registry import load_syncs
from worker.embedded import Services
from worker.receivers.app import create_http_app
from worker.settings import Settings
from worker.sync.syncer import Syncer

TOKEN = "secret_ofTheSubscription"


@pytest.fixture
def notion() -> Iterator[NotionServer]:
    with NotionServer(World()) as server:
        yield server


@pytest.fixture
def settings(notion: NotionServer, dsn: str, tmp_path: Path) -> Settings:
    wiki = {"type": "notion", "token": notion.token, "base_url": notion.base_url, "requests_per_second": 1000}
    return Settings(
        home=tmp_path,
        database_url=dsn,
        syncs={"wiki": wiki, "bucket": {"type": "bucket", "url": "s3://docs/public"}},
        webhooks={"notion": {"auth": "notion", "sync": "wiki"}},
    )


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Queues that were told of work."""
    queues: list[str] = []

    def wake(_self: Broker, count: int = 1, *, queue: str = "ingest") -> bool:
        queues.append(queue)
        return True

    monkeypatch.setattr(Broker, "wake", wake)
    return queues


@pytest.fixture
def client(settings: Settings, services: Services, dsn: str, woken: list[str]) -> Iterator[httpx.Client]:
    hooks = {
        "notion": {"auth": "notion", "sync": "wiki", "secret": TOKEN},
        "store": {"auth": "bearer", "sync": "bucket", "secret": TOKEN},
        "gone": {"auth": "bearer", "sync": "wiki", "secret": TOKEN, "when": {"path": "$.type", "equals": "page.moved"}},
    }
    found = settings.model_copy(update={"webhooks": hooks})
    with client_of(create_http_app(found, Services(dsn, services.broker_url))) as client:
        yield client


def hints(database: Connection[Any]) -> list[tuple[str, str]]:
    rows = "select s.name, h.key from sync_hints h join syncs s on s.id = h.sync_id order by s.name, h.key"
    return database.execute(rows).fetchall()


def push(client: httpx.Client, event: Any, **more: Any) -> httpx.Response:
    body = json.dumps({**event, **more}).encode()
    return client.post("/webhooks/notion", content=body, headers={"X-Notion-Signature": signature(TOKEN, body)})


def event(page: str, kind: str = "page", **more: Any) -> dict[str, Any]:
    return {"id": "ev-1", "type": "page.content_updated", "entity": {"id": page, "type": kind}, **more}


def test_from_the_handshake_to_the_visit_of_the_page(
    settings: Settings, services: Services, dsn: str, notion: NotionServer, database: Connection[Any], woken: list[str]
) -> None:
    world = notion.world
    page, other = (world.create_page(None, title, markdown=f"{title} text.") for title in ("Plan", "Budget"))
    found = Services(dsn, services.broker_url)
    with serving(create_http_app(settings, found)) as url:
        hooks = Webhooks(world, f"{url}/webhooks/notion", TOKEN, gather=0, doubled=1)
        assert hooks.handshake() == 200
        world.edit(page, markdown="Another text.")
        assert [one.status for one in hooks.deliver(everything=True)] == [401, 401]  # nobody has confirmed it yet
    secret = (settings.home / "webhooks" / "notion.token").read_text().strip()
    receiver = {**settings.webhooks["notion"], "secret": secret}
    confirmed = settings.model_copy(update={"webhooks": {"notion": receiver}})
    with serving(create_http_app(confirmed, found)) as url:
        hooks.url = f"{url}/webhooks/notion"
        assert [one.status for one in hooks.deliver(everything=True)] == [202, 200]  # the second is the same again
    key = page.replace("-", "")
    assert hints(database) == [("wiki", key)]
    assert woken == [SYNC_QUEUE]
    assert sum(notion.counts.values()) == 0

    syncer = Syncer(settings, load_syncs(settings))
    assert syncer.work(seconds=10) == 1
    syncer.close()
    assert hints(database) == []
    assert database.execute("select uri, kind from sources").fetchall() == [
        (f"https://www.notion.so/{key}", "synced"),
    ]
    assert notion.counts["search"] == 0
    assert not any(other in request.path for request in notion.requests_log)


def test_an_event_is_taken_once(client: httpx.Client, database: Connection[Any]) -> None:
    page = "8d2b1f0c-9e7a-4b5c-8d2b-1f0c9e7a4b5c"
    answer = push(client, event(page), attempt_number=1)
    assert (answer.status_code, answer.json()) == (202, {"sync": "wiki", "documents": 1})
    assert hints(database) == [("wiki", page.replace("-", ""))]
    database.execute("delete from sync_hints")
    for attempt in (1, 2):  # the very same, and a retry
        answer = push(client, event(page), attempt_number=attempt)
        assert (answer.status_code, answer.json()) == (200, {"duplicate": True})
    assert hints(database) == []
    assert push(client, event(page), id="ev-2").status_code == 202
    assert hints(database) == [("wiki", page.replace("-", ""))]


def test_what_tells_of_no_document_is_acknowledged(
    client: httpx.Client, database: Connection[Any], woken: list[str]
) -> None:
    for sent in (event("8d2b1f0c-9e7a-4b5c-8d2b-1f0c9e7a4b5c", "comment"), event("no id"), {"entity": 5}):
        answer = push(client, sent)
        assert (answer.status_code, answer.json()) == (200, {"ignored": "it tells of no document of the sync wiki"})
    assert client.post("/webhooks/notion", json=event("8d2b1f0c9e7a4b5c8d2b1f0c9e7a4b5c")).status_code == 401
    answer = client.post("/webhooks/gone", json=event("x"), headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.json() == {"ignored": "$.type"}
    assert (hints(database), woken) == ([], [])


def test_a_bucket_tells_of_its_objects(client: httpx.Client, database: Connection[Any]) -> None:
    def record(bucket: str, key: str) -> dict[str, Any]:
        return {"s3": {"bucket": {"name": bucket}, "object": {"key": key}}}

    keys = ["public/a+b.pdf", "private/c.pdf", "public/" + "k" * 3000, "public/%00.pdf", "public/d.pdf"]
    body = {"Records": [*(record("docs", key) for key in keys), record("other", "public/e.pdf"), 5]}
    answer = client.post("/webhooks/store", json=body, headers={"Authorization": f"Bearer {TOKEN}"})
    assert (answer.status_code, answer.json()) == (202, {"sync": "bucket", "documents": 2})
    assert hints(database) == [("bucket", "a b.pdf"), ("bucket", "d.pdf")]


def test_malformed_events_are_refused_or_ignored(client: httpx.Client, database: Connection[Any]) -> None:
    deep = b'{"body":' * 900 + b"1" + b"}" * 900
    for body in (b"", b"{", b"\xff", b"null", b"5", b'"\\ud800"', b"[[[]]]", deep, b'{"id": 1e999}', b'{"page_id": 5}'):
        headers = {"X-Notion-Signature": signature(TOKEN, body)}
        answer = client.post("/webhooks/notion", content=body, headers=headers)
        assert answer.status_code in (200, 400), (body[:30], answer.text)
    assert hints(database) == []


def test_a_sync_that_cannot_be_opened_has_its_events_sent_again(
    settings: Settings, services: Services, dsn: str, database: Connection[Any]
) -> None:
    syncs = {"wiki": {"type": "notion"}}
    hooks = {"notion": {"auth": "notion", "sync": "wiki", "secret": TOKEN}}
    lacking = settings.model_copy(update={"syncs": syncs, "webhooks": hooks})
    with client_of(create_http_app(lacking, Services(dsn, services.broker_url))) as client:
        answer = push(client, event("8d2b1f0c9e7a4b5c8d2b1f0c9e7a4b5c"))
        assert (answer.status_code, answer.json()["code"]) == (503, "no_notion_token")
    assert hints(database) == []
    assert database.execute("select count(*) from webhook_deliveries").fetchone() == (0,)
