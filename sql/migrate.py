"""Apply the numbered SQL files of this package: each once, or whenever it has changed, in a transaction.

The files are plain psql: `:name` and `:'name'` are the only variables, so that they can be run by hand as well, e.g.
`psql -v dimensions=1536 -v language=english -f 004_documents.sql`.

The first lines of a file may say more of it, see `sql.ledger`. A repeatable file is one of functions alone, applied
after all others, and again whenever it has changed. It may take over functions that a file applied once has made.

While a file is applied all our tables are locked, so it must be quick. What takes as long as a table is large, indexes
and checks, stands in a file that is run outside a transaction.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable

import psycopg
from psycopg import Connection, sql

from pipelines.database import patient, use_schema
from pipelines.errors import ConfigurationError
from sql import ledger
from sql.functions import FunctionFile, StillUsedError, align_paths, apply_functions, drop_stale, function_names, naming
from sql.ledger import Migration, ahead, applied, migrations, open_ledger, pending, record
from sql.locks import lock_tables, table_names

__all__ = ["Migration", "ahead", "applied", "migrate", "migrations", "pending"]

log = logging.getLogger(__name__)

VARIABLE = re.compile(r"(?<![\[:\w]):(?:'(?P<quoted>[a-z_]+)'|(?P<bare>[a-z_]+)\b)")
LOCK = 0x67726973746D696C  # any fixed number: two migrations at once must take turns

TURN_SECONDS = 0.2
"""Between two looks whether another migration has ended."""
LOCK_TRIES = 40
LOCK_PAUSE = 1.0
"""Seconds between two tries, with up to as much again by chance: the queue that has formed gets through."""


def migrate(
    dsn: str,
    *,
    schema: str = "public",
    dimensions: int,
    language: str = "english",
    progress: Callable[[str], None] | None = None,
) -> list[str]:
    """Bring a schema up to this version, also while workers and readers use it.

    The last file to be applied once and all repeatable ones share a transaction: nobody meets tables of one version and
    functions of another.

    Args:
        dsn: a database with pgvector 0.8 or newer and unaccent, or a role that may create them.
        schema: where everything goes; created if it is missing.
        dimensions: size of the vectors; used when the table is made.
        language: text search configuration of rows that name none; used when the table is made.
        progress: told the name of each file before it is applied.

    Returns:
        The names of the files applied, in order; empty where nothing was missing.

    Raises:
        ConfigurationError: the role may not, an extension is missing, a table of that name is somebody else's, somebody
            holds a lock for too long, something else uses a function that is to change, or the schema is too new.
    """
    values = {"dimensions": str(dimensions), "language": language}
    done: list[str] = []
    with psycopg.connect(**patient(dsn), autocommit=True) as connection:
        connection.add_notice_handler(_log_notice)
        _take_turns(connection)
        exists = connection.execute("select to_regnamespace(%s) is not null", (schema,)).fetchone()
        if exists != (True,):
            connection.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
        use_schema(connection, schema)
        open_ledger(connection)
        drop_stale(connection)
        left = pending(connection)
        if newer := ahead(connection):
            log.warning("the schema is newer than this version, which can live with it: %s", ", ".join(newer))
        for together in _transactions(left):
            for migration in together:
                if progress:
                    progress(migration.name)
            if together[0].outside:
                _outside(connection, schema, together[0], values)
            else:
                _patiently(connection, schema, together, values)
            drop_stale(connection)
            use_schema(connection, schema)
            done.extend(migration.name for migration in together)
    return done


def _take_turns(connection: Connection) -> None:
    """Asks again and again: a statement that waits would be waited for by one that builds an index concurrently."""
    while connection.execute("select pg_try_advisory_lock(%s)", (LOCK,)).fetchone() != (True,):
        time.sleep(TURN_SECONDS)


def _transactions(left: list[Migration]) -> list[list[Migration]]:
    once = [[migration] for migration in left if migration.revision is None]
    repeatable = [migration for migration in left if migration.revision is not None]
    if repeatable and once and not once[-1][0].outside:
        once[-1] += repeatable
    elif repeatable:
        once.append(repeatable)
    return once


def _tables() -> list[str]:
    found = {name for migration in ledger.migrations() for name in table_names(migration.text)} | set(ledger.TABLES)
    return sorted(found)


def _outside(connection: Connection, schema: str, migration: Migration, values: dict[str, str]) -> None:
    """One statement after the other. None of them has anybody wait, so they may wait themselves.

    Version 0.1.0 waits for its turn in a statement, so one that starts now is waited for, and waits.
    """
    statements = re.split(r";\s*$", _filled(migration.text, values), flags=re.MULTILINE)
    for left in reversed(range(LOCK_TRIES)):
        try:
            for statement in statements:
                if re.sub(r"--.*", "", statement).strip():
                    connection.execute(statement.encode())
        except psycopg.errors.DeadlockDetected as error:
            if not left:
                raise _explained(migration.name, schema, error) from error
            time.sleep(LOCK_PAUSE * (1 + random.random()))
        except psycopg.Error as error:
            raise _explained(migration.name, schema, error) from error
        else:
            record(connection, migration, None)
            return


def _patiently(connection: Connection, schema: str, together: list[Migration], values: dict[str, str]) -> None:
    names = ", ".join(migration.name for migration in together)
    for left in reversed(range(LOCK_TRIES)):
        try:
            with connection.transaction():
                lock_tables(connection, _tables())
                _apply(connection, together, values)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            if not left:
                raise _locked(connection, names) from error
            log.info("%s: no lock on %s, %d more tries", names, *getattr(error, "__notes__", ["a table"]), left)
            time.sleep(LOCK_PAUSE * (1 + random.random()))
        except StillUsedError as error:
            raise ConfigurationError(
                "function_in_use",
                f"something else uses a function that has to change: {error}",
                "drop that, run gristmill migrate, make it again; nothing was kept of " + names,
            ) from error
        except psycopg.Error as error:
            file = next(iter(getattr(error, "__notes__", ())), names)
            raise _explained(file, schema, error) from error
        else:
            return


def _apply(connection: Connection, together: list[Migration], values: dict[str, str]) -> None:
    for migration in together:
        if migration.revision is None:
            with naming(migration.name):
                connection.execute(_filled(migration.text, values).encode())
            record(connection, migration, None)
    changed = [migration for migration in together if migration.revision is not None]
    if changed:
        _apply_functions(connection, changed, values)
    align_paths(connection)
    row = connection.execute(
        "select p.oid::regproc::text from pg_proc p where p.pronamespace = current_schema()::regnamespace"
        " and p.proname = 'apply_access' and p.pronargs = 0"
    ).fetchone()
    if row:
        with naming("apply_access()"):
            connection.execute(f"select {row[0]}()".encode())


def _apply_functions(connection: Connection, changed: list[Migration], values: dict[str, str]) -> None:
    ours = ledger.migrations()
    done = applied(connection)
    once = frozenset(
        name for migration in ours if migration.revision is None for name in function_names(migration.text)
    )

    def as_file(migration: Migration) -> FunctionFile:
        there = done.get(migration.name)
        text = _filled(migration.text, values)
        known = function_names(text) if there else once
        return FunctionFile(migration.name, text, known, there.functions if there else None)

    unchanged = [
        m for m in ours if m.name in done and m not in changed and m.digest == done[m.name].digest and m.revision
    ]
    made = apply_functions(connection, [as_file(m) for m in changed], [as_file(m) for m in unchanged])
    for migration in [*changed, *unchanged]:
        if migration.name in made:
            record(connection, migration, made[migration.name])


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


def _locked(connection: Connection, names: str) -> ConfigurationError:
    """Who is in the way is not known any more: whoever has a transaction open for longest most likely is."""
    found = connection.execute(
        "select pid, coalesce(nullif(application_name, ''), usename, 'unknown'), state,"
        " extract(epoch from clock_timestamp() - xact_start)::int from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null"
        " order by xact_start limit 1"
    ).fetchone()
    cause = f"no lock was to be had in {LOCK_TRIES} tries for {names}, nothing of which was kept"
    if found is None:
        return ConfigurationError("migration_locked", cause, "run gristmill migrate again")
    pid, name, state, seconds = found
    return ConfigurationError(
        "migration_locked",
        f"{cause}; the oldest open transaction is that of {name}, process {pid}, {state or 'state hidden'},"
        f" for {seconds} s",
        f"end it (select pg_terminate_backend({pid})), and run gristmill migrate again",
    )


def _explained(file: str, schema: str, error: psycopg.Error) -> ConfigurationError:
    cause = str(error).strip().splitlines()[0]
    if isinstance(error, psycopg.errors.DuplicateTable):
        return ConfigurationError(
            "table_taken",
            f"schema {schema} already has a table that {file} would make: {cause}",
            "let Gristmill have a schema of its own: GRISTMILL_SCHEMA_NAME=gristmill",
        )
    if isinstance(error, psycopg.errors.InsufficientPrivilege | psycopg.errors.UndefinedFile):
        return ConfigurationError(
            "migration_refused",
            f"{file} was refused: {cause}",
            "have the database's owner run: create extension vector; create extension unaccent; "
            f"grant usage, create on schema {schema} to this role; or run gristmill migrate as the tables' owner",
        )
    return ConfigurationError("migration_failed", f"{file} failed: {cause}", "nothing of it was kept")
