"""Who may do what over HTTP, and the commands that make keys."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from psycopg import Connection
from typer.testing import CliRunner

from pipelines.errors import PermanentError
from tests.fakes.http_service import client_of
from worker.cli import app as command
from worker.embedded import Services
from worker.receivers import health
from worker.receivers.app import create_http_app
from worker.receivers.auth import create_key, find_key, list_keys, revoke_key
from worker.settings import Settings


@pytest.fixture
def client(tmp_path: Path, services: Services, dsn: str) -> Iterator[httpx.Client]:
    settings = Settings(home=tmp_path, require_key="always")
    with client_of(create_http_app(settings, Services(dsn, services.broker_url))) as client:
        yield client


@pytest.mark.parametrize(
    ("scopes", "method", "path", "body", "status"),
    [
        (["ingest"], "POST", "/ingest/text", {"content": "x"}, 202),
        (["search"], "POST", "/ingest/text", {"content": "x"}, 403),
        (["admin"], "POST", "/ingest/text", {"content": "x"}, 202),
        (["search"], "POST", "/ingest/url", {"url": "https://example.com"}, 403),
        (["search"], "POST", "/ingest/file", None, 403),
        (["search"], "PUT", "/sources?uri=a", None, 403),
        (["search"], "POST", "/search", {"query": "x", "mode": "keyword"}, 200),
        (["ingest"], "POST", "/search", {"query": "x", "mode": "keyword"}, 403),
        (["ingest", "search"], "POST", "/search", {"query": "x", "mode": "keyword"}, 200),
        (["admin"], "POST", "/search", {"query": "x", "mode": "keyword"}, 200),
        (["search"], "GET", "/sources", None, 403),
        (["ingest"], "GET", "/sources", None, 200),
        (["search"], "GET", "/sources/1", None, 403),
        (["search"], "DELETE", "/sources/1", None, 403),
        (["search"], "DELETE", "/sources?uri=a", None, 403),
        (["ingest"], "DELETE", "/sources/1", None, 404),
        (["search"], "POST", "/sources/1/retry", None, 403),
        (["search"], "POST", "/sources/retry", None, 403),
        (["ingest"], "POST", "/sources/retry", None, 202),
    ],
)
def test_what_each_scope_may_do(
    client: httpx.Client,
    database: Connection[Any],
    scopes: list[str],
    method: str,
    path: str,
    body: dict[str, Any] | None,
    status: int,
) -> None:
    key = create_key(database, "n8n", scopes)
    answer = client.request(method, path, json=body, headers={"X-API-Key": key})
    assert answer.status_code == status, answer.text
    bare = client.request(method, path, json=body)
    assert (bare.status_code, bare.json()["code"]) == (401, "no_key")
    assert bare.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": "Bearer KEY"}, 200),
        ({"authorization": "bearer KEY"}, 200),
        ({"X-API-Key": "KEY"}, 200),
        ({"apikey": "KEY"}, 200),
        ({"apikey": "KEY", "Authorization": "Bearer KEY"}, 200),
        ({"apikey": "KEY", "Authorization": "Bearer another.jwt.token"}, 200),
        ({"Authorization": "KEY"}, 401),
        ({"Authorization": "Basic KEY"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Bearer KEYx"}, 401),
        ({"X-API-Key": "gm_"}, 401),
        ({"X-API-Key": "'; drop table api_keys; --"}, 401),
        ({"X-API-Key": "x" * 5000}, 401),
        ({"X-API-Key": "ключ".encode()}, 401),
        ({"X-API-Key": b"\xff\xfe"}, 401),
    ],
)
def test_how_a_key_may_be_sent(
    client: httpx.Client, database: Connection[Any], headers: dict[str, str | bytes], status: int
) -> None:
    key = create_key(database, "n8n", ["ingest"])
    raw = {
        name.encode(): (value.replace("KEY", key).encode() if isinstance(value, str) else value)
        for name, value in headers.items()
    }
    assert client.get("/sources", headers=raw).status_code == status


def test_health_needs_no_key(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PING_SECONDS", 0.3)
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").status_code in (200, 503)
    assert client.get("/openapi.json").status_code == client.get("/docs").status_code == 200


@pytest.mark.parametrize(
    ("require", "listener", "headers", "status"),
    [
        ("auto", "127.0.0.1", {}, 200),
        ("auto", "127.0.0.1", {"Host": "localhost:8765"}, 200),
        ("auto", "127.0.0.1", {"Host": "[::1]:8765"}, 200),
        ("auto", "127.0.0.1", {"Origin": "http://localhost:8765"}, 200),
        ("auto", "127.0.0.1", {"X-API-Key": "whatever"}, 200),
        ("auto", "127.0.0.1", {"Host": "evil.example"}, 401),
        ("auto", "127.0.0.1", {"Host": "127.0.0.1.evil.example"}, 401),
        ("auto", "127.0.0.1", {"Host": "[::"}, 401),
        ("auto", "127.0.0.1", {"Origin": "https://evil.example"}, 401),
        ("auto", "127.0.0.1", {"Origin": "null"}, 401),
        ("auto", "0.0.0.0", {}, 401),
        ("auto", "::", {}, 401),
        ("auto", "gristmill.internal", {}, 401),
        ("always", "127.0.0.1", {}, 401),
        ("never", "0.0.0.0", {"Host": "anything"}, 200),
    ],
)
def test_when_a_key_is_demanded(
    tmp_path: Path,
    services: Services,
    dsn: str,
    require: Literal["auto", "always", "never"],
    listener: str,
    headers: dict[str, str],
    status: int,
) -> None:
    settings = Settings(home=tmp_path, require_key=require, http_host=listener)
    with client_of(create_http_app(settings, Services(dsn, services.broker_url))) as client:
        assert client.get("/sources", headers=headers).status_code == status


def test_two_callers_may_use_the_same_idempotency_key(client: httpx.Client, database: Connection[Any]) -> None:
    for name in ("one", "two"):
        headers = {"X-API-Key": create_key(database, name, ["ingest"]), "Idempotency-Key": "k"}
        answer = client.post("/ingest/text", json={"content": f"by {name}"}, headers=headers)
        assert answer.status_code == 202


# --- tenants ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "header", "acts_for"),
    [
        ("acme", None, "acme"),
        ("acme", "acme", "acme"),
        (None, None, "default"),
        (None, "bolt", "bolt"),
        (None, "Société à b.", "Société à b."),
        ("acme", "bolt", (403, "wrong_tenant")),
        ("acme", "ACME", (403, "wrong_tenant")),
        ("acme", "default", (403, "wrong_tenant")),
        ("acme", "", (400, "invalid_tenant")),
        (None, "", (400, "invalid_tenant")),
        (None, "a" * 201, (400, "invalid_tenant")),
        (None, "a\tb", (400, "invalid_tenant")),
        (None, b"a\xffb", (400, "invalid_tenant")),
        (None, "a\u2028b", (400, "invalid_tenant")),
    ],
)
def test_whom_a_request_acts_for(
    client: httpx.Client,
    database: Connection[Any],
    bound: str | None,
    header: str | bytes | None,
    acts_for: str | tuple[int, str],
) -> None:
    headers: dict[bytes, bytes] = {b"X-API-Key": create_key(database, "crm", ["ingest"], bound).encode()}
    if header is not None:
        headers[b"X-Tenant"] = header.encode() if isinstance(header, str) else header
    answer = client.post("/ingest/text", json={"content": "x", "uri": "doc:1"}, headers=headers)
    rows = database.execute("select tenant from sources").fetchall()
    if isinstance(acts_for, str):
        assert (answer.status_code, rows) == (202, [(acts_for,)]), answer.text
    else:
        assert (answer.status_code, answer.json()["code"], rows) == (*acts_for, []), answer.text
        assert answer.json()["remedy"]


def test_two_tenants_in_one_request_are_refused(client: httpx.Client, database: Connection[Any]) -> None:
    key = create_key(database, "crm", ["ingest"])
    answer = client.get("/sources", headers=[("X-API-Key", key), ("X-Tenant", "acme"), ("X-Tenant", "bolt")])
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_tenant")
    assert client.get("/sources", headers={"X-Tenant": "a\tb"}).status_code == 401, "a stranger learns nothing of it"


def test_where_no_key_is_demanded_one_with_a_tenant_counts(
    tmp_path: Path, services: Services, dsn: str, database: Connection[Any]
) -> None:
    bound, free = create_key(database, "acme", ["ingest"], "acme"), create_key(database, "any", ["search"])
    with client_of(
        create_http_app(Settings(home=tmp_path, tenant="house"), Services(dsn, services.broker_url))
    ) as client:
        for number, (headers, acts_for) in enumerate(
            [
                ({}, "house"),
                ({"X-Tenant": "bolt"}, "bolt"),
                ({"X-API-Key": "whatever", "X-Tenant": "bolt"}, "bolt"),
                ({"X-API-Key": free}, "house"),
                ({"X-API-Key": bound}, "acme"),
            ]
        ):
            answer = client.post("/ingest/text", json={"content": "x", "uri": f"doc:{number}"}, headers=headers)
            assert answer.status_code == 202, answer.text
            row = database.execute("select tenant from sources where uri = %s", (f"doc:{number}",)).fetchone()
            assert row == (acts_for,), headers
        refused = client.post("/search", json={"query": "x"}, headers={"X-API-Key": bound})
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
        other = client.get("/sources", headers={"X-API-Key": bound, "X-Tenant": "house"})
        assert (other.status_code, other.json()["code"]) == (403, "wrong_tenant")


def test_one_key_may_use_an_idempotency_key_for_each_tenant(client: httpx.Client, database: Connection[Any]) -> None:
    headers = {"X-API-Key": create_key(database, "any", ["ingest"]), "Idempotency-Key": "k"}
    ids = []
    for tenant in ("acme", "bolt", "acme"):
        answer = client.post("/ingest/text", json={"content": "x"}, headers={**headers, "X-Tenant": tenant})
        ids.append(answer.json()["sources"][0]["id"])
    assert ids[0] == ids[2] != ids[1]
    rows = database.execute("select id, tenant from sources order by id").fetchall()
    assert rows == [(ids[0], "acme"), (ids[1], "bolt")]


# --- keys ------------------------------------------------------------------------------------------------------


def test_a_key_is_kept_as_its_hash_only(database: Connection[Any]) -> None:
    key = create_key(database, "n8n", ["search", "ingest", "search"])
    assert re.fullmatch(r"gm_[A-Za-z0-9_-]{32}", key)
    stored = database.execute("select key_hash, api_keys::text from api_keys").fetchone()
    assert stored is not None and stored[0] == hashlib.sha256(key.encode()).digest()
    assert key not in stored[1] and key.encode().hex() not in stored[1]
    (listed,) = list_keys(database)
    assert (listed.name, listed.scopes, listed.last_used_at) == ("n8n", ["ingest", "search"], None)
    assert find_key(database, key) is not None and find_key(database, key[:-1]) is None
    assert list_keys(database)[0].last_used_at is not None
    assert revoke_key(database, "n8n") and not revoke_key(database, "n8n")
    assert find_key(database, key) is None


@pytest.mark.parametrize(
    ("name", "scopes", "code"),
    [
        ("taken", ["search"], "name_taken"),
        ("a", [], "invalid_scope"),
        ("a", ["root"], "invalid_scope"),
        (" ", ["search"], "invalid_name"),
        ("a\nb", ["search"], "invalid_name"),
    ],
)
def test_a_key_that_cannot_be_made(database: Connection[Any], name: str, scopes: list[str], code: str) -> None:
    create_key(database, "taken", ["search"])
    with pytest.raises(PermanentError) as caught:
        create_key(database, name, scopes)
    assert caught.value.code == code


@pytest.mark.parametrize("tenant", ["", " ", "a\nb", "a ", "a" * 201])
def test_a_key_for_no_name_of_a_tenant(database: Connection[Any], tenant: str) -> None:
    with pytest.raises(PermanentError) as caught:
        create_key(database, "acme", ["search"], tenant)
    assert caught.value.code == "invalid_tenant" and list_keys(database) == []


def test_the_commands(tmp_path: Path, dsn: str, database: Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path))
    monkeypatch.setenv("GRISTMILL_DATABASE_URL", dsn)

    def run(*arguments: str) -> Any:
        result = CliRunner().invoke(command, ["keys", *arguments, "--json"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    bound = run("add", "acme", "--scope", "admin", "--tenant", "acme")
    found = find_key(database, bound["key"])
    assert bound["tenant"] == "acme" and found is not None and found.tenant == "acme"
    assert [key["tenant"] for key in run("list")] == ["acme"]
    assert run("revoke", "acme") == {"revoked": "acme"}
    made = run("add", "n8n", "--scope", "search", "--scope", "ingest")
    assert made["scopes"] == ["ingest", "search"] and find_key(database, made["key"]) is not None
    (listed,) = run("list")
    assert listed["name"] == "n8n" and "key" not in listed
    assert run("revoke", "n8n") == {"revoked": "n8n"} and run("list") == []
    with pytest.raises(PermanentError, match="no key named"):
        run("revoke", "n8n")
