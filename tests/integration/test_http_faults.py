"""The HTTP service under large bodies, broken connections and services that are away; and what its log says."""

from __future__ import annotations

import io
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest
from psycopg import Connection

from tests.fakes.http_service import client_of
from tests.fakes.ports import reserved_port
from worker.embedded import Services
from worker.logs import configure_logging
from worker.process import wait_for
from worker.receivers import context as context_module
from worker.receivers import health
from worker.receivers.app import create_http_app
from worker.receivers.auth import create_key
from worker.receivers.body import MOST_BODY_BYTES
from worker.receivers.multipart import FORM_BYTES
from worker.settings import Settings

NOWHERE = "redis://127.0.0.1:1/0"
LIMIT = 1_000_000
HEAD = b'--b\r\nContent-Disposition: form-data; name="f"; filename="f.bin"\r\n\r\n'
FORM = {"Content-Type": "multipart/form-data; boundary=b"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, max_bytes=LIMIT)


@pytest.fixture
def client(settings: Settings, services: Services, dsn: str) -> Iterator[httpx.Client]:
    with client_of(create_http_app(settings, Services(dsn, services.broker_url))) as client:
        yield client


def spooled(settings: Settings) -> list[Path]:
    return [path for path in (settings.home / "spool").rglob("*") if path.is_file()]


def stream(size: int, counter: list[int] | None = None) -> Iterator[bytes]:
    """So many bytes in pieces; tells how many were taken."""
    piece = os.urandom(65536)
    for start in range(0, size, len(piece)):
        if counter is not None:
            counter[0] += len(piece)
        yield piece[: size - start]


# --- size ------------------------------------------------------------------------------------------------------


@contextmanager
def own_process(home: Path, services: Services, dsn: str, **values: str) -> Iterator[tuple[str, psutil.Process]]:
    """The service as `gristmill up` starts it, in a process of its own."""
    with reserved_port() as port:
        given = {
            "HOME": str(home),
            "DATABASE_URL": dsn,
            "BROKER_URL": services.broker_url,
            "HTTP_PORT": str(port),
        } | values
        env = os.environ | {f"GRISTMILL_{name}": value for name, value in given.items()}
        process = subprocess.Popen([sys.executable, "-m", "worker.receivers"], env=env, stderr=subprocess.PIPE)
        try:
            url = f"http://127.0.0.1:{port}"

            def answers() -> bool:
                try:
                    return httpx.get(url + "/healthz", trust_env=False).status_code == 200
                except httpx.TransportError:
                    return False

            assert wait_for(answers, 60)
            yield url, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.communicate(timeout=30)
        assert process.returncode in (0, -15)


@pytest.mark.timeout(300)
def test_a_large_upload_is_never_in_memory(tmp_path: Path, services: Services, dsn: str) -> None:
    size = 300 * 2**20
    with (
        # An embedder that is elsewhere: a model that loads meanwhile would be measured with the upload.
        own_process(tmp_path, services, dsn, MAX_BYTES=str(size), EMBEDDER="openai") as (url, process),
        httpx.Client(base_url=url, timeout=120, trust_env=False) as client,
    ):
        client.post("/ingest/file", content=stream(2**20)).raise_for_status()
        before = process.memory_info().rss
        peak = [before]
        done = threading.Event()

        def measure() -> None:
            while not done.wait(0.02):
                peak[0] = max(peak[0], process.memory_info().rss)

        thread = threading.Thread(target=measure)
        thread.start()
        try:

            def form() -> Iterator[bytes]:
                yield HEAD
                yield from stream(size)
                yield b"\r\n--b--\r\n"

            answer = client.post("/ingest/file", content=form(), headers=FORM)
        finally:
            done.set()
            thread.join()
        assert answer.status_code == 202, answer.text
    growth = (peak[0] - before) / 2**20
    assert growth < 100, f"grew by {growth:.0f} MiB"
    assert max(path.stat().st_size for path in (tmp_path / "spool").rglob("*.bin")) == size


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("form", [True, False])
def test_too_large_a_file_is_refused_early(
    client: httpx.Client, settings: Settings, database: Connection[Any], declared: bool, form: bool
) -> None:
    size = 50 * LIMIT
    taken = [0]

    def body() -> Iterator[bytes]:
        if form:
            yield HEAD
        yield from stream(size, taken)

    length = size + (len(HEAD) if form else 0)
    headers = (FORM if form else {}) | ({"Content-Length": str(length)} if declared else {})
    answer = client.post("/ingest/file", content=body(), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert spooled(settings) == []
    assert database.execute("select count(*) from sources").fetchone() == (0,)


def test_a_length_that_is_too_large_is_refused_before_the_body_comes(client: httpx.Client) -> None:
    host, port = client.base_url.host, client.base_url.port
    with socket.create_connection((host, port or 80), timeout=30) as raw:
        request = f"POST /ingest/file HTTP/1.1\r\nHost: {host}\r\nContent-Length: {10**12}\r\n\r\n"
        raw.sendall(request.encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 413 ")


def test_the_files_of_a_form_share_the_limit(client: httpx.Client, settings: Settings) -> None:
    exact = client.post("/ingest/file", files={"f": ("a.bin", io.BytesIO(bytes(LIMIT)))})
    assert exact.status_code == 202
    three = {name: (name, bytes(LIMIT - 1)) for name in "abc"}
    assert 3 * (LIMIT - 1) > LIMIT + FORM_BYTES
    assert client.post("/ingest/file", files=three).status_code == 413
    assert len(spooled(settings)) == 1


@pytest.mark.parametrize("path", ["/ingest/text", "/ingest/url", "/search"])
@pytest.mark.parametrize("declared", [True, False])
def test_what_is_read_into_memory_has_a_limit_of_its_own(client: httpx.Client, path: str, declared: bool) -> None:
    size = MOST_BODY_BYTES + 1
    headers = {"Content-Type": "application/json"} | ({"Content-Length": str(size)} if declared else {})
    answer = client.post(path, content=stream(size), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize("head", [b"", HEAD])
def test_an_upload_that_breaks_off_leaves_nothing(
    client: httpx.Client, settings: Settings, database: Connection[Any], head: bytes
) -> None:
    host, port = client.base_url.host, client.base_url.port
    kind = "Content-Type: multipart/form-data; boundary=b\r\n" if head else ""
    with socket.create_connection((host, port or 80), timeout=30) as raw:
        request = f"POST /ingest/file HTTP/1.1\r\nHost: {host}\r\n{kind}Content-Length: 900000\r\n\r\n"
        raw.sendall(request.encode() + head + bytes(300_000))
        assert wait_for(lambda: len(spooled(settings)) == 1, 30)
    assert wait_for(lambda: spooled(settings) == [], 30)
    assert database.execute("select count(*) from sources").fetchone() == (0,)


# --- services that are away ------------------------------------------------------------------------------------


def test_without_a_broker_documents_are_noted_all_the_same(
    settings: Settings, dsn: str, database: Connection[Any]
) -> None:
    with client_of(create_http_app(settings, Services(dsn, NOWHERE))) as client:
        for answer in (
            client.post("/ingest/text", json={"content": "x"}),
            client.post("/ingest/text", json={"content": "y", "wait": 0.1}),
            client.post("/ingest/file", files={"f": ("f.txt", b"z")}),
            client.post("/ingest/url", json={"url": "https://example.com"}),
        ):
            assert answer.status_code == 202, answer.text
    assert database.execute("select count(*) from sources where state = 'pending'").fetchone() == (4,)


def test_without_a_database_all_is_refused_for_now(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_module, "CONNECTION_SECONDS", 0.3)
    gone = Services("postgresql://gristmill:canary@127.0.0.1:1/x", NOWHERE)
    with client_of(create_http_app(settings, gone)) as client:
        for answer in (
            client.post("/ingest/text", json={"content": "x"}),
            client.post("/ingest/file", content=b"x"),
            client.post("/ingest/url", json={"url": "https://example.com"}),
            client.post("/search", json={"query": "x", "mode": "keyword"}),
            client.get("/sources"),
            client.get("/sources/1"),
            client.delete("/sources/1"),
            client.post("/sources/retry"),
            client.get("/sources", headers={"Host": "example.com", "X-API-Key": "gm_x"}),
        ):
            assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable"), answer.text
            assert int(answer.headers["Retry-After"]) > 0
            assert "canary" not in answer.text


def test_a_database_that_comes_back_is_used_at_once(
    settings: Settings, services: Services, dsn: str, database: Connection[Any]
) -> None:
    with client_of(create_http_app(settings, Services(dsn, services.broker_url))) as client:
        assert client.get("/sources").status_code == 200
        killed = database.execute(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'gristmill http'"
            " and datname = current_database()"
        ).fetchone()
        assert killed is not None and killed[0] >= 1
        assert client.get("/sources").status_code == 200


def test_nothing_is_half_done(client: httpx.Client, database: Connection[Any]) -> None:
    with psycopg.connect(database.info.dsn, autocommit=True) as admin:
        admin.execute("alter table callbacks add constraint no_more check (false)")
    sent = {"content": "x", "callback_url": "https://example.com"}
    answer = client.post("/ingest/text", json=sent, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 500 and answer.json()["code"] == "unexpected"
    assert database.execute("select count(*) from sources").fetchone() == (0,)
    assert database.execute("select count(*) from idempotency_keys").fetchone() == (0,)


# --- the log ---------------------------------------------------------------------------------------------------


def test_the_log_has_a_line_for_each_request_and_no_secret(
    settings: Settings,
    services: Services,
    dsn: str,
    database: Connection[Any],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(context_module, "CONNECTION_SECONDS", 0.3)
    monkeypatch.setattr(health, "PING_SECONDS", 0.3)
    key = create_key(database, "n8n", ["search"])
    secrets = ["canary-wrong-key", "canary-bearer", "canary-query", "canary-idempotency", "canary-password", key]
    before = logging.root.handlers[:], logging.root.level
    configure_logging("DEBUG")
    try:
        always = settings.model_copy(update={"require_key": "always"})
        with client_of(create_http_app(always, Services(dsn, services.broker_url))) as client:
            client.post("/search", json={"query": "canary-query", "mode": "keyword"}, headers={"X-API-Key": key})
            client.post("/search", json={"query": "canary-query"}, headers={"apikey": "canary-wrong-key"})
            client.get("/sources?uri=canary-query", headers={"Authorization": "Bearer canary-bearer"})
            client.get("/sources", headers={"Authorization": f"Bearer {key}"})
            client.post("/ingest/text", json={}, headers={"X-API-Key": key, "Idempotency-Key": "canary-idempotency"})
            client.get("/a%0d%0aforged line\u2028")
        gone = Services(
            "postgresql://gristmill:canary-password@127.0.0.1:1/x", "redis://:canary-password@127.0.0.1:1/0"
        )
        with client_of(create_http_app(settings, gone)) as client:
            answers = [
                client.get("/sources"),
                client.get("/readyz"),
                client.post("/ingest/text", json={"content": "x"}),
            ]
    finally:
        logging.root.handlers[:], logging.root.level = before[0], before[1]
    logged = capfd.readouterr().err
    for secret in secrets:
        assert secret not in logged
        assert all(secret not in answer.text for answer in answers)
    assert "POST /search 200 " in logged and "POST /search 401 " in logged and "GET /sources 403 " in logged
    assert "\nforged" not in logged and "GET /a%0D%0Aforged%20line%E2%80%A8 404 " in logged
