"""pg_dump and pg_restore by a role that owns the schema and is no superuser, with row level security on every table."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pipelines.database import connect
from sql.migrate import migrate
from worker.embedded.binaries import programs
from worker.embedded.places import account_of

DIMENSIONS = 8
OWNED = "select count(*) from pg_class where relnamespace = 'gristmill'::regnamespace and relkind = 'r'"


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(programs(account_of(os.geteuid())) / program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def prepared(new_database: Callable[..., str]) -> Callable[[], tuple[str, str]]:
    """Make a database as its owner prepares it for Gristmill's role; its DSN as the owner and as that role."""

    def make() -> tuple[str, str]:
        dsn = new_database()
        with psycopg.connect(dsn, autocommit=True) as admin:
            if admin.execute("select from pg_roles where rolname = 'keeper'").fetchone() is None:
                admin.execute("create role keeper")
            admin.execute("create schema extensions")
            admin.execute("create extension vector schema extensions")
            admin.execute("create extension unaccent schema extensions")
            admin.execute("grant usage on schema extensions to keeper")
            admin.execute("create schema gristmill authorization keeper")
        return dsn, f"{dsn}&options=-c%20role%3Dkeeper"

    return make


def test_the_role_that_owns_the_schema_backs_it_up_and_restores_it(
    prepared: Callable[[], tuple[str, str]], tmp_path: Path
) -> None:
    _, keeper = prepared()
    migrate(keeper, schema="gristmill", dimensions=DIMENSIONS)
    with connect(keeper, schema="gristmill") as connection:
        connection.execute("insert into sources (tenant, uri) values ('acme', 'crm:1'), ('default', 'crm:2')")
        connection.execute("insert into documents (content, tenant) values ('a passage about E-4012', 'acme')")
        passage = connection.execute("select content, fts::text, bm25::text from documents").fetchone()
        assert passage is not None and "e4012" in passage[1]
        tables = connection.execute(OWNED).fetchone()
        forced = connection.execute(f"{OWNED} and relrowsecurity and relforcerowsecurity").fetchone()
        salt = connection.execute("select salt from erasure_salt").fetchone()
    assert tables == forced, "otherwise this shows nothing"

    file = str(tmp_path / "gristmill.dump")
    wanted = ("--format=custom", "--schema=gristmill", f"--file={file}")
    refused = run("pg_dump", *wanted, keeper)
    assert refused.returncode == 1 and "row-level security" in refused.stderr
    done = run("pg_dump", *wanted, "--enable-row-security", keeper)
    assert done.returncode == 0, done.stderr

    owner, keeper = prepared()
    with psycopg.connect(owner, autocommit=True) as admin:
        admin.execute("drop schema gristmill")
        admin.execute(f"grant create on database {admin.info.dbname} to keeper".encode())
    done = run("pg_restore", "--exit-on-error", "--single-transaction", f"--dbname={keeper}", file)
    assert done.returncode == 0, done.stderr
    with connect(keeper, schema="gristmill") as connection:
        assert connection.execute("select tenant, uri from sources order by uri").fetchall() == [
            ("acme", "crm:1"),
            ("default", "crm:2"),
        ]
        assert connection.execute("select content, fts::text, bm25::text from documents").fetchone() == passage
        assert connection.execute("select salt from erasure_salt").fetchone() == salt
        assert connection.execute(OWNED).fetchone() == tables
        assert connection.execute(f"{OWNED} and relrowsecurity and relforcerowsecurity").fetchone() == tables
        assert (
            connection.execute("select count(*) from pg_policies where schemaname = 'gristmill'").fetchone() == tables
        )
    assert migrate(keeper, schema="gristmill", dimensions=DIMENSIONS) == []


def test_rows_alone_are_restored_by_a_role_that_is_above_row_level_security_only(
    prepared: Callable[[], tuple[str, str]], tmp_path: Path
) -> None:
    dsn, keeper = prepared()
    migrate(keeper, schema="gristmill", dimensions=DIMENSIONS)
    with connect(keeper, schema="gristmill") as connection:
        connection.execute("insert into sources (uri) values ('crm:1')")
    file = str(tmp_path / "gristmill.dump")
    rows = ("--data-only", "--table=gristmill.sources")
    assert run("pg_dump", "--format=custom", *rows, f"--file={file}", dsn).returncode == 0
    with connect(keeper, schema="gristmill") as connection:
        connection.execute("delete from sources")
    refused = run("pg_restore", "--data-only", "--enable-row-security", f"--dbname={keeper}", file)
    assert refused.returncode == 1 and "COPY FROM not supported with row-level security" in refused.stderr
    done = run("pg_restore", "--data-only", f"--dbname={dsn}", file)
    assert done.returncode == 0, done.stderr
    with connect(keeper, schema="gristmill") as connection:
        assert connection.execute("select uri from sources").fetchall() == [("crm:1",)]
