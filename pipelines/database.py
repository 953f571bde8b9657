"""Connections to Postgres as every part of Gristmill wants them."""

from __future__ import annotations

from typing import Any

import psycopg
from pgvector.psycopg import register_vector
from psycopg import sql
from psycopg.rows import TupleRow

from pipelines.errors import ConfigurationError, UnavailableError


def connect(dsn: str, *, schema: str = "public", application: str = "gristmill") -> psycopg.Connection[TupleRow]:
    """Open a connection in autocommit, with our schema first on the search path and vectors as numpy arrays.

    Args:
        dsn: libpq connection string or URI.
        schema: where Gristmill's tables are.
        application: shown in `pg_stat_activity`.

    Raises:
        UnavailableError: the server does not answer.
        ConfigurationError: it answers, but pgvector is not installed in that database.
    """
    try:
        connection = psycopg.connect(dsn, autocommit=True, application_name=application, connect_timeout=10)
    except psycopg.OperationalError as error:
        raise UnavailableError(
            "database_unavailable",
            f"Postgres does not answer: {_first_line(error)}",
            "check GRISTMILL_DATABASE_URL",
        ) from error
    use_schema(connection, schema)
    try:
        register_vector(connection)
    except psycopg.ProgrammingError as error:
        connection.close()
        raise ConfigurationError(
            "not_migrated", "this database has no pgvector extension yet", "run: gristmill migrate"
        ) from error
    return connection


def use_schema(connection: psycopg.Connection[Any], schema: str) -> None:
    """Put our schema first on the search path, then wherever the extensions are (`extensions` on Supabase)."""
    rows = connection.execute(
        "select distinct n.nspname from pg_extension e join pg_namespace n on n.oid = e.extnamespace"
        " where e.extname in ('vector', 'unaccent') and n.nspname <> %s",
        (schema,),
    ).fetchall()
    path = sql.SQL(", ").join(sql.Identifier(name) for name in [schema, *sorted(row[0] for row in rows)])
    connection.execute(sql.SQL("set search_path to {}").format(path))


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
