"""Migrations: once, together, as a plain role, in a schema of their own, and by psql alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import psycopg
import pytest
from psycopg import Connection

import sql.migrate as module
from pipelines.database import connect
from pipelines.errors import ConfigurationError
from sql.migrate import migrate, migrations, pending
from worker.embedded import Services


def tables(connection: Connection[Any], schema: str) -> set[str]:
    rows = connection.execute("select tablename from pg_tables where schemaname = %s", (schema,)).fetchall()
    return {row[0] for row in rows}


@pytest.fixture
def plain_role(services: Services) -> str:
    """A role without any right."""
    with psycopg.connect(services.database_url, autocommit=True) as admin:
        exists = admin.execute("select from pg_roles where rolname = 'plain'").fetchone()
        if exists is None:
            admin.execute("create role plain")
    return "plain"


def test_every_file_is_applied_once(new_database: Callable[..., str]) -> None:
    dsn = new_database()
    names = [migration.name for migration in migrations()]
    assert migrate(dsn, dimensions=8) == names
    assert migrate(dsn, dimensions=8) == []
    with connect(dsn) as connection:
        assert pending(connection) == []
        assert {"documents", "sources", "embedding_cache"} <= tables(connection, "public")


def test_two_at_once_take_turns(new_database: Callable[..., str]) -> None:
    dsn = new_database()
    results: list[list[str]] = []
    threads = [threading.Thread(target=lambda: results.append(migrate(dsn, dimensions=8))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(map(len, results)) == [0, 0, 0, len(migrations())]


def test_as_a_plain_role_in_its_own_schema_with_extensions_elsewhere(
    new_database: Callable[..., str], plain_role: str
) -> None:
    dsn = new_database()
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("create schema extensions")
        admin.execute("create extension vector schema extensions")
        admin.execute("create extension unaccent schema extensions")
        admin.execute("create schema kb authorization plain")
        admin.execute("grant usage on schema extensions to plain")
    dsn = acting_as(dsn, plain_role)
    migrate(dsn, schema="kb", dimensions=3)
    with connect(dsn, schema="kb") as connection:
        assert connection.execute("select current_user").fetchone() == ("plain",)
        connection.execute(
            "insert into documents (content, embedding) values ('Error E-4012: bloqué', '[1,0,0]'), ('x', '[0,1,0]')"
        )
        rows = connection.execute("select content from hybrid_search('what is E4012?', '[0,1,0]', 20)").fetchall()
        assert [row[0] for row in rows] == ["Error E-4012: bloqué", "x"]
        assert tables(connection, "public") == set()
    with psycopg.connect(dsn, autocommit=True) as connection:
        # PostgREST and n8n may come with any search path: functions find their tables all the same.
        connection.execute("set search_path to pg_catalog")
        rows = connection.execute("select content from kb.hybrid_search('E-4012', '[1,0,0]', 1)").fetchall()
        assert [row[0] for row in rows] == ["Error E-4012: bloqué"]
        connection.execute("insert into kb.documents (content, embedding) values ('y E-77', '[0,0,1]')")


def acting_as(dsn: str, role: str) -> str:
    """A DSN whose sessions have that role's rights and no more."""
    return f"{dsn}&options=-c%20role%3D{role}"


def test_without_the_right_the_error_says_what_the_owner_must_do(
    new_database: Callable[..., str], plain_role: str
) -> None:
    dsn = new_database()
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(f"grant create on schema public to {plain_role}")
    dsn = acting_as(dsn, plain_role)
    with pytest.raises(ConfigurationError) as caught:
        migrate(dsn, dimensions=3)
    assert caught.value.code == "migration_refused"
    assert "create extension vector" in caught.value.remedy


def test_somebody_elses_documents_table_is_left_alone(new_database: Callable[..., str]) -> None:
    dsn = new_database()
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("create table documents (id bigserial primary key, content text)")
        admin.execute("insert into documents (content) values ('theirs')")
    with pytest.raises(ConfigurationError) as caught:
        migrate(dsn, dimensions=3)
    assert (caught.value.code, "GRISTMILL_SCHEMA_NAME" in caught.value.remedy) == ("table_taken", True)
    assert migrate(dsn, schema="gristmill", dimensions=3)
    with psycopg.connect(dsn) as admin:
        assert admin.execute("select content from public.documents").fetchall() == [("theirs",)]


def test_a_newer_or_different_schema_is_refused(
    new_database: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = new_database()
    migrate(dsn, dimensions=3)
    ours = migrations()
    monkeypatch.setattr(module, "migrations", lambda: ours[:-1])
    with pytest.raises(ConfigurationError, match=ours[-1].name):
        migrate(dsn, dimensions=3)
    changed = [*ours[:-1], module.Migration(ours[-1].name, "select 1")]
    monkeypatch.setattr(module, "migrations", lambda: changed)
    with pytest.raises(ConfigurationError, match="another wording"):
        migrate(dsn, dimensions=3)


def test_a_failing_file_leaves_nothing_of_itself(
    new_database: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = new_database()
    broken = [*migrations(), module.Migration("999_broken.sql", "create table half (); select 1 / 0")]
    monkeypatch.setattr(module, "migrations", lambda: broken)
    with pytest.raises(ConfigurationError, match="division by zero"):
        migrate(dsn, dimensions=3)
    with connect(dsn) as connection:
        assert "half" not in tables(connection, "public")
        assert [migration.name for migration in pending(connection)] == ["999_broken.sql"]


def test_no_column_stops_pg_upgrade(database: Connection[Any]) -> None:
    """pg_upgrade refuses a cluster in which a table holds one of these types."""
    rows = database.execute(
        "select c.relname, a.attname from pg_attribute a join pg_class c on c.oid = a.attrelid"
        " join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'public' and c.relkind in ('r', 'm')"
        " and a.atttypid::regtype::text in ('regconfig', 'regdictionary', 'regproc', 'regprocedure', 'regoper',"
        " 'regoperator', 'regnamespace', 'regcollation')"
    ).fetchall()
    assert rows == []


def test_everything_has_a_comment(database: Connection[Any]) -> None:
    rows = database.execute(
        "select c.relname from pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind = 'r'"
        " and c.relname <> 'gristmill_migrations' and obj_description(c.oid, 'pg_class') is null"
        " union all select p.proname from pg_proc p where p.pronamespace = 'public'::regnamespace"
        " and obj_description(p.oid, 'pg_proc') is null"
        " and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')"
    ).fetchall()
    assert rows == []


def test_one_overload_a_function(database: Connection[Any]) -> None:
    """PostgREST cannot choose between overloads, and '[…]' literals become ambiguous."""
    rows = database.execute(
        "select p.proname from pg_proc p where p.pronamespace = 'public'::regnamespace"
        " and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')"
        " group by p.proname having count(*) > 1"
    ).fetchall()
    assert rows == []


def test_the_files_use_no_variable_that_psql_would_not_get() -> None:
    for entry in files("sql").iterdir():
        if entry.name.endswith(".sql"):
            found = {m["quoted"] or m["bare"] for m in module.VARIABLE.finditer(entry.read_text("utf-8"))}
            assert found <= {"dimensions", "language"}, entry.name
