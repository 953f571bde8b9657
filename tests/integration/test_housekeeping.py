"""What must not grow for ever does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from psycopg import Connection

from worker.housekeeping import CHORES, STATISTICS_LOCK, StaleTenants, forget_old_requests, refresh_statistics
from worker.settings import load_settings


def test_old_requests_are_forgotten_and_young_ones_kept(database: Connection[Any], tmp_path: Path) -> None:
    for hours in (1, 23, 25, 2000):
        database.execute(
            "insert into idempotency_keys (scope, key, request, created_at)"
            " values ('x', %s, '', now() - make_interval(hours => %s))",
            (str(hours), hours),
        )
        database.execute(
            "insert into webhook_deliveries values ('x', %s, now() - make_interval(hours => %s))", (str(hours), hours)
        )
    forget_old_requests(database, load_settings(home=tmp_path))
    assert {row[0] for row in database.execute("select key from idempotency_keys").fetchall()} == {"1", "23"}
    kept = {row[0] for row in database.execute("select delivery from webhook_deliveries").fetchall()}
    assert kept == {"1", "23", "25"}


def test_every_chore_runs_on_an_empty_installation(database: Connection[Any], tmp_path: Path) -> None:
    for _, chore in CHORES:
        chore(database, load_settings(home=tmp_path))


def test_a_small_tenant_is_counted_though_little_was_written_among_all(
    database: Connection[Any], another: Callable[[], Connection[Any]]
) -> None:
    def write(tenant: str, content: str, rows: int) -> None:
        database.execute(
            "insert into documents (tenant, content, metadata) select %s, %s, jsonb_build_object('n', n)"
            " from generate_series(1, %s) n",
            (tenant, content, rows),
        )
        database.execute("select pg_stat_force_next_flush()")

    def counted() -> dict[str, int]:
        return dict(database.execute("select tenant, documents from index_statistics").fetchall())

    write("big", "the pump", 300)
    assert refresh_statistics(database) and counted() == {"big": 300}
    write("small", "the valve", 5)
    assert not refresh_statistics(database), "too little for all to be counted again"
    stale = StaleTenants()
    other = another()
    with other.transaction():
        other.execute("select pg_advisory_xact_lock(%s)", (STATISTICS_LOCK,))
        assert stale(database) == [], "another counts at this moment"
    assert stale(database) == ["small"]
    assert counted() == {"big": 300, "small": 5}
    row = database.execute(
        "select documents from lexeme_statistics where (lexeme, tenant) = ('valv', 'small')"
    ).fetchone()
    assert row == (5,)

    # Where nothing was written since nobody counts rows to find that nothing is stale.
    database.execute("update index_statistics set documents = 1 where tenant = 'big'")
    assert stale(database) == [] and counted()["big"] == 1
    database.execute("delete from documents where tenant = 'small'")
    database.execute("select pg_stat_force_next_flush()")
    assert sorted(stale(database)) == ["big", "small"] and counted() == {"big": 300}
