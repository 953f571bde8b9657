"""`POST /webhooks/{name}`: from a delivery to the ledger, replays, and every malformed input."""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import json
import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from httpx import Response
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import Connection
from psycopg.rows import dict_row
from standardwebhooks import Webhook

from pipelines.errors import ConfigurationError
from worker import backlog
from worker.embedded import Services
from worker.ledger import Ledger
from worker.receivers import problems, webhooks
from worker.receivers.context import Context
from worker.settings import Settings

TOKEN = "canary-bearer-token"
HUB = "canary-hub-secret"
STANDARD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

RECEIVERS: dict[str, Any] = {
    "pages": {
        "auth": "bearer",
        "secret": TOKEN,
        "url": "$.page.url",
        "uri": "$.page.id",
        "title": "$.page.title",
        "metadata": {"source": "wiki", "space": "$.page.space"},
        "when": {"path": "$.type", "equals": ["page.created", "page.updated", "page.deleted"]},
        "delete_when": {"path": "$.type", "equals": "page.deleted"},
    },
    "notes": {"auth": "standard", "secret": STANDARD, "text": "$.body", "uri": "$.id", "filename": "note.md"},
    "files": {"auth": "header", "secret": TOKEN, "file": "$.content", "filename": "$.name", "language": "$.language"},
    "hub": {"auth": "github", "secret": HUB, "url": "$.page.html_url"},
    "notion": {"auth": "notion", "secret": HUB, "url": "$.entity.url", "delivery": "$.id"},
    "hooked": {"auth": "notion", "secret": HUB, "url": "$.entity.url"},
    "fresh": {"auth": "notion", "url": "$.entity.url"},
    "plain": {"auth": "bearer", "secret": TOKEN, "text": "$.body", "delivery": "$.event"},
}


class Client:
    """Deliveries to the service, and what its ledger says afterwards."""

    def __init__(self, http: TestClient, database: Connection[Any], home: Path) -> None:
        self.http = http
        self.database = database
        self.home = home

    def send(self, name: str, body: Any, headers: Mapping[str, str | bytes] | None = None) -> Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.http.post(f"/webhooks/{name}", content=content, headers=headers)

    def bearer(self, name: str, body: Any, **headers: str) -> Response:
        return self.send(name, body, {"Authorization": f"Bearer {TOKEN}", **headers})

    def standard(self, body: Any, *, id: str = "msg_1", ago: float = 0.0, name: str = "notes") -> Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        when = datetime.now(UTC) - timedelta(seconds=ago)
        signature = Webhook(STANDARD).sign(id, when, content.decode())
        stamp = str(int(when.timestamp()))
        headers = {"webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": signature}
        return self.send(name, content, headers)

    def signed(self, name: str, header: str, body: Any, **headers: str) -> Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        signature = hmac.new(HUB.encode(), content, hashlib.sha256).hexdigest()
        return self.send(name, content, {header: f"sha256={signature}", **headers})

    def rows(self) -> list[dict[str, Any]]:
        with self.database.cursor(row_factory=dict_row) as cursor:
            return cursor.execute("select * from sources order by id").fetchall()

    def count(self) -> int:
        row = self.database.execute("select count(*) from sources").fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
def client(services: Services, dsn: str, database: Connection[Any], tmp_path: Path) -> Iterator[Client]:
    found = Settings(home=tmp_path, webhooks=RECEIVERS, public_url="https://rag.example.org/")
    context = Context(found, Services(dsn, services.broker_url))
    app = FastAPI()
    app.state.context = context
    problems.install(app)
    webhooks.install(app, found)
    with TestClient(app, raise_server_exceptions=False) as http:
        yield Client(http, database, tmp_path)
    context.close()


def page(type: str = "page.updated", **more: Any) -> dict[str, Any]:
    about = {"url": "HTTPS://Wiki.example.org/a#top", "id": "wiki:7", "title": "Terms", "space": "legal", **more}
    return {"type": type, "page": about}


def test_a_url(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # What waits is counted before it comes in, and again a second later, which may be while it does.
    monkeypatch.setattr(backlog, "FRESH_SECONDS", 600.0)
    answer = client.bearer("pages", page())
    assert answer.status_code == 202
    [row] = client.rows()
    assert answer.json() == {
        "sources": [
            {
                "id": row["id"],
                "uri": "wiki:7",
                "version": 1,
                "unchanged": False,
                "state": "pending",
                "status_url": f"https://rag.example.org/sources/{row['id']}",
            }
        ],
        "status_url": f"https://rag.example.org/sources/{row['id']}",
        "queue": {"due": 0, "more": False},
    }
    assert (row["kind"], row["uri"], row["location"]) == ("url", "wiki:7", "https://wiki.example.org/a")
    assert row["metadata"] == {"source": "wiki", "space": "legal", "title": "Terms"}


def test_a_page_that_changed_is_fetched_again(client: Client) -> None:
    client.bearer("pages", page())
    assert client.bearer("pages", page()).json()["sources"][0]["version"] == 2
    assert client.count() == 1


def test_a_page_that_went_is_deleted(client: Client) -> None:
    client.bearer("pages", page())
    answer = client.bearer("pages", page("page.deleted"))
    assert (answer.status_code, answer.json()) == (200, {"uri": "wiki:7", "deleted": True})
    assert [row["state"] for row in client.rows()] == ["deleted"]
    assert client.bearer("pages", page("page.deleted")).json() == {"uri": "wiki:7", "deleted": False}


def test_what_nobody_asked_for_is_ignored(client: Client) -> None:
    answer = client.bearer("pages", {"type": "comment.created", "comment": {}})
    assert (answer.status_code, answer.json()) == (200, {"ignored": "$.type"})
    assert client.rows() == []


def test_a_text(client: Client) -> None:
    answer = client.standard({"id": 42, "body": "# Notice\n\nThree months. \U0001f600"})
    assert answer.status_code == 202
    [row] = client.rows()
    assert (row["kind"], row["uri"], row["filename"]) == ("text", "42", "note.md")
    stored = client.home / "spool" / row["location"][:2] / row["location"]
    assert stored.read_text(encoding="utf-8") == "# Notice\n\nThree months. \U0001f600"
    again = client.standard({"id": 42, "body": "# Notice\n\nThree months. \U0001f600"}, id="msg_2")
    assert again.json()["sources"][0]["unchanged"] is True
    assert client.standard({"id": 42, "body": "Two."}, id="msg_3").json()["sources"][0]["version"] == 2


@pytest.mark.parametrize("prefix", ["", "data:application/pdf;base64,"])
def test_a_file(prefix: str, client: Client) -> None:
    content = base64.encodebytes(b"%PDF-1.7 " + bytes(range(256))).decode()
    body = {"content": prefix + content, "name": "../Vertrag é.pdf", "language": "de"}
    answer = client.send("files", body, {"X-Webhook-Secret": TOKEN})
    assert answer.status_code == 202
    [row] = client.rows()
    digest = hashlib.sha256(b"%PDF-1.7 " + bytes(range(256))).hexdigest()
    assert (row["kind"], row["uri"]) == ("upload", f"upload:sha256:{digest}")
    assert (row["filename"], row["location"], row["language"]) == ("Vertrag é.pdf", f"{digest}.pdf", "german")


def test_github(client: Client) -> None:
    body = {"page": {"html_url": "https://example.org/wiki"}}
    ping = client.signed("hub", "X-Hub-Signature-256", {"zen": "Keep it simple"}, **{"X-GitHub-Event": "ping"})
    assert (ping.status_code, ping.json()) == (200, {"ignored": "ping"})
    assert client.signed("hub", "X-Hub-Signature-256", body, **{"X-GitHub-Delivery": "1"}).status_code == 202
    made_up = client.signed("hub", "X-Hub-Signature-256", body, **{"X-GitHub-Delivery": "2"})
    assert (made_up.status_code, made_up.json()["code"]) == (409, "replayed")
    assert [row["version"] for row in client.rows()] == [1]


def test_notion(client: Client) -> None:
    body = {"id": "ev-1", "attempt_number": 1, "entity": {"url": "https://example.org/p"}}
    assert client.signed("notion", "X-Notion-Signature", body).status_code == 202
    retry = client.signed("notion", "X-Notion-Signature", {**body, "attempt_number": 2})
    assert (retry.status_code, retry.json()) == (200, {"duplicate": True})
    assert client.signed("notion", "X-Notion-Signature", body).status_code == 409
    assert client.send("notion", body).status_code == 401
    assert client.count() == 1


def test_notions_events_are_known_by_their_id_without_being_told_so(client: Client) -> None:
    body = {"id": "ev-1", "attempt_number": 1, "entity": {"url": "https://example.org/p"}}
    assert client.signed("hooked", "X-Notion-Signature", body).status_code == 202
    retry = client.signed("hooked", "X-Notion-Signature", {**body, "attempt_number": 2})
    assert (retry.status_code, retry.json()) == (200, {"duplicate": True})
    del body["id"]
    assert client.signed("hooked", "X-Notion-Signature", body).status_code == 202


def test_notions_handshake(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = "secret_canaryTokenOfNotion"
    assert client.send("fresh", {"entity": {"url": "https://example.org/"}}).status_code == 401
    assert client.send("fresh", {"verification_token": token}).status_code == 200
    kept = client.home / "webhooks" / "fresh.token"
    assert kept.read_text() == token + "\n"
    assert kept.stat().st_mode & 0o077 == 0
    assert "webhook fresh: Notion's token is in" in caplog.text
    for other in (token, "secret_aStrangers"):  # sent again, and by somebody who wants to be taken for Notion
        assert client.send("fresh", {"verification_token": other}).status_code == 200
    assert kept.read_text() == token + "\n"
    assert f"remove {kept}" in caplog.text
    assert client.send("notion", {"verification_token": "secret_somebodyElse"}).status_code == 200
    assert sorted(path.name for path in kept.parent.iterdir()) == ["fresh.token"]
    assert "canary" not in caplog.text
    assert "somebodyElse" not in caplog.text
    assert "aStrangers" not in caplog.text
    assert client.send("pages", {"verification_token": token}).status_code == 401


def test_a_replay_is_refused(client: Client) -> None:
    body = {"id": 1, "body": "One"}
    when = datetime.now(UTC) - timedelta(seconds=60)
    content = json.dumps(body).encode()
    headers = {
        "webhook-id": "msg_9",
        "webhook-timestamp": str(int(when.timestamp())),
        "webhook-signature": Webhook(STANDARD).sign("msg_9", when, content.decode()),
    }
    assert client.send("notes", content, headers).status_code == 202
    for _ in range(2):
        replay = client.send("notes", content, headers)
        assert (replay.status_code, replay.json()["code"]) == (409, "replayed")
    retry = client.standard(body, id="msg_9")  # the sender missed our answer and signs again
    assert (retry.status_code, retry.json()) == (200, {"duplicate": True})
    assert client.standard({"id": 1, "body": "Two"}, id="msg_9").json() == {"duplicate": True}
    assert [row["version"] for row in client.rows()] == [1]


def test_an_old_one_is_refused(client: Client) -> None:
    assert client.standard({"id": 1, "body": "One"}, ago=301).status_code == 401
    # By the time it is looked at it is less far ahead, by whatever that took.
    assert client.standard({"id": 1, "body": "One"}, ago=-420).status_code == 401
    assert client.rows() == []


def test_ids_of_one_receiver_are_not_those_of_another(client: Client) -> None:
    assert client.bearer("plain", {"event": "1", "body": "a"}).status_code == 202
    assert client.bearer("plain", {"event": "1", "body": "a"}).status_code == 409
    assert client.bearer("plain", {"event": "1", "body": "b"}).json() == {"duplicate": True}
    assert client.bearer("plain", {"event": 2, "body": "c"}).status_code == 202
    assert client.bearer("plain", {"event": "3", "body": "d"}, **{"webhook-id": "1"}).json() == {"duplicate": True}
    assert client.bearer("pages", page(), **{"webhook-id": "1"}).status_code == 202


def test_a_delivery_that_could_not_be_recorded_may_come_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from psycopg import OperationalError

    with monkeypatch.context() as patched:

        def gone(*args: Any, **more: Any) -> None:
            raise OperationalError("server closed the connection")

        patched.setattr(Ledger, "record", gone)
        answer = client.standard({"id": 1, "body": "One"}, ago=1)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert client.standard({"id": 1, "body": "One"}, ago=1).status_code == 202


def test_nobody_there(client: Client) -> None:
    for name in ("nothing", "PAGES", "%00", "é", "a" * 5000):
        answer = client.bearer(name, page())
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_webhook")


@pytest.mark.parametrize("name", list(RECEIVERS))
def test_strangers_learn_nothing(name: str, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    answers = [
        client.send(name, b""),
        client.send(name, page()),
        client.send(name, page(), {"Authorization": "Bearer wrong"}),
        client.send(name, b"\xff\xfe", {"Authorization": b"Bearer \xff"}),
        client.send(name, page(), dict.fromkeys(("X-Hub-Signature-256", "X-Notion-Signature"), f"sha256={'0' * 64}")),
        client.send(name, page(), {"webhook-id": "1", "webhook-timestamp": "soon", "webhook-signature": "v1,AAAA"}),
    ]
    assert [answer.status_code for answer in answers] == [401] * 6
    assert len({answer.content for answer in answers}) == 1
    assert all(answer.headers["WWW-Authenticate"] for answer in answers)
    assert "canary" not in caplog.text
    assert "wrong" not in caplog.text
    assert client.rows() == []


def test_too_large(client: Client) -> None:
    large = b'{"id": 1, "body": "' + b"a" * 2**20 + b'"}'
    assert client.standard(large).status_code == 413
    in_pieces = client.http.post("/webhooks/notes", content=iter([large[:600_000], large[600_000:]]))
    assert in_pieces.status_code == 413
    assert client.send("notes", b"", {"Content-Length": "9" * 30}).status_code in (400, 413)


BAD: list[bytes] = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"\xff",
    b"\xef\xbb\xbf{}",
    b"\x00",
    gzip.compress(b"{}"),
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"9" * 5_000,
    b'{"type": "page.updated"}',
    b'{"type": "page.updated", "page": null}',
    b'{"type": "page.updated", "page": {"url": 5, "id": "x"}}',
    *(
        json.dumps(page(**change)).encode()
        for change in (
            {"url": ""},
            {"url": "file:///etc/passwd"},
            {"url": "http://user@example.org/"},
            {"url": "http://127.1/"},
            {"url": "http://\x00/"},
            {"url": "http://\ud800/"},
            {"id": None},
            {"id": True},
            {"id": 1.5},
            {"id": ""},
            {"id": []},
            {"id": "a\x00b"},
            {"id": "a\ud800b"},
            {"id": "file:///srv/drop/a.pdf"},
            {"id": "a" * 3000},
            {"id": "\U0001f600" * 600},
            {"id": 10**400},
            {"title": {"a": 1}},
            {"title": 5},
            {"space": float("nan")},
            {"space": float("inf")},
            {"space": 10**4000},
            {"space": "a" * 100_000},
        )
    ),
    json.dumps(page()).replace('"legal"', "1e999").encode(),
    json.dumps(page()).replace('"legal"', "[" * 500 + "]" * 500).encode(),
]


@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
def test_malformed(body: bytes, client: Client) -> None:
    """From who has the secret: 400, and the delivery may come again, corrected."""
    answer = client.bearer("pages", body, **{"webhook-id": "1"})
    if answer.status_code == 200:
        assert answer.json() == {"ignored": "$.type"}
    else:
        assert answer.status_code == 400
        assert answer.headers["Content-Type"] == "application/problem+json"
    assert client.rows() == []
    assert client.bearer("pages", page(), **{"webhook-id": "1"}).status_code == 202


@pytest.mark.parametrize("change", [{"title": "a\x00\ud83d"}, {"space": "\ud83d"}, {"space": {"a\x00": ["\ud83d"]}}])
def test_half_a_character_is_mended(change: dict[str, Any], client: Client) -> None:
    assert client.bearer("pages", page(**change)).status_code == 202


@pytest.mark.parametrize(
    "change",
    [
        *({"content": content} for content in ("%%%", "YQ", "", "é", 5)),
        *({"name": name} for name in (5, ["a"])),
        *({"language": language} for language in ("klingon", 5, "a\x00")),
    ],
)
def test_malformed_files(change: dict[str, Any], client: Client) -> None:
    body = {"content": "YQ==", "name": "a.txt", **change}
    answer = client.send("files", body, {"X-Webhook-Secret": TOKEN})
    assert answer.status_code == 400, answer.text
    assert client.rows() == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.filterwarnings("ignore:Do not use the .random. module")  # the threads of the service do, meanwhile
@given(
    name=st.sampled_from(["pages", "files", "plain"]),
    key=st.sampled_from(["url", "id", "title", "space", "content", "name", "language", "body", "event"]),
    value=json_values,
    raw=st.binary(max_size=30) | st.none(),
)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_never_a_500(client: Client, name: str, key: str, value: Any, raw: bytes | None) -> None:
    body = {**page(), "content": "YQ==", "name": "a.txt", "body": "b", "event": "e", key: value}
    body["page"] = {**body["page"], key: value}
    headers = {"Authorization": f"Bearer {TOKEN}", "X-Webhook-Secret": TOKEN}
    answer = client.send(name, raw if raw is not None else body, headers)
    assert answer.status_code in (200, 202, 400, 409), answer.text


def test_a_receiver_that_is_set_up_wrongly_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="webhook bad: "):
        webhooks.install(FastAPI(), Settings(home=tmp_path, webhooks={"bad": {"auth": "bearer"}}))
