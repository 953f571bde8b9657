"""The sweep: says again what was said to nobody. Due rows are announced while the queue is short.

It makes messages that were lost (a broker that died, a worker that was killed) harmless. One installation may run
many: an advisory lock lets one at a time through.
"""

from __future__ import annotations

import logging
import threading

import psycopg

from pipelines.errors import UnavailableError
from worker.app import create_app
from worker.broker import INGEST_QUEUE, MOST_WAITING, OCR_QUEUE, Broker
from worker.database import open_database, open_ledger, open_page_ranges
from worker.embedded import Services
from worker.ledger import Ledger
from worker.page_ranges import PageRanges
from worker.settings import Settings

log = logging.getLogger(__name__)

LOCK = 0x7377656570  # any fixed number


def sweep(ledger: Ledger, ranges: PageRanges, broker: Broker, *, most: int = MOST_WAITING) -> int:
    """Announce due documents and due page ranges, so that at most `most` wake-ups wait in the queue of either.

    A wake-up is worth as many documents as its worker finds, so a few are enough however much is due, and a naive
    sweep's flood of messages cannot arise.

    Returns:
        How many wake-ups were sent.
    """
    if ledger.connection.execute("select pg_try_advisory_lock(%s)", (LOCK,)).fetchone() != (True,):
        return 0
    try:
        ranges.release()
        return _announce(broker, INGEST_QUEUE, ledger.due(most)) + _announce(broker, OCR_QUEUE, ranges.due(most))
    finally:
        ledger.connection.execute("select pg_advisory_unlock(%s)", (LOCK,))


def _announce(broker: Broker, queue: str, due: int) -> int:
    if not due:
        return 0
    waiting = broker.waiting(queue)
    if waiting is None or waiting >= due:
        return 0
    count = due - waiting
    return count if broker.wake(count, queue=queue) else 0


def run_sweep(settings: Settings, services: Services, stop: threading.Event) -> None:
    """Sweep every `sweep_seconds` until told to stop. Outlives a database or broker that goes away."""
    broker = Broker(create_app(settings, services))
    connection = None
    while not stop.wait(settings.sweep_seconds):
        try:
            if connection is None or connection.closed or connection.broken:
                connection = open_database(settings, services, application="gristmill sweep")
            sweep(open_ledger(settings, connection), open_page_ranges(settings, connection), broker)
        except (UnavailableError, psycopg.OperationalError) as error:
            log.warning("the sweep waits: %s", str(error).strip().splitlines()[0])
            connection = None
    if connection is not None:
        connection.close()
