"""Commands and Celery tasks act for one tenant."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg import Connection
from typer.testing import CliRunner

from pipelines.errors import PermanentError
from tests.fakes.eight_dimensions import EightDimensions
from worker import tasks
from worker.cli import app as command
from worker.embedded import Services
from worker.ingest import Ingester
from worker.ledger import Ledger
from worker.settings import Settings, load_settings


@pytest.fixture
def settings(dsn: str, services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name, value in {"HOME": tmp_path / "home", "DATABASE_URL": dsn, "BROKER_URL": services.broker_url}.items():
        monkeypatch.setenv(f"GRISTMILL_{name}", str(value))
    return load_settings()


@pytest.fixture
def ids(settings: Settings, database: Connection[Any], tmp_path: Path) -> dict[str, int]:
    """A file that both tenants have indexed: the id of each one's document."""
    (tmp_path / "pump.txt").write_text("The pump E-4711 is serviced in May.")
    uri = (tmp_path / "pump.txt").as_uri()
    found = {tenant: Ledger(database, tenant=tenant).record(uri).source_id for tenant in ("default", "acme")}
    ingester = Ingester(settings, EightDimensions())
    assert ingester.work(seconds=30) == 2
    ingester.close()
    return found


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False)
    return json.loads(result.stdout)


def of_nobody(*arguments: str) -> bool:
    with pytest.raises(PermanentError) as caught:
        run(*arguments)
    return caught.value.code == "unknown_source"


def test_a_command_sees_one_tenant(ids: dict[str, int], database: Connection[Any], tmp_path: Path) -> None:
    for tenant, more in (("default", []), ("acme", ["--tenant", "acme"])):
        assert [row["id"] for row in run("sources", *more)] == [ids[tenant]]
        hits = run("search", "E-4711", "--mode", "keyword", *more)
        assert [hit["metadata"]["source_id"] for hit in hits] == [ids[tenant]]
        told = run("status", *more)
        assert (told["tenant"], told["sources"]["done"], told["chunks"]) == (tenant, 1, 1)
        assert run("pages", str(ids[tenant]), *more) == {"id": ids[tenant], "pages": []}
    assert run("search", "E-4711", "--mode", "keyword", "--tenant", "none") == []
    assert of_nobody("pages", str(ids["acme"])) and of_nobody("delete", str(ids["acme"]))
    assert of_nobody("erase", str(ids["acme"]), "--yes", "--keep-out")

    database.execute("update sources set state = 'failed'")
    assert run("retry", str(ids["acme"])) == {"retried": []}
    assert run("retry", "--tenant", "acme") == {"retried": [ids["acme"]]}
    assert run("ingest", str(tmp_path / "pump.txt"), "--tenant", "bolt")[0]["state"] == "pending"
    gone = run("delete", str(tmp_path / "pump.txt"), "--tenant", "acme")
    assert len(gone["deleted"]) == 1
    rows = database.execute("select tenant, state from sources order by id").fetchall()
    assert rows == [("default", "failed"), ("acme", "deleted"), ("bolt", "pending")]


def test_tasks_act_for_one_tenant(
    ids: dict[str, int], settings: Settings, database: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_settings", lambda: settings)
    monkeypatch.setattr(tasks, "_embedder", EightDimensions)
    monkeypatch.setattr(tasks, "_process", lambda: SimpleNamespace(connection=lambda: database))
    monkeypatch.setattr(tasks, "Broker", lambda _app: SimpleNamespace(wake=lambda: None))
    ask: Callable[..., Any] = tasks.search_task.run
    for more, tenant in (({}, "default"), ({"tenant": "acme"}, "acme"), ({"tenant": None}, "default")):
        for mode in ("hybrid", "keyword", "vector"):
            assert [hit["metadata"]["source_id"] for hit in ask("E-4711", 5, mode, **more)] == [ids[tenant]]
    with pytest.raises(PermanentError):
        ask("E-4711", tenant="")
    told = tasks.ingest.run("/srv/a.txt", {"team": "blue"}, "acme")
    row = database.execute("select tenant, metadata from sources where id = %s", (told["source_id"],)).fetchone()
    assert row == ("acme", {"team": "blue"})
    told = tasks.ingest.run("/srv/a.txt")
    row = database.execute("select tenant from sources where id = %s", (told["source_id"],)).fetchone()
    assert row == ("default",)
