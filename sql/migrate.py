"""Apply the numbered SQL files of this package, each once, each in a transaction of its own.

The files are plain psql: `:name` and `:'name'` are the only variables, so that they can be run by hand as well, e.g.
`psql -v dimensions=1536 -v language=english -f 004_documents.sql`.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files

import psycopg
from psycopg import Connection, sql

from pipelines.database import patient, use_schema
from pipelines.errors import ConfigurationError

log = logging.getLogger(__name__)

FILE_NAME = re.compile(r"^\d{3}_\w+\.sql$")
VARIABLE = re.compile(r"(?<![\[:\w]):(?:'(?P<quoted>[a-z_]+)'|(?P<bare>[a-z_]+)\b)")
LOCK = 0x67726973746D696C  # any fixed number: two migrations at once must take turns
LEDGER = """
create table if not exists gristmill_migrations (
  name        text primary key,
  digest      text not null,
  applied_at  timestamptz not null default now()
)"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered SQL file: its name, its text, and the SHA-256 it is recognised by."""

    name: str
    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def migrations() -> list[Migration]:
    """All SQL files that come with this version, in the order of their numbers."""
    found = (entry for entry in files("sql").iterdir() if FILE_NAME.match(entry.name))
    return sorted((Migration(entry.name, entry.read_text("utf-8")) for entry in found), key=lambda m: m.name)


def applied(connection: Connection) -> dict[str, str]:
    """Name and digest of every file already applied to the schema that comes first on the search path."""
    row = connection.execute("select to_regclass(current_schema() || '.gristmill_migrations') is not null").fetchone()
    if not row or not row[0]:
        return {}
    return dict(connection.execute("select name, digest from gristmill_migrations").fetchall())


def pending(connection: Connection) -> list[Migration]:
    """Files of this version that the schema lacks.

    Raises:
        ConfigurationError: an applied file differs from ours, or the schema is newer than this version.
    """
    done = applied(connection)
    ours = migrations()
    for name in done.keys() - {migration.name for migration in ours}:
        raise ConfigurationError(
            "schema_newer", f"the database has {name}, which this version does not know", "upgrade gristmill"
        )
    for migration in ours:
        if done.get(migration.name, migration.digest) != migration.digest:
            raise ConfigurationError(
                "schema_differs",
                f"{migration.name} was applied in another wording than this version has",
                "use the version of gristmill that made the schema, or a new schema (GRISTMILL_SCHEMA_NAME)",
            )
    return [migration for migration in ours if migration.name not in done]


def migrate(
    dsn: str,
    *,
    schema: str = "public",
    dimensions: int,
    language: str = "english",
    progress: Callable[[str], None] | None = None,
) -> list[str]:
    """Bring a schema up to this version.

    Args:
        dsn: a database with pgvector 0.8 or newer and unaccent, or a role that may create them.
        schema: where everything goes; created if it is missing.
        dimensions: size of the vectors; used when the table is made.
        language: text search configuration of rows that name none; used when the table is made.
        progress: told the name of each file before it is applied.

    Returns:
        The names of the files applied, in order; empty where nothing was missing.

    Raises:
        ConfigurationError: the role may not, an extension is missing, or a table of that name is somebody else's.
    """
    values = {"dimensions": str(dimensions), "language": language}
    done: list[str] = []
    with psycopg.connect(**patient(dsn), autocommit=True) as connection:
        connection.add_notice_handler(_log_notice)
        connection.execute("select pg_advisory_lock(%s)", (LOCK,))
        exists = connection.execute("select to_regnamespace(%s) is not null", (schema,)).fetchone()
        if exists != (True,):
            connection.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
        use_schema(connection, schema)
        connection.execute(LEDGER)
        for migration in pending(connection):
            if progress:
                progress(migration.name)
            try:
                with connection.transaction():
                    connection.execute(_filled(migration.text, values).encode())
                    connection.execute(
                        "insert into gristmill_migrations (name, digest) values (%s, %s)",
                        (migration.name, migration.digest),
                    )
            except psycopg.Error as error:
                raise _explained(migration, schema, error) from error
            use_schema(connection, schema)
            done.append(migration.name)
    return done


def _log_notice(notice: psycopg.errors.Diagnostic) -> None:
    if notice.severity_nonlocalized in ("NOTICE", "WARNING"):
        log.warning("%s", notice.message_primary)


def _filled(text: str, values: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match["quoted"] or match["bare"]
        if name not in values:
            return match[0]
        return sql.Literal(values[name]).as_string() if match["quoted"] else values[name]

    return VARIABLE.sub(value, text)


def _explained(migration: Migration, schema: str, error: psycopg.Error) -> ConfigurationError:
    cause = str(error).strip().splitlines()[0]
    if isinstance(error, psycopg.errors.DuplicateTable):
        return ConfigurationError(
            "table_taken",
            f"schema {schema} already has a table that {migration.name} would make: {cause}",
            "let Gristmill have a schema of its own: GRISTMILL_SCHEMA_NAME=gristmill",
        )
    if isinstance(error, psycopg.errors.InsufficientPrivilege | psycopg.errors.UndefinedFile):
        return ConfigurationError(
            "migration_refused",
            f"{migration.name} was refused: {cause}",
            "have the database's owner run: create extension vector; create extension unaccent; "
            f"grant usage, create on schema {schema} to this role",
        )
    return ConfigurationError("migration_failed", f"{migration.name} failed: {cause}", "nothing of it was kept")
