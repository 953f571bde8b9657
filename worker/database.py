"""What the worker asks of Postgres: a connection by the settings, and a schema that is ready."""

from __future__ import annotations

import logging
from typing import Any

from psycopg import Connection

from pipelines.database import connect
from pipelines.embed import Embedder, EmbedderSpec, open_embedder
from pipelines.errors import ConfigurationError
from pipelines.search import check_model, index_model
from sql.migrate import migrate
from worker.embedded import Services, find_services
from worker.ledger import Ledger
from worker.mark import warn_if_restored
from worker.page_ranges import PageRanges
from worker.pauses import Pauses
from worker.settings import Settings

log = logging.getLogger(__name__)


def database_url(settings: Settings) -> str:
    """The database of the settings, or the embedded one that is running.

    Raises:
        ConfigurationError: none is set and none is running.
    """
    return settings.database_url or find_services(settings).database_url


def open_database(
    settings: Settings, services: Services | None = None, *, application: str = "gristmill"
) -> Connection[Any]:
    """A connection of its own to the database of the settings, or to the embedded one that is running.

    Raises:
        ConfigurationError: nothing is running, or the database is not migrated.
        UnavailableError: the server does not answer.
    """
    dsn = services.database_url if services else database_url(settings)
    return connect(dsn, schema=settings.schema_name, application=application)


def open_ledger(settings: Settings, connection: Connection[Any], tenant: str | None = None) -> Ledger:
    """The ledger on this connection, for a tenant or that of the settings, with their lease and back-off."""
    return Ledger(
        connection,
        tenant=settings.tenant if tenant is None else tenant,
        lease_seconds=settings.lease_seconds,
        scouting_seconds=settings.lease_seconds + settings.embed_timeout_seconds,
        max_attempts=settings.max_attempts,
        backoff_seconds=settings.backoff_seconds,
        backoff_cap_seconds=settings.backoff_cap_seconds,
    )


def open_page_ranges(settings: Settings, connection: Connection[Any]) -> PageRanges:
    """The page ranges on this connection, with the settings' lease and back-off."""
    return PageRanges(
        connection,
        lease_seconds=settings.lease_seconds,
        max_attempts=settings.max_attempts,
        backoff_seconds=settings.backoff_seconds,
        backoff_cap_seconds=settings.backoff_cap_seconds,
    )


def embedder_spec(settings: Settings) -> EmbedderSpec:
    """Which embedder the settings ask for, with `auto` resolved."""
    kind = settings.embedder
    if kind == "auto":
        kind = "openai" if settings.openai_api_key or settings.openai_base_url else "use"
    return EmbedderSpec(
        kind=kind,
        model=settings.openai_model if kind == "openai" else None,
        base_url=settings.openai_base_url,
        api_key=settings.openai_api_key,
        dimensions=settings.embedding_dimensions,
        batch_texts=settings.embed_batch_texts,
        batch_tokens=settings.embed_batch_tokens,
        max_tokens=settings.embed_max_tokens,
        timeout=settings.embed_timeout_seconds,
    )


def prepare_database(settings: Settings, dsn: str) -> list[str]:
    """Migrate, make sure that index and settings mean the same embedding model, and end pauses: this is a new start.

    Returns:
        The names of the migrations applied.

    Raises:
        ConfigurationError: see `sql.migrate.migrate`; or the index belongs to another model.
        UnavailableError: the database does not answer, or the embedder's size is not known and it does not answer.
    """
    embedder = open_embedder(embedder_spec(settings))
    dimensions = _dimensions(settings, dsn, embedder)
    names = migrate(
        dsn,
        schema=settings.schema_name,
        dimensions=dimensions,
        language=settings.default_language,
        progress=lambda name: log.info("migrating: %s", name),
    )
    with connect(dsn, schema=settings.schema_name) as connection:
        connection.execute(
            "insert into index_models (model, dimensions, served) values (%s, %s, %s) on conflict do nothing",
            (embedder.model, dimensions, getattr(embedder, "served", None)),
        )
        check_model(connection, embedder)
        Pauses(connection, settings).try_now()
        warn_if_restored(connection, settings.home)
    return names


def _dimensions(settings: Settings, dsn: str, embedder: Embedder) -> int:
    """The index's own size where there is one, so that an embedder that is away does not stop a restart."""
    try:
        with connect(dsn, schema=settings.schema_name) as connection:
            if connection.execute("select to_regclass('index_models') is not null").fetchone() == (True,):
                found = index_model(connection)
                if found:
                    return found[1]
    except ConfigurationError as error:
        if error.code != "not_migrated":
            raise
    if embedder.dimensions > 2000:
        raise ConfigurationError(
            "too_many_dimensions",
            f"{embedder.model} makes vectors of {embedder.dimensions} dimensions; an HNSW index takes at most 2,000",
            "set GRISTMILL_EMBEDDING_DIMENSIONS to 2000 or less, if the model can shorten its vectors",
        )
    return embedder.dimensions
