"""A sync and the worker that indexes what it brings, in this process, over a real database, with a clock of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg import Connection

from pipelines.errors import GristmillError
from tests.fakes.eight_dimensions import EightDimensions
from worker.connectors.config import SyncConfig
from worker.connectors.contract import Connector, Surroundings
from worker.connectors.registry import open_connector
from worker.ingest import Ingester
from worker.settings import Settings
from worker.sync.schedule import Report
from worker.sync.syncer import Syncer


class SyncHouse:
    """One sync, named `place`, that waits by its own clock.

    Args:
        opener: opens its connector; the real one by default.
    """

    def __init__(
        self,
        settings: Settings,
        connection: Connection[Any],
        config: SyncConfig,
        opener: Callable[[SyncConfig, Surroundings], Connector] = open_connector,
    ) -> None:
        self.settings = settings
        self.connection = connection
        self.seconds = 0.0
        """How long the last run took, without the indexing."""
        self.now = datetime(2026, 11, 1, tzinfo=UTC)
        self.embedder = EightDimensions()
        self.ingester = Ingester(settings, self.embedder)
        self.syncer = Syncer(settings, {"place": config}, clock=lambda: self.now, opener=opener, wait=self._wait)

    def _wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def sync(self, *, later: float = 60.0, full: bool = False, confirmed: bool = False) -> Report:
        """Run the sync some seconds later and index what it brought; it must go well."""
        report, error = self.try_sync(later=later, full=full, confirmed=confirmed)
        if error is not None:
            raise error
        return report

    def try_sync(
        self, *, later: float = 60.0, full: bool = False, confirmed: bool = False
    ) -> tuple[Report, GristmillError | None]:
        """Run the sync some seconds later and index what it brought; what ended it, if anything did."""
        self.now += timedelta(seconds=later)
        began = time.monotonic()
        report, error = self.syncer.sync("place", full=full, confirmed=confirmed)
        self.seconds = time.monotonic() - began
        self.ingest()
        return report, error

    def work(self, *, later: float = 60.0) -> int:
        """Run what is due some seconds later, as the Celery task does; how many syncs."""
        self.now += timedelta(seconds=later)
        done = self.syncer.work(seconds=60)
        self.ingest()
        return done

    def ingest(self) -> None:
        """Index whatever is due."""
        while self.ingester.work(seconds=60):
            pass

    def index(self) -> dict[str, str]:
        """The text of every document that can be found, by uri."""
        rows = self.connection.execute(
            "select s.uri, string_agg(d.content, E'\\n' order by d.id) from documents d"
            " join sources s on s.id = d.source_id group by s.uri"
        ).fetchall()
        return dict(rows)

    def rows(self) -> dict[str, int]:
        """Ids of the rows in the ledger, by uri."""
        return dict(self.connection.execute("select uri, id from sources where state <> 'deleted'").fetchall())

    def states(self) -> dict[str, tuple[str, str | None]]:
        """State and error code in the ledger, by uri."""
        rows = self.connection.execute("select uri, state, error_code from sources").fetchall()
        return {uri: (state, code) for uri, state, code in rows}

    def writer(self) -> Connection[Any]:
        """The connection that runs write with."""
        return self.syncer._connected()

    def recover(self) -> None:
        """Let the lease of a run that was killed run out."""
        self.syncer.close()
        self.connection.execute("update syncs set lease_until = now() - interval '1 s' where token is not null")

    def close(self) -> None:
        """Give up connections."""
        self.syncer.close()
        self.ingester.close()
