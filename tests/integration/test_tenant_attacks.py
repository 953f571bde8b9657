"""What a tenant with SQL of its own, and a schema to create in, may try to see of the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from tests.fakes.tenant_house import OWNER, TENANTS, TenantHouse, canary
from worker.embedded import Services

VECTOR = "[1,0.5,0.2,0.1,0,0,0.3,0.4]"
LOOT = f"select content from public.search_documents('pump {canary('beta')}', '{VECTOR}', 100)"
FORBIDDEN = psycopg.errors.InsufficientPrivilege


@pytest.fixture(scope="module")
def template(services: Services) -> Iterator[TenantHouse]:
    house = TenantHouse(services.database_url, "tenant_attacked_template")
    house.create()
    house.furnish()
    with house.open("postgres") as admin:
        admin.execute("create schema evil authorization th_acme")
    yield house
    house.drop()


@pytest.fixture
def house(services: Services, template: TenantHouse) -> Iterator[TenantHouse]:
    made = TenantHouse(services.database_url, "tenant_attacked")
    made.create(template.name)
    yield made
    made.drop()


@pytest.fixture
def acme(house: TenantHouse) -> Iterator[Connection[Any]]:
    """The attacker: reads for `acme`, and owns the schema `evil`."""
    with psycopg.connect(house.dsn("th_acme"), autocommit=True) as connection:
        yield connection


def whose(rows: object) -> set[str]:
    return {tenant for tenant in TENANTS if canary(tenant) in str(rows)}


def fetched(connection: Connection[Any], query: str) -> set[str]:
    return whose(connection.execute(query.encode()).fetchall())


def test_a_materialized_view_that_a_superuser_refreshes(acme: Connection[Any], house: TenantHouse) -> None:
    acme.execute(f"create materialized view evil.loot as {LOOT}".encode())
    with house.open("postgres") as admin:
        assert fetched(admin, LOOT) == set(TENANTS)
        admin.execute("refresh materialized view evil.loot")
    assert fetched(acme, "select * from evil.loot") == {"acme"}


def test_an_index_expression_that_autovacuum_or_a_superuser_evaluates(
    acme: Connection[Any], house: TenantHouse
) -> None:
    acme.execute("create table evil.got (content text)")
    acme.execute(
        "create function evil.spy() returns int language plpgsql as $$ begin"
        f" insert into evil.got {LOOT}; return 1; end $$".encode()
    )
    acme.execute(
        "create function evil.innocent(int) returns int immutable language plpgsql"
        " as $$ begin return evil.spy(); end $$"
    )
    acme.execute("create table evil.bait as select n from generate_series(1, 3) n")
    acme.execute("create index bait_index on evil.bait (evil.innocent(n))")
    acme.execute("truncate evil.got")
    with house.open("postgres") as admin:
        admin.execute("analyze evil.bait")
        assert fetched(acme, "select * from evil.got") == {"acme"}
        admin.execute("truncate evil.got")
        admin.execute("reindex index evil.bait_index")
    assert fetched(acme, "select * from evil.got") == {"acme"}


def test_functions_that_run_as_their_owner(acme: Connection[Any], house: TenantHouse) -> None:
    create = "create function {}.wrapped() returns setof text language sql security definer as $$ {} $$"
    acme.execute(create.format("evil", LOOT).encode())
    acme.execute("grant usage on schema evil to public")
    with house.open("postgres") as admin:
        admin.execute(create.format("public", LOOT).encode())
        admin.execute(f"alter function public.wrapped() owner to {OWNER}".encode())
        assert fetched(admin, "select evil.wrapped()") == {"acme"}
        assert fetched(admin, "select public.wrapped()") == set(TENANTS)
    assert fetched(acme, "select public.wrapped()") == {"acme"}
    with house.open("th_beta") as beta:
        assert fetched(beta, "select public.wrapped()") == {"beta"}
        with pytest.raises(FORBIDDEN):
            beta.execute("select evil.wrapped()")


def test_views_show_of_a_search_what_their_reader_may_see(acme: Connection[Any], house: TenantHouse) -> None:
    acme.execute(f"create view evil.searched as {LOOT}".encode())
    acme.execute("create view evil.tabled as select * from public.documents")
    acme.execute("grant usage on schema evil to th_beta; grant select on evil.searched, evil.tabled to th_beta")
    assert fetched(acme, "table evil.searched") == fetched(acme, "table evil.tabled") == {"acme"}
    with house.open("th_beta") as beta:
        assert fetched(beta, "table evil.searched") == {"beta"}
        assert fetched(beta, "table evil.tabled") == {"acme"}, "a table is read as the view's owner, who gave it away"


def test_a_pass_of_another_tenant_opens_nothing(acme: Connection[Any], house: TenantHouse) -> None:
    with house.open() as owner:
        passes = dict(
            owner.execute("select role::text, pass from tenant_roles where role::text <> 'th_both'").fetchall()
        )
    assert acme.execute("select pass from public.caller_passes").fetchall() == [(passes["th_acme"],)]
    for role in ("th_beta", OWNER, "th_worker"):
        call = "select content from search_documents('pump', pass => %s)"
        try:
            rows = acme.execute(call, ([passes[role]],)).fetchall()
        except FORBIDDEN:
            assert role == "th_beta"
        else:
            assert whose(rows) == {"acme"}
    for table in ("tenant_roles", "lexeme_statistics"):
        with pytest.raises(FORBIDDEN):
            acme.execute(f"select * from {table}".encode())


def test_whatever_runs_as_the_owner_finds_temporary_objects_last(house: TenantHouse) -> None:
    """Or a temporary table, or a type with a check of the attacker's, would take the place of one of ours."""
    with house.open() as owner:
        rows = owner.execute(
            "select proname::text, prosecdef, proconfig::text, prosqlbody is not null from pg_proc p"
            " where pronamespace = 'public'::regnamespace"
            " and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')"
        ).fetchall()
        path = owner.execute("show search_path").fetchone()
    assert path == ("public, pg_temp",)
    assert {row[0] for row in rows if row[1]} == {"search_documents"}, (
        "a function that runs as its owner is to be examined"
    )
    late = {row[0] for row in rows if not row[3]}  # what they name is looked up when they run
    settled = {row[0] for row in rows if "search_path=public, pg_temp" in (row[2] or "")}
    assert late - settled == {"identifier_key"}, "set search_path from current; this one calls only what is built in"


def test_temporary_objects_named_like_ours_are_not_used(acme: Connection[Any], house: TenantHouse) -> None:
    before = acme.execute(LOOT.encode()).fetchall()
    acme.execute(
        "create function pg_temp.spy(anyelement) returns boolean language plpgsql as $$ begin raise 'robbed'; end $$"
    )
    for name in ("text", "jsonb", "bigint", "float8", "tsquery", "tsvector", "regclass", "name", "int4", "text_"):
        acme.execute(f"create domain pg_temp.{name} as pg_catalog.varchar check (pg_temp.spy(value))".encode())
    for name in ("documents", "sources", "index_statistics", "lexeme_statistics", "tenant_roles", "caller_passes"):
        acme.execute(f"create temporary table {name} as select 'beta'::pg_catalog.varchar as tenant".encode())
    with psycopg.connect(house.dsn("th_acme"), autocommit=True) as fresh:
        assert fresh.execute(LOOT.encode()).fetchall() == before
    acme.execute("discard plans")
    assert acme.execute(LOOT.encode()).fetchall() == before
    with pytest.raises(psycopg.errors.RaiseException, match="robbed"):
        acme.execute("select 'x'::pg_temp.text")


def test_functions_and_operators_of_the_readers_schema_are_not_used(acme: Connection[Any]) -> None:
    before = acme.execute(LOOT.encode()).fetchall()
    vector = "(public.vector, public.vector)"
    acme.execute(
        f"create function evil.distance{vector} returns float8 language plpgsql"
        " as $$ begin raise 'robbed'; end $$".encode()
    )
    acme.execute(
        "create operator evil.<=> (leftarg = public.vector, rightarg = public.vector, function = evil.distance)"
    )
    for arguments in ("identifiers(text, boolean)", "caller_role()", "caller_pass()", "visible_tenants(text, uuid[])",
                      "ts_headline(regconfig, text, tsquery, text)", "pg_has_role(name, regrole, text)", "ln(numeric)",
                      "question_lexemes(text, text[], text[])", "current_setting(text)", "lower(text)"):  # fmt: skip
        body = "language plpgsql as $$ begin raise 'robbed'; end $$"
        acme.execute(f"create function evil.{arguments} returns text {body}".encode())
    acme.execute("grant usage on schema evil to public")  # or the owner would not look into it at all
    acme.execute("set search_path = evil, public, pg_catalog")
    query = LOOT.replace("public.", "")
    assert acme.execute(query.encode()).fetchall() == before
    assert fetched(acme, f"select * from hybrid_search('pump', '{VECTOR}')") == {"acme"}
    with pytest.raises(psycopg.errors.RaiseException, match="robbed"):
        acme.execute("select caller_role()")


def test_functions_in_a_condition_see_no_other_rows(acme: Connection[Any], house: TenantHouse) -> None:
    seen: list[str] = []
    acme.add_notice_handler(lambda notice: seen.append(notice.message_primary or ""))
    acme.execute(
        "create function evil.tell(text) returns boolean cost 0.0000001 language plpgsql"
        " as $$ begin raise notice '%', $1; return true; end $$"
    )
    assert acme.execute("select count(*) from documents where evil.tell(content)").fetchone() == (30,)
    acme.execute("select * from documents d join sources s on evil.tell(d.content || s.uri)")
    acme.execute(f"select * from match_documents('{VECTOR}') where evil.tell(content)".encode())
    assert len(seen) > 60
    assert whose(seen) == {"acme"}
    with (
        psycopg.connect(house.dsn("th_beta"), autocommit=True) as beta,
        pytest.raises(psycopg.errors.InvalidTextRepresentation) as caught,
    ):
        beta.execute("select * from documents where content::int = 1")
    assert whose(caught.value) == {"beta"}


SETTINGS = (
    "row_security = off",
    "enable_indexscan = off",
    "enable_sort = off",
    "enable_bitmapscan = off",
    "hnsw.max_scan_tuples = 1",
    "hnsw.scan_mem_multiplier = 1000",
    "hnsw.iterative_scan = off",
    "hnsw.ef_search = 1",
    "plan_cache_mode = force_generic_plan",
    "debug_parallel_query = on",
    "default_transaction_isolation = serializable",
)


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_open_nothing(template: TenantHouse, setting: str) -> None:
    with psycopg.connect(template.dsn("th_acme"), autocommit=True) as acme:
        acme.execute("set hnsw.iterative_scan = strict_order")
        acme.execute(f"set {setting}".encode())
        for query in (LOOT, "select * from documents", f"select * from match_documents('{VECTOR}')"):
            try:
                assert fetched(acme, query) == {"acme"}
            except FORBIDDEN as error:
                assert "row_security" in setting, error  # it asks for an error in place of fewer rows


def test_what_the_server_tells_of_other_rows(template: TenantHouse) -> None:
    """Contents never; sizes and numbers of rows it does, see docs/tenants.md."""
    with (
        psycopg.connect(template.dsn("th_acme"), autocommit=True) as acme,
        psycopg.connect(template.dsn("th_beta"), autocommit=True) as beta,
    ):
        with template.open("postgres") as admin:
            admin.execute("analyze documents")
            found = admin.execute("select count(*) from pg_stats where tablename = 'documents'").fetchone()
            assert found is not None and found[0] > 5
        assert acme.execute("select count(*) from pg_stats where tablename = 'documents'").fetchone() == (0,)
        beta.execute("select 'a question of beta'")
        activity = "select query from pg_stat_activity where usename = 'th_beta' and datname = current_database()"
        assert acme.execute(activity).fetchall() == [("<insufficient privilege>",)]
        with acme.cursor() as cursor, cursor.copy("copy documents to stdout") as out:
            assert whose(b"".join(out).decode()) == {"acme"}
        with acme.cursor() as cursor, cursor.copy(f"copy ({LOOT}) to stdout".encode()) as out:
            assert whose(b"".join(out).decode()) == {"acme"}
        for statement in (
            "copy documents to program 'cat'",
            "copy documents to '/tmp/x'",
            "select pg_read_file('postgresql.conf')",
            "select lo_import('/etc/passwd')",
            "select nextval(pg_get_serial_sequence('documents', 'id'))",
            "select last_value from documents_id_seq",
            "load 'auto_explain'",
            "create trigger spy before insert on documents execute function suppress_redundant_updates_trigger()",
            "do $$ begin lock table documents in share mode; end $$",
            "create table evil.of (id bigint references public.documents (id))",
        ):
            with pytest.raises(FORBIDDEN):
                acme.execute(statement.encode())


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("search_documents('pump', '[1,2]')", psycopg.errors.DataException),
        ("search_documents('pump', query_language => 'evil.words')", None),
        ("search_documents('pump', query_language => 'pg_temp.words')", psycopg.errors.UndefinedObject),
        ("search_documents('pump', query_language => ''' or true --')", psycopg.Error),
        ("search_documents('pump', mode => 'all')", psycopg.errors.InvalidParameterValue),
        ("search_documents('pump', neighbours => 2147483647)", psycopg.Error),
        ("search_documents('pump', neighbours => 100000)", None),
        ("search_documents('pump', match_count => -1)", psycopg.Error),
        ("search_documents('pump', pool => 2147483647)", None),
        ("search_documents('pump', alpha => 'nan', rrf_k => -1)", None),
        ("search_documents('pump', tenant => 'acme'' or true --')", FORBIDDEN),
        ("search_documents('pump', pass => null)", FORBIDDEN),
        ("match_documents('[1,2]')", psycopg.errors.DataException),
    ],
)
def test_odd_arguments_tell_nothing(acme: Connection[Any], call: str, error: type[psycopg.Error] | None) -> None:
    acme.execute("create text search configuration evil.words (copy = simple)")
    acme.execute("grant usage on schema evil to public")
    if error is None:
        assert fetched(acme, f"select * from public.{call}") <= {"acme"}
    else:
        with pytest.raises(error) as caught:
            acme.execute(f"select * from public.{call}".encode())
        assert whose(caught.value) == set()
