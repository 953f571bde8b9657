"""What must not grow for ever does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from psycopg import Connection

from worker.housekeeping import CHORES, forget_old_requests
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
