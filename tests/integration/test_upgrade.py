"""The schema of every released version, with its data, becomes that of this one, and work goes on where it stopped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from pipelines.database import connect
from pipelines.errors import PermanentError
from pipelines.types import OcrPage
from sql.ledger import FIRST_RELEASE, RUNS_WITH, migrations, pending
from sql.migrate import migrate
from tests.fakes.eight_dimensions import EightDimensions
from tests.upgrade.snapshot import Release, answers, dump, releases, restore
from tests.upgrade.stock import settings_of
from worker.embedded import Services
from worker.ingest import Ingester
from worker.ledger import Claim, Ledger
from worker.page_ranges import PageRanges

MAY_DIFFER = {"gristmill_migrations", "gristmill_schema_files"}
LONG = re.compile(
    r"(create (unique )?index|drop index) concurrently .*|alter table \w+ validate constraint \w+|comment on .*",
    re.DOTALL,
)
ALL = [pytest.param(release, id=release.version) for release in releases()]


@pytest.fixture
def empty(new_database: Callable[..., str], services: Services) -> Callable[[], str]:
    """Make a database as an owner prepares it, with a role that may no more than it must; acts as that role."""

    def make() -> str:
        dsn = new_database()
        with psycopg.connect(dsn, autocommit=True) as admin:
            if admin.execute("select from pg_roles where rolname = 'upgrader'").fetchone() is None:
                admin.execute("create role upgrader")
            admin.execute("create extension vector")
            admin.execute("create extension unaccent")
            admin.execute(f"grant create on database {admin.info.dbname} to upgrader".encode())
            admin.execute("grant create on schema public to upgrader")
        return f"{dsn}&options=-c%20role%3Dupgrader"

    return make


class Upgraded:
    """A snapshot that has been restored and migrated."""

    def __init__(self, dsn: str, place: Path, release: Release) -> None:
        self.dsn = dsn
        self.place = place
        restore(dsn, release, place)
        with psycopg.connect(dsn, autocommit=True) as connection:
            row = connection.execute("select answers from snapshot.answers").fetchone()
            assert row is not None
            self.answers: dict[str, list[str]] = row[0]
            connection.execute("drop schema snapshot cascade")
        with connect(dsn) as connection:
            self.before = rows(connection)
            self.missing = [migration.name for migration in pending(connection)]
        self.applied = migrate(dsn, dimensions=8)
        self.connection = connect(dsn)


@pytest.fixture
def upgraded(empty: Callable[[], str], tmp_path: Path) -> Iterator[Callable[[Release], Upgraded]]:
    """Restore and migrate a snapshot."""
    made: list[Upgraded] = []

    def make(release: Release) -> Upgraded:
        made.append(Upgraded(empty(), tmp_path, release))
        return made[-1]

    yield make
    for one in made:
        one.connection.close()


def rows(connection: Connection[Any]) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table."""
    found = {}
    names = connection.execute("select tablename from pg_tables where schemaname = 'public'").fetchall()
    for (name,) in names:
        query = f"select to_jsonb(t) from {name} t order by to_jsonb(t)::text"
        found[name] = [row[0] for row in connection.execute(query.encode()).fetchall()]
    return found


def without(found: list[dict[str, Any]], keep: set[str]) -> list[str]:
    return sorted(repr(sorted((key, row[key]) for key in keep & row.keys())) for row in found)


@pytest.mark.parametrize("release", ALL)
def test_the_files_of_a_release_stay_as_they_were_released(release: Release) -> None:
    ours = {migration.name: migration for migration in migrations()}
    for name, (digest, revision) in release.files.items():
        assert name in ours, f"{name} is part of {release.version} and has to stay"
        if ours[name].digest == digest:
            continue
        assert ours[name].revision is not None, f"{name} was released with {release.version}: write a new file instead"
        assert ours[name].revision > (revision or 1), f"{name} has changed since {release.version}: raise its revision"


def test_every_first_line_that_says_more_is_understood() -> None:
    for migration in migrations():
        first = migration.text.splitlines()[0]
        if first.startswith("-- Repeatable"):
            assert migration.revision is not None, f"{migration.name}: {first}"
        if first.startswith("-- Runs with"):
            assert RUNS_WITH.match(first) and migration.needs < migration.name, f"{migration.name}: {first}"


@pytest.mark.parametrize("release", ALL)
def test_an_upgraded_schema_is_that_of_a_fresh_one(
    upgraded: Callable[[Release], Upgraded], empty: Callable[[], str], release: Release
) -> None:
    old = upgraded(release)
    fresh = empty()
    migrate(fresh, dimensions=8)
    assert old.applied == old.missing == [m.name for m in migrations() if m.name in old.missing]
    assert migrate(old.dsn, dimensions=8) == []
    found, wanted = (dump(dsn, "--schema-only").splitlines() for dsn in (old.dsn, fresh))
    assert found == wanted
    with connect(fresh) as connection:
        assert defined(old.connection) == defined(connection)


def defined(connection: Connection[Any]) -> list[tuple[Any, ...]]:
    """What a dump without owners does not tell: who may do what, and the files that all this is made of."""
    return connection.execute(
        "select relname, relacl::text, relrowsecurity, relforcerowsecurity from pg_class"
        " where relnamespace = 'public'::regnamespace and relkind in ('r', 'S', 'v')"
        " union all select oid::regprocedure::text, coalesce(proacl, acldefault('f', proowner))::text, prosecdef, null"
        " from pg_proc where pronamespace = 'public'::regnamespace"
        " union all select name, digest, null, null from gristmill_schema_files order by 1"
    ).fetchall()


@pytest.mark.parametrize("release", ALL)
def test_no_row_is_lost_and_the_answers_are_the_same(upgraded: Callable[[Release], Upgraded], release: Release) -> None:
    old = upgraded(release)
    after = rows(old.connection)
    kinds = {row["state"] for row in old.before["sources"]}
    assert kinds == {"pending", "leased", "reading", "done", "failed", "dead", "deleted"}
    assert [name for name, there in old.before.items() if not there and name != "gristmill_schema_files"] == []
    for name in old.before.keys() - MAY_DIFFER:
        columns = {key for row in old.before[name] for key in row} & {key for row in after[name] for key in row}
        if name == "index_statistics":
            columns -= {"changes"}  # set so that they are counted again
        assert len(columns) >= 2 or name == "erasure_salt", f"{name} has lost its columns"
        assert without(after[name], columns) == without(old.before[name], columns), name
    found = answers(old.connection)
    assert {question: hits[0] for question, hits in found.items()} == {q: hits[0] for q, hits in old.answers.items()}
    old.connection.execute("select refresh_statistics()")
    again = answers(old.connection)
    assert {question: hits[0] for question, hits in again.items()} == {q: hits[0] for q, hits in old.answers.items()}


@pytest.mark.parametrize("release", ALL)
def test_work_goes_on_where_it_stopped(upgraded: Callable[[Release], Upgraded], release: Release) -> None:
    old = upgraded(release)
    settings = settings_of(old.dsn, old.place)
    before = {row["uri"].rsplit("/", 1)[-1]: row["state"] for row in old.before["sources"]}
    assert (before["changed.md"], before["new.md"], before["scan.pdf"]) == ("leased", "pending", "reading")
    for table in ("sources", "page_ranges"):  # of a snapshot made just now
        old.connection.execute(f"update {table} set lease_until = least(lease_until, now())".encode())
    ranges = PageRanges(old.connection)
    while claim := ranges.claim():  # the range whose worker is gone as well, since its lease has run out
        for number in claim.left:
            ranges.save(claim, OcrPage(number, (f"Sheet {number} tells about the marigold.",), 91.0, languages="eng"))
    ingester = Ingester(settings, EightDimensions())
    while ingester.work(seconds=60):
        pass
    ingester.close()
    states = {
        uri.rsplit("/", 1)[-1]: state
        for uri, state in old.connection.execute("select uri, state from sources").fetchall()
    }
    ended = dict.fromkeys(("changed.md", "new.md", "scan.pdf"), "done")
    assert states == before | ended
    for question, answer in (
        ("orchestras", "This is the second wording, about orchestras."),
        ("butterflies", "Nobody has read this yet, it tells of butterflies."),
    ):
        row = old.connection.execute("select content from search_documents(%s)", (question,)).fetchone()
        assert row is not None and answer in row[0]
    assert old.connection.execute("select count(*) from page_ranges").fetchone() == (0,)
    scan = old.connection.execute("select content from search_documents('marigold')").fetchall()
    assert {f"Sheet {n} tells about the marigold." for n in (1, 2, 3)} <= {
        part for (content,) in scan for part in content.split("\n")
    }
    ledger = Ledger(old.connection)
    (held,) = [row for row in old.before["sources"] if row["state"] == "leased"]
    late = Claim(**{one.name: held.get(one.name) for one in fields(Claim)})
    assert not ledger.renew(late) and not ledger.commit_unchanged(late), "the worker that had it then is fenced"
    assert ledger.retry() and ledger.claim() is not None, "what had failed can be tried again"
    with pytest.raises(PermanentError) as caught:
        ledger.record("doc:secret")
    assert caught.value.code == "kept_out"


def test_what_takes_long_is_kept_out_of_transactions() -> None:
    """In a transaction nobody gets at any table, so an index on one that may be large is built outside."""
    new = [m for m in migrations() if m.revision is None and m.name > FIRST_RELEASE]
    for migration in new:
        text = re.sub(r"--.*", "", migration.text).lower()
        if migration.outside:
            for statement in filter(str.strip, text.split(";")):
                assert LONG.match(statement.strip()), f"{migration.name}: does anybody wait for this? {statement}"
        else:
            for table in re.findall(r"create (?:unique )?index \w+ on (documents|page_ranges|embedding_cache)\b", text):
                pytest.fail(f"{migration.name} builds an index on {table} while all tables are locked")
            assert "validate constraint" not in text, migration.name
