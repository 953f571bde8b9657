"""Which documents of a sync an event tells of. Nothing is asked of any provider for that."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any

from psycopg import Connection

from pipelines.errors import PermanentError
from worker.connectors.config import SyncConfig
from worker.connectors.contract import Connector, Surroundings
from worker.connectors.registry import open_connector
from worker.settings import Settings

MOST_KEY_BYTES = 2_048

KNOWN = """
with wanted as (select id from syncs where tenant = %(tenant)s and name = %(name)s)
select m.key, m.key from synced m join wanted w on w.id = m.sync_id where m.key = any(%(texts)s)
union
select s.uri, m.key from sources s join synced m on m.source_id = s.id join wanted w on w.id = m.sync_id
where s.tenant = %(tenant)s and s.uri = any(%(texts)s)
"""


class Pushes:
    """Reads events with the connectors of syncs, each opened at its first event and kept. Safe to use from any thread.

    Opening a connector makes no connection, and reading an event needs none.
    """

    def __init__(self, settings: Settings, syncs: Mapping[str, SyncConfig]) -> None:
        self._settings = settings
        self._syncs = syncs
        self._lock = threading.Lock()
        self._opened: dict[str, Connector] = {}

    def keys(self, name: str, event: Any) -> list[str]:
        """Keys of the documents of a sync that an event (JSON) tells of, each once; empty: none of it.

        Raises:
            PermanentError: the event makes no sense.
            ConfigurationError: the sync is set up wrongly.
        """
        with self._lock:
            if name not in self._opened:
                self._opened[name] = open_connector(self._syncs[name], Surroundings(self._settings))
            try:
                told = self._opened[name].pushed(event)
            except RecursionError as error:
                raise PermanentError("bad_event", "the event is nested too deeply", "send the event itself") from error
        return [key for key in dict.fromkeys(told) if _storable(key)]

    def close(self) -> None:
        """Give the connectors up."""
        with self._lock:
            for connector in self._opened.values():
                connector.close()
            self._opened.clear()


def known_keys(connection: Connection[Any], tenant: str, name: str, texts: Collection[str]) -> dict[str, str]:
    """Keys of the documents that a sync knows by these keys or uris, by what was given."""
    rows = connection.execute(KNOWN, {"tenant": tenant, "name": name, "texts": list(texts)}).fetchall()
    return dict(rows)


def _storable(key: str) -> bool:
    """Whether a row can have this key: events are of strangers' making."""
    try:
        return 0 < len(key.encode()) <= MOST_KEY_BYTES and "\0" not in key
    except UnicodeEncodeError:
        return False
