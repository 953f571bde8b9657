"""Erasure: a word that only the erased documents hold is looked for in all there is, before and after."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from psycopg import Connection
from psycopg.types.json import Jsonb

from pipelines.errors import GristmillError, PermanentError
from pipelines.store import PostgresVectors
from pipelines.types import OcrPage
from tests.fakes.eight_dimensions import EightDimensions
from tests.fakes.http_service import client_of
from tests.fakes.object_server import serving_objects
from tests.fakes.place import Place, PlaceConnector
from tests.fakes.sync_house import SyncHouse
from tests.integration.test_ledger import chunks, claimed, outcome
from tests.integration.test_page_ranges import take
from worker import ingest
from worker.children import Child, child_uri, record_children
from worker.connectors.config import SyncConfig
from worker.content import open_spool
from worker.embedded import Services
from worker.embedded.binaries import programs
from worker.embedded.places import account_of
from worker.erase import Eraser, finish, finish_erasures
from worker.ingest import Ingester
from worker.kept_out import allow
from worker.ledger import Ledger
from worker.object_store import s3
from worker.page_ranges import PageRanges, Parked
from worker.process import wait_for
from worker.receivers.app import create_http_app
from worker.receivers.auth import create_key
from worker.remote_spool import close_remote_spools
from worker.settings import Settings
from worker.watchers.ledger_sink import LedgerSink

CANARY = "zqxkorvat"
SHARED = "A paragraph about pumps that two documents have in common, word for word. " * 3


@pytest.fixture
def settings(dsn: str, tmp_path: Path) -> Settings:
    return Settings(database_url=dsn, home=tmp_path / "home", fetch_allow=("127.0.0.1",))


@pytest.fixture
def ledger(database: Connection[Any]) -> Ledger:
    return Ledger(database)


@pytest.fixture
def eraser(settings: Settings, database: Connection[Any]) -> Eraser:
    return Eraser(settings, database, tenant="default", who="os:tester")


@pytest.fixture
def work(settings: Settings) -> Iterator[Callable[[], None]]:
    """Index whatever is due."""
    ingester = Ingester(settings, EightDimensions())

    def run() -> None:
        while ingester.work(seconds=60):
            pass

    yield run
    ingester.close()


def dump(dsn: str, database: Connection[Any]) -> str:
    """The whole database as text, in lower case, and what Postgres keeps of it for its planner."""
    done = subprocess.run(
        [programs(account_of(os.geteuid())) / "pg_dump", dsn], capture_output=True, text=True, check=True
    )
    statistics = database.execute("select string_agg(s::text, ' ') from pg_stats s where schemaname = 'public'")
    return (done.stdout + str(statistics.fetchone())).lower()


def found_in(text: str) -> int:
    """How often the word is there, as text or as hexadecimal bytes."""
    return text.count(CANARY) + text.count(CANARY.encode().hex())


def files_with(home: Path) -> list[str]:
    """Files of a home that hold the word, by name or content."""
    return [
        str(path)
        for path in home.rglob("*")
        if path.is_file() and (CANARY in path.name.lower() or CANARY.encode() in path.read_bytes().lower())
    ]


def count(database: Connection[Any], query: str, *values: Any) -> int:
    row = database.execute(query.encode(), values).fetchone()
    assert row is not None
    return int(row[0])


def mail() -> bytes:
    message = EmailMessage()
    message["Subject"] = f"About {CANARY}"
    message.set_content(f"A letter that names {CANARY}.")
    inner = EmailMessage()
    inner["Subject"] = f"Forwarded {CANARY}"
    inner.set_content(f"Deeper, {CANARY} again.")
    inner.add_attachment(f"Deepest: {CANARY}", filename=f"{CANARY}.txt")
    message.add_attachment(inner)
    return message.as_bytes()


def test_nothing_of_a_document_is_left_and_all_of_its_neighbours(
    settings: Settings,
    services: Services,
    dsn: str,
    database: Connection[Any],
    ledger: Ledger,
    eraser: Eraser,
    work: Callable[[], None],
) -> None:
    with client_of(create_http_app(settings, Services(dsn, services.broker_url))) as client:

        def send(uri: str, content: bytes, name: str, **fields: str) -> int:
            answer = client.post(
                "/ingest/file",
                files={"file": (name, content)},
                data={"uri": uri, **fields},
                headers={"Idempotency-Key": f"key of {uri}"},
            )
            assert answer.status_code == 202, answer.text
            return int(answer.json()["sources"][0]["id"])

        send(f"crm:{CANARY}/mail", mail(), f"{CANARY}.eml", metadata=f'{{"person": "{CANARY}"}}',
             callback_url=f"http://127.0.0.1:8099/{CANARY}")  # fmt: skip
        shared = f"# Pumps\n\n{SHARED}\n".encode()
        for uri in (f"crm:{CANARY}/same", "crm:neighbour/same"):
            send(uri, shared, "pumps.md")
        own = f"\n# Person\n\n{(CANARY + ' wrote this. ') * 40}\n".encode()
        send(f"crm:{CANARY}/paragraph", shared + own, "pumps.md")
    work()
    ledger.record(f"crm:{CANARY}/failed", kind="upload", location="0" * 64)
    ledger.fail(claimed(ledger), PermanentError("corrupt", f"cannot read {CANARY}", "mend it"))
    ledger.record(f"crm:{CANARY}/gone", filename=CANARY, metadata={"a": CANARY})
    ledger.delete(f"crm:{CANARY}/gone")
    ranges = PageRanges(database)
    ledger.record(f"file:///{CANARY}/scan.pdf")
    claim = claimed(ledger)
    ranges.park(claim, Parked(1, b"1" * 32, "1 eng 200", None, f"{CANARY}.pdf"), [1, 2, 3], 3)
    ranges.save(take(ranges), OcrPage(1, (f"read: {CANARY}",), 90.0, languages="eng"))
    for receiver in (f"crm:{CANARY}/mail", "another"):
        database.execute("insert into webhook_deliveries values ('crm', %s)", (f"event of {receiver}",))
    for uri in (f"crm:{CANARY}/mail", "crm:neighbour"):
        database.execute(
            "insert into documents (content, metadata, embedding) values (%s, %s, '[1,0,0,0,0,0,0,0]')",
            (f"foreign {uri}", Jsonb({"uri": uri})),
        )
    database.execute("select refresh_statistics()")
    database.execute("vacuum (analyze)")
    uris = [f"crm:{CANARY}/{name}" for name in ("mail", "same", "paragraph", "failed", "gone")]
    uris.append(f"file:///{CANARY}/scan.pdf")

    before = dump(dsn, database)
    assert found_in(before) > 60
    assert count(database, "select count(*) from lexeme_statistics where lexeme like %s", f"%{CANARY}%") > 0
    assert len(files_with(settings.home)) >= 4
    assert count(database, "select count(*) from embedding_cache") > (
        vectors := count(database, "select count(distinct d.content_hash) from documents d join sources s on"
                                   " s.id = d.source_id where s.uri like 'crm:neighbour%%'"))  # fmt: skip

    receipts = eraser.erase(uris)
    finish(database)
    assert found_in(dump(dsn, database)) == 0
    assert files_with(settings.home) == []

    mail_receipt, same, _, failed, gone, scan = (receipt.counts for receipt in receipts)
    assert (mail_receipt["sources"], mail_receipt["callbacks"], mail_receipt["idempotency_keys"]) == (3, 1, 1)
    assert (mail_receipt["webhook_deliveries"], mail_receipt["spool_files"]) == (1, 3)
    assert (same["documents"], same["spool_files"]) == (1, 0), "its bytes are the neighbour's as well"
    assert (failed["sources"], gone["sources"], scan["page_ranges"]) == (1, 1, 2)
    assert receipts[0].bytes > len(mail())
    hashed = database.execute("select encode(erasure_hash('default', %s), 'hex')", (uris[0],)).fetchone()
    assert hashed == (receipts[0].hash,)
    kept = database.execute("select who, scope, kept_out, finished_at is not null from erasures").fetchall()
    assert kept == [("os:tester", "document", False, True)] * 6

    rows = database.execute("select uri, state from sources").fetchall()
    assert rows == [("crm:neighbour/same", "done")]
    row = database.execute("select location, content from sources s join documents d on d.source_id = s.id").fetchone()
    assert row is not None and SHARED.strip() in row[1]
    assert open_spool(settings).path(row[0]).read_bytes() == shared
    assert count(database, "select count(*) from embedding_cache") == vectors == 1
    assert count(database, "select count(*) from documents where source_id is null") == 1
    assert count(database, "select count(*) from webhook_deliveries") == 1
    assert count(database, "select count(*) from idempotency_keys") == 1
    assert eraser.erase(["crm:never"])[0].empty


def test_a_commit_that_is_under_way_is_erased_with_it_and_one_that_comes_later_writes_nothing(
    settings: Settings, database: Connection[Any], another: Callable[[], Connection[Any]], ledger: Ledger
) -> None:
    ledger.record("doc:1")
    claim = claimed(ledger)
    working, erasing = another(), another()
    eraser = Eraser(settings, erasing, tenant="default", who="os:tester")
    worker = Ledger(working)
    thread = threading.Thread(target=eraser.erase, args=(["doc:1"],))
    with working.transaction():
        assert worker.commit(claim, outcome(), chunks("one", "two"), [Child("doc:1#attachments/a", "a", "0" * 64)])
        thread.start()
        assert wait_for(lambda: count(database, "select count(*) from pg_locks where not granted") > 0, 30)
    thread.join(30)
    assert not thread.is_alive()
    assert count(database, "select count(*) from sources") == count(database, "select count(*) from documents") == 0

    ledger.record("doc:2")
    claim = claimed(ledger)
    eraser.erase(["doc:2"])
    assert not worker.renew(claim)
    PostgresVectors(working, claim.id).put("m", {b"1" * 32: np.ones(8, dtype=np.float32)})
    assert worker.commit(claim, outcome(), chunks("one")) is None
    assert worker.fail(claim, PermanentError("a", "b", "c")) is None
    assert count(database, "select count(*) from sources") == count(database, "select count(*) from documents") == 0
    assert count(database, "select count(*) from embedding_cache") == 0


def test_an_ocr_worker_that_is_at_it_is_fenced(database: Connection[Any], ledger: Ledger, eraser: Eraser) -> None:
    ranges = PageRanges(database)
    ledger.record("doc:scan")
    ranges.park(claimed(ledger), Parked(1, b"1" * 32, "1 eng 200", None, "scan.pdf"), [1, 2], 2)
    claim = take(ranges)
    eraser.erase(["doc:scan"])
    assert not ranges.renew(claim)
    assert ranges.save(claim, OcrPage(1, (CANARY,), 90.0, languages="eng")) == "fenced"
    assert ranges.fail(claim, PermanentError("a", "b", "c"), 1) == ranges.give_back(claim) == "fenced"
    assert count(database, "select count(*) from page_ranges") == 0


def test_what_a_worker_spools_of_a_document_that_is_erased_meanwhile_is_taken_back(
    settings: Settings, ledger: Ledger, eraser: Eraser, work: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    spooled = open_spool(settings).put(mail(), "a.eml")
    ledger.record("crm:mail", kind="upload", location=spooled.name, filename="a.eml")
    embed = ingest.embed_chunks

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        eraser.erase(["crm:mail"])
        assert files_with(settings.home), "its attachments are there already"
        return embed(*arguments, **options)

    monkeypatch.setattr(ingest, "embed_chunks", meanwhile)
    work()
    assert files_with(settings.home) == []
    assert count(ledger.connection, "select count(*) from embedding_cache") == 0


def test_what_was_erased_stays_out_until_it_is_allowed(
    database: Connection[Any], ledger: Ledger, eraser: Eraser
) -> None:
    ledger.record("doc:1")
    ledger.record("doc:2")
    eraser.erase(["doc:1", "doc:never-seen"], keep_out=True)
    for uri in ("doc:1", "doc:never-seen"):
        with pytest.raises(PermanentError, match="kept out") as refused:
            ledger.record(uri, force=True)
        assert uri not in str(refused.value)
    with pytest.raises(PermanentError, match="kept out"):
        ledger.refuse("doc:1", PermanentError("a", "b", "c"), kind="synced", settled=True)
    record_children(
        database, ledger.record("doc:2").source_id, tenant="default", depth=0, language=None, metadata={},
        children=[Child("doc:1", "a", "0" * 64, "1")],
    )  # fmt: skip
    assert Ledger(database, tenant="another").record("doc:1").changed, "it is another tenant's"
    assert ledger.rename("doc:2", "doc:1"), "what takes its place stays out as well"
    rows = database.execute("select tenant, uri, state from sources order by id").fetchall()
    assert rows == [("default", "doc:2", "deleted"), ("another", "doc:1", "pending")]
    assert (allow(database, "default", "doc:1"), allow(database, "default", "doc:1")) == (True, False)
    assert ledger.record("doc:1").changed


def test_an_insert_that_waits_for_the_erasure_is_refused_by_it(
    database: Connection[Any], another: Callable[[], Connection[Any]], ledger: Ledger
) -> None:
    late, refused = Ledger(another()), threading.Event()

    def record() -> None:
        with pytest.raises(PermanentError, match="kept out"):
            late.record("doc:1")
        refused.set()

    ledger.record("doc:1")
    thread = threading.Thread(target=record)
    with database.transaction():
        database.execute("lock table sources in exclusive mode")
        database.execute("delete from sources")
        database.execute("insert into kept_out (hash) values (erasure_hash('default', 'doc:1'))")
        thread.start()
        assert wait_for(lambda: count(database, "select count(*) from pg_locks where not granted") > 0, 30)
    thread.join(30)
    assert refused.is_set()


def test_what_would_come_back_is_not_erased_unless_it_is_kept_out(
    settings: Settings, tmp_path: Path, database: Connection[Any], ledger: Ledger, eraser: Eraser
) -> None:
    file = tmp_path / "a.txt"
    file.write_text(CANARY)
    parent = ledger.record(file.as_uri())
    child = child_uri(file.as_uri(), "b.txt")
    record_children(
        database, parent.source_id, tenant="default", depth=0, language=None, metadata={},
        children=[Child(child, "b.txt", "0" * 64)],
    )  # fmt: skip
    with pytest.raises(PermanentError, match="its file is still there"):
        eraser.erase([file.as_uri()])
    with pytest.raises(PermanentError, match="the document that it is part of stays"):
        eraser.erase([child])
    assert count(database, "select count(*) from sources") == 2
    eraser.erase([file.as_uri()], keep_out=True)
    assert count(database, "select count(*) from sources") == 0
    sink = LedgerSink(settings)
    sink.record_file(file, "1:1:1")
    assert sink.known_files(tmp_path) == {}
    assert sink._connection is not None
    sink._connection.close()
    file.unlink()
    allow(database, "default", file.as_uri())
    ledger.record(file.as_uri())
    assert not eraser.erase([file.as_uri()])[0].empty


def test_a_sync_forgets_what_was_erased_and_leaves_it_where_it_is(
    dsn: str, database: Connection[Any], settings: Settings, eraser: Eraser
) -> None:
    place = Place()

    def opener(_config: SyncConfig, surroundings: Any) -> PlaceConnector:
        return PlaceConnector(place, surroundings)

    house = SyncHouse(settings, database, SyncConfig(type="place", every=60), opener)
    try:
        place.put(CANARY, f"A page about {CANARY}.")
        place.files[CANARY] = {f"{CANARY}.txt": f"A file about {CANARY}."}
        place.put("parent", "Another page.")
        house.sync()
        house.syncer._schedule().hint("place", [CANARY])
        database.execute(
            "update syncs set cursor = %s, notices = %s, error_cause = %s",
            (Jsonb({"absent": {CANARY: 1}}), Jsonb([f"place:{CANARY}: unread", "a notice"]), f"place:{CANARY} broke"),
        )
        database.execute("update synced set state = %s where key = 'parent'", (Jsonb({"children": [CANARY]}),))
        with pytest.raises(PermanentError, match="the sync that brought it still has it"):
            eraser.erase([f"place:{CANARY}"])
        turn = house.syncer._schedule().take("place")
        receipt = eraser.erase([f"place:{CANARY}"], keep_out=True)[0]
        finish(database)
        assert found_in(dump(dsn, database)) == 0
        assert files_with(settings.home) == []
        assert (receipt.counts["sources"], receipt.counts["synced"], receipt.counts["sync_hints"]) == (2, 1, 1)
        row = database.execute("select token, failures, notices, full_at is null from syncs").fetchone()
        assert row == (None, 0, ["a notice"], True), "the run is fenced"
        assert turn is not None

        place.visits.clear()
        report = house.sync()
        assert report.counts["kept out"] == 1
        assert place.visits == ["parent"]
        assert house.index() == {"place:parent": "Another page."}
        house.syncer._schedule().hint("place", [CANARY])
        house.sync()
        place.put("elsewhere", "It turns out to be what was erased.")
        place.moved["elsewhere"] = f"place:{CANARY}"
        assert house.sync().counts["kept out"] == 2
        assert found_in(dump(dsn, database)) == 0
        allow(database, "default", f"place:{CANARY}")
        del place.moved["elsewhere"]
        house.sync()
        assert set(house.index()) == {
            "place:parent", "place:elsewhere", f"place:{CANARY}", f"place:{CANARY}#{CANARY}.txt"
        }  # fmt: skip
    finally:
        house.close()


def test_a_tenant_is_erased_and_the_others_are_not(
    dsn: str, settings: Settings, database: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = open_spool(settings)
    for tenant, word in ((CANARY, CANARY), ("another", "neighbour")):
        ledger = Ledger(database, tenant=tenant)
        for number in range(7):
            name = spool.put(f"{word} {number}".encode(), "a.txt").name
            ledger.record(f"crm:{word}/{number}", kind="upload", location=name, metadata={"word": word})
            ledger.commit(claimed(ledger), outcome(), chunks(f"{word} {number}"))
        database.execute("insert into syncs (tenant, name, kind) values (%s, %s, 'place')", (tenant, word))
        database.execute(
            "insert into documents (tenant, content, embedding) values (%s, %s, '[1,0,0,0,0,0,0,0]')", (tenant, word)
        )
    monkeypatch.setattr("worker.erase_statements.BATCH_DOCUMENTS", 3)
    receipt = Eraser(settings, database, tenant=CANARY, who="os:tester").erase_tenant(keep_out=True)
    finish(database)
    assert found_in(dump(dsn, database)) == 0
    assert files_with(settings.home) == []
    assert receipt.scope == "tenant" and receipt.kept_out
    counts = receipt.counts
    assert (counts["sources"], counts["documents"], counts["syncs"], counts["spool_files"]) == (7, 8, 1, 7)
    assert count(database, "select count(*) from sources where tenant = 'another'") == 7
    assert count(database, "select count(*) from documents where tenant = 'another'") == 8
    assert len([path for path in (settings.home / "spool").rglob("*") if path.is_file()]) == 7
    with pytest.raises(PermanentError, match="kept out"):
        Ledger(database, tenant=CANARY).record("crm:new")
    allow(database, CANARY, None)
    assert Ledger(database, tenant=CANARY).record("crm:new").changed


def test_over_http_it_takes_an_admin(
    dsn: str, services: Services, settings: Settings, database: Connection[Any], ledger: Ledger
) -> None:
    keys = {scope: create_key(database, scope, [scope]) for scope in ("ingest", "admin")}
    guarded = settings.model_copy(update={"require_key": "always"})
    id = ledger.record("doc:1", kind="upload", location="0" * 64).source_id
    file = settings.home / "a.txt"
    file.parent.mkdir(parents=True)
    file.write_text("still here")
    there = ledger.record(file.as_uri()).source_id
    with client_of(create_http_app(guarded, Services(dsn, services.broker_url))) as client:

        def erase(id: int, scope: str, more: str = "") -> Any:
            return client.delete(f"/sources/{id}?erase=true{more}", headers={"X-API-Key": keys[scope]})

        refused = erase(id, "ingest")
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
        returns = erase(there, "admin")
        assert (returns.status_code, returns.json()["code"]) == (409, "would_return")
        answer = erase(id, "admin").json()
        assert (answer["who"], answer["counts"]["sources"], answer["kept_out"]) == ("key:admin", 1, False)
        assert "doc:1" not in str(answer)
        assert erase(id, "admin").status_code == 404
        assert erase(there, "admin", "&keep_out=true").json()["kept_out"] is True
        other = ledger.record("doc:2", kind="upload", location="0" * 64).source_id
        assert erase(other, "admin", "&keep_out=true").status_code == 200
        sent = client.post(
            "/ingest/text", json={"content": CANARY, "uri": "doc:2"}, headers={"X-API-Key": keys["ingest"]}
        )
        assert (sent.status_code, sent.json()["code"]) == (409, "kept_out")
        assert files_with(settings.home) == [], "its bytes do not wait for the sweep"
    unfinished = "select count(*) from erasures where finished_at is null"
    assert wait_for(lambda: count(database, unfinished) == 0, 60), "in the background"


def test_a_spool_elsewhere_is_erased_and_a_twin_that_was_just_sent_is_not(
    tmp_path: Path, dsn: str, database: Connection[Any], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "ATTEMPTS", 1)
    with serving_objects() as server:
        server.admit(monkeypatch)
        url = f"s3://{server.bucket()}/spool"
        settings = Settings(database_url=dsn, home=tmp_path / "home", spool_url=url, s3_endpoint_url=server.url)
        spool = open_spool(settings)
        names = [spool.put(text.encode(), "a.txt").name for text in (CANARY, "shared")]
        for number, name in enumerate([*names, names[1]]):
            ledger.record(f"doc:{number}", kind="upload", location=name)
        receipts = Eraser(settings, database, tenant="default", who="os:tester").erase(["doc:0", "doc:1"])
        assert [receipt.counts["spool_files"] for receipt in receipts] == [1, 0]
        assert files_with(settings.home) == []
        assert not spool.path(names[0]).is_file(), "the store does not have it either"
        assert spool.path(names[1]).read_text() == "shared"
        close_remote_spools()
    local = open_spool(Settings(home=tmp_path / "local"))
    name = local.put(b"twin", "a.txt").name
    assert local.drop(database, [name], before=local.path(name).stat().st_mtime - 1) == (0, 0)
    assert local.drop(database, [name], before=local.path(name).stat().st_mtime) == (1, 4)


def test_what_was_broken_off_is_finished_by_housekeeping(database: Connection[Any], eraser: Eraser) -> None:
    assert not finish_erasures(database)
    eraser.erase(["doc:1"], keep_out=True)
    assert not finish_erasures(database), "whoever erased is at it"
    database.execute("insert into embedding_cache (model, text_hash, embedding) values ('m', %s, '[1]')", (b"1" * 32,))
    database.execute("insert into lexeme_statistics (lexeme, tenant, documents) values (%s, 'default', 2)", (CANARY,))
    database.execute("update erasures set erased_at = now() - interval '2 minutes'")
    assert finish_erasures(database)
    assert count(database, "select count(*) from embedding_cache") == 0
    assert count(database, "select count(*) from lexeme_statistics") == 0
    assert not finish_erasures(database)


def test_a_ledger_that_others_hold_is_not_waited_for_for_ever(
    another: Callable[[], Connection[Any]], eraser: Eraser, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.erase.LOCK_SECONDS", 0.05)
    ledger.record("doc:1")
    other = another()
    with other.transaction():
        other.execute("select from sources for update")
        with pytest.raises(GristmillError, match="nothing was erased"):
            eraser.erase(["doc:1"])
    assert ledger.record("doc:1", force=True).version == 2
