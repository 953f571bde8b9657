"""Migrations: once, together, as a plain role, in a schema of their own, and by psql alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import psycopg
import pytest
from psycopg import Connection

import sql.migrate as module
from pipelines.database import connect
from pipelines.errors import ConfigurationError
from sql import ledger, locks
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
    without = [migration for migration in ours if migration.name != "013_embedding_budget.sql"]
    newer = module.Migration("998_newer.sql", "select 1")
    monkeypatch.setattr(ledger, "migrations", lambda: [*ours, newer])
    assert migrate(dsn, dimensions=3) == [newer.name]
    monkeypatch.setattr(ledger, "migrations", lambda: ours)
    with pytest.raises(ConfigurationError, match=newer.name):
        migrate(dsn, dimensions=3)
    changed = [*without, newer, module.Migration("013_embedding_budget.sql", "select 1")]
    monkeypatch.setattr(ledger, "migrations", lambda: changed)
    with pytest.raises(ConfigurationError, match="another wording"):
        migrate(dsn, dimensions=3)


def test_a_failing_file_leaves_nothing_of_itself(
    new_database: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = new_database()
    broken = [*migrations(), module.Migration("999_broken.sql", "create table half (); select 1 / 0")]
    monkeypatch.setattr(ledger, "migrations", lambda: broken)
    with pytest.raises(ConfigurationError, match="division by zero"):
        migrate(dsn, dimensions=3)
    with connect(dsn) as connection:
        assert "half" not in tables(connection, "public")
        assert "999_broken.sql" in {migration.name for migration in pending(connection)}


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


# What follows has files of its own, so that it says nothing about ours.

TABLE = module.Migration("001_table.sql", "create table things (id int); insert into things values (1), (2)")
TOLD = """-- Repeatable, revision {revision}: applied again whenever it has changed.
create function told(first int) returns {result}
language sql stable
begin atomic
  select {answer} from things where id = first;
end;

create function all_told() returns {result}
language sql stable
return told(1);
"""


def told(revision: int, *, result: str = "int", answer: str = "id", more: str = "") -> module.Migration:
    text = TOLD.format(revision=revision, result=result, answer=answer)
    return module.Migration("002_told.sql", text + more)


@pytest.fixture
def bring(new_database: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Migrate one database to versions that have these files."""
    dsn = new_database()

    def bring(*version: module.Migration) -> list[str]:
        files = sorted(version, key=lambda migration: (migration.revision is not None, migration.name))
        monkeypatch.setattr(ledger, "migrations", lambda: files)
        return migrate(dsn, dimensions=8)

    bring.dsn = dsn  # type: ignore[attr-defined]
    return bring


@pytest.fixture
def plain(bring: Any) -> Iterator[Connection[Any]]:
    """A connection that knows nothing of Gristmill."""
    with psycopg.connect(bring.dsn, autocommit=True) as connection:
        yield connection


def test_a_changed_function_is_replaced_in_place(
    bring: Callable[..., list[str]], plain: Connection[Any], plain_role: str
) -> None:
    assert bring(TABLE, told(1)) == [TABLE.name, "002_told.sql"]
    plain.execute("create view their_view as select all_told() as answer")
    plain.execute("revoke all on function told(int) from public")
    plain.execute(f"grant execute on function told(int) to {plain_role}".encode())
    seen = "select oid, proacl::text from pg_proc where proname = 'told'"
    before = plain.execute(seen).fetchall()
    assert bring(TABLE, told(1)) == []
    assert bring(TABLE, told(2, answer="id + 10")) == ["002_told.sql"]
    assert plain.execute("select answer, told(2) from their_view").fetchone() == (11, 12)
    assert plain.execute(seen).fetchall() == before
    assert bring(TABLE, told(2, answer="id + 10")) == []


def test_what_cannot_be_replaced_is_made_anew_with_its_grants(
    bring: Callable[..., list[str]], plain: Connection[Any], plain_role: str
) -> None:
    more = "create function extra(a int) returns int language sql return a;"
    bring(TABLE, told(1, more=more))
    plain.execute("revoke all on function told(int) from public")
    plain.execute(f"grant execute on function told(int) to {plain_role} with grant option".encode())
    plain.execute("create function told(theirs text) returns text language sql return theirs")
    assert bring(TABLE, told(2, result="text", answer="'no ' || id")) == ["002_told.sql"]
    assert plain.execute("select all_told(), told('x')").fetchone() == ("no 1", "x")
    acl = plain.execute("select proacl::text from pg_proc where oid = 'told(int)'::regprocedure").fetchone()
    assert acl is not None and f"{plain_role}=X*/" in acl[0] and not acl[0].startswith("{=X")
    assert plain.execute("select to_regproc('extra')").fetchone() == (None,), "no version has it any more"


def test_a_function_that_gets_other_arguments_leaves_no_overload(
    bring: Callable[..., list[str]], plain: Connection[Any]
) -> None:
    bring(TABLE, told(1))
    changed = told(2).text.replace("told(first int)", "told(first int, more int default 0)")
    assert bring(TABLE, module.Migration("002_told.sql", changed)) == ["002_told.sql"]
    found = plain.execute("select oid::regprocedure::text from pg_proc where proname = 'told'").fetchall()
    assert found == [("told(integer,integer)",)]
    assert plain.execute("select all_told()").fetchone() == (1,)


def test_a_view_on_a_function_that_must_go_stops_the_migration(
    bring: Callable[..., list[str]], plain: Connection[Any]
) -> None:
    bring(TABLE, told(1))
    plain.execute("create view their_view as select all_told() as answer")
    with pytest.raises(ConfigurationError, match="their_view") as caught:
        bring(TABLE, told(2, result="text", answer="'no ' || id"))
    assert caught.value.code == "function_in_use"
    assert plain.execute("select answer from their_view").fetchone() == (1,), "nothing has happened"
    plain.execute("drop view their_view")
    assert bring(TABLE, told(2, result="text", answer="'no ' || id")) == ["002_told.sql"]


def test_a_function_of_somebody_else_is_left_alone(bring: Callable[..., list[str]], plain: Connection[Any]) -> None:
    plain.execute("create function told(first int) returns int language sql return 99")
    with pytest.raises(ConfigurationError, match=r"002_told\.sql failed: function"):
        bring(TABLE, told(1))
    assert plain.execute("select told(1)").fetchone() == (99,)


def test_functions_of_a_file_applied_once_can_become_repeatable(
    bring: Callable[..., list[str]], plain: Connection[Any]
) -> None:
    once = module.Migration("001_table.sql", TABLE.text + ";\n" + told(1).text.split("\n", 1)[1])
    bring(once)
    plain.execute("create view their_view as select all_told() as answer")
    assert bring(once, told(1, answer="id + 1")) == ["002_told.sql"]
    assert plain.execute("select answer from their_view").fetchone() == (2,)


def test_an_older_version_lives_with_what_was_made_for_it_and_changes_nothing(
    bring: Callable[..., list[str]], plain: Connection[Any]
) -> None:
    """A machine that starts again in the middle of an upgrade comes back."""
    line = "-- Runs with versions that know 001_table.sql.\n"
    newer = module.Migration("003_newer.sql", line + "alter table things add column more int")
    bring(TABLE, told(1))
    assert bring(TABLE, newer, told(2, answer="id + 1")) == [newer.name, "002_told.sql"]
    assert bring(TABLE, told(1)) == []
    assert plain.execute("select told(1)").fetchone() == (2,), "the newer function stays"
    with connect_plainly(bring) as connection:
        assert (pending(connection), ledger.ahead(connection)) == ([], ["002_told.sql", newer.name])
    last = module.Migration("004_last.sql", "alter table things drop column more")
    assert bring(TABLE, newer, last, told(2, answer="id + 1")) == [last.name]
    for version in ((TABLE, told(1)), (TABLE, newer, told(2, answer="id + 1"))):
        with pytest.raises(ConfigurationError, match=last.name) as caught:
            bring(*version)
        assert caught.value.code == "schema_newer"


def connect_plainly(bring: Any) -> Connection[Any]:
    return psycopg.connect(bring.dsn, autocommit=True)


def test_version_0_1_0_is_shown_only_what_it_cannot_live_with(
    bring: Callable[..., list[str]], plain: Connection[Any]
) -> None:
    beside = module.Migration("015_b.sql", f"-- Runs with versions that know {ledger.FIRST_RELEASE}.\nselect 1")
    later = module.Migration("016_c.sql", "-- Runs with versions that know 015_b.sql.\nselect 1")
    bring(TABLE, told(1), beside)
    seen = "select name from gristmill_migrations order by name"
    assert [row[0] for row in plain.execute(seen)] == [TABLE.name, "002_told.sql"]
    bring(TABLE, told(2), beside, later)
    assert [row[0] for row in plain.execute(seen)] == [TABLE.name, "002_told.sql", later.name]
    digests = plain.execute("select digest from gristmill_migrations where name = '002_told.sql'").fetchall()
    assert digests == [(told(1).digest,)], "it would take another one for a fault"


def test_a_query_under_way_is_not_left_without_its_function(bring: Any, plain: Connection[Any]) -> None:
    bring(TABLE, told(1))
    answers: list[Any] = []

    def ask() -> None:
        with connect_plainly(bring) as reader:
            query = "with waited as materialized (select pg_advisory_lock(7)) select told(1) from waited"
            answers.extend(reader.execute(query).fetchone() or ())

    def found(query: str) -> None:
        deadline = time.monotonic() + 30
        while plain.execute(query.encode()).fetchone() != (True,):
            assert time.monotonic() < deadline, query
            time.sleep(0.01)

    plain.execute("select pg_advisory_lock(7)")
    asking = threading.Thread(target=ask)
    asking.start()
    found("select count(*) > 0 from pg_locks where locktype = 'advisory' and not granted")
    migrating = threading.Thread(target=bring, args=(TABLE, told(2, result="text", answer="'no ' || id")))
    migrating.start()
    found("select count(*) = 2 from pg_proc where proname like 'gristmill_stale_%'")
    assert plain.execute("select told(1)").fetchone() == ("no 1",), "whoever comes now gets the new one"
    plain.execute("select pg_advisory_unlock(7)")
    for thread in (asking, migrating):
        thread.join(30)
    assert answers == [1]
    assert plain.execute("select count(*) from pg_proc where proname like 'gristmill_stale_%'").fetchone() == (0,)


def test_an_index_is_built_while_others_write_and_again_where_it_was_not_finished(
    bring: Callable[..., list[str]], plain: Connection[Any]
) -> None:
    build = module.Migration(
        "003_index.sql",
        "-- Outside a transaction, each statement by itself.\ndrop index concurrently if exists things_id;\n"
        "create unique index concurrently things_id on things (id);\n",
    )
    bring(TABLE)
    plain.execute("insert into things values (1)")
    with pytest.raises(ConfigurationError, match=r"003_index\.sql failed: could not create unique index"):
        bring(TABLE, build)
    left = "select indisvalid from pg_index where indrelid = 'things'::regclass"
    assert plain.execute(left).fetchall() == [(False,)]
    plain.execute("delete from things where ctid = (select max(ctid) from things)")
    with connect_plainly(bring) as writer, writer.transaction():
        writer.execute("insert into things values (3)")
        ours = threading.Thread(target=bring, args=(TABLE, build))
        ours.start()
        for number in range(10, 20):
            plain.execute("insert into things values (%s)", (number,))
    ours.join(30)
    assert plain.execute(left).fetchall() == [(True,)]


def test_whoever_holds_a_lock_is_waited_for_and_nobody_waits_long_behind_us(
    bring: Callable[..., list[str]], plain: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bring(TABLE)
    monkeypatch.setattr(module, "LOCK_PAUSE", 0.1)
    alter = module.Migration("003_alter.sql", "alter table things add column more int")
    begun, waits = threading.Event(), [0.0]

    def read() -> None:
        with psycopg.connect(bring.dsn, autocommit=True) as reader:  # type: ignore[attr-defined]
            while not begun.is_set():
                began = time.monotonic()
                reader.execute("select count(*) from things")
                waits.append(time.monotonic() - began)

    other = threading.Thread(target=read)
    other.start()
    done: list[str] = []
    with plain.transaction():
        plain.execute("select count(*) from things")
        ours = threading.Thread(target=lambda: done.extend(bring(TABLE, alter)))
        ours.start()
        deadline = time.monotonic() + 30
        while sum(wait > 0.3 for wait in waits) < 2:  # it has given way once, and tried again
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert done == []
    ours.join(30)
    begun.set()
    other.join(30)
    assert done == [alter.name]
    # As long as we do. A machine that stands still makes one wait longer, hardly two.
    assert min(wait for wait in waits if wait > 0.3) < 0.5 + 1.0


def test_a_lock_that_is_not_to_be_had_is_an_error_that_names_who_holds_it(
    bring: Callable[..., list[str]], plain: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bring(TABLE)
    monkeypatch.setattr(module, "LOCK_PAUSE", 0.0)
    monkeypatch.setattr(module, "LOCK_TRIES", 2)
    monkeypatch.setattr(locks, "EXCLUSIVE_MS", 20)
    plain.execute("set application_name to 'nightly report'")
    with plain.transaction():
        plain.execute("select count(*) from things")
        with pytest.raises(ConfigurationError, match="nightly report, process") as caught:
            bring(TABLE, module.Migration("003_alter.sql", "alter table things add column more int"))
    assert caught.value.code == "migration_locked"
    assert f"pg_terminate_backend({plain.info.backend_pid})" in caught.value.remedy


def test_a_temporary_table_is_not_taken_for_ours(database: Connection[Any]) -> None:
    database.execute("insert into documents (content) values ('ours E-4012')")
    database.execute("create temporary table documents (like public.documents)")
    rows = database.execute("select content from public.search_documents('E-4012')").fetchall()
    assert rows == [("ours E-4012",)]
