"""`/syncs` over HTTP, with runs over a place in memory; and what `status` and `doctor` say of syncs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from psycopg import Connection
from typer.testing import CliRunner

from pipelines.errors import ConfigurationError, UnavailableError
from tests.fakes.http_service import client_of
from tests.fakes.place import Place, PlaceConnector
from worker.broker import SYNC_QUEUE, Broker
from worker.cli import app as command
from worker.connectors import registry
from worker.connectors.config import SyncConfig
from worker.connectors.registry import ConnectorType, load_syncs
from worker.doctor import examine
from worker.embedded import Services
from worker.process import wait_for
from worker.receivers.app import create_http_app
from worker.receivers.auth import create_key
from worker.settings import Settings
from worker.sync.syncer import Syncer, open_schedule

WAIT = 60
"""Seconds, for what takes none unless the machine stands still."""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    """What syncs of the type `place` find; those of other types are the real ones."""
    found, real = Place(), registry.connector_type

    def connector_type(name: str) -> ConnectorType:
        if name != "place":
            return real(name)
        return ConnectorType(SyncConfig, lambda _config, around: PlaceConnector(found, around))

    monkeypatch.setattr(registry, "TYPES", (*registry.TYPES, "place"))
    monkeypatch.setattr(registry, "connector_type", connector_type)
    return found


@pytest.fixture
def settings(place: Place, dsn: str, tmp_path: Path) -> Settings:
    (tmp_path / "notes").mkdir()
    syncs = {
        "hourly": {"type": "place", "every": "1h"},
        "asked": {"type": "place"},
        "notes": {"type": "folder", "path": str(tmp_path / "notes")},
    }
    return Settings(home=tmp_path / "home", database_url=dsn, syncs=syncs, stability_seconds=0.0)


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Queues that were told of work."""
    queues: list[str] = []

    def wake(_self: Broker, count: int = 1, *, queue: str = "ingest") -> bool:
        queues.append(queue)
        return True

    monkeypatch.setattr(Broker, "wake", wake)
    return queues


@pytest.fixture
def client(settings: Settings, services: Services, dsn: str, woken: list[str]) -> Iterator[httpx.Client]:
    with client_of(create_http_app(settings, Services(dsn, services.broker_url))) as client:
        client.timeout = httpx.Timeout(WAIT + 30)
        yield client


@pytest.fixture
def syncer(settings: Settings) -> Iterator[Syncer]:
    found = Syncer(settings, load_syncs(settings))
    yield found
    found.close()


@pytest.fixture
def meanwhile() -> Iterator[Callable[..., Future[httpx.Response]]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


def runs(database: Connection[Any], name: str) -> dict[str, Any]:
    row = database.execute(
        "select asked_at is not null, full_at is null, token is not null,"
        " (select coalesce(array_agg(key order by key), '{}') from sync_hints h where h.sync_id = s.id)"
        " from syncs s where name = %s",
        (name,),
    ).fetchone()
    return dict(zip(("asked", "full", "running", "hints"), row or (), strict=False))


def test_full_in_the_address_is_not_overlooked(client: httpx.Client, database: Connection[Any]) -> None:
    answer = client.post("/syncs/notes", params={"full": "true"})
    assert (answer.status_code, answer.json()["code"]) == (422, "misplaced_field"), answer.text
    assert not runs(database, "notes").get("asked")


def test_all_syncs_of_the_settings_are_listed_before_they_ever_ran(client: httpx.Client) -> None:
    found = client.get("/syncs").json()["syncs"]
    assert [(one["name"], one["type"], one["documents"], one["running"]) for one in found] == [
        ("asked", "place", 0, False),
        ("hourly", "place", 0, False),
        ("notes", "folder", 0, False),
    ]
    assert [one["next_at"] is None for one in found] == [True, False, True]
    assert client.get("/syncs/hourly").json() == found[1]
    assert found[1]["succeeded_at"] is None and found[1]["code"] is None


def test_a_run_that_was_asked_for_is_made_and_told_of(
    client: httpx.Client, place: Place, syncer: Syncer, database: Connection[Any], woken: list[str]
) -> None:
    place.put("a", "Text.")
    answer = client.post("/syncs/asked")
    assert (answer.status_code, answer.json()["documents"], woken) == (202, 0, [SYNC_QUEUE])
    assert answer.json()["next_at"] is not None
    assert runs(database, "asked")["asked"] is True
    assert syncer.work(seconds=WAIT) >= 1
    found = client.get("/syncs/asked").json()
    assert (found["documents"], found["counts"]["new"], found["code"], found["next_at"]) == (1, 1, None, None)
    assert found["succeeded_at"] == found["ended_at"] >= found["begun_at"]

    assert runs(database, "asked")["full"] is False
    client.post("/syncs/asked", json={"full": True})
    assert runs(database, "asked")["full"] is True


def test_who_waits_is_told_how_the_run_ended(
    client: httpx.Client, place: Place, syncer: Syncer, database: Connection[Any], meanwhile: Callable[..., Any]
) -> None:
    place.put("a", "Text.")
    for code in (None, "away"):
        asked = meanwhile(client.post, f"/syncs/asked?wait={WAIT}")
        assert wait_for(lambda: runs(database, "asked").get("asked"), WAIT)
        syncer.work(seconds=WAIT)
        answer = asked.result(WAIT)
        assert (answer.status_code, answer.json()["code"], answer.json()["running"]) == (200, code, False)
        place.listing_fault = away
    assert (answer.json()["cause"], answer.json()["remedy"]) == ("it is away", "wait")
    assert answer.json()["documents"] == 1


def away(_key: str) -> None:
    raise UnavailableError("away", "it is away", "wait")


def test_who_waits_in_vain_is_told_so(client: httpx.Client) -> None:
    answer = client.post("/syncs/asked", params={"wait": 0.1})
    assert (answer.status_code, answer.json()["succeeded_at"]) == (202, None)


def test_a_run_that_began_before_does_not_count(
    client: httpx.Client,
    settings: Settings,
    syncer: Syncer,
    place: Place,
    database: Connection[Any],
    meanwhile: Callable[..., Any],
) -> None:
    place.put("a", "Text.")

    def asked_meanwhile(_key: str) -> None:
        place.listing_fault = lambda key: None
        waiting.append(meanwhile(client.post, f"/syncs/asked?wait={WAIT}"))
        assert wait_for(lambda: runs(database, "asked")["asked"], WAIT)

    waiting: list[Future[httpx.Response]] = []
    open_schedule(settings, database, load_syncs(settings)).register()
    place.listing_fault = asked_meanwhile
    report, error = syncer.sync("asked")
    assert (report.counts["new"], error) == (1, None)
    assert runs(database, "asked")["asked"] is True
    assert not waiting[0].done()
    syncer.work(seconds=WAIT)
    answer = waiting[0].result(WAIT)
    assert (answer.status_code, answer.json()["counts"]["unchanged"]) == (200, 1)


def test_items_alone_are_visited(
    client: httpx.Client, place: Place, syncer: Syncer, database: Connection[Any], meanwhile: Callable[..., Any]
) -> None:
    for key in "abc":
        place.put(key, f"Text {key}.")
    client.post("/syncs/asked")
    syncer.work(seconds=WAIT)
    place.visits.clear()
    place.listings.clear()
    place.put("b", "Another text.")
    place.put("d", "A new one.")
    asked = meanwhile(client.post, f"/syncs/asked?wait={WAIT}", json={"items": ["d", "b", "d"]})
    assert wait_for(lambda: runs(database, "asked")["hints"] == ["b", "d"], WAIT)
    assert runs(database, "asked")["asked"] is False
    syncer.work(seconds=WAIT)
    answer = asked.result(WAIT)
    assert (answer.status_code, answer.json()["documents"]) == (200, 4)
    assert (sorted(place.visits), place.listings) == (["b", "d"], [])
    assert (answer.json()["counts"]["new"], answer.json()["counts"]["changed"]) == (1, 1)


def test_items_of_a_place_that_tells_of_nothing_are_those_that_are_known(
    client: httpx.Client, syncer: Syncer, database: Connection[Any], tmp_path: Path
) -> None:
    (tmp_path / "notes" / "a.txt").write_text("Text.")
    client.post("/syncs/notes")
    syncer.work(seconds=WAIT)
    uri = (tmp_path / "notes" / "a.txt").as_uri()
    for given in ("a.txt", uri):
        assert client.post("/syncs/notes", json={"items": [given]}).status_code == 202
        assert runs(database, "notes")["hints"] == ["a.txt"]
        database.execute("delete from sync_hints")
    answer = client.post("/syncs/notes", json={"items": ["a.txt", "b.txt"]})
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_item")
    assert answer.json()["detail"].startswith("items.1: ")
    assert runs(database, "notes") == {"asked": False, "full": False, "running": False, "hints": []}


def test_what_is_wrong_with_a_request_is_said(client: httpx.Client, database: Connection[Any]) -> None:
    for method, path in (("GET", "/syncs/other"), ("POST", "/syncs/other"), ("POST", "/syncs/%00")):
        answer = client.request(method, path)
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_sync")
    deep: Any = "a"
    for _ in range(700):
        deep = {"body": deep}
    for sent, status in (
        ({"items": []}, 422),
        ({"items": ["a"], "full": True}, 422),
        ({"items": "a"}, 422),
        ({"items": ["a"] * 1001}, 422),
        ({"items": ["\0"]}, 422),
        ({"items": ["\ud83d" * 900]}, 422),
        ({"items": [deep]}, 422),
        ({"full": "perhaps"}, 422),
        ({"wait": 1}, 422),
        ([], 422),
    ):
        answer = client.post("/syncs/notes", content=json.dumps(sent), headers={"Content-Type": "application/json"})
        assert answer.status_code == status, (sent, answer.text)
    assert client.post("/syncs/notes", content=b"{", headers={"Content-Type": "application/json"}).status_code == 400
    assert client.post("/syncs/notes?wait=301").status_code == 422
    assert runs(database, "notes").get("asked", False) is False


def test_a_key_needs_the_scope_ingest(
    settings: Settings, services: Services, dsn: str, database: Connection[Any], woken: list[str]
) -> None:
    strict = settings.model_copy(update={"require_key": "always"})
    keys = {scope: create_key(database, scope, [scope]) for scope in ("search", "ingest")}
    with client_of(create_http_app(strict, Services(dsn, services.broker_url))) as client:
        for method, path in (("GET", "/syncs"), ("GET", "/syncs/asked"), ("POST", "/syncs/asked")):
            given = [client.request(method, path, headers={"X-API-Key": key}).status_code for key in keys.values()]
            assert given == [403, 202 if method == "POST" else 200]
            assert client.request(method, path).status_code == 401


def test_syncs_that_are_set_up_wrongly_stop_the_start(services: Services, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="sync notes: path"):
        create_http_app(Settings(home=tmp_path, syncs={"notes": {"type": "folder"}}), services)


def test_status_names_what_fails_and_doctor_what_is_set_up_wrongly(
    settings: Settings, services: Services, syncer: Syncer, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.put("a", "Text.")
    place.listing_fault = away
    assert syncer.work(seconds=WAIT) == 1
    syncs = {**settings.syncs, "wiki": {"type": "notion"}}
    for name, value in (("HOME", settings.home), ("DATABASE_URL", settings.database_url)):
        monkeypatch.setenv(f"GRISTMILL_{name}", str(value))
    monkeypatch.setenv("GRISTMILL_BROKER_URL", services.broker_url)
    monkeypatch.setenv("GRISTMILL_SYNCS", json.dumps(syncs))
    monkeypatch.setenv("COLUMNS", "200")

    told = CliRunner().invoke(command, ["status"])
    assert "4 syncs, 1 failing: hourly: it is away → wait" in told.stdout
    failing = json.loads(CliRunner().invoke(command, ["status", "--json"]).stdout)["syncs"]
    assert failing == {
        "count": 4,
        "failing": [{"name": "hourly", "code": "away", "cause": "it is away", "remedy": "wait"}],
    }
    shown = json.loads(CliRunner().invoke(command, ["sync", "--json"]).stdout)
    assert {one["name"]: one["code"] for one in shown} == {"asked": None, "hourly": "away", "notes": None, "wiki": None}

    hooks = {"fresh": {"auth": "notion", "sync": "wiki"}}
    broken = settings.model_copy(update={"syncs": syncs, "broker_url": services.broker_url, "webhooks": hooks})
    checks = {check.name: check for check in examine(broken, quick=True)}
    assert (checks["sync wiki"].ok, checks["sync wiki"].found) == (False, "no token for Notion is set")
    assert "NOTION_TOKEN" in checks["sync wiki"].remedy
    assert (checks["webhook fresh"].ok, checks["webhook fresh"].remedy) == (None, "make the subscription in Notion")
    mended = broken.model_copy(update={"notion_token": "ntn_canary"})
    checks = {check.name: check for check in examine(mended, quick=True)}
    assert checks["syncs"].found == "hourly (place), asked (place), notes (folder), wiki (notion)"
