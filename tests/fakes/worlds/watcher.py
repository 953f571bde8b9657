"""A folder of this machine, mirrored by the watcher."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from psycopg import Connection

from pipelines.errors import GristmillError
from tests.fakes.eight_dimensions import EightDimensions
from tests.fakes.sync_house import SyncHouse
from tests.fakes.worlds.crawl import Crawl
from tests.fakes.worlds.folder import Files
from tests.fakes.worlds.ground import Ground
from worker.database import open_database
from worker.ingest import Ingester
from worker.ledger import Ledger
from worker.places import file_uri, local_path
from worker.settings import Settings
from worker.sync.schedule import Report
from worker.watchers import folder
from worker.watchers.ignore import Ignore
from worker.watchers.ledger_sink import LedgerSink
from worker.watchers.scan import missing_files

STEP_SECONDS = 30.0
"""Of the watcher's clock from one turn to the next: longer than anything it waits for."""

QUIET_TURNS = 4
"""Turns without a decision after which nothing moves any more: a file is seen, settles, and goes in the next ones."""


class _Sink(LedgerSink):
    """The ledger, with moments for the test; nobody is woken."""

    def __init__(self, settings: Settings, crawl: Crawl) -> None:
        super().__init__(settings)
        self.decisions = 0
        self._crawl = crawl

    def connection(self) -> Connection[Any]:
        """That it writes with."""
        if self._connection is None or self._connection.closed:
            self._connection = open_database(self._settings)
        return self._connection

    def record_file(self, path: Path, fingerprint: str) -> None:
        self.decisions += 1
        self._crawl.visits += 1
        self._crawl.reached("listed")
        self._crawl.reached("before_visit")
        super().record_file(path, fingerprint)
        self._crawl.reached("after_visit")

    def delete_file(self, path: Path) -> None:
        self.decisions += 1
        super().delete_file(path)

    def rename_file(self, old: Path, new: Path, fingerprint: str) -> None:
        self.decisions += 1
        super().rename_file(old, new, fingerprint)

    def _wake(self) -> None:
        """The test says when workers work."""


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


class WatcherHouse(SyncHouse):
    """A watcher on a clock of its own, turned by hand, instead of a sync."""

    def __init__(self, settings: Settings, connection: Connection[Any], crawl: Crawl) -> None:
        self.connection = connection
        self.now = datetime(2026, 11, 1, tzinfo=UTC)
        self.embedder = EightDimensions()
        self.ingester = Ingester(settings, self.embedder)
        self._settings = settings
        self._crawl = crawl
        self._start()

    def try_sync(
        self, *, later: float = 60.0, full: bool = False, confirmed: bool = False
    ) -> tuple[Report, GristmillError | None]:
        """Turn the watcher until nothing moves any more; what it warns of is what an operator has to know."""
        self.now += timedelta(seconds=later)
        if confirmed:
            self._delete_missing()
        heard = _Heard()
        logger = logging.getLogger("gristmill.watcher")
        logger.addHandler(heard)
        try:
            self._turn()
        finally:
            logger.removeHandler(heard)
        self.ingest()
        return Report({}, heard.said), None

    def writer(self) -> Connection[Any]:
        """The connection that the watcher writes with."""
        return self._sink.connection()

    def recover(self) -> None:
        """Start the watcher anew, as after it was killed."""
        self._sink.connection().close()
        self._start()

    def close(self) -> None:
        """Give up connections."""
        self._sink.connection().close()
        self.ingester.close()

    def _start(self) -> None:
        self._sink = _Sink(self._settings, self._crawl)
        self._watcher = folder.FolderWatcher(
            self._settings,
            self._sink,
            clock=self._clock,
            wall=self._clock,
        )

    def _clock(self) -> float:
        return self.now.timestamp()

    def _turn(self) -> None:
        quiet = 0
        while quiet < QUIET_TURNS:
            before = self._sink.decisions
            self.now += timedelta(seconds=STEP_SECONDS)
            self._watcher._turn()
            quiet = quiet + 1 if self._sink.decisions == before else 0

    def _delete_missing(self) -> None:
        """As `gristmill delete --missing` does."""
        ledger = Ledger(self.connection)
        for root in self._settings.watch:
            known = {local_path(uri): mark or "" for uri, mark in ledger.known(file_uri(root) + "/").items()}
            for path in missing_files(root, known, Ignore(self._settings.ignore)):
                ledger.delete(file_uri(path))


class WatcherWorld(Files):
    """See `World`."""

    cannot: ClassVar[Mapping[str, str]] = {
        "torn": "the folder is read whole before anything is decided",
        "twice": "it has no runs that take turns; what two watchers of a folder write is the same",
        "preview": "it has none",
    }

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        ground.patch.setattr(folder, "TICK_SECONDS", 0.0)  # its clock is ours, so it need not sleep
        settings = ground.settings(watch=(self.root,), poll_seconds=1.0, rescan_seconds=1.0)
        self.house = WatcherHouse(settings, ground.connection, self.crawl)
