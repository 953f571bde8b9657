"""Tenants in one database: what each role sees, what it may do, and that nobody's answers depend on a neighbour."""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection, sql
from psycopg.types.json import Jsonb

from sql.migrate import migrate
from tests.fakes.tenant_house import (
    AUTHENTICATOR,
    MEMBER,
    OWNER,
    READERS,
    STRANGER,
    TENANTS,
    WORDS,
    WORKER,
    TenantHouse,
    canary,
    fill,
)
from tests.integration.test_ledger import chunks, claimed, outcome
from worker.embedded import Services
from worker.embedded.binaries import programs
from worker.embedded.places import account_of
from worker.erase import Eraser, finish
from worker.ledger import Ledger
from worker.settings import Settings

VECTOR = "[1,0.5,0.2,0.1,0,0,0.3,0.4]"
FORBIDDEN = psycopg.errors.InsufficientPrivilege

Open = Callable[..., Connection[Any]]


@pytest.fixture(scope="module")
def template(services: Services) -> Iterator[TenantHouse]:
    """Furnished once; every test gets a copy or only reads it."""
    house = TenantHouse(services.database_url, "tenant_template")
    house.create()
    house.furnish()
    yield house
    house.drop()


@pytest.fixture
def house(services: Services, template: TenantHouse) -> Iterator[TenantHouse]:
    made = TenantHouse(services.database_url, "tenant_house")
    made.create(template.name)
    yield made
    made.drop()


@pytest.fixture
def as_role(template: TenantHouse) -> Iterator[Open]:
    """Opens connections to the template, for tests that change nothing."""
    opened: list[Connection[Any]] = []

    def open_as(role: str) -> Connection[Any]:
        opened.append(psycopg.connect(template.dsn(role), autocommit=True))
        return opened[-1]

    yield open_as
    for connection in opened:
        connection.close()


def tenants_seen(connection: Connection[Any], query: str, *values: Any) -> set[str]:
    """Whose canaries stand in what a query answers."""
    said = str(connection.execute(query.encode(), values or None).fetchall())
    return {tenant for tenant in TENANTS if canary(tenant) in said}


SEARCH = f"select * from search_documents('pump canary {canary('beta')} E-4003', '{VECTOR}', 100, highlight => true"
READS = {
    "table": "select * from documents",
    "sources": "select * from sources",
    "joined": "select * from documents d join sources s on s.id = d.source_id",
    "hybrid": SEARCH + ")",
    "keyword": SEARCH + ", mode => 'keyword')",
    "vector": SEARCH + ", mode => 'vector')",
    "by rank": SEARCH + ", rrf_k => 20)",
    "neighbours": SEARCH + ", neighbours => 3)",
    "filter": SEARCH + ", filter => '{\"group\": 1}')",
    "language": SEARCH + ", language => 'french')",
    "since": SEARCH + ", since => '2026-11-03', until => '2026-11-20')",
    "sources of all": SEARCH + ", sources => (select array_agg(n) from generate_series(0, 3000) n))",
    "hybrid_search": f"select * from hybrid_search('pump {canary('beta')}', '{VECTOR}', 100)",
    "match_documents": f"select * from match_documents('{VECTOR}')",
    "match_documents_hybrid": f"select * from match_documents_hybrid('{VECTOR}', 100, '{{\"query_text\": \"pump\"}}')",
    "with_neighbours": "select * from with_neighbours((select array_agg(n) from generate_series(0, 3000) n), 1)",
}


@pytest.mark.parametrize("read", READS)
def test_a_reader_sees_its_tenant_and_no_other(as_role: Open, read: str) -> None:
    assert tenants_seen(as_role("th_acme"), READS[read]) == {"acme"}
    assert tenants_seen(as_role("th_both"), READS[read]) == {"acme", "beta"}
    if read != "with_neighbours":  # of which the owner's windows touch
        assert tenants_seen(as_role(WORKER), READS[read]) == set(TENANTS)


def test_every_table_has_forced_row_level_security_with_the_owner_let_in(as_role: Open) -> None:
    rows = (
        as_role(OWNER)
        .execute(
            "select relname, relrowsecurity and relforcerowsecurity, exists (select from pg_policy p"
            " where p.polrelid = c.oid and p.polname = 'owner' and p.polroles = array[c.relowner]) from pg_class c"
            " where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')"
        )
        .fetchall()
    )
    assert len(rows) > 20
    for name, forced, let_in in rows:
        assert forced, f"{name} is not in the list of apply_access() in sql/020_access.sql: add it there"
        assert let_in, f"{name} has no policy for the owner of the tables: see apply_access() in sql/020_access.sql"


def test_a_reader_reads_no_other_table_and_writes_none(as_role: Open) -> None:
    reader = as_role("th_acme")
    tables = [
        row[0]
        for row in as_role(OWNER).execute(
            "select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'"
        )
    ]
    for table in tables:
        if table not in ("documents", "sources"):
            with pytest.raises(FORBIDDEN, match=f"permission denied for table {table}"):
                reader.execute(f"select * from {table}".encode())
        for verb in ("delete from", "truncate"):
            with pytest.raises(FORBIDDEN, match=f"permission denied for table {table}"):
                reader.execute(f"{verb} {table}".encode())
    for statement in (
        "insert into documents (content, tenant) values ('x', 'acme')",
        "update documents set content = 'x'",
        "update sources set tenant = 'acme'",
        "select grant_reader('th_acme', 'beta')",
        "select grant_worker('th_acme')",
        "select apply_access()",
        "create table public.mine (x int)",
        "alter table documents disable row level security",
        "create policy mine on documents using (true)",
        "set role th_beta",
    ):
        with pytest.raises(FORBIDDEN):
            reader.execute(statement.encode())


def test_a_role_that_was_granted_nothing_hears_the_remedy(as_role: Open) -> None:
    stranger = as_role(STRANGER)
    with pytest.raises(FORBIDDEN, match=f"role {STRANGER} may not search any tenant") as caught:
        stranger.execute("select * from search_documents('pump')")
    hint = f"as the owner of the tables: select grant_reader('{STRANGER}', 'TENANT')"
    assert caught.value.diag.message_hint == hint
    with pytest.raises(FORBIDDEN, match="permission denied for table documents"):
        stranger.execute("select * from documents")


def test_tenant_and_the_setting_narrow_and_never_widen(as_role: Open) -> None:
    both = as_role("th_both")
    assert tenants_seen(both, SEARCH + ", tenant => 'beta')") == {"beta"}
    with pytest.raises(FORBIDDEN, match="may not search tenant 'gamma'"):
        both.execute(SEARCH + ", tenant => 'gamma')")
    both.execute("set gristmill.tenant = 'acme'")
    for query in (SEARCH + ")", READS["hybrid_search"], READS["match_documents_hybrid"]):
        assert tenants_seen(both, query) == {"acme"}
    with pytest.raises(FORBIDDEN, match=r"tenant 'beta' is asked for, and gristmill\.tenant is 'acme'"):
        both.execute(SEARCH + ", tenant => 'beta')")
    both.execute("set gristmill.tenant = 'gamma'")
    with pytest.raises(FORBIDDEN, match="may not search tenant 'gamma'"):
        both.execute(SEARCH + ")")
    with pytest.raises(FORBIDDEN, match="may not search tenant ''"):
        as_role("th_acme").execute(SEARCH + ", tenant => '')")
    owner = as_role(OWNER)
    owner.execute("set gristmill.tenant = 'gamma'")
    assert tenants_seen(owner, SEARCH + ")") == {"gamma"}


def test_a_login_role_that_becomes_readers_as_postgrest_does(as_role: Open) -> None:
    connection = as_role(AUTHENTICATOR)
    with pytest.raises(FORBIDDEN, match=f"role {AUTHENTICATOR} may not search"):
        connection.execute(SEARCH + ")")
    for role, seen in (("th_acme", {"acme"}), ("th_both", {"acme", "beta"})):
        with connection.transaction():
            connection.execute(f"set local role {role}".encode())
            for read in READS.values():
                assert tenants_seen(connection, read) == seen
    with pytest.raises(FORBIDDEN, match=f"role {AUTHENTICATOR} may not search"):
        connection.execute(SEARCH + ")")


def test_prepared_statements_and_cached_plans_follow_the_role(template: TenantHouse, services: Services) -> None:
    with psycopg.connect(template.dsn("postgres"), autocommit=True) as connection:
        connection.execute("prepare by_search as " + SEARCH + ")")
        connection.execute("prepare by_table as select * from documents")
        connection.execute("set plan_cache_mode = force_generic_plan")
        for role, seen in (("postgres", set(TENANTS)), ("th_acme", {"acme"}), ("th_beta", {"beta"})):
            connection.execute(f"set role {role}".encode())
            for name in ("by_search", "by_table"):
                assert tenants_seen(connection, f"execute {name}") == seen
        connection.execute("reset role")
        connection.execute("set session authorization th_gamma")
        for name in ("by_search", "by_table"):
            assert tenants_seen(connection, f"execute {name}") == {"gamma"}


def test_a_role_that_bypasses_policies_searches_all(house: TenantHouse) -> None:
    """As service_role on Supabase."""
    with house.open("postgres") as admin:
        admin.execute("create role th_service bypassrls")
        try:
            admin.execute("set role th_service")
            assert tenants_seen(admin, READS["keyword"]) == set(TENANTS)
            assert tenants_seen(admin, SEARCH + ", tenant => 'beta')") == {"beta"}
        finally:
            admin.execute("reset role")
            admin.execute("drop role th_service")


def test_members_of_a_reader_see_what_it_sees(as_role: Open) -> None:
    member = as_role(MEMBER)
    for read in READS.values():
        assert tenants_seen(member, read) == {"acme"}


@pytest.mark.parametrize("name", ["My-Role", "q\"uo'te", "ö" * 31 + "x", "select", "  "])
def test_roles_with_odd_names(house: TenantHouse, name: str) -> None:
    with house.open("postgres") as admin:
        admin.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
        try:
            admin.execute("select grant_reader(%s, %s)", (name, "it's"))
            admin.execute("insert into documents (content, tenant) values ('wombat', 'it''s')")
            admin.execute("select grant_reader(%s, 'acme')", (name,))
            admin.execute(sql.SQL("set role {}").format(sql.Identifier(name)))
            rows = admin.execute("select distinct tenant from documents order by 1").fetchall()
            assert rows == [("acme",), ("it's",)]
            found = admin.execute("select content from search_documents('wombat', tenant => 'it''s')").fetchall()
            assert found == [("wombat",)]
            admin.execute("reset role")
            admin.execute("select revoke_access(%s)", (name,))
        finally:
            admin.execute("reset role")
            admin.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def test_a_renamed_role_keeps_its_tenant_and_a_dropped_one_leaves_nothing(house: TenantHouse) -> None:
    with house.open("postgres") as admin:
        admin.execute("create role th_old login")
        admin.execute("select grant_reader('th_old', 'acme')")
        admin.execute("alter role th_old rename to th_new")
        admin.execute("select apply_access()")
        with house.open("th_new") as renamed:
            assert tenants_seen(renamed, SEARCH + ")") == {"acme"}
            assert tenants_seen(renamed, "select * from documents") == {"acme"}
        with pytest.raises(psycopg.errors.DependentObjectsStillExist):
            admin.execute("drop role th_new")
        admin.execute("drop owned by th_new")
        admin.execute("drop role th_new")
        admin.execute("select apply_access()")
        assert admin.execute(
            "select (select count(*) from tenant_roles t where not exists (select from pg_roles where oid = t.role)),"
            " (select count(*) from pg_policy p where polroles = '{0}' or polroles = '{}')"
        ).fetchone() == (0, 0)


def test_revoked_means_nothing_is_left(house: TenantHouse) -> None:
    with house.open() as owner, house.open("th_acme") as reader, house.open(WORKER) as worker:
        owner.execute("select revoke_access('th_acme')")
        owner.execute("select revoke_access(%s)", (WORKER,))
        for connection in (reader, worker):
            for query in (SEARCH + ")", "select * from documents"):
                with pytest.raises(FORBIDDEN):
                    connection.execute(query.encode())


def test_the_worker_serves_everybody_and_defines_nothing(house: TenantHouse, tmp_path: Path) -> None:
    assert migrate(house.dsn(WORKER), dimensions=8) == []
    with house.open(WORKER) as worker:
        works(worker, house, tmp_path)
        for statement in (
            "insert into tenant_roles (role, access, tenant) values ('th_stranger', 'reader', 'acme')",
            "update tenant_roles set tenant = 'beta' where role = 'th_acme'::regrole",
            "delete from tenant_roles",
            "select grant_reader('th_stranger', 'acme')",
            "select revoke_access('th_acme')",
            "update gristmill_schema_files set digest = ''",
            "alter table documents no force row level security",
            "create table public.mine (x int)",
            "truncate documents",
        ):
            with pytest.raises(FORBIDDEN):
                worker.execute(statement.encode())


def test_an_owner_that_is_no_superuser_does_everything(house: TenantHouse, tmp_path: Path) -> None:
    assert migrate(house.dsn(), dimensions=8) == []
    with house.open() as owner:
        assert owner.execute("select rolsuper from pg_roles where rolname = current_user").fetchone() == (False,)
        works(owner, house, tmp_path)
        owner.execute("select grant_reader(%s, 'acme')", (STRANGER,))
        owner.execute("select revoke_access(%s)", (STRANGER,))


def works(connection: Connection[Any], house: TenantHouse, home: Path) -> None:
    """What a service does all day, for two tenants that have the same document."""
    for tenant in ("acme", "beta"):
        ledger = Ledger(connection, tenant=tenant)
        ledger.record("file:///drop/shared.txt", fingerprint="1", metadata={"owner": tenant})
        assert ledger.commit(claimed(ledger), outcome(), chunks("a shared wombat", f"of {tenant}")) is not None
    wombats = "select metadata ->> 'owner' from search_documents('wombat', mode => 'keyword', match_count => 9"
    assert sorted(connection.execute(wombats + ")").fetchall()) == [("acme",), ("beta",)]
    assert connection.execute(wombats + ", tenant => 'beta')").fetchall() == [("beta",)]

    # A changed version replaces that tenant's chunks only.
    ledger = Ledger(connection, tenant="acme")
    ledger.record("file:///drop/shared.txt", fingerprint="2", metadata={"owner": "acme"})
    assert ledger.commit(claimed(ledger), outcome(b"2" * 32), chunks("a lonely ocelot")) is not None
    assert connection.execute(wombats + ")").fetchall() == [("beta",)]
    assert ledger.delete("file:///drop/shared.txt")
    assert connection.execute("select content from documents where content like '%wombat%'").fetchall() == [
        ("a shared wombat",)
    ]
    assert connection.execute("select refresh_statistics()").fetchone() is not None

    settings = Settings(database_url=house.dsn(), home=home / "home")
    eraser = Eraser(settings, connection, tenant="beta", who="somebody", journal=False)
    receipts = eraser.erase(["file:///drop/shared.txt"], keep_out=True)
    assert [receipt.counts["documents"] for receipt in receipts] == [2]
    finish(connection)
    assert connection.execute(wombats + ")").fetchall() == []
    assert tenants_seen(connection, READS["hybrid"]) == set(TENANTS)


def test_a_chunk_that_names_another_tenant_than_its_source_is_refused(house: TenantHouse) -> None:
    with house.open() as owner:
        with pytest.raises(psycopg.errors.ForeignKeyViolation, match="documents_source_tenant"):
            owner.execute("update documents set tenant = 'beta' where id = 0")
        with pytest.raises(psycopg.errors.ForeignKeyViolation, match="documents_source_tenant"):
            owner.execute("update sources set tenant = 'other' where id = 1001")
        owner.execute("delete from sources where tenant = 'acme'")
        assert owner.execute("select tenant, count(*) from documents group by 1 order by 1").fetchall() == [
            ("acme", 5), ("beta", 30), ("gamma", 30)
        ]  # fmt: skip


def test_roles_that_no_policy_confines_are_refused(house: TenantHouse) -> None:
    with house.open("postgres") as admin:
        for options, more in (
            ("superuser", ""),
            ("bypassrls", ""),
            ("replication", ""),
            ("", f"grant {OWNER} to th_strong"),
            ("noinherit", f"grant {OWNER} to th_strong"),
            ("", "grant pg_read_server_files to th_strong"),
            ("", "grant create on schema public to th_strong"),
        ):
            admin.execute(f"create role th_strong {options}".encode())
            if more:
                admin.execute(more.encode())
            for grant in ("grant_reader('th_strong', 'acme')", "grant_worker('th_strong')"):
                with pytest.raises(psycopg.errors.InvalidGrantOperation, match="th_strong") as caught:
                    admin.execute(f"select {grant}".encode())
                assert caught.value.diag.message_hint
            admin.execute("drop owned by th_strong")
            admin.execute("drop role th_strong")
        with pytest.raises(psycopg.errors.UndefinedObject, match="nobody"):
            admin.execute("select grant_reader('nobody', 'acme')")


def test_what_default_privileges_gave_is_taken_from_readers(house: TenantHouse) -> None:
    """Supabase gives its roles everything on every new table; policies do not rule over truncate and trigger."""
    with house.open() as owner:
        owner.execute(f"grant all on all tables in schema public to {STRANGER}".encode())
        with house.open(STRANGER) as stranger:
            assert stranger.execute("select count(*) from documents").fetchone() == (0,)
            assert stranger.execute("update documents set content = 'x'").rowcount == 0
        owner.execute("select grant_reader(%s, 'acme')", (STRANGER,))
        rows = owner.execute(
            "select c.relname::text, array_agg(a.privilege_type) from pg_class c, aclexplode(c.relacl) a"
            " where a.grantee = %s::regrole and c.relkind = 'r' group by 1 order by 1", (STRANGER,)
        ).fetchall()  # fmt: skip
        assert rows == [("documents", ["SELECT"]), ("sources", ["SELECT"])]


def test_apply_access_locks_nothing_where_nothing_differs(house: TenantHouse) -> None:
    with house.open() as owner, owner.transaction():
        written = "select xmin::text, ctid::text from pg_class where relnamespace = 'public'::regnamespace order by oid"
        before = owner.execute(written.encode()).fetchall()
        owner.execute("select apply_access()")
        modes = owner.execute(
            "select distinct mode from pg_locks l join pg_class c on c.oid = l.relation where pid = pg_backend_pid()"
            " and c.relnamespace = 'public'::regnamespace"
        ).fetchall()
        assert {mode for (mode,) in modes} <= {"AccessShareLock", "RowShareLock", "RowExclusiveLock"}
        assert owner.execute(written.encode()).fetchall() == before


def test_another_owner_is_let_in_by_apply_access(house: TenantHouse, services: Services) -> None:
    with house.open("postgres") as admin:
        admin.execute("create role th_heir login")
        try:
            admin.execute("grant create on schema public to th_heir")
            for kind, relkind in (("table", "r"), ("view", "v")):
                rows = admin.execute(
                    "select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = %s",
                    (relkind,),
                ).fetchall()
                for (name,) in rows:
                    admin.execute(f"alter {kind} {name} owner to th_heir".encode())
            admin.execute(
                "do $$ declare f regprocedure; begin for f in select oid from pg_proc where pronamespace ="
                " 'public'::regnamespace and proowner = 'th_owner'::regrole loop"
                " execute format('alter function %s owner to th_heir', f); end loop; end $$"
            )
            with house.open("th_heir") as heir:
                assert heir.execute("select count(*) from documents").fetchone() == (0,)
                heir.execute("select apply_access()")
                assert tenants_seen(heir, READS["hybrid"]) == set(TENANTS)
            for role, seen in (("th_both", {"acme", "beta"}), (WORKER, set(TENANTS))):
                with house.open(role) as connection:
                    assert tenants_seen(connection, READS["hybrid"]) == seen
                    assert tenants_seen(connection, READS["table"]) == seen
            with house.open(OWNER) as former, pytest.raises(FORBIDDEN):
                former.execute(SEARCH + ")")
        finally:
            admin.execute("reassign owned by th_heir to th_owner")
            admin.execute("drop owned by th_heir")
            admin.execute("drop role th_heir")


def test_dump_and_restore_keep_who_sees_what(services: Services, house: TenantHouse, tmp_path: Path) -> None:
    binaries = programs(account_of(os.geteuid()))
    copy = TenantHouse(services.database_url, "tenant_restored")
    dump = tmp_path / "dump.sql"
    # A plain owner is under its own policies, and pg_dump refuses to leave rows out unless it is told.
    command = [str(binaries / "pg_dump"), "--enable-row-security", f"--file={dump}", house.dsn()]
    subprocess.run(command, check=True, capture_output=True)
    copy.create()
    try:
        subprocess.run(
            [binaries / "psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", dump, copy.dsn("postgres")],
            check=True, capture_output=True,
        )  # fmt: skip
        with copy.open() as owner:
            owner.execute("select apply_access()")
            assert tenants_seen(owner, READS["hybrid"]) == set(TENANTS)
        for role, tenants in READERS.items():
            with copy.open(role) as reader:
                for read in ("hybrid", "table", "match_documents"):
                    assert tenants_seen(reader, READS[read]) == set(tenants)
    finally:
        copy.drop()


PAGE = Path(__file__).parents[2] / "docs" / "tenants.md"


def test_the_page_can_be_followed_line_by_line(house: TenantHouse) -> None:
    blocks = re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    with house.open("postgres") as admin:
        try:
            for block in blocks:
                admin.execute(
                    block.replace("'[…]'", f"'{VECTOR}'").replace("database app", f"database {house.name}").encode()
                )
            admin.execute("reset role; reset gristmill.tenant")
            read_as_the_nodes_do(house, "acme_reader")
        finally:
            admin.execute("reset role")
            for role in ("acme_reader", "gristmill_worker", "acme_app", "authenticated"):
                admin.execute(f"drop owned by {role} cascade; drop role {role}".encode())


def read_as_the_nodes_do(house: TenantHouse, role: str) -> None:
    """The statements of the PGVector node (n8n 2, nodes-langchain: VectorStorePGVector), in their order."""
    with psycopg.connect(house.dsn(role), autocommit=True) as node:
        node.execute("CREATE EXTENSION IF NOT EXISTS vector;")
        node.execute(
            'CREATE TABLE IF NOT EXISTS "documents" ("id" uuid NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,'
            '"content" text,"metadata" jsonb,"embedding" vector);'
        )
        for query in (
            'SELECT *, "embedding" <=> %s as "_distance" FROM "documents" ORDER BY "_distance" ASC LIMIT %s',
            'SELECT *, "embedding" <#> %s as "_distance" FROM "documents" ORDER BY "_distance" ASC LIMIT %s',
            'SELECT *, "embedding" <=> %s as "_distance" FROM "documents" WHERE metadata->>\'group\' = \'1\''
            ' ORDER BY "_distance" ASC LIMIT %s',
        ):
            rows = node.execute(query.encode(), (VECTOR, 100)).fetchall()
            assert len(rows) in (7, 8, 30)
            assert tenants_seen(node, query, VECTOR, 100) == {"acme"}
        for statement in (
            'INSERT INTO "documents"("content","embedding","metadata") VALUES (\'x\',NULL,\'{}\')',
            'DELETE FROM "documents"',
        ):
            with pytest.raises(FORBIDDEN):
                node.execute(statement.encode())
        assert tenants_seen(node, f"select * from hybrid_search('pump', '{VECTOR}', 100)") == {"acme"}


CALLS = 1000
MODES = ("hybrid", "hybrid", "keyword", "vector", "auto")


def question(dice: random.Random) -> str:
    """Words, codes, quotes, -words, canaries of everybody, codes of everybody."""
    parts = dice.choices([*WORDS, "of", "the", "what is", "die pumpe der", "état"], k=dice.randint(1, 4))
    if dice.random() < 0.5:
        parts.append(dice.choice([canary(dice.choice(TENANTS)), f"E-{4000 + dice.randrange(9)}", "K-99"]))
    if dice.random() < 0.3:
        parts.append(f"{dice.choice(TENANTS).upper()}-{dice.randrange(31):03}")
    if dice.random() < 0.2:
        parts.append(f"-{dice.choice(WORDS)}")
    if dice.random() < 0.2:
        parts.append(f'"{dice.choice(WORDS)} {dice.choice(WORDS)}"')
    return " ".join(parts) + ("?" if dice.random() < 0.2 else "")


def arguments(dice: random.Random) -> dict[str, Any]:
    """Of search_documents, sensible and not; the tenant of none but the caller's own."""
    given: dict[str, Any] = {
        "query_text": question(dice),
        "query_embedding": str([dice.gauss(0, 1) for _ in range(8)]) if dice.random() < 0.8 else None,
        "match_count": dice.choice([1, 5, 20, 100]),
        "mode": dice.choice(MODES),
    }
    maybe: dict[str, Callable[[], Any]] = {
        "filter": lambda: Jsonb(dice.choice([{"group": dice.randrange(5)}, {"mark": canary(dice.choice(TENANTS))}])),
        "sources": lambda: [dice.randrange(3) * 1000 + dice.randrange(6) for _ in range(9)],
        "language": lambda: dice.choice(["english", "french", "german"]),
        "since": lambda: f"2026-11-{dice.randint(1, 28):02}",
        "until": lambda: f"2026-11-{dice.randint(1, 28):02}",
        "query_language": lambda: dice.choice(["english", "french", "simple"]),
        "alpha": dice.random,
        "rrf_k": lambda: dice.choice([1, 20, 60]),
        "pool": lambda: dice.choice([1, 10, 200]),
        "highlight": lambda: True,
        "neighbours": lambda: dice.randint(1, 5),
    }
    for name, make in maybe.items():
        if dice.random() < 0.2:
            given[name] = make()
    if given["mode"] == "vector" and given["query_embedding"] is None:
        given["mode"] = "keyword"
    return given


def call(function: str, given: dict[str, Any]) -> str:
    return f"select * from {function}({', '.join(f'{name} => %({name})s' for name in given)})"


def test_a_thousand_calls_never_cross(as_role: Open) -> None:
    dice = random.Random(20261130)
    readers = {role: as_role(role) for role in READERS}
    outcomes: Counter[str] = Counter()
    for _ in range(CALLS):
        role = dice.choice(list(READERS))
        given = arguments(dice)
        kind = dice.choice(["search_documents"] * 5 + ["hybrid_search", "match_documents", "match_documents_hybrid"])
        if kind == "hybrid_search":
            given = {
                k: given[k] for k in ("query_text", "query_embedding", "match_count", "rrf_k", "filter") if k in given
            }
        elif kind != "search_documents":
            text = {"query_text": given["query_text"]} if kind == "match_documents_hybrid" else {}
            given = {"query_embedding": given["query_embedding"], "match_count": 50, "filter": Jsonb(text)}
        elif dice.random() < 0.3:
            given["tenant"] = dice.choice([*TENANTS, "nobody"])
        allowed = READERS[role]
        try:
            rows = readers[role].execute(call(kind, given).encode(), given).fetchall()
        except psycopg.Error as error:
            assert given.get("tenant") not in (None, *allowed), f"{role}: {kind}({given}): {error}"
            said = str(error)
        else:
            assert given.get("tenant") in (None, *allowed)
            said = str(rows)
            outcomes["rows" if rows else "none"] += 1
        for tenant in set(TENANTS) - set(allowed):
            assert canary(tenant) not in said, f"{role} sees {tenant}: {kind}({given})"
            assert f"{tenant.upper()}-0" not in said.replace("**", ""), f"{role} sees {tenant}: {kind}({given})"
    assert outcomes["rows"] > CALLS / 2


def test_no_answer_depends_on_the_neighbours(services: Services) -> None:
    """Asked of a tenant alone, and among neighbours that wrote, changed, deleted and were counted again."""
    alone, among = (TenantHouse(services.database_url, f"tenant_{name}") for name in ("alone", "among"))
    try:
        for house, tenants in ((alone, ["acme"]), (among, ["gamma", "acme", "beta"])):
            house.create()
            house.furnish(tenants)
        with among.open() as owner:
            for tenant in ("beta", "gamma"):
                fill(owner, tenant, seed=8, first=200, rows=60)
            owner.execute("update documents set content = content || ' pump pump E-4003' where tenant = 'beta'")
            owner.execute("update documents set language = 'german' where tenant = 'gamma' and id % 2 = 0")
            owner.execute("delete from documents where tenant = 'gamma' and id % 3 = 0")
            owner.execute(
                "insert into documents (content, tenant) select 'valve ' || n, 'gamma' from generate_series(1, 1000) n"
            )
            owner.execute("select refresh_statistics()")
            owner.execute("analyze documents")
        dice, answered = random.Random(3), 0
        for house in (alone, among):  # without the graph, which neighbours are part of, the nearest are the nearest
            with house.open() as owner:
                owner.execute("drop index documents_embedding")
        with alone.open("th_acme") as first, among.open("th_acme") as second:
            for _ in range(250):
                given = arguments(dice)
                one, two = (
                    c.execute(call("search_documents", given).encode(), given).fetchall() for c in (first, second)
                )
                assert [(*row[:3], *row[4:7], row[8]) for row in one] == [(*row[:3], *row[4:7], row[8]) for row in two]
                for column in (3, 7):
                    assert [row[column] for row in one] == pytest.approx([row[column] for row in two], abs=1e-9)
                answered += bool(one)
        assert answered > 150
    finally:
        for house in (alone, among):
            house.drop()


def test_a_tenant_far_from_the_question_is_found_in_full(house: TenantHouse) -> None:
    """The graph gives up among the neighbours' rows long before it comes to any of the tenant's."""
    with house.open() as owner:
        owner.execute(
            "insert into documents (content, embedding, tenant) select 'crowd ' || n,"
            " array[1, (n % 50) * 0.001, (n / 50) * 0.001, 0, 0, 0, 0, 0]::vector, 'gamma'"
            " from generate_series(1, 2000) n"
        )
        owner.execute(
            "insert into documents (content, embedding, tenant) select 'far ' || n,"
            " array[-1, n * 0.01, 0, 0, 0, 0, 0, 0]::vector, 'acme' from generate_series(1, 400) n"
        )
        owner.execute("delete from documents where tenant = 'acme' and content not like 'far %'")
        owner.execute("select refresh_statistics()")
        owner.execute("analyze documents")
    ask = "select id from search_documents('crowd', '[1,0,0,0,0,0,0,0]', 20, mode => 'vector'"
    exact = (
        "select id from documents where tenant = 'acme' order by (embedding <=> '[1,0,0,0,0,0,0,0]') + 0, id limit 20"
    )
    with house.open("th_acme") as reader, house.open() as owner:
        wanted = owner.execute(exact.encode()).fetchall()
        for graph in (0, 1):  # a tenant that is known to be small is measured at once
            for connection, query in ((reader, ask + ")"), (owner, ask + ", tenant => 'acme')")):
                connection.execute("set hnsw.max_scan_tuples = 200")
                # Whatever else would do is forbidden, so that the graph is tried first.
                connection.execute("set enable_sort = off")
                connection.execute("set enable_bitmapscan = off")
                with connection.transaction():
                    assert connection.execute(query.encode()).fetchall() == wanted
                    assert connection.execute("select vector_index_scans()").fetchone() == (graph,)
            owner.execute("delete from index_statistics where tenant = 'acme'")
