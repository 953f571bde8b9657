"""Callbacks from the outbox: what is told, to whom, how often, and never to this machine unless opened."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection
from standardwebhooks import Webhook

from pipelines.errors import ConfigurationError, PermanentError, RetryableError
from tests.fakes.ports import reserved_port
from tests.fakes.web_server import Answer, Call, trap, web_server
from worker.callbacks import MOST_ATTEMPTS, deliver_due, forget_delivered, run_callbacks
from worker.embedded import Services
from worker.ledger import Ledger, Outcome
from worker.settings import Settings

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OUTCOME = Outcome(b"\0" * 32, "recipe", "text/plain", None, None, 0, {})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, fetch_allow=("127.0.0.1",), callback_secret=SECRET)


def ok(call: Call) -> Answer:
    return Answer(204)


def ask(database: Connection[Any], url: str, uri: str = "crm:1") -> int:
    """A document with a callback."""
    recorded = Ledger(database).record(uri, kind="text", fingerprint="1")
    database.execute(
        "insert into callbacks (source_id, version, url) values (%s, %s, %s)",
        (recorded.source_id, recorded.version, url),
    )
    return recorded.source_id


def finish(database: Connection[Any], error: PermanentError | RetryableError | None = None) -> None:
    """Work the next due document off, with this error where given."""
    ledger = Ledger(database, max_attempts=1)
    claim = ledger.claim()
    assert claim is not None
    if error is None:
        assert ledger.commit(claim, OUTCOME, []) is not None
    else:
        assert ledger.fail(claim, error) in ("failed", "dead")


def row(database: Connection[Any]) -> tuple[int, bool, str | None, float]:
    """Attempts, delivered, error, the time of the next attempt in seconds since the epoch."""
    found = database.execute(
        "select attempts, delivered_at is not null, error, extract(epoch from next_at)::float8 from callbacks"
    ).fetchone()
    assert found is not None
    return found


@contextmanager
def waits(database: Connection[Any], low: float, high: float) -> Iterator[None]:
    """An attempt fails in here, and the next one is so many seconds later."""

    def now() -> float:
        (found,) = database.execute("select extract(epoch from clock_timestamp())::float8").fetchone() or ()
        return float(found)

    before = now()
    yield
    rounding = 0.001
    assert before + low - rounding <= row(database)[3] <= now() + high + rounding


def hurry(database: Connection[Any]) -> None:
    database.execute("update callbacks set next_at = now() where next_at < 'infinity'")


def test_done(database: Connection[Any], settings: Settings) -> None:
    with web_server(ok) as server:
        source = ask(database, f"http://127.0.0.1:{server.port}/done?token=x")
        assert deliver_due(database, settings) == 0, "it is not done yet"
        finish(database)
        assert deliver_due(database, settings) == 1
        assert deliver_due(database, settings) == 0, "it was told"
    [call] = server.calls
    assert (call.method, call.path, call.headers["content-type"]) == ("POST", "/done?token=x", "application/json")
    assert json.loads(call.body) == {
        "source_id": source,
        "uri": "crm:1",
        "version": 1,
        "state": "done",
        "chunks": 0,
        "error": None,
    }
    assert Webhook(SECRET).verify(call.body, dict(call.headers))
    assert row(database)[:3] == (1, True, None)


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (PermanentError("encrypted", "es ist verschlüsselt", "remove the password"), "failed"),
        (RetryableError("fetch_failed", "no answer"), "dead"),
    ],
)
def test_failed(
    error: PermanentError | RetryableError, state: str, database: Connection[Any], settings: Settings
) -> None:
    with web_server(ok) as server:
        ask(database, f"http://127.0.0.1:{server.port}/")
        finish(database, error)
        assert deliver_due(database, settings) == 1
    told = json.loads(server.calls[0].body)
    assert told["state"] == state
    assert told["error"] == {"code": error.code, "cause": error.cause, "remedy": error.remedy}


def test_deleted(database: Connection[Any], settings: Settings) -> None:
    with web_server(ok) as server:
        ask(database, f"http://127.0.0.1:{server.port}/")
        Ledger(database).delete("crm:1")
        assert deliver_due(database, settings) == 1
    assert json.loads(server.calls[0].body)["state"] == "deleted"


def test_a_newer_version_does_not_hold_back_the_news(database: Connection[Any], settings: Settings) -> None:
    with web_server(ok) as server:
        ask(database, f"http://127.0.0.1:{server.port}/")
        finish(database)
        Ledger(database).record("crm:1", kind="text", fingerprint="2")
        assert deliver_due(database, settings) == 1
    told = json.loads(server.calls[0].body)
    assert (told["version"], told["state"]) == (1, "done")


def test_a_newer_version_that_failed_is_another_story(database: Connection[Any], settings: Settings) -> None:
    with web_server(ok) as server:
        ask(database, f"http://127.0.0.1:{server.port}/")
        finish(database)
        Ledger(database).record("crm:1", kind="text", fingerprint="2")
        finish(database, PermanentError("encrypted", "it is encrypted"))
        assert deliver_due(database, settings) == 1
    told = json.loads(server.calls[0].body)
    assert (told["version"], told["state"], told["error"]) == (1, "done", None)


def test_unsigned_without_a_secret(database: Connection[Any], settings: Settings) -> None:
    with web_server(ok) as server:
        ask(database, f"http://127.0.0.1:{server.port}/")
        finish(database)
        assert deliver_due(database, settings.model_copy(update={"callback_secret": None})) == 1
    assert "webhook-signature" not in server.calls[0].headers
    assert server.calls[0].headers["webhook-id"].startswith("cb_")


def test_a_receiver_that_fails_first(database: Connection[Any], settings: Settings) -> None:
    statuses = iter([500, 302, 404, 200])
    with web_server(lambda call: Answer(next(statuses), headers={"Location": "/elsewhere"})) as server:
        ask(database, f"http://127.0.0.1:{server.port}/")
        finish(database)
        for attempt, (status, low, high) in enumerate([(500, 2.5, 5), (302, 15, 30), (404, 60, 120)], 1):
            with waits(database, low, high):
                assert deliver_due(database, settings) == 0
            assert row(database)[:3] == (attempt, False, f"127.0.0.1 answers {status}")
            hurry(database)
        assert deliver_due(database, settings) == 1
        assert row(database)[:3] == (4, True, None)
    assert [call.path for call in server.calls] == ["/"] * 4
    assert len({call.headers["webhook-id"] for call in server.calls}) == 1
    assert len({call.body for call in server.calls}) == 1


def test_given_up_after_the_last_attempt(database: Connection[Any], settings: Settings) -> None:
    with web_server(lambda call: Answer(500)) as server:
        ask(database, f"http://127.0.0.1:{server.port}/")
        finish(database)
        for _ in range(MOST_ATTEMPTS + 2):
            assert deliver_due(database, settings) == 0
            hurry(database)
    assert len(server.calls) == MOST_ATTEMPTS == 8
    assert row(database) == (8, False, "127.0.0.1 answers 500", float("inf"))


def test_a_receiver_that_wants_no_more(database: Connection[Any], settings: Settings) -> None:
    with web_server(lambda call: Answer(410)) as server:
        ask(database, f"http://127.0.0.1:{server.port}/")
        finish(database)
        assert deliver_due(database, settings) == 0
        hurry(database)
        assert deliver_due(database, settings) == 0
    assert len(server.calls) == 1
    assert row(database)[3] == float("inf")


def test_a_receiver_that_asks_to_wait(database: Connection[Any], settings: Settings) -> None:
    with web_server(lambda call: Answer(429, headers={"Retry-After": "900"})) as server:
        ask(database, f"http://127.0.0.1:{server.port}/")
        finish(database)
        with waits(database, 900, 900):
            assert deliver_due(database, settings) == 0


def test_nobody_there(database: Connection[Any], settings: Settings) -> None:
    with reserved_port() as port:
        ask(database, f"http://127.0.0.1:{port}/")
        finish(database)
        assert deliver_due(database, settings) == 0
    assert "cannot be reached" in str(row(database)[2])


def test_one_bad_receiver_does_not_hold_back_the_others(database: Connection[Any], settings: Settings) -> None:
    with web_server(lambda call: Answer(500 if call.path == "/bad" else 200)) as server:
        for name in ("bad", "good"):
            ask(database, f"http://127.0.0.1:{server.port}/{name}", uri=name)
            finish(database)
        assert deliver_due(database, settings) == 1
    assert [call.path for call in server.calls] == ["/bad", "/good"]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{port}/", "http://[::1]:{port}/", "http://inside.test:{port}/", "file:///etc/passwd"]
)
def test_never_to_this_machine(
    url: str, database: Connection[Any], settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    closed = settings.model_copy(update={"fetch_allow": ()})
    with trap() as trapped:
        ask(database, url.format(port=trapped.port))
        finish(database)
        assert deliver_due(database, closed, resolve=lambda host, port: ["127.0.0.1"]) == 0
        assert trapped.connections() == 0
    attempts, delivered, error, again = row(database)
    assert (attempts, delivered, again) == (1, False, float("inf"))
    assert error
    assert "given up" in caplog.text


def test_two_at_once_call_once(
    database: Connection[Any],
    another: Callable[[], Connection[Any]],
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second finds the row claimed while the first still waits for its answer."""
    monkeypatch.setattr("worker.callbacks.CALL_SECONDS", 50.0)
    called, release = threading.Event(), threading.Event()

    def slow(call: Call) -> Answer:
        called.set()
        release.wait(50)
        return Answer(200)

    other = another()
    with web_server(slow) as server:
        ask(database, f"http://127.0.0.1:{server.port}/")
        finish(database)
        counts: list[int] = []
        thread = threading.Thread(target=lambda: counts.append(deliver_due(other, settings)))
        thread.start()
        assert called.wait(50)
        assert deliver_due(database, settings) == 0
        release.set()
        thread.join(50)
    assert counts == [1]
    assert len(server.calls) == 1


def test_addresses_and_secrets_stay_out_of_the_log(
    database: Connection[Any], settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with web_server(lambda call: Answer(500)) as server:
        ask(database, f"http://127.0.0.1:{server.port}/resume/canary?signature=canary")
        finish(database)
        deliver_due(database, settings)
    assert "attempt 1: 127.0.0.1 answers 500" in caplog.text
    assert "canary" not in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("secret", ["", "whsec_", "a plain phrase"])
def test_a_secret_that_nobody_could_verify_with(secret: str, database: Connection[Any], settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match="GRISTMILL_CALLBACK_SECRET"):
        deliver_due(database, settings.model_copy(update={"callback_secret": secret}))


def test_a_wrong_setting_uses_up_no_attempt(database: Connection[Any], settings: Settings) -> None:
    ask(database, "http://127.0.0.1:8000/")
    finish(database)
    with pytest.raises(ConfigurationError, match="GRISTMILL_FETCH_ALLOW"):
        deliver_due(database, settings.model_copy(update={"fetch_allow": ("not a host",)}))
    assert row(database)[0] == 0


def test_forgetting_delivered_callbacks(database: Connection[Any], settings: Settings) -> None:
    with web_server(ok) as server:
        ask(database, f"http://127.0.0.1:{server.port}/")
        finish(database)
        deliver_due(database, settings)
    assert forget_delivered(database) == 0
    database.execute("update callbacks set delivered_at = now() - interval '31 days'")
    assert forget_delivered(database) == 1


def test_the_loop(database: Connection[Any], dsn: str, settings: Settings) -> None:
    stop = threading.Event()
    often = settings.model_copy(update={"sweep_seconds": 0.05})
    with web_server(ok) as server:
        ask(database, f"http://127.0.0.1:{server.port}/")
        finish(database)
        thread = threading.Thread(target=run_callbacks, args=(often, Services(dsn, "memory://"), stop))
        thread.start()
        deadline = time.monotonic() + 60
        while not row(database)[1] and time.monotonic() < deadline:
            stop.wait(0.05)
        stop.set()
        thread.join(60)
    assert row(database)[1]
    assert not thread.is_alive()
