"""What is tidied in the background: fresh statistics, a spool and small tables that do not grow for ever.

Every task is harmless to skip, to repeat, and to run in two installations at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import Connection

from pipelines.errors import GristmillError, UnavailableError
from worker.callbacks import forget_delivered
from worker.content import open_spool
from worker.database import open_database
from worker.embedded import Services
from worker.erase import finish_erasures
from worker.mark import Marks, advance_mark, warn_if_restored
from worker.settings import Settings

log = logging.getLogger(__name__)

STATISTICS_LOCK = 0x73746174  # any fixed number
TICK_SECONDS = 2.0
IDEMPOTENCY_HOURS = 24
DELIVERY_DAYS = 30

Chore = Callable[[Connection[Any], Settings], object]


def refresh_statistics(connection: Connection[Any], settings: Settings | None = None) -> bool:
    """Count document frequencies again if enough has changed since. False if it was not time, or another does it."""
    with connection.transaction():
        due = connection.execute(
            "select statistics_due() and pg_try_advisory_xact_lock(%s)", (STATISTICS_LOCK,)
        ).fetchone()
        if due != (True,):
            return False
        connection.execute("select refresh_statistics()")
    return True


class StaleTenants:
    """Refreshes the statistics of tenants whose index grew or shrank much, though it is little among all of them.

    Whoever is stale is found by counting all rows: not done where nothing was written since the last look.
    """

    def __init__(self) -> None:
        self._seen: int | None = None

    def __call__(self, connection: Connection[Any], settings: Settings | None = None) -> list[str]:
        """The tenants that were refreshed; none where another does it at the moment."""
        with connection.transaction():
            row = connection.execute(
                "select index_changes(), pg_try_advisory_xact_lock(%s)", (STATISTICS_LOCK,)
            ).fetchone()
            assert row is not None
            changes, ours = row
            if not ours or changes == self._seen:
                return []
            stale = [name for (name,) in connection.execute("select stale_tenants()").fetchall()]
            if stale:
                connection.execute("select refresh_statistics(of_tenants => %s)", (stale,))
        self._seen = changes
        return stale


def sweep_spool(connection: Connection[Any], settings: Settings) -> int:
    """Remove spooled files that no document needs; how many. What is away is swept another time.

    Not while the database is older than what this home has seen: it may not know of documents that it took in.
    """
    try:
        mark = Marks(settings.home).read()
        if warn_if_restored(connection, settings.home) or (mark is not None and mark.spared):
            return 0
        return open_spool(settings).sweep(connection)
    except GristmillError as error:
        log.warning("the spool is not swept: %s", error)
        return 0


def forget_old_requests(connection: Connection[Any], settings: Settings) -> None:
    """Forget answers kept for idempotency and webhook ids kept against replay, once they are past use."""
    connection.execute(
        "delete from idempotency_keys where created_at < now() - make_interval(hours => %s)", (IDEMPOTENCY_HOURS,)
    )
    connection.execute(
        "delete from webhook_deliveries where received_at < now() - make_interval(days => %s)", (DELIVERY_DAYS,)
    )


def forget_old_callbacks(connection: Connection[Any], settings: Settings) -> int:
    """Forget callbacks that were made or given up long ago; how many."""
    return forget_delivered(connection)


CHORES: tuple[tuple[float, Chore], ...] = (
    (5.0, refresh_statistics),
    (60.0, StaleTenants()),
    (600.0, sweep_spool),
    (600.0, forget_old_requests),
    (600.0, forget_old_callbacks),
    (60.0, finish_erasures),
    (10.0, advance_mark),
)
"""What is done, and how many seconds apart at least."""


def run_housekeeping(settings: Settings, services: Services, stop: threading.Event) -> None:
    """Do the chores until told to stop. Outlives a database that goes away."""
    connection: Connection[Any] | None = None
    next_at = [0.0 for _ in CHORES]
    while not stop.wait(TICK_SECONDS):
        try:
            if connection is None or connection.closed or connection.broken:
                connection = open_database(settings, services, application="gristmill housekeeping")
            for at, (seconds, chore) in enumerate(CHORES):
                if time.monotonic() >= next_at[at]:
                    chore(connection, settings)
                    next_at[at] = time.monotonic() + seconds
        except (UnavailableError, psycopg.OperationalError) as error:
            log.warning("housekeeping waits: %s", str(error).strip().splitlines()[0])
            connection = None
    if connection is not None:
        _last_mark(connection, settings)
        connection.close()


def _last_mark(connection: Connection[Any], settings: Settings) -> None:
    """What came since the last tick is seen as well, so that no backup of today passes for the state at the end."""
    try:
        advance_mark(connection, settings)
    except (GristmillError, psycopg.Error) as error:
        log.warning("the last mark was not made: %s", str(error).strip().splitlines()[0])
