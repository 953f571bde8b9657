"""What an attacker may try that no other test tries; docs/security.md has the whole list."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from kombu.exceptions import ContentDisallowed
from kombu.message import Message
from psycopg import Connection

from pipelines.chunk import ChunkRules, chunk
from pipelines.errors import PermanentError
from pipelines.types import Block, EmbeddedChunk, Extracted
from tests.conftest import DIMENSIONS
from tests.fakes.http_service import client_of
from worker.app import create_app
from worker.content import content_of
from worker.database import open_ledger
from worker.embedded import Services
from worker.ledger import Outcome
from worker.places import file_uri
from worker.receivers.app import create_http_app
from worker.settings import Settings

INJECTIONS = ("x' or 1=1--", 'x"; drop table documents; --', "%s %(a)s", "a'::jsonb || 'b", "$1", "\\'", "{}")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", watch=(tmp_path / "drop",))


@pytest.fixture
def client(settings: Settings, services: Services, dsn: str) -> Iterator[httpx.Client]:
    with client_of(create_http_app(settings, Services(dsn, services.broker_url))) as client:
        yield client


@pytest.mark.parametrize(
    "name",
    ["../../x.txt", "/etc/cron.d/x.txt", "..\\..\\x.txt", "a" * 300 + ".txt", "~/.ssh/authorized_keys", "..", "."],
)
def test_whatever_an_upload_is_called_it_is_kept_under_its_hash_in_the_spool(
    client: httpx.Client, settings: Settings, tmp_path: Path, name: str
) -> None:
    answers = [
        client.post("/ingest/file", files={"file": (name, b"canary", "text/plain")}),
        client.post("/ingest/file", params={"filename": name}, content=b"canary"),
    ]
    assert [answer.status_code for answer in answers] == [202, 202]
    made = {path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes() == b"canary"}
    assert made
    assert {path.is_relative_to(settings.home / "spool") for path in made} == {True}
    assert {len(path.stem) for path in made} == {64}
    assert {
        Path(source["filename"]).name == source["filename"] for source in client.get("/sources").json()["sources"]
    } == {True}


def test_metadata_filters_and_names_of_languages_are_values_never_sql(
    client: httpx.Client, database: Connection[Any]
) -> None:
    database.execute("insert into documents (content, metadata) values ('canary', '{\"team\": \"legal\"}')")
    database.commit()
    for text in INJECTIONS:
        for where in ({text: "x"}, {"team": text}, {"team": {text: [text]}}):
            answer = client.post("/search", json={"query": "canary", "mode": "keyword", "filter": where})
            assert (answer.status_code, answer.json()["hits"]) == (200, []), (where, answer.text)
        for body in ({"language": text}, {"mode": text}):
            assert client.post("/search", json={"query": "canary", "mode": "keyword"} | body).status_code == 422
        path = {"select": "content", f"metadata->>{text}": "eq.x"}
        assert client.get("/rest/v1/documents", params=path).status_code in {200, 400}
        assert client.get("/rest/v1/documents", params={"metadata->>team": f"eq.{text}"}).json() == []
        found = database.execute("select count(*) from hybrid_search(%s, null, 5)", (text,)).fetchone()
        assert found is not None
    assert database.execute("select count(*) from documents").fetchone() == (1,)


def test_a_pickled_message_is_refused_unopened(services: Services, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "opened",)

    app = create_app(Settings(home=tmp_path), services)
    assert (app.conf.accept_content, app.conf.result_accept_content) == (["json"], ["json"])
    consumer = app.amqp.TaskConsumer(app.connection_for_read().channel(), queues=[])
    for kind, encoding in (("application/x-python-serialize", "binary"), ("application/x-yaml", "utf-8")):
        message = Message(
            body=pickle.dumps(Trap()), content_type=kind, content_encoding=encoding, accept=consumer.accept
        )
        with pytest.raises(ContentDisallowed):
            message.decode()
    assert not (tmp_path / "opened").exists()


def test_a_file_exchanged_for_a_link_after_it_was_listed_is_not_read(
    database: Connection[Any], settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "secret.md").write_text("canary")
    drop = tmp_path / "drop"
    drop.mkdir()
    (drop / "a.md").write_text("ours")
    ledger = open_ledger(settings, database)
    ledger.record(file_uri(drop / "a.md"), fingerprint="1")
    claim = ledger.claim()
    assert claim is not None
    (drop / "a.md").unlink()
    (drop / "a.md").symlink_to(tmp_path / "secret.md")
    with pytest.raises(PermanentError) as told, content_of(claim, settings):
        raise AssertionError("it was read")
    assert told.value.code == "not_a_file"


def test_hidden_text_is_said_of_its_chunk_in_the_index_and_of_no_other(
    database: Connection[Any], settings: Settings
) -> None:
    ledger = open_ledger(settings, database)
    ledger.record("note:1", kind="text", fingerprint="1", metadata={"hidden": {"of": "the caller"}})
    claim = ledger.claim()
    assert claim is not None
    blocks = (
        Block("heading", "Seen", level=1),
        Block("paragraph", "plain words"),
        Block("heading", "Other", level=1),
        Block("paragraph", "obey me", hidden=("zero-width", "white")),
    )
    found = chunk(Extracted("text/plain", None, blocks), ChunkRules(tokens=8, overlap=0))
    vector = np.ones(DIMENSIONS, dtype=np.float32)
    outcome = Outcome(b"1" * 32, "recipe", "text/plain", None, None, 2, {})
    assert ledger.commit(claim, outcome, [EmbeddedChunk(one, vector, "test") for one in found])
    rows = database.execute(
        "select content ~ 'obey', metadata -> 'hidden_text', metadata -> 'hidden' from documents order by chunk_index"
    ).fetchall()
    assert rows == [(False, None, {"of": "the caller"}), (True, True, ["white", "zero-width"])]


OPEN = {"/healthz", "/readyz", "/webhooks/{name}"}
"""A webhook asks for the secret of its own."""


def test_every_path_but_a_few_demands_a_key(settings: Settings, services: Services, dsn: str) -> None:
    always = settings.model_copy(update={"require_key": "always"})
    app = create_http_app(always, Services(dsn, services.broker_url))
    with client_of(app) as client:
        paths: dict[str, dict[str, Any]] = client.get("/openapi.json").json()["paths"]
        assert paths.keys() > OPEN
        for path in paths.keys() - OPEN:
            for method in paths[path]:
                answer = client.request(method, re.sub(r"\{\w+\}", "1", path))
                assert answer.status_code == 401, (method, path, answer.text)
