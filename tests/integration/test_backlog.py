"""How far the workers are behind: what is counted, what it costs, who is told, and who is refused."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import httpx
import psycopg
import pytest
from psycopg import Connection

from pipelines.errors import ConfigurationError, UnavailableError
from tests.fakes.http_service import client_of
from worker import broker, drain, ledger_statements
from worker.app import create_app
from worker.backlog import Backlog, Gauge, measure_backlog
from worker.broker import INGEST_QUEUE, LOOK_EVERY, MOST_WAITING, Broker
from worker.embedded import Services
from worker.ledger import Ledger
from worker.receivers.app import create_http_app
from worker.settings import Settings

FLOOD = 20_000
VALUES = {"lease": 30.0, "scouting": 90.0, "holder": "here", "max_attempts": 5}


def flood(database: Connection[Any], count: int, *, state: str = "pending", ahead: str = "0 s") -> None:
    """So many rows a millisecond apart, the last of them due `ahead` of now."""
    database.execute(
        "insert into sources (uri, state, next_at) select %(state)s || gen_random_uuid(), %(state)s,"
        " now() + %(ahead)s::interval - (%(count)s - n) * interval '1 ms' from generate_series(1, %(count)s) n",
        {"state": state, "ahead": ahead, "count": count},
    )


def buffers(database: Connection[Any], statement: str, values: Any, index: str = "sources_due") -> int:
    """Pages that a statement looks at, as it is planned now, by way of this index; what it does is undone."""
    with database.transaction(force_rollback=True):
        rows = database.execute(("explain (analyze, buffers, costs off) " + statement).encode(), values).fetchall()
    plan = "\n".join(row[0] for row in rows)
    assert "Seq Scan on sources" not in plan
    assert set(re.findall(r"(?:using|Index Scan on) (sources_(?!pkey|id_)\w+)", plan)) == {index}
    found = re.search(r"Buffers: shared (?:hit=(\d+))?(?: ?read=(\d+))?", plan)
    assert found, plan
    return sum(int(part or 0) for part in found.groups())


# --- what it costs -----------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
@pytest.mark.parametrize("analysed", [False, True])
def test_a_claim_costs_the_same_however_much_waits(database: Connection[Any], analysed: bool) -> None:
    flood(database, FLOOD, state="done")
    database.execute("analyze sources")  # so that the planner believes that nothing ever waits
    flood(database, FLOOD, ahead="1 h")
    if analysed:
        database.execute("analyze sources")
    assert buffers(database, ledger_statements.CLAIM, VALUES) < 40, "20,000 wait for their back-off, nothing is due"
    flood(database, FLOOD)
    if analysed:
        database.execute("analyze sources")
    assert buffers(database, ledger_statements.CLAIM, VALUES) < 150
    assert buffers(database, ledger_statements.BURY, VALUES, "sources_leased") < 20
    assert buffers(database, ledger_statements.DUE, (50,)) < 100
    assert buffers(database, ledger_statements.BACKLOG, (100,)) < 150


def test_of_a_leased_row_the_time_of_its_turn_is_never_ahead(database: Connection[Any]) -> None:
    """The claim relies on it: an event while somebody works must not make the row wait for anything but the lease."""
    ledger = Ledger(database)
    ledger.record("file:///a", fingerprint="1")
    assert ledger.claim()
    ledger.record("file:///a", fingerprint="2")
    database.execute("update sources set lease_until = now() - interval '1 s'")
    again = ledger.claim()
    assert again is not None
    assert again.version == 2


def test_what_killed_its_worker_twice_goes_behind_all_who_wait(database: Connection[Any]) -> None:
    ledger = Ledger(database)

    def claimed() -> str:
        claim = ledger.claim()
        assert claim is not None
        return claim.uri

    def die() -> None:
        database.execute("update sources set lease_until = now() - interval '1 s' where state = 'leased'")

    ledger.record("file:///poison")
    assert claimed() == "file:///poison"
    for name in ("a", "b"):
        ledger.record(f"file:///{name}")
    die()
    assert claimed() == "file:///poison", "once more at once: it may have been the machine"
    die()
    assert [claimed() for _ in range(3)] == ["file:///a", "file:///b", "file:///poison"]


# --- what is counted ---------------------------------------------------------------------------------------------


def test_what_is_due_is_counted_and_what_is_not_is_not(database: Connection[Any]) -> None:
    assert measure_backlog(database) == Backlog(0, False, None)
    assert str(measure_backlog(database)) == "nothing due"
    ledger = Ledger(database)
    for name in ("working", "crashed", "later", "old", "new"):
        ledger.record(f"file:///{name}")
    for name in ("working", "crashed"):
        database.execute("update sources set next_at = '-infinity' where uri = %s", (f"file:///{name}",))
        claim = ledger.claim()
        assert claim is not None
        assert claim.uri == f"file:///{name}"
        database.execute("update sources set next_at = now() - interval '1 h' where id = %s", (claim.id,))
    database.execute("update sources set lease_until = now() - interval '1 s' where uri = 'file:///crashed'")
    database.execute("update sources set next_at = now() + interval '1 h' where uri = 'file:///later'")
    database.execute("update sources set next_at = now() - interval '100 s' where uri = 'file:///old'")
    found = measure_backlog(database)
    assert (found.due, found.more) == (3, False), "crashed, old and new"
    assert found.oldest_due_seconds == pytest.approx(3600, abs=30)
    assert re.fullmatch(r"3 due, the oldest for 3,6\d\d s", str(found))
    few = measure_backlog(database, most=2)
    assert (few.due, few.more) == (2, True)
    assert str(few).startswith("more than 2 due")


def test_a_pause_hides_nothing(database: Connection[Any]) -> None:
    ledger = Ledger(database)
    ledger.record("file:///a")
    database.execute(
        "insert into pauses (what, until, code, cause, remedy)"
        " values ('embedding', now() + interval '1 h', 'a', 'b', '')"
    )
    assert ledger.due() == 0, "nobody is woken for nothing"
    assert measure_backlog(database).due == 1


def test_a_gauge_looks_once_a_second_and_lets_nobody_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    looks: list[int] = []
    entered, go_on = threading.Event(), threading.Event()

    def look(most: int) -> Backlog:
        looks.append(most)
        if len(looks) > 1:
            entered.set()
            assert go_on.wait(30)
        return Backlog(len(looks), False, None)

    gauge = Gauge(look, most_due=50_000)
    assert [gauge.backlog().due for _ in range(100)] == [1] * 100
    assert looks == [50_000], "enough to tell whether the limit is reached"
    now[0] += 0.9
    assert gauge.backlog().due == 1
    now[0] += 0.2
    slow = threading.Thread(target=gauge.backlog)
    slow.start()
    assert entered.wait(30)
    assert gauge.backlog().due == 1, "what is known, while another looks"
    go_on.set()
    slow.join(30)
    assert gauge.backlog().due == 2


def test_a_gauge_that_takes_long_rests_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    looks: list[float] = []

    def look(most: int) -> Backlog:
        looks.append(now[0])
        now[0] += 0.5
        return Backlog(0, False, None)

    gauge = Gauge(look, None)
    for _ in range(120):
        gauge.backlog()
        now[0] += 0.1
    assert len(looks) == 2, "half a second of work in ten"


# --- who is told, and who is refused ------------------------------------------------------------------------------

TOKEN = "t" * 32
RECEIVER = {
    "auth": "bearer",
    "secret": TOKEN,
    "text": "$.body",
    "uri": "$.id",
    "delete_when": {"path": "$.gone", "equals": True},
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", max_due=3, webhooks={"notes": RECEIVER})


@pytest.fixture
def client(settings: Settings, services: Services, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    monkeypatch.setattr("worker.backlog.FRESH_SECONDS", 0.0)
    monkeypatch.setattr("worker.backlog.LEISURE", 0)
    with client_of(create_http_app(settings, Services(dsn, services.broker_url))) as client:
        yield client


def send(client: httpx.Client, name: str) -> httpx.Response:
    return client.post("/ingest/text", json={"content": f"This is {name}.", "uri": f"note:{name}"})


def hook(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/webhooks/notes", json=body, headers={"Authorization": f"Bearer {TOKEN}"})


def test_the_backlog_is_in_answers_and_a_full_queue_takes_no_more(
    client: httpx.Client, database: Connection[Any], settings: Settings
) -> None:
    assert client.get("/status").json() == {
        "queue": {"due": 0, "more": False, "oldest_due_seconds": None},
        "max_due": 3,
        "paused": [],
    }
    answers = [send(client, name).json()["queue"] for name in ("a", "b", "c")]
    assert [answer["due"] for answer in answers] == [0, 1, 2]
    assert "oldest_due_seconds" not in answers[0]
    assert 0 <= answers[2]["oldest_due_seconds"] < 60
    spooled = sorted((settings.home / "spool").rglob("*"))

    refused = [
        send(client, "d"),
        client.post("/ingest/url", json={"url": "https://example.com/d"}),
        client.post("/ingest/file", files={"file": ("d.txt", b"This is d.")}),
        client.put("/sources", params={"uri": "note:d"}, content=b"This is d."),
        hook(client, id="d", body="This is d."),
    ]
    for answer in refused:
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "30")
        problem = answer.json()
        assert problem["code"] == "queue_full"
        assert re.match(
            r"the workers are behind: 3 due, the oldest for \d+ s, and GRISTMILL_MAX_DUE", problem["detail"]
        )
        assert "Retry-After" in problem["remedy"]
    assert database.execute("select count(*) from sources").fetchone() == (3,)
    assert database.execute("select count(*) from webhook_deliveries").fetchone() == (0,)
    assert sorted((settings.home / "spool").rglob("*")) == spooled, "nothing is kept of what was refused"

    assert hook(client, id="note:a", gone=True).json() == {"uri": "note:a", "deleted": True}, "deletions never wait"
    taken = hook(client, id="d", body="This is d.")
    assert taken.status_code == 202, "the very delivery that was refused"
    assert taken.json()["queue"]["due"] == 2
    assert client.delete("/sources", params={"uri": "note:b"}).status_code == 200
    Ledger(database).record("file:///folders/wait/in/the/ledger")
    database.execute("update sources set state = 'failed' where uri = 'note:c'")
    assert client.post("/sources/retry").json()["retried"], "nor does what is there already"


def test_without_a_limit_none_is_refused(
    services: Services, dsn: str, database: Connection[Any], tmp_path: Path
) -> None:
    flood(database, 10_050)
    found = Settings(home=tmp_path / "home")
    with client_of(create_http_app(found, Services(dsn, services.broker_url))) as client:
        queue = send(client, "a").json()["queue"]
        assert (queue["due"], queue["more"]) == (10_000, True)
        shown = client.get("/status").json()
        assert (shown["queue"]["due"], shown["queue"]["more"], shown["max_due"]) == (10_000, True, None)


def test_an_answer_that_waited_says_what_was_due_only_where_it_is_not_done(
    client: httpx.Client, database: Connection[Any]
) -> None:
    sent = {"content": "This takes.", "uri": "note:w", "wait": 0.2}
    answer = client.post("/ingest/text", json=sent)
    assert (answer.status_code, answer.json()["queue"]["due"]) == (202, 0)
    database.execute("update sources set state = 'failed', error_code = 'x', done_version = version")
    database.execute("update sources set state = 'done'")
    answer = client.post("/ingest/text", json=sent)
    assert (answer.status_code, "queue" in answer.json()) == (200, False)


def test_status_needs_a_key_where_the_others_do(services: Services, dsn: str, tmp_path: Path) -> None:
    found = Settings(home=tmp_path / "home", require_key="always")
    with client_of(create_http_app(found, Services(dsn, services.broker_url))) as client:
        assert client.get("/status").status_code == 401


def test_the_gauge_of_a_database_that_is_away_says_so() -> None:
    def away(most: int) -> Backlog:
        raise psycopg.OperationalError("gone")

    with pytest.raises(psycopg.OperationalError):
        Gauge(away, 1).admit()
    Gauge(away, None).admit()
    with pytest.raises(UnavailableError, match="more than 1 due") as full:
        Gauge(lambda most: Backlog(1, True, 2.0), 1).admit()
    assert full.value.retry_after == 30


# --- wake-ups -----------------------------------------------------------------------------------------------------


def test_a_flood_of_events_is_no_flood_of_wake_ups(services: Services) -> None:
    app = create_app(Settings(), services)
    # A machine that stands still for a few seconds is no broker that is away.
    app.conf.broker_transport_options |= {"socket_timeout": 60, "socket_connect_timeout": 60}
    queue = f"flood-{time.monotonic_ns()}"
    broker._TASKS[queue] = "gristmill.wake"
    try:
        producers = [Broker(app) for _ in range(3)]
        for number in range(600):
            assert producers[number % 3].wake(queue=queue)
        waiting = producers[0].waiting(queue)
        assert waiting is not None
        assert MOST_WAITING <= waiting <= MOST_WAITING + 3 * LOOK_EVERY
        with app.connection_or_acquire() as connection:
            connection.default_channel.queue_purge(queue)
        assert producers[0].wake(queue=queue)
        assert producers[0].waiting(queue) == 1, "it sends again once they are gone"
        with app.connection_or_acquire() as connection:
            connection.default_channel.queue_delete(queue)
    finally:
        del broker._TASKS[queue]
        app.close()


def test_a_broker_that_is_away_is_asked_once_in_a_while_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(Settings(), Services("postgresql:///nowhere", "redis://127.0.0.1:1/0"))
    producer = Broker(app)
    asked: Counter[str] = Counter()

    def away(queue: str = INGEST_QUEUE) -> None:
        asked[queue] += 1

    monkeypatch.setattr(producer, "waiting", away)
    assert [producer.wake(LOOK_EVERY + 1) for _ in range(100)] == [False] * 100
    assert asked == Counter({INGEST_QUEUE: 1})
    assert [record.message.split(",")[0] for record in caplog.records] == ["the broker does not answer"]
    app.close()


class Broken(drain.Drain):
    """A worker for which nothing is as it must be."""

    application: ClassVar[str] = "gristmill test"
    error: Exception

    def _work_one(self) -> bool:
        raise self.error


@pytest.mark.parametrize(
    "error", [psycopg.errors.UndefinedTable("no sources"), ConfigurationError("other_model", "another model", "")]
)
def test_where_nothing_can_be_taken_a_process_rests(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rests: list[float] = []
    monkeypatch.setattr(time, "sleep", rests.append)
    worker = Broken(Settings())
    worker.error = error
    assert worker.work(seconds=60) == 0, "the wake-up is spent, and nothing is raised that Celery would print in full"
    assert rests == [drain.REST_SECONDS]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert str(error).splitlines()[0] in caplog.text
