"""Connections to Postgres as every part of Gristmill wants them."""

from __future__ import annotations

from typing import Any

import psycopg
from pgvector.psycopg import register_vector
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from pipelines.errors import ConfigurationError, UnavailableError

PATIENCE = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""For how long we believe in a server that does not acknowledge what we send: seconds, `tcp_user_timeout` in ms.

All are parameters of libpq (PostgreSQL documentation, 34.1.2). By those of the system, a connection to a machine that
lost its power, or through a firewall that forgot it, would hang for two hours, and for ever while it connects. A server
that acknowledges and is slow is waited for.
"""

PATIENCE_OF_THE_SERVER = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""The same the other way round (19.3.2): until the server notices that we have gone it keeps the locks that we hold."""


def patient(dsn: str) -> dict[str, Any]:
    """The parameters of a connection string, with limits to waiting where it sets none itself."""
    return PATIENCE | conninfo_to_dict(dsn)


def connect(dsn: str, *, schema: str = "public", application: str = "gristmill") -> psycopg.Connection[TupleRow]:
    """Open a connection in autocommit, with our schema first on the search path and vectors as numpy arrays.

    It gives up on a server that went without a word within about half a minute, see `PATIENCE`.

    Args:
        dsn: libpq connection string or URI; its own parameters come before ours.
        schema: where Gristmill's tables are.
        application: shown in `pg_stat_activity`.

    Raises:
        UnavailableError: the server does not answer.
        ConfigurationError: it answers, but pgvector is not installed in that database.
    """
    try:
        connection = psycopg.connect(**patient(dsn) | {"application_name": application}, autocommit=True)
    except psycopg.OperationalError as error:
        raise _silent(error) from error
    try:
        limit_server(connection)
        use_schema(connection, schema)
        register_vector(connection)
    except psycopg.OperationalError as error:
        connection.close()
        raise _silent(error) from error
    except psycopg.ProgrammingError as error:
        connection.close()
        raise ConfigurationError(
            "not_migrated", "this database has no pgvector extension yet", "run: gristmill migrate"
        ) from error
    return connection


def limit_server(connection: psycopg.Connection[Any]) -> None:
    """Have the server notice within a minute that we have gone, see `PATIENCE_OF_THE_SERVER`."""
    connection.execute(
        "select set_config(key, value, false) from jsonb_each_text(%s) as limits (key, value)",
        (Jsonb(PATIENCE_OF_THE_SERVER),),
    )


def use_schema(connection: psycopg.Connection[Any], schema: str) -> None:
    """Put our schema first on the search path, then wherever the extensions are (`extensions` on Supabase).

    Temporary objects come last, or they would come first: whoever may make a temporary table could otherwise have a
    function of ours take it for one of ours (PostgreSQL documentation, CREATE FUNCTION, "security definer").
    """
    rows = connection.execute(
        "select distinct n.nspname from pg_extension e join pg_namespace n on n.oid = e.extnamespace"
        " where e.extname in ('vector', 'unaccent') and n.nspname <> %s",
        (schema,),
    ).fetchall()
    names = [schema, *sorted(row[0] for row in rows), "pg_temp"]
    path = sql.SQL(", ").join(sql.Identifier(name) for name in names)
    connection.execute(sql.SQL("set search_path to {}").format(path))


def _silent(error: psycopg.OperationalError) -> UnavailableError:
    return UnavailableError(
        "database_unavailable",
        f"Postgres does not answer: {_first_line(error)}",
        "check GRISTMILL_DATABASE_URL",
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
