"""What a schema is made of: the files of this version, those that were applied to it, and what follows from both.

Two tables keep it. `gristmill_schema_files` has a row for every file applied. `gristmill_migrations` is all that
version 0.1.0 knows: it refuses to start on a schema with a row that it does not know, or with a digest other than its
own. So what it can live with is not entered there, and the digests that it left there stay.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files

from psycopg import Connection

from pipelines.errors import ConfigurationError

FILE_NAME = re.compile(r"^\d{3}_\w+\.sql$")
REPEATABLE = re.compile(r"\A-- Repeatable, revision (\d+): applied again whenever it has changed\.$", re.MULTILINE)
"""First line of a file of functions. A release that changes it raises the revision: that, not the digest, tells an
older version that the one in the database is newer than its own."""
RUNS_WITH = re.compile(r"\A-- Runs with versions that know (\d{3}_\w+\.sql)\.$", re.MULTILINE)
"""First line of a file that older versions can live with, and the newest file that they must know for that."""
OUTSIDE = re.compile(r"^-- Outside a transaction, each statement by itself\.$", re.MULTILINE)
"""A line of a file that builds indexes concurrently or validates constraints. It is run again from its beginning if it
was not run to its end, so it begins by dropping what it builds."""
FIRST_RELEASE = "013_embedding_budget.sql"
"""The newest file of version 0.1.0, which knows nothing of all this."""

TABLES = {
    "gristmill_migrations": """
create table gristmill_migrations (
  name        text primary key,
  digest      text not null,
  applied_at  timestamptz not null default now()
)""",
    "gristmill_schema_files": """
create table gristmill_schema_files (
  name        text primary key,
  digest      text not null,
  revision    int,
  needs       text not null,
  functions   text[],
  applied_at  timestamptz not null default now()
);
comment on table gristmill_schema_files is 'Files of sql/ that this schema is made of';
comment on column gristmill_schema_files.revision is 'Of a file that is applied again whenever it has changed';
comment on column gristmill_schema_files.needs is 'Versions that know this file or a later one can run on it';
comment on column gristmill_schema_files.functions is
  'Made by a file with a revision; null: version 0.1.0 made them';
insert into gristmill_schema_files (name, digest, needs, applied_at)
  select name, digest, name, applied_at from gristmill_migrations""",
}


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered SQL file: its name, its text, and the SHA-256 it is recognised by."""

    name: str
    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def revision(self) -> int | None:
        """Of a file that is applied again whenever it has changed, else null."""
        match = REPEATABLE.match(self.text)
        return int(match[1]) if match else None

    @property
    def outside(self) -> bool:
        """Whether it is applied outside a transaction."""
        return OUTSIDE.search(self.text) is not None

    @property
    def needs(self) -> str:
        """The newest file that a version has to know to run on a schema that has this one.

        Functions alone keep nobody out: what they leave out that older versions call belongs into a file applied once.
        """
        if self.revision is not None:
            return ""
        match = RUNS_WITH.match(self.text)
        return match[1] if match else self.name


@dataclass(frozen=True, slots=True)
class Applied:
    """One file as it was applied to a schema; `functions` are the signatures it made, where that was recorded."""

    digest: str
    revision: int | None
    needs: str
    functions: list[str] | None


def migrations() -> list[Migration]:
    """All SQL files that come with this version, in the order in which they are applied."""
    found = (entry for entry in files("sql").iterdir() if FILE_NAME.match(entry.name))
    read = (Migration(entry.name, entry.read_text("utf-8")) for entry in found)
    return sorted(read, key=lambda migration: (migration.revision is not None, migration.name))


def applied(connection: Connection) -> dict[str, Applied]:
    """Every file already applied to the schema that comes first on the search path, by its name."""
    found: dict[str, Applied] = {}
    if _is_there(connection, "gristmill_migrations"):
        for name, digest in connection.execute("select name, digest from gristmill_migrations").fetchall():
            found[name] = Applied(digest, None, name, None)
    if _is_there(connection, "gristmill_schema_files"):
        query = "select name, digest, revision, needs, functions from gristmill_schema_files"
        for name, *rest in connection.execute(query).fetchall():
            found[name] = Applied(*rest)
    return found


def pending(connection: Connection) -> list[Migration]:
    """Files of this version that the schema lacks, or has in an older wording, in the order to apply them.

    A schema that a newer version made is left as it is, if that version said that this one can live with it.

    Raises:
        ConfigurationError: an applied file differs from ours, or the schema is too new for this version.
    """
    done = applied(connection)
    ours = migrations()
    known = {migration.name for migration in ours}
    newest = max(known, default="")
    for name in sorted(done.keys() - known):
        if done[name].needs > newest:
            raise ConfigurationError(
                "schema_newer", f"the database has {name}, which this version does not know", "upgrade gristmill"
            )
    found = []
    for migration in ours:
        there = done.get(migration.name)
        if there is None:
            found.append(migration)
        elif there.digest == migration.digest:
            continue
        elif migration.revision is None:
            raise ConfigurationError(
                "schema_differs",
                f"{migration.name} was applied in another wording than this version has",
                "use the version of gristmill that made the schema, or a new schema (GRISTMILL_SCHEMA_NAME)",
            )
        elif (there.revision or 1) <= migration.revision:
            found.append(migration)
    return found


def ahead(connection: Connection) -> list[str]:
    """Files in which the schema is newer than this version: unknown here, or there in a later revision."""
    revisions = {migration.name: migration.revision for migration in migrations()}
    return sorted(
        name
        for name, there in applied(connection).items()
        if name not in revisions or (there.revision or 1) > (revisions[name] or 1)
    )


def open_ledger(connection: Connection) -> None:
    """Make the tables that keep all this, in the schema that comes first on the search path."""
    for name, definition in TABLES.items():
        if not _is_there(connection, name):
            connection.execute(definition)


def record(connection: Connection, migration: Migration, functions: list[str] | None) -> None:
    """Note that a file has been applied, in the transaction that did it."""
    connection.execute(
        "insert into gristmill_schema_files (name, digest, revision, needs, functions) values (%s, %s, %s, %s, %s)"
        " on conflict (name) do update set digest = excluded.digest, revision = excluded.revision,"
        " needs = excluded.needs, functions = excluded.functions, applied_at = now()",
        (migration.name, migration.digest, migration.revision, migration.needs, functions),
    )
    if migration.name <= FIRST_RELEASE or migration.needs > FIRST_RELEASE:
        connection.execute(
            "insert into gristmill_migrations (name, digest) values (%s, %s) on conflict do nothing",
            (migration.name, migration.digest),
        )


def _is_there(connection: Connection, table: str) -> bool:
    row = connection.execute("select to_regclass(format('%%I.%%I', current_schema(), %s::text))", (table,)).fetchone()
    return row is not None and row[0] is not None
