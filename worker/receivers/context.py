"""What all endpoints of the HTTP service share: settings, database pool, spool, broker, embedder, syncs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

from fastapi import Depends
from pgvector.psycopg import register_vector
from psycopg import Connection
from psycopg_pool import ConnectionPool
from starlette.requests import Request

from pipelines.database import limit_server, patient, use_schema
from pipelines.embed import Embedder, open_embedder, warm
from pipelines.errors import ConfigurationError
from worker.app import create_app
from worker.backlog import Backlog, Gauge, measure_backlog
from worker.broker import Broker
from worker.connectors.registry import load_syncs
from worker.content import open_spool
from worker.database import embedder_spec, open_ledger
from worker.embedded import Services
from worker.ledger import Ledger
from worker.receivers.lanes import Lanes
from worker.sent import Sent
from worker.settings import Settings
from worker.sync.push import Pushes
from worker.sync.schedule import Schedule
from worker.sync.syncer import open_schedule

MOST_CONNECTIONS = 16
CONNECTION_SECONDS = 5.0


class Context:
    """The shared state of one service process; safe to use from any thread.

    Raises:
        ConfigurationError: a sync of the settings is set up wrongly.
    """

    def __init__(self, settings: Settings, services: Services) -> None:
        self.settings = settings
        self.services = services
        self.syncs = load_syncs(settings)
        self.pushes = Pushes(settings, self.syncs)
        self.spool = open_spool(settings)
        self.sent = Sent(settings.home)
        self.celery = create_app(settings, services)
        self.broker = Broker(self.celery)
        self.lanes = Lanes()
        self.gauge = Gauge(self._backlog, settings.max_due)
        self._loading = threading.Lock()
        self._embedder: Embedder | None = None
        self._pool: ConnectionPool[Connection[Any]] = ConnectionPool(
            services.database_url,
            kwargs=patient(services.database_url)
            | {"autocommit": True, "application_name": "gristmill http", "connect_timeout": 5},
            configure=self._configure,
            check=ConnectionPool.check_connection,  # a server that was restarted costs nobody an error
            min_size=1,
            max_size=MOST_CONNECTIONS,
            timeout=CONNECTION_SECONDS,
            reconnect_timeout=CONNECTION_SECONDS,  # then the next request tries anew, instead of a growing pause
            open=False,
            name="http",
        )

    @contextmanager
    def connection(self, *, timeout: float | None = None) -> Iterator[Connection[Any]]:
        """A connection of the pool, in autocommit, as `pipelines.database.connect` gives it.

        Args:
            timeout: seconds to wait for one; None for the usual.

        Raises:
            psycopg.OperationalError: the database does not answer in time.
        """
        self._pool.open()
        with self._pool.connection(timeout) as connection:
            yield connection

    def ledger(self, connection: Connection[Any], tenant: str) -> Ledger:
        """The ledger on this connection, for one tenant."""
        return open_ledger(self.settings, connection, tenant)

    def schedule(self, connection: Connection[Any], name: str | None = None) -> Schedule:
        """The syncs of the settings on this connection, or one of them alone."""
        syncs = self.syncs if name is None else {name: self.syncs[name]}
        return open_schedule(self.settings, connection, syncs)

    def embedder(self) -> Embedder:
        """The embedder of the settings, made on first use."""
        with self._loading:
            if self._embedder is None:
                self._embedder = open_embedder(embedder_spec(self.settings))
            return self._embedder

    def warm(self) -> None:
        """Load what the embedder needs, so that the first question does not wait for it. Endpoints are not asked."""
        with suppress(ConfigurationError):  # whoever asks will be told
            warm(embedder_spec(self.settings))

    def close(self) -> None:
        """Give up the connections."""
        self._pool.close()
        self.pushes.close()
        self.celery.close()

    def _backlog(self, most: int) -> Backlog:
        with self.connection() as connection:
            return measure_backlog(connection, most)

    def _configure(self, connection: Connection[Any]) -> None:
        limit_server(connection)
        use_schema(connection, self.settings.schema_name)
        register_vector(connection)


def context_of(request: Request) -> Context:
    """The context of the application that a request came to; as a FastAPI dependency, see `Shared`."""
    found = request.app.state.context
    assert isinstance(found, Context)
    return found


Shared = Annotated[Context, Depends(context_of)]
