"""The ledger as the sink of a folder watcher."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psycopg import Connection

from pipelines.errors import PermanentError
from worker.app import connect_app
from worker.broker import Broker
from worker.crash import crash_point
from worker.database import open_database, open_ledger
from worker.kept_out import CODE as KEPT_OUT
from worker.ledger import Ledger
from worker.places import file_uri, local_path
from worker.settings import Settings

log = logging.getLogger(__name__)


class LedgerSink:
    """Writes a watcher's decisions into the ledger and wakes a worker. Opens its connection when first used."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connection: Connection[Any] | None = None
        self._broker: Broker | None = None

    def record_file(self, path: Path, fingerprint: str) -> None:
        """Note that the file is new or has changed, and announce it."""
        try:
            recorded = self._ledger().record(file_uri(path), fingerprint=fingerprint)
        except PermanentError as error:
            if error.code != KEPT_OUT:
                raise
            log.info("a file is not taken: %s", error)
            return
        if recorded.changed:
            crash_point("after_record")
            self._wake()

    def delete_file(self, path: Path) -> None:
        """Take the file's chunks out of the index at once."""
        self._ledger().delete(file_uri(path))

    def rename_file(self, old: Path, new: Path, fingerprint: str) -> None:
        """Give the document its new place; its chunks and vectors stay."""
        if self._ledger().rename(file_uri(old), file_uri(new), fingerprint=fingerprint):
            self._wake()
        else:
            self.record_file(new, fingerprint)

    def known_files(self, root: Path) -> Mapping[Path, str]:
        """The live sources beneath the root, each with the fingerprint last recorded."""
        known = self._ledger().known(file_uri(root) + "/")
        return {local_path(uri): mark or "" for uri, mark in known.items()}

    def _ledger(self) -> Ledger:
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection = open_database(self._settings, application="gristmill watcher")
        return open_ledger(self._settings, self._connection)

    def _wake(self) -> None:
        if self._broker is None:
            self._broker = Broker(connect_app(self._settings))
        self._broker.wake()
        crash_point("after_publish")


def open_file_sink(settings: Settings) -> LedgerSink:
    """The sink for `gristmill`'s own watcher."""
    return LedgerSink(settings)
