"""Tenants over HTTP: whatever one of them asks, no answer holds a word of another, and no row of another changes."""

from __future__ import annotations

import hmac
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from psycopg import Connection
from psycopg.types.json import Jsonb

from tests.fakes.eight_dimensions import EightDimensions
from tests.fakes.http_service import client_of
from tests.fakes.tenant_requests import CANARIES, FUZZED, READS, SECRET, URIS, Caller, Sent, World
from worker.embedded import Services
from worker.ingest import Ingester
from worker.ledger import Ledger
from worker.receivers import context
from worker.receivers.app import create_http_app
from worker.receivers.auth import create_key
from worker.settings import Settings

REQUESTS, BATCH, LEAST_TOLD = 600, 20, 60

NOT_FUZZED = {
    ("GET", "/healthz"): "says that the process answers, and nothing else",
    ("GET", "/readyz"): "looks whether services answer, and reads no row",
    ("POST", "/v1/embeddings"): "texts in, their vectors out; no row is read or written",
    ("GET", "/v1/models"): "the name of the model, the same for all",
    ("GET", "/v1/models/{model:path}"): "the same",
    ("GET", "/rest/v1/"): "names of columns and functions, the same for all",
    ("GET", "/rest/v1"): "the same",
    ("GET", "/openapi.json"): "describes the endpoints, the same for all",
    ("GET", "/docs"): "shows that",
    ("GET", "/docs/oauth2-redirect"): "comes with it",
    ("GET", "/redoc"): "shows that",
}


# --- what is there ---------------------------------------------------------------------------------------------


@pytest.fixture
def settings(tmp_path: Path, dsn: str) -> Settings:
    receivers: dict[str, Any] = {
        tenant: {
            "auth": "bearer",
            "secret": SECRET,
            "text": "$.text",
            "uri": "$.uri",
            "delete_when": {"path": "$.event", "equals": "d"},
            **({"tenant": tenant} if tenant != "default" else {}),
        }
        for tenant in CANARIES
    }
    receivers["hub"] = {"auth": "github", "secret": SECRET, "text": "$.text", "uri": "$.uri", "tenant": "bolt"}
    (tmp_path / "wiki").mkdir()
    return Settings(
        home=tmp_path / "home",
        database_url=dsn,
        require_key="always",
        webhooks=receivers,
        syncs={"wiki": {"type": "folder", "path": str(tmp_path / "wiki")}},
    )


@pytest.fixture
def app(settings: Settings, services: Services, dsn: str, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    monkeypatch.setattr(context, "open_embedder", lambda _spec: EightDimensions())
    return create_http_app(settings, Services(dsn, services.broker_url))


@pytest.fixture
def client(app: FastAPI) -> Iterator[httpx.Client]:
    with client_of(app) as client:
        yield client


@pytest.fixture
def work(settings: Settings) -> Iterator[Callable[[], None]]:
    ingester = Ingester(settings, EightDimensions())
    yield lambda: [None for _ in iter(lambda: ingester.work(seconds=30), 0)] and None
    ingester.close()


@pytest.fixture
def callers(database: Connection[Any]) -> list[Caller]:
    found = [
        Caller(tenant, {"X-API-Key": create_key(database, f"of {tenant}", ["admin"], tenant)}) for tenant in CANARIES
    ]
    everywhere = create_key(database, "of none", ["admin"])
    return found + [Caller(tenant, {"X-API-Key": everywhere, "X-Tenant": tenant}) for tenant in CANARIES]


def fill(client: httpx.Client, callers: list[Caller], work: Callable[[], None]) -> None:
    """Much the same documents and rows for each."""
    for who in callers[: len(CANARIES)]:
        for uri in URIS:
            body = {
                "content": f"The pump E-4711 of {who.canary} is serviced in May.",
                "uri": uri,
                "title": f"Pump of {who.canary}",
                "metadata": {"canary": who.canary, "tenant": who.tenant},
            }
            assert client.post("/ingest/text", json=body, headers=who.headers).status_code in (202, 409)  # kept out
        rows = [{"content": f"A row of {who.canary}, {n}", "metadata": {"canary": who.canary}} for n in (1, 2, 3)]
        assert client.post("/rest/v1/documents", json=rows, headers=who.headers).status_code == 201
    work()


def spoil(database: Connection[Any]) -> None:
    """A document of each has failed, and each has pages that tell of it."""
    for tenant, canary in CANARIES.items():
        report = Jsonb({"pages": [{"number": 1, "decision": "text", "reason": canary}]})
        database.execute("update sources set report = %s where tenant = %s", (report, tenant))
        database.execute(
            "update sources set state = 'failed', error_code = 'encrypted', error_cause = %s,"
            " error_remedy = 'unlock it' where tenant = %s and uri = %s",
            (f"{canary} is encrypted", tenant, URIS[-1]),
        )


def digests(database: Connection[Any]) -> dict[str, tuple[Any, ...]]:
    """All that is each tenant's, in one value each."""
    found = {}
    for tenant in CANARIES:
        values = {"tenant": tenant, "uris": [*URIS, "crm:shared"]}
        row = database.execute(
            "select (select md5(string_agg(s::text, '|' order by id)) from sources s where tenant = %(tenant)s),"
            " (select md5(string_agg(d::text, '|' order by id)) from documents d where tenant = %(tenant)s),"
            " (select md5(string_agg(c::text, '|' order by c.id)) from callbacks c join sources s on s.id = c.source_id"
            "  where s.tenant = %(tenant)s),"
            " (select md5(string_agg(i::text, '|' order by i::text)) from idempotency_keys i"
            "  where starts_with(scope, '[' || to_json(%(tenant)s::text)::text || ',')),"
            " (select md5(string_agg(w::text, '|' order by w::text)) from webhook_deliveries w"
            "  where receiver = %(tenant)s),"
            " (select md5(string_agg(y::text, '|' order by id)) from syncs y where tenant = %(tenant)s),"
            " (select md5(string_agg(to_jsonb(k) #>> '{key_hash}', '|')) from api_keys k where tenant = %(tenant)s),"
            " (select array_agg(uri order by uri) from unnest(%(uris)s::text[]) uri"
            "  where is_kept_out(%(tenant)s, uri))",
            values,
        ).fetchone()
        assert row is not None
        found[tenant] = row
    return found


def send(client: httpx.Client, who: Caller, sent: Sent) -> httpx.Response:
    headers = {**who.headers, **sent.headers}
    if sent.content is not None:
        return client.request(sent.method, sent.path, params=sent.params, content=sent.content, headers=headers)
    return client.request(sent.method, sent.path, params=sent.params, json=sent.json, headers=headers)


def check(who: Caller, sent: Sent, answer: httpx.Response) -> None:
    """No word of another: only what was asked, where an error says it again."""
    assert answer.status_code < 500, (sent, answer.text)
    told = answer.text + str(answer.headers)
    asked = json.dumps([sent.params, sent.json])
    for tenant, canary in CANARIES.items():
        if tenant != who.tenant and canary in told:
            assert answer.status_code >= 400 and canary in asked, (who.tenant, sent, told)
    if answer.status_code < 300 and sent.path == "/rest/v1/documents" and answer.content:
        rows = answer.json()
        assert {row["tenant"] for row in rows if "tenant" in row} <= {who.tenant}, (sent, told)


# --- tests -----------------------------------------------------------------------------------------------------


@pytest.mark.timeout(400)  # hundreds of requests
def test_no_request_reads_or_changes_what_is_another_tenants(
    client: httpx.Client,
    callers: list[Caller],
    database: Connection[Any],
    work: Callable[[], None],
) -> None:
    fill(client, callers, work)
    spoil(database)
    seed = int(os.environ.get("TENANT_SEED") or random.randrange(2**32))
    print(f"once more: TENANT_SEED={seed}")
    rng = random.Random(seed)
    world = World(rng)
    told: Counter[str] = Counter()
    mine: dict[int, str] = {}
    makes = [make for place, make in FUZZED.items() for _ in range(4 if place in READS else 1)]
    for _ in range(REQUESTS // BATCH):
        world.look(database)
        mine.update({number: tenant for tenant, numbers in world.sources.items() for number in numbers})
        who = rng.choice(callers)
        before = digests(database)
        for make in rng.choices(makes, k=BATCH):
            sent = make(who, world)
            answer = send(client, who, sent)
            check(who, sent, answer)
            told["own"] += who.canary in answer.text
            told[str(answer.status_code)[0]] += 1
            if sent.path == "/ingest/text" and answer.status_code == 202:
                for source in answer.json()["sources"]:
                    assert mine.get(source["id"], who.tenant) == who.tenant, "a document, or an answer, of another"
        after = digests(database)
        for tenant in CANARIES:
            if tenant != who.tenant:
                assert after[tenant] == before[tenant], (who.tenant, tenant, seed)
        database.execute("delete from kept_out")
        fill(client, [who], work)  # much of its own is gone
    assert told["own"] >= LEAST_TOLD and told["2"] > REQUESTS * 0.4, told


UNKNOWN = 10**15


def answered(client: httpx.Client, who: Caller, sent: Sent, number: int) -> tuple[int, str, str]:
    """Status and text of an answer, without the number that was asked for."""
    answer = send(client, who, sent)
    span = answer.headers.get("content-range", "")
    return answer.status_code, answer.text.replace(str(number), "ID"), span


def test_what_is_another_tenants_is_answered_as_what_nobody_has(
    client: httpx.Client, callers: list[Caller], database: Connection[Any], work: Callable[[], None]
) -> None:
    fill(client, callers, work)
    spoil(database)
    acme = callers[0]
    (source,) = database.execute("select max(id) from sources where tenant = 'bolt'").fetchone() or (0,)
    (free,) = database.execute("select max(id) from documents where tenant = 'bolt'").fetchone() or (0,)
    query = "select max(id) from documents where tenant = 'bolt' and source_id is not null"
    (owned,) = database.execute(query).fetchone() or (0,)
    before = digests(database)

    def everything(source: int, row: int) -> list[tuple[int, Sent]]:
        of_row = [("id", f"eq.{row}")]
        full = {"Prefer": "return=representation,count=exact"}
        content = {"content": "A row of zqxkacme, 1", "metadata": {"canary": "zqxkacme"}, "id": row}
        return [
            (source, Sent("GET", f"/sources/{source}")),
            (source, Sent("GET", f"/sources/{source}/pages")),
            (source, Sent("POST", f"/sources/{source}/retry")),
            (source, Sent("DELETE", f"/sources/{source}")),
            (source, Sent("DELETE", f"/sources/{source}", [("erase", "true")])),
            (source, Sent("DELETE", f"/sources/{source}", [("erase", "true"), ("keep_out", "true")])),
            (source, Sent("GET", "/sources", [("id", str(source))])),
            (source, Sent("POST", "/search", json={"query": "pump", "mode": "keyword", "sources": [source]})),
            (source, Sent("GET", "/rest/v1/documents", [("source_id", f"eq.{source}")], headers=full)),
            (row, Sent("GET", "/rest/v1/documents", of_row, headers=full)),
            (row, Sent("PATCH", "/rest/v1/documents", of_row, {"content": "x"}, full)),
            (row, Sent("DELETE", "/rest/v1/documents", of_row, headers=full)),
            (row, Sent("POST", "/rest/v1/documents", [], [content], full)),
            (row, Sent("POST", "/rest/v1/documents", [], [content], {"Prefer": "resolution=merge-duplicates"})),
            (row, Sent("POST", "/rest/v1/documents", [], [content], {"Prefer": "resolution=ignore-duplicates"})),
        ]

    unknown = [answered(client, acme, sent, number) for number, sent in everything(UNKNOWN, UNKNOWN)]
    statuses = [404] * 6 + [200] * 4 + [200, 200, 400, 400, 400]
    assert [status for status, _, _ in unknown] == statuses
    for row in (free, owned):
        asked = everything(source, row)
        for (number, sent), expected in zip(asked, unknown, strict=True):
            assert answered(client, acme, sent, number) == expected, sent
    assert {tenant: one for tenant, one in digests(database).items() if tenant != "acme"} == {
        tenant: one for tenant, one in before.items() if tenant != "acme"
    }


def test_the_syncs_and_the_load_of_the_installation_are_not_for_a_tenant(
    client: httpx.Client, callers: list[Caller], database: Connection[Any]
) -> None:
    acme, default = callers[0], callers[2]
    for number in range(3):
        body = {"content": f"text {number}"}
        assert "queue" not in client.post("/ingest/text", json=body, headers=acme.headers).json()
    assert client.get("/status", headers=acme.headers).json()["queue"]["due"] == 3
    assert client.get("/status", headers=default.headers).json()["queue"]["due"] == 0
    assert client.get("/status", headers=callers[3].headers).json()["queue"]["due"] == 3
    for who, there in ((acme, False), (callers[3], False), (default, True)):
        assert len(client.get("/syncs", headers=who.headers).json()["syncs"]) == there
        unknown = client.post("/syncs/nothing", headers=who.headers)
        assert unknown.status_code == 404
        asked = client.post("/syncs/wiki", headers=who.headers)
        assert asked.status_code == 202 if there else (asked.status_code, asked.text) == (404, unknown.text)


def test_a_tenant_is_refused_and_held_up_without_the_reasons_of_the_installation(
    settings: Settings, services: Services, callers: list[Caller], database: Connection[Any], dsn: str
) -> None:
    full = create_http_app(settings.model_copy(update={"max_due": 1}), Services(dsn, services.broker_url))
    Ledger(database, tenant="bolt").record("crm:waits")
    database.execute(
        "insert into pauses (what, until, code, cause, remedy)"
        " values ('embedding', now() + interval '1 hour', 'quota', 'the account of zqxkdflt is empty', 'pay')"
    )
    told = []
    with client_of(full) as client:
        for who in (callers[0], callers[3]):
            refused = client.post("/ingest/text", json={"content": "x"}, headers=who.headers)
            assert (refused.status_code, refused.json()["code"]) == (503, "queue_full")
            (pause,) = client.get("/status", headers=who.headers).json()["paused"]
            assert (pause["code"], pause["what"]) == ("quota", "embedding") and "retry-after" in refused.headers
            told.append("1 due" in refused.text and "zqxkdflt" in pause["cause"])
            assert ("1 due" in refused.text) == ("zqxkdflt" in pause["cause"])
    assert told == [False, True]


def test_match_documents_finds_all_of_a_small_tenant(
    client: httpx.Client, callers: list[Caller], database: Connection[Any]
) -> None:
    insert = (
        "insert into documents (tenant, content, metadata, embedding)"
        " select %s, %s || n, jsonb_build_object('n', n), %s from generate_series(1, %s) n"
    )
    asked, far = [1.0] + [0.0] * 7, [0.0] * 7 + [1.0]
    database.execute(insert, ("bolt", "near ", str(asked), 1500))
    database.execute(insert, ("acme", "far ", str(far), 5))
    call = "/rest/v1/rpc/match_documents"
    for body, params, found in (
        ({"match_count": 10}, {}, 5),
        ({}, {}, 5),
        ({}, {"metadata->>n": "eq.3"}, 1),
        ({"match_count": 10, "filter": {"n": 3}}, {}, 1),
        ({"match_count": 2}, {"order": "id.desc"}, 2),
    ):
        rows = client.post(
            call, params=params, json={"query_embedding": asked, **body}, headers=callers[0].headers
        ).json()
        assert len(rows) == found and all(row["content"].startswith("far ") for row in rows), (body, params)
        assert list(rows[0]) == ["id", "content", "metadata", "similarity"] and rows[0]["similarity"] == 0
    rows = client.post(call, json={"query_embedding": asked}, headers=callers[1].headers).json()
    assert len(rows) == 1000


def test_a_pattern_fails_whatever_the_rows_are(client: httpx.Client, callers: list[Caller]) -> None:
    """Postgres refuses it only at a row that the rest of it fits: an error would tell what another's row holds."""
    row = {"content": "secret", "metadata": {}}
    assert client.post("/rest/v1/documents", json=[row], headers=callers[1].headers).status_code == 201
    for pattern, status in (("secret\\", 400), ("nothing\\", 400), ("secret\\\\", 200)):
        answer = client.get("/rest/v1/documents", params={"content": f"like.{pattern}"}, headers=callers[0].headers)
        assert answer.status_code == status, answer.text


def test_a_uri_that_is_part_of_every_delivery_erases_none(
    client: httpx.Client, callers: list[Caller], database: Connection[Any]
) -> None:
    body = {"uri": "crm:a", "text": "a delivery", "event": "x"}
    headers = {
        "X-Hub-Signature-256": "sha256=" + hmac.new(SECRET.encode(), json.dumps(body).encode(), "sha256").hexdigest()
    }
    send_it = {"content": json.dumps(body).encode(), "headers": headers}
    assert client.post("/webhooks/hub", **send_it).status_code == 202
    assert client.put("/sources?uri=signed", content=b"x", headers=callers[0].headers).status_code == 202
    erased = client.delete("/sources?uri=signed&erase=true", headers=callers[0].headers)
    assert erased.json()["counts"]["webhook_deliveries"] == 0
    assert client.post("/webhooks/hub", **send_it).status_code == 409, "it came before, and that is not forgotten"


def endpoints(routes: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Method and path of all, also of those that came with a router."""
    for route in routes:
        if (router := getattr(route, "original_router", None)) is not None:
            yield from endpoints(router.routes)
        else:
            yield from ((verb, route.path) for verb in route.methods - {"HEAD"})


def test_every_endpoint_is_in_it_or_said_to_be_harmless(app: FastAPI) -> None:
    there = set(endpoints(app.routes))
    assert ("POST", "/search") in there
    assert there == FUZZED.keys() | NOT_FUZZED.keys(), "add a new endpoint to the one or, with a reason, to the other"
    assert not FUZZED.keys() & NOT_FUZZED.keys()
