"""Lock all tables for a change of their definition, without a queue of readers and without a victim.

Whoever waits for an exclusive lock has everybody who comes later wait behind. And a migration that takes one lock after
the other, as its statements come to them, sooner or later deadlocks with a worker, which then is the one to be killed.
"""

from __future__ import annotations

import re
import time

from psycopg import Connection, sql
from psycopg.errors import LockNotAvailable

TABLE = re.compile(r"^create table (\w+) ", re.MULTILINE)

EXCLUSIVE_MS = 500
"""For how long at most anybody waits because we do, for all tables together.

Less than `deadlock_timeout` (1 s): until somebody who waits for us looks for a deadlock, we have given way.
"""
PATIENT_MS = 50
"""For how long we wait for a table while we hold others. Longer, and it is one who waits for what we hold: we let go of
all, and begin with that table. Nobody's order is safe: a worker locks sources and then documents, and whoever inserts
into documents by himself locks that, and then sources."""
SHARED_MS = 3_000
"""For how long we wait for each table where nobody waits behind us, but autovacuum gives way, after
`deadlock_timeout`."""


def table_names(text: str) -> list[str]:
    """Names of the tables that a file makes."""
    return TABLE.findall(text)


def lock_tables(connection: Connection, names: list[str]) -> None:
    """Take exclusive locks in the current transaction; whoever reads or writes finds the change done, or not begun.

    Args:
        names: of tables in the schema that comes first on the search path; those that are not there are left out.

    Raises:
        LockNotAvailable: one, which its note names, was not to be had; roll back, and try again later.
    """
    rows = connection.execute(
        "select format('%%I.%%I', n.nspname, c.relname) from unnest(%s::text[]) with ordinality as t(name, place)"
        " join pg_class c on c.relname = t.name and c.relkind = 'r'"
        " join pg_namespace n on n.oid = c.relnamespace and n.nspname = current_schema() order by t.place",
        (names,),
    ).fetchall()
    for (table,) in rows:
        _lock(connection, table, "share update exclusive", SHARED_MS)
    tables = [row[0] for row in rows]
    until = time.monotonic() + EXCLUSIVE_MS / 1000
    while tables:
        try:
            with connection.transaction():
                for table in tables:
                    left = 1000 * (until - time.monotonic())
                    _lock(connection, table, "access exclusive", left if table == tables[0] else min(left, PATIENT_MS))
        except LockNotAvailable as error:
            busy = error.__notes__[0]
            if busy == tables[0] or time.monotonic() >= until:
                raise
            tables.sort(key=lambda table: table != busy)
        else:
            return


def _lock(connection: Connection, table: str, mode: str, milliseconds: float) -> None:
    connection.execute(sql.SQL("set local lock_timeout = {}").format(max(1, round(milliseconds))))
    try:
        connection.execute(f"lock table {table} in {mode} mode".encode())
    except LockNotAvailable as error:
        error.add_note(table)
        raise
