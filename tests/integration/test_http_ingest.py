"""Documents over HTTP: each way in, and what the answer and the ledger then say."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from psycopg import Connection

from pipelines.errors import PermanentError
from tests.fakes.http_service import client_of
from worker.database import open_ledger
from worker.embedded import Services
from worker.ledger import Outcome
from worker.process import wait_for
from worker.receivers.app import create_http_app
from worker.settings import Settings

OUTCOME = Outcome(b"hash", "recipe", "text/plain", None, None, 0, {})
WAIT = 60
"""Seconds, for what takes none unless the machine stands still."""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", max_bytes=100_000)


@pytest.fixture
def client(settings: Settings, services: Services, dsn: str) -> Iterator[httpx.Client]:
    with client_of(create_http_app(settings, Services(dsn, services.broker_url))) as client:
        yield client


def spooled(settings: Settings) -> list[Path]:
    return [path for path in (settings.home / "spool").rglob("*") if path.is_file()]


def test_a_text_is_in_the_ledger_before_the_answer(
    client: httpx.Client, database: Connection[Any], settings: Settings
) -> None:
    sent = {"content": "Hello \ud83d", "uri": "note:1", "metadata": {"a": 1}, "title": "T", "language": "fr"}
    answer = client.post("/ingest/text", content=json.dumps(sent))
    assert answer.status_code == 202, answer.text
    (source,) = answer.json()["sources"]
    assert (source["uri"], source["version"], source["unchanged"], source["state"]) == ("note:1", 1, False, "pending")
    assert source["status_url"] == answer.json()["status_url"] == str(client.base_url.join(f"/sources/{source['id']}"))
    row = database.execute("select kind, filename, language, metadata from sources where id = %s", (source["id"],))
    assert row.fetchone() == ("text", "T.txt", "french", {"a": 1, "title": "T"})
    assert [path.read_text() for path in spooled(settings)] == ["Hello \ufffd"]
    again = client.post("/ingest/text", content=json.dumps(sent)).json()["sources"][0]
    assert (again["unchanged"], again["version"]) == (True, 1)
    other = client.post("/ingest/text", content=json.dumps(sent | {"metadata": {"a": 2}})).json()["sources"][0]
    assert (other["unchanged"], other["version"], other["id"]) == (False, 2, source["id"])


def test_a_text_may_come_as_a_form_and_without_a_uri(client: httpx.Client, database: Connection[Any]) -> None:
    answer = client.post("/ingest/text", data={"content": "é", "filename": "a/b.md", "metadata": '{"x": [1]}'})
    digest = hashlib.sha256("é".encode()).hexdigest()
    row = database.execute("select uri, kind, filename, location, metadata from sources").fetchone()
    assert answer.status_code == 202
    assert row == (f"text:sha256:{digest}", "text", "b.md", f"{digest}.md", {"x": [1]})


def test_a_url_is_noted_in_its_one_spelling_and_fetched_again_when_sent_again(
    client: httpx.Client, database: Connection[Any]
) -> None:
    first = client.post("/ingest/url", json={"url": "HTTPS://Example.com/a#b"}).json()["sources"][0]
    again = client.post("/ingest/url", json={"url": "https://example.com:443/a"}).json()["sources"][0]
    assert (first["id"], first["version"], again["version"]) == (again["id"], 1, 2)
    row = database.execute("select uri, kind, location from sources").fetchone()
    assert row == ("https://example.com/a", "url", "https://example.com/a")
    named = client.post("/ingest/url", json={"url": "https://example.com/a", "uri": "page:1"}).json()["sources"][0]
    assert named["uri"] == "page:1" and named["id"] != first["id"]


def test_several_files_under_any_names_with_a_uri_each(client: httpx.Client, database: Connection[Any]) -> None:
    files = [("data0", ("résumé é.pdf", b"one", "application/pdf")), ("x", ("../../b.txt", b"two", "text/plain"))]
    answer = client.post(
        "/ingest/file", files=files, data={"uri": ["doc:2", "doc:1"], "metadata": '{"a": 1}', "language": "german"}
    )
    assert [source["uri"] for source in answer.json()["sources"]] == ["doc:2", "doc:1"]
    ids = [source["id"] for source in answer.json()["sources"]]
    assert answer.json()["status_url"].endswith(f"/sources?id={ids[0]}&id={ids[1]}")
    listed = client.get(answer.json()["status_url"]).json()["sources"]
    assert {source["id"] for source in listed} == set(ids)
    rows = database.execute("select uri, filename, metadata, language from sources order by uri").fetchall()
    assert rows == [("doc:1", "b.txt", {"a": 1}, "german"), ("doc:2", "résumé é.pdf", {"a": 1}, "german")]


def test_the_raw_body_is_a_file_and_its_name_stands_in_the_query(
    client: httpx.Client, database: Connection[Any]
) -> None:
    query = {"filename": "Überblick.pdf", "uri": "doc:1", "metadata": '{"a": 1}', "language": ""}
    answer = client.post("/ingest/file", params=query, content=b"bytes", headers={"Content-Type": "application/pdf"})
    assert answer.status_code == 202, answer.text
    row = database.execute("select uri, kind, filename, metadata, language from sources").fetchone()
    assert row == ("doc:1", "upload", "Überblick.pdf", {"a": 1}, None)
    put = client.put("/sources", params=query, content=b"bytes").json()["sources"][0]
    assert put["unchanged"] and put["id"] == answer.json()["sources"][0]["id"]
    assert not client.put("/sources", params=query, content=b"other").json()["sources"][0]["unchanged"]


def test_a_file_without_a_uri_is_known_by_its_content_whatever_it_is_called(client: httpx.Client) -> None:
    first = client.post("/ingest/file", files={"f": ("4fb1.pdf", b"same")}).json()["sources"][0]
    again = client.post("/ingest/file", files={"f": ("9c03.pdf", b"same")}).json()["sources"][0]
    assert first["uri"] == f"upload:sha256:{hashlib.sha256(b'same').hexdigest()}"
    assert (again["id"], again["unchanged"]) == (first["id"], True)


TEXT = "/ingest/text"
URL = "/ingest/url"
FILE = "/ingest/file"
FORM = {"Content-Type": "multipart/form-data; boundary=b"}
PART = b'--b\r\nContent-Disposition: form-data; name="f"; filename="f.txt"\r\n\r\nx\r\n'


@pytest.mark.parametrize(
    ("path", "arguments", "status", "code", "named"),
    [
        (TEXT, {"content": b"{"}, 400, "invalid_json", ""),
        (TEXT, {"content": b"[" * 100_000}, 400, "invalid_json", ""),
        (TEXT, {"content": b'{"content": "\xff"}'}, 400, "invalid_json", ""),
        (TEXT, {"content": b'{"content": 1' + b"0" * 5000 + b"}"}, 400, "invalid_json", ""),
        (TEXT, {"json": []}, 422, "invalid_request", ""),
        (TEXT, {"json": {}}, 422, "invalid_request", "content"),
        (TEXT, {"json": {"content": ""}}, 422, "invalid_request", "content"),
        (TEXT, {"json": {"content": 7}}, 422, "invalid_request", "content"),
        (TEXT, {"json": {"content": "x", "metdata": {}}}, 422, "invalid_request", "metdata"),
        (TEXT, {"json": {"content": "x", "metadata": [1]}}, 422, "invalid_request", "metadata"),
        (TEXT, {"content": b'{"content": "x", "metadata": {"a": 1e999}}'}, 422, "invalid_request", "metadata"),
        (TEXT, {"content": b'{"content": "x", "wait": NaN}'}, 422, "invalid_request", "wait"),
        (TEXT, {"json": {"content": "x", "wait": -1}}, 422, "invalid_request", "wait"),
        (TEXT, {"json": {"content": "x", "wait": 10**30}}, 422, "invalid_request", "wait"),
        (TEXT, {"content": b'{"content": "x", "uri": "a\\u0000b"}'}, 422, "invalid_request", "uri"),
        (TEXT, {"content": b'{"content": "x", "uri": "\\ud800"}'}, 422, "invalid_request", "uri"),
        (TEXT, {"json": {"content": "x", "uri": "file:///a"}}, 422, "invalid_request", "uri"),
        (TEXT, {"json": {"content": "x", "language": "klingon"}}, 422, "unknown_language", ""),
        (TEXT, {"json": {"content": "x", "language": "a b"}}, 422, "invalid_request", "language"),
        (TEXT, {"json": {"content": "x", "callback_url": "file:///a"}}, 422, "invalid_request", "callback_url"),
        (TEXT, {"content": b"x", "headers": {"Content-Type": "text/csv"}}, 415, "unsupported_media_type", ""),
        (TEXT, {"data": {"content": "x", "metadata": "{"}}, 422, "invalid_request", "metadata"),
        (URL, {"json": {"url": "ftp://example.com"}}, 422, "invalid_request", "url"),
        (URL, {"json": {"url": "http://user:pw@example.com"}}, 422, "invalid_request", "url"),
        (URL, {"json": {"url": "http://[x]/"}}, 422, "invalid_request", "url"),
        (FILE, {}, 400, "empty_body", ""),
        (FILE, {"content": b"x", "params": {"wait": "-1"}}, 422, "invalid_request", "wait"),
        (FILE, {"content": b"x", "params": {"metadata": "["}}, 422, "invalid_request", "metadata"),
        (FILE, {"content": b"x", "params": {"language": "klingon"}}, 422, "unknown_language", ""),
        (FILE, {"content": b"x", "params": {"uri": ["a", "b"]}}, 422, "uris_do_not_fit", ""),
        (FILE, {"content": b"x", "params": {"colour": "red"}}, 422, "invalid_request", "colour"),
        (FILE, {"content": b"x", "headers": {"Content-Type": "multipart/form-data"}}, 400, "malformed_form", ""),
        (FILE, {"content": b"garbage", "headers": FORM}, 400, "malformed_form", ""),
        (FILE, {"content": PART, "headers": FORM}, 400, "malformed_form", ""),
        (FILE, {"content": b"--b--\r\n", "headers": FORM}, 400, "no_file", ""),
        (FILE, {"files": {"f": (None, "no file")}}, 422, "invalid_request", "f"),
        (FILE, {"files": {"uri": (None, "x")}}, 400, "no_file", ""),
        (FILE, {"files": {"f": ("f", b"x"), "metadata": (None, "{")}}, 422, "invalid_request", "metadata"),
        (FILE, {"files": {"f": ("f", b"x")}, "data": {"wait": ["1", "2"]}}, 422, "invalid_request", "wait"),
        (FILE, {"files": {"f": ("f", b"x")}, "headers": {"Idempotency-Key": ""}}, 400, "invalid_idempotency_key", ""),
    ],
)
def test_bad_input_is_named_and_changes_nothing(
    client: httpx.Client,
    database: Connection[Any],
    path: str,
    arguments: dict[str, Any],
    status: int,
    code: str,
    named: str,
) -> None:
    answer = client.post(path, **arguments)
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (answer.status_code, body["code"]) == (status, code), answer.text
    assert named in body["detail"]
    assert database.execute("select count(*) from sources").fetchone() == (0,)


def settle(settings: Settings, connection: Connection[Any], error: PermanentError | None) -> threading.Thread:
    """A worker of one document, in a thread: it fails with `error`, or finds nothing to index."""

    def work() -> None:
        ledger = open_ledger(settings, connection)
        claims: list[Any] = []
        assert wait_for(lambda: bool((claim := ledger.claim()) and not claims.append(claim)), WAIT)
        if error:
            ledger.fail(claims[0], error)
        else:
            ledger.commit(claims[0], OUTCOME, [])

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("error", "state", "cause"),
    [(None, "done", None), (PermanentError("encrypted", "it is encrypted", "unlock it"), "failed", "it is encrypted")],
)
def test_waiting_gives_what_became_of_it(
    client: httpx.Client,
    settings: Settings,
    database: Connection[Any],
    error: PermanentError | None,
    state: str,
    cause: str | None,
) -> None:
    worker = settle(settings, database, error)
    client.timeout = httpx.Timeout(WAIT + 30)
    answer = client.post("/ingest/text", json={"content": "x", "wait": WAIT})
    worker.join()
    (source,) = answer.json()["sources"]
    assert (answer.status_code, source["state"], source.get("cause")) == (200, state, cause)
    again = client.post("/ingest/text", json={"content": "x"}).json()["sources"][0]
    assert again["unchanged"] is (error is None), "what failed is tried again when it is sent again"


def test_waiting_ends_with_the_time(client: httpx.Client) -> None:
    answer = client.post("/ingest/text", json={"content": "x", "wait": 0.2})
    assert (answer.status_code, answer.json()["sources"][0]["state"]) == (202, "pending")


def test_a_callback_is_noted_for_each_version(client: httpx.Client, database: Connection[Any]) -> None:
    sent = {"content": "x", "uri": "doc:1", "callback_url": "https://example.com/done"}
    client.post("/ingest/text", json=sent)
    database.execute("update callbacks set delivered_at = now(), attempts = 3")
    client.post("/ingest/text", json=sent)
    client.post("/ingest/text", json=sent | {"content": "y"})
    rows = database.execute("select version, url, attempts, delivered_at from callbacks order by version").fetchall()
    assert rows == [(version, sent["callback_url"], 0, None) for version in (1, 2)], "an order anew is called anew"


# --- idempotency -----------------------------------------------------------------------------------------------


def post(client: httpx.Client, key: str, content: str) -> httpx.Response:
    return client.post("/ingest/url", json={"url": content}, headers={"Idempotency-Key": key})


def test_the_same_request_again_is_answered_from_memory(client: httpx.Client, database: Connection[Any]) -> None:
    first = post(client, "k1", "https://example.com/a")
    again = post(client, "k1", "https://example.com/a")
    assert "Idempotency-Replayed" not in first.headers and again.headers["Idempotency-Replayed"] == "true"
    assert (again.status_code, again.json()) == (first.status_code, first.json())
    assert post(client, "k2", "https://example.com/a").json()["sources"][0]["version"] == 2
    other = post(client, "k1", "https://example.com/b")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert database.execute("select count(*) from sources").fetchone() == (1,)
    database.execute("update idempotency_keys set created_at = now() - interval '25 hours'")
    assert post(client, "k1", "https://example.com/b").status_code == 202


def test_files_count_by_their_content(client: httpx.Client) -> None:
    def send(content: bytes) -> httpx.Response:
        return client.post("/ingest/file", files={"f": ("a.txt", content)}, headers={"Idempotency-Key": "k"})

    assert send(b"one").status_code == 202
    assert send(b"one").headers["Idempotency-Replayed"] == "true"
    assert send(b"two").status_code == 422


def test_a_request_that_was_refused_is_not_remembered(client: httpx.Client) -> None:
    wrong = client.post("/ingest/text", json={"content": "x", "language": "klingon"}, headers={"Idempotency-Key": "k"})
    assert wrong.status_code == 422
    right = client.post("/ingest/text", json={"content": "x"}, headers={"Idempotency-Key": "k"})
    assert right.status_code == 202


def test_a_request_that_is_being_answered_is_not_begun_twice(client: httpx.Client, database: Connection[Any]) -> None:
    with database.transaction():
        database.execute(
            "select pg_advisory_xact_lock(hashtextextended(%s, 0))",
            ('idempotency ["default", null, "POST", "/ingest/url"] k',),
        )
        answer = post(client, "k", "https://example.com/a")
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_conflict")
    assert post(client, "k", "https://example.com/a").status_code == 202


def test_the_final_answer_replaces_the_first_in_memory(
    client: httpx.Client, settings: Settings, database: Connection[Any]
) -> None:
    worker = settle(settings, database, None)
    sent = {"content": "x", "wait": WAIT}
    client.timeout = httpx.Timeout(WAIT + 30)
    first = client.post("/ingest/text", json=sent, headers={"Idempotency-Key": "k"})
    worker.join()
    again = client.post("/ingest/text", json=sent, headers={"Idempotency-Key": "k"})
    assert (again.status_code, again.json()["sources"][0]["state"]) == (200, "done") and again.json() == first.json()


@pytest.mark.parametrize(
    ("path", "body", "misplaced"),
    [
        ("/ingest/text", {"content": "x"}, {"wait": "10", "uri": "note:1"}),
        ("/ingest/url", {"url": "https://example.org/a"}, {"wait": "10"}),
    ],
)
def test_a_field_in_the_address_is_refused_rather_than_overlooked(
    client: httpx.Client, database: Connection[Any], path: str, body: dict[str, Any], misplaced: dict[str, str]
) -> None:
    answer = client.post(path, json=body, params=misplaced)
    assert (answer.status_code, answer.json()["code"]) == (422, "misplaced_field"), answer.text
    assert all(name in answer.json()["detail"] for name in misplaced)
    assert database.execute("select count(*) from sources").fetchone() == (0,)
    answer = client.post(path, json=body, params={"utm_source": "n8n"})
    assert answer.status_code == 202, "what nobody reads is nobody's"
