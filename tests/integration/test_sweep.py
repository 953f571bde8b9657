"""The sweep: what was said to nobody is said again, and no more than is useful."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import Connection

from worker.ledger import Ledger
from worker.sweep import LOCK, sweep


class Counting:
    """A broker that counts, with so many messages waiting; None when it is away."""

    def __init__(self, waiting: int | None) -> None:
        self._waiting = waiting
        self.sent = 0

    def waiting(self) -> int | None:
        return self._waiting

    def wake(self, count: int = 1) -> bool:
        self.sent += count
        return True


@pytest.mark.parametrize(
    ("due", "waiting", "expected"),
    [(0, 0, 0), (3, 0, 3), (3, 2, 1), (3, 3, 0), (3, 50, 0), (80, 0, 50), (80, 49, 1), (80, 200, 0), (3, None, 0)],
)
def test_at_most_so_many_wake_ups_wait(database: Connection[Any], due: int, waiting: int | None, expected: int) -> None:
    ledger = Ledger(database)
    for number in range(due):
        ledger.record(f"file:///{number}")
    broker = Counting(waiting)
    assert sweep(ledger, broker, most=50) == expected  # type: ignore[arg-type]
    assert broker.sent == expected


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
    assert sweep(Ledger(database), broker) == 0  # type: ignore[arg-type]
    other.execute("select pg_advisory_unlock(%s)", (LOCK,))
    assert sweep(Ledger(database), broker) == 1  # type: ignore[arg-type]
    assert sweep(Ledger(database), broker) == 1, "the lock was given back"  # type: ignore[arg-type]
