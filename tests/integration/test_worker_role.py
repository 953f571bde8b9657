"""The service as a role that owns nothing: grant_worker() is all that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from pipelines.database import connect
from pipelines.embed import open_embedder
from tests.fakes.http_service import client_of
from tests.fakes.openai_server import OpenAIServer
from worker.database import embedder_spec, prepare_database
from worker.embedded import Services
from worker.housekeeping import CHORES
from worker.ingest import Ingester
from worker.mark import warn_if_restored
from worker.receivers.app import create_http_app
from worker.receivers.auth import create_key
from worker.settings import Settings
from worker.sync.syncer import open_schedule

ROLE = "gm_plain_worker"


@pytest.fixture
def plain(dsn: str, database: Connection[Any]) -> Iterator[str]:
    """The same database for a role that may log in and was let in as a worker."""
    if database.execute("select from pg_roles where rolname = %s", (ROLE,)).fetchone() is None:
        database.execute(f"create role {ROLE} login".encode())
    database.execute("select grant_worker(%s)", (ROLE,))
    yield psycopg.conninfo.make_conninfo(dsn, user=ROLE)
    database.execute("select revoke_access(%s)", (ROLE,))


def test_a_worker_role_ingests_searches_tidies_and_erases(
    plain: str, services: Services, tmp_path: Path, database: Connection[Any]
) -> None:
    with OpenAIServer(dimensions=8) as model:
        settings = Settings(
            database_url=plain,
            home=tmp_path / "home",
            embedder="openai",
            openai_base_url=model.base_url,
            openai_api_key="any",
            embedding_dimensions=8,
            require_key="always",
        )
        assert prepare_database(settings, plain) == []
        with psycopg.connect(plain, autocommit=True) as session:
            who = "select current_user, rolsuper or rolbypassrls from pg_roles where rolname = current_user"
            assert session.execute(who).fetchone() == (ROLE, False)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute("create table ours (id int)")
        ingester = Ingester(settings, open_embedder(embedder_spec(settings)))
        app = create_http_app(settings, Services(plain, services.broker_url))
        with connect(plain) as connection, client_of(app) as client:
            warn_if_restored(connection, settings.home)
            client.headers["X-API-Key"] = create_key(connection, "crm", ["admin"], "acme")
            text = {
                "content": "The pump E-4711 is serviced in May.",
                "uri": "crm:pump",
                "callback_url": "http://a.example",
            }
            sent = client.post("/ingest/text", json=text, headers={"Idempotency-Key": "one"})
            assert sent.status_code == 202, sent.text
            assert ingester.work(seconds=30) == 1
            row = {"content": "a row of others", "metadata": {"n": 1}}
            prefer = {"Prefer": "return=representation"}
            (made,) = client.post("/rest/v1/documents", json=[row], headers=prefer).json()
            merge = {"Prefer": "resolution=merge-duplicates"}
            again = client.post("/rest/v1/documents", json=[{"id": made["id"], "content": "new"}], headers=merge)
            assert again.status_code == 201, again.text
            for _, chore in CHORES:
                chore(connection, settings)
            open_schedule(settings, connection, {}).register()
            for mode in ("hybrid", "keyword", "vector"):
                hits = client.post("/search", json={"query": "E-4711", "mode": mode}).json()["hits"]
                assert "E-4711" in next(hit["content"] for hit in hits), mode
            erased = client.delete("/sources", params={"uri": "crm:pump", "erase": True, "keep_out": True})
            assert erased.status_code == 200, erased.text
            assert (erased.json()["counts"]["documents"], erased.json()["kept_out"]) == (1, True)
            assert client.post("/search", json={"query": "E-4711", "mode": "keyword"}).json()["hits"] == []
        ingester.close()
    assert database.execute("select tenant, content from documents").fetchall() == [("acme", "new")]
    assert database.execute("select count(*) from erasures where finished_at is null").fetchone() == (0,)
