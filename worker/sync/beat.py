"""Celery beat's scheduler for syncs: says on time that one is due. What is due stands in the table `syncs`.

A wake-up carries nothing and a claim lets one run through, so two beats do no harm, and a beat that was down makes up
for it when it is back.
"""

from __future__ import annotations

import logging
from typing import Any

import psycopg
from celery import Celery
from celery.beat import Scheduler
from psycopg import Connection

from pipelines.errors import GristmillError
from worker.broker import SYNC_QUEUE, Broker
from worker.connectors.registry import load_syncs
from worker.database import open_database
from worker.settings import Settings, load_settings
from worker.sync.syncer import open_schedule

log = logging.getLogger(__name__)


class SyncScheduler(Scheduler):
    """Announces due syncs while their queue is short. `celery -A worker.app beat` uses it; no file is kept."""

    def __init__(self, app: Celery, *args: Any, settings: Settings | None = None, **options: Any) -> None:
        self._settings = settings or load_settings()
        self._syncs = load_syncs(self._settings)
        self._broker = Broker(app)
        self._connection: Connection[Any] | None = None
        super().__init__(app, *args, **options)

    def setup_schedule(self) -> None:
        """Nothing: the table has it."""

    def tick(self, *_args: Any, **_options: Any) -> float:
        """Announce what is due. Returns the seconds until the next look."""
        pause = self._settings.sweep_seconds
        try:
            if self._connection is None or self._connection.closed or self._connection.broken:
                self._connection = open_database(self._settings, application="gristmill beat")
                open_schedule(self._settings, self._connection, self._syncs).register()
            schedule = open_schedule(self._settings, self._connection, self._syncs)
            self._announce(schedule.due())
            left = schedule.seconds_until_due()
        except (psycopg.Error, GristmillError) as error:
            log.warning("the beat waits: %s", str(error).strip().splitlines()[0])
            self._connection = None
            return pause
        return pause if left is None else min(pause, max(left, 0.1))

    def close(self) -> None:
        """Give up the connection."""
        if self._connection is not None:
            self._connection.close()
        super().close()

    def _announce(self, due: int) -> None:
        waiting = self._broker.waiting(SYNC_QUEUE) if due else None
        if waiting is not None and waiting < due:
            self._broker.wake(due - waiting, queue=SYNC_QUEUE)
