"""The sweep: what was said to nobody is said again, and no more than is useful."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from psycopg import Connection

from tests.integration.test_page_ranges import park
from worker.broker import INGEST_QUEUE, OCR_QUEUE
from worker.ledger import Ledger
from worker.page_ranges import PageRanges
from worker.sweep import LOCK, MOST_WAITING, sweep


class Counting:
    """A broker that counts, with so many messages waiting in each queue; None when it is away."""

    def __init__(self, waiting: int | None) -> None:
        self._waiting = waiting
        self.sent: Counter[str] = Counter()

    def waiting(self, queue: str = INGEST_QUEUE) -> int | None:
        return self._waiting

    def wake(self, count: int = 1, *, queue: str = INGEST_QUEUE) -> bool:
        self.sent[queue] += count
        return True


def swept(database: Connection[Any], broker: Counting, *, most: int = MOST_WAITING) -> int:
    return sweep(Ledger(database), PageRanges(database), broker, most=most)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("due", "waiting", "expected"),
    [(0, 0, 0), (3, 0, 3), (3, 2, 1), (3, 3, 0), (3, 50, 0), (80, 0, 50), (80, 49, 1), (80, 200, 0), (3, None, 0)],
)
def test_at_most_so_many_wake_ups_wait(database: Connection[Any], due: int, waiting: int | None, expected: int) -> None:
    ledger = Ledger(database)
    for number in range(due):
        ledger.record(f"file:///{number}")
    broker = Counting(waiting)
    assert swept(database, broker, most=50) == expected
    assert broker.sent == Counter({INGEST_QUEUE: expected} if expected else {})


def test_expired_leases_are_due_and_waiting_rows_are_not(database: Connection[Any]) -> None:
    ledger = Ledger(database)
    for number in range(3):
        ledger.record(f"file:///{number}")
    ledger.claim()
    database.execute("update sources set next_at = now() + interval '1 hour' where uri = 'file:///1'")
    assert ledger.due() == 1
    database.execute("update sources set lease_until = now() - interval '1 s' where state = 'leased'")
    assert ledger.due() == 2


def test_one_sweep_at_a_time(database: Connection[Any], another: Callable[[], Connection[Any]]) -> None:
    Ledger(database).record("file:///a")
    other = another()
    other.execute("select pg_advisory_lock(%s)", (LOCK,))
    broker = Counting(0)
    assert swept(database, broker) == 0
    other.execute("select pg_advisory_unlock(%s)", (LOCK,))
    assert swept(database, broker) == 1
    assert swept(database, broker) == 1, "the lock was given back"


def test_ranges_are_announced_in_a_queue_of_their_own(database: Connection[Any]) -> None:
    ledger = Ledger(database)
    park(ledger, 400)
    ledger.record("file:///a")
    broker = Counting(0)
    assert swept(database, broker, most=50) == 51
    assert broker.sent == Counter({INGEST_QUEUE: 1, OCR_QUEUE: 50})


def test_a_document_that_waits_for_no_page_is_found(database: Connection[Any]) -> None:
    park(Ledger(database))
    database.execute("delete from page_ranges")
    broker = Counting(0)
    assert swept(database, broker) == 1
    assert broker.sent == Counter({INGEST_QUEUE: 1})
