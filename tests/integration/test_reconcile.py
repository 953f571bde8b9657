"""A database of yesterday beside today's home and folders: what `reconcile` makes of it, thing by thing."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict
from typer.testing import CliRunner

from pipelines.database import connect
from tests.fakes.eight_dimensions import EightDimensions
from tests.fakes.http_service import client_of
from tests.integration.test_ledger import chunks, outcome
from worker.cli import app
from worker.connectors.registry import load_syncs
from worker.content import open_spool
from worker.embedded import Services
from worker.erase import Eraser, finish
from worker.housekeeping import advance_mark, sweep_spool
from worker.ingest import Ingester
from worker.journal import Journal, note_allowed, revocation
from worker.kept_out import allow
from worker.ledger import Ledger
from worker.mark import Marks, restored
from worker.places import file_uri
from worker.receivers.app import create_http_app
from worker.receivers.auth import create_key, revoke_key
from worker.reconcile import Report, reconcile
from worker.sent import Sent, deleted
from worker.settings import Settings
from worker.spool import KEEP_SECONDS
from worker.sync.syncer import Syncer

WHO = "os:tester"


class World:
    """A home, a folder, and a database that can be taken back to an earlier state."""

    def __init__(self, place: Path, dsn: str, broker: str, new_database: Callable[..., str]) -> None:
        self.drop = place / "drop"
        self.drop.mkdir()
        self._new_database = new_database
        self._broker = broker
        self.settings = Settings(
            home=place / "home", database_url=dsn, broker_url=broker, watch=(self.drop,), delete_guard_minimum=3
        )
        self._connection: Connection[Any] | None = None
        self.connection.execute("insert into index_models (model, dimensions) values ('eight', 8)")
        advance_mark(self.connection, self.settings)

    @property
    def connection(self) -> Connection[Any]:
        if self._connection is None:
            self._connection = connect(self.settings.database_url or "")
        return self._connection

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.connection)

    @property
    def http(self) -> Any:
        """A client of the HTTP service."""
        return client_of(create_http_app(self.settings, Services(self.settings.database_url or "", self._broker)))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def back_up(self) -> str:
        """A copy of the database as it is now; the mark moves on, as it does every few seconds."""
        self.close()
        copy = self._new_database(str(conninfo_to_dict(self.settings.database_url or "")["dbname"]))
        assert advance_mark(self.connection, self.settings)
        return copy

    def restore(self, copy: str) -> None:
        self.close()
        self.settings = self.settings.model_copy(update={"database_url": copy})

    def reconcile(self, **options: bool) -> Report:
        return reconcile(self.settings, self.connection, **options)

    def done(self, **options: bool) -> dict[str, int]:
        """What a reconciliation did, but for what every first one does."""
        always = {"statistics_taken", "setting_made", "sequences_raised"}
        return {kind: count for kind, count in self.reconcile(**options).done.items() if kind not in always}

    def work(self) -> None:
        """Index whatever is due."""
        ingester = Ingester(self.settings, EightDimensions())
        while ingester.work(seconds=60):
            pass
        ingester.close()

    def write(self, name: str, text: str) -> str:
        path = self.drop / name
        path.write_text(text)
        return file_uri(path)

    def erase(self, *uris: str, keep_out: bool = False, tenant: str = "default") -> None:
        eraser = Eraser(self.settings, self.connection, tenant=tenant, who=WHO)
        if uris:
            eraser.erase(list(uris), keep_out=keep_out)
        else:
            eraser.erase_tenant(keep_out=keep_out)
        finish(self.connection)

    def states(self) -> dict[str, str]:
        rows = self.connection.execute("select uri, state from sources").fetchall()
        return {uri.rsplit("/", 1)[-1]: state for uri, state in rows}

    def value(self, query: str, *values: Any) -> Any:
        row = self.connection.execute(query.encode(), values).fetchone()
        assert row is not None
        return row[0]


@pytest.fixture
def world(tmp_path: Path, dsn: str, services: Services, new_database: Callable[..., str]) -> Iterator[World]:
    made = World(tmp_path, dsn, services.broker_url, new_database)
    yield made
    made.close()


def send(client: Any, uri: str, text: str, **fields: Any) -> dict[str, Any]:
    answer = client.post("/ingest/text", json={"uri": uri, "content": text, **fields})
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()["sources"][0]
    return found


# --- folders ---------------------------------------------------------------------------------------------------


def test_folders_are_brought_to_truth_and_a_second_run_has_nothing_to_do(world: World) -> None:
    for name in ("same.md", "changes.md", "moves.md", "goes.md"):
        world.write(name, f"This is {name}, as it was.\n")
    first = world.reconcile()
    assert first.done["files_new"] == 4 and not first.restored
    world.work()
    copy = world.back_up()

    world.write("changes.md", "It has changed since, and is longer.\n")
    (world.drop / "moves.md").rename(world.drop / "moved.md")
    (world.drop / "goes.md").unlink()
    world.write("new.md", "It came since.\n")
    world.erase(world.write("kept-out.md", "Never again.\n"), keep_out=True)
    world.restore(copy)

    expected = {"files_new": 1, "files_changed": 1, "files_renamed": 1, "files_gone": 1}
    expected |= {"erasures_put_back": 1}
    looked = world.reconcile(dry_run=True)
    assert looked.restored and {k: v for k, v in looked.done.items() if k in expected} == expected
    assert world.states().keys() == {"same.md", "changes.md", "moves.md", "goes.md"}, "a dry run changes nothing"
    report = world.reconcile()
    assert {k: v for k, v in report.done.items() if k.startswith("files")} == {
        k: v for k, v in expected.items() if k.startswith("files")
    }
    assert (report.due, report.troubles) == (3, [])
    world.work()
    states = {"same.md": "done", "changes.md": "done", "moved.md": "done", "goes.md": "deleted", "new.md": "done"}
    assert world.states() == states
    assert world.value("select content from documents where content like '%%since, and is longer%%'")
    again = world.reconcile()
    assert (again.done, again.troubles, again.restored) == ({}, [], False)


def test_many_deletions_need_a_person_and_a_folder_that_is_away_as_well(world: World) -> None:
    for number in range(4):
        world.write(f"{number}.md", f"Number {number}.\n")
    world.reconcile()
    for path in world.drop.iterdir():
        path.unlink()
    report = world.reconcile()
    assert [one.kind for one in report.troubles] == ["folder_guard"]
    assert "--confirm-deletions" in report.troubles[0].remedy
    assert set(world.states().values()) == {"pending"}
    assert world.done(confirmed=True) == {"files_gone": 4}
    assert set(world.states().values()) == {"deleted"}

    world.write("0.md", "Back.\n")
    world.reconcile()
    world.drop.rename(world.drop.with_name("away"))
    report = world.reconcile(confirmed=True)
    assert [one.kind for one in report.troubles] == ["folder_absent"], "a folder that is not there confirms nothing"
    assert world.states()["0.md"] == "pending"


# --- what is gone ----------------------------------------------------------------------------------------------


def test_what_was_erased_is_erased_again_with_its_attachments_and_under_an_older_name(world: World) -> None:
    mail = EmailMessage()
    mail["Subject"] = "Secret"
    mail.set_content("A secret letter.")
    mail.add_attachment("A secret attachment.\n", filename="inner.txt")
    (world.drop / "letter.eml").write_bytes(mail.as_bytes())
    world.write("old-name.md", "It will be called otherwise.\n")
    world.write("stays.md", "It stays.\n")
    world.reconcile()
    world.work()
    assert len(world.states()) == 4
    copy = world.back_up()

    (world.drop / "old-name.md").rename(world.drop / "new-name.md")
    world.reconcile()
    world.work()
    for name in ("letter.eml", "new-name.md"):
        (world.drop / name).unlink()
    world.erase(*(file_uri(world.drop / name) for name in ("letter.eml", "new-name.md")))
    assert world.states() == {"stays.md": "done"}
    receipts = world.connection.execute("select erased_at, hash, counts from erasures order by id").fetchall()
    assert "letter" not in Journal(world.settings.home).path.read_text()
    assert restored(world.connection, world.settings.home) is None

    world.restore(copy)
    assert len(world.states()) == 4, "all is back"
    assert "2 erasures in the journal" in (restored(world.connection, world.settings.home) or "")
    assert world.done() == {"erasures_put_back": 2, "erased_again": 2}
    assert world.states() == {"stays.md": "done"}
    assert world.value("select count(*) from documents") == 1
    assert world.value("select count(*) from embedding_cache") == 1
    back = world.connection.execute("select erased_at, hash, counts from erasures order by id").fetchall()
    assert [row[:2] for row in back] == [row[:2] for row in receipts], "as they were"
    assert [row[2]["sources"] for row in back] == [2, 1]
    assert world.value("select count(*) from erasures where finished_at is null") == 0
    assert world.done() == {}
    assert len(Journal(world.settings.home).read()) == 2, "what is done again is not noted again"


def test_what_came_back_after_its_erasure_stays(world: World) -> None:
    with world.http as client:
        send(client, "crm:a", "As it was yesterday.")
    world.work()
    copy = world.back_up()
    with world.http as client:
        assert client.delete("/sources", params={"uri": "crm:a"}).status_code == 200
        world.erase("crm:a")
        send(client, "crm:a", "Sent anew after it was erased.")
        world.work()
    world.restore(copy)
    assert world.done() == {"deleted_again": 1, "erasures_put_back": 1, "erased_again": 1, "sent_new": 1}
    world.work()
    assert world.connection.execute("select content from documents").fetchall() == [("Sent anew after it was erased.",)]
    assert world.done() == {}


def test_keeping_out_and_letting_in_end_as_they_ended(world: World) -> None:
    def kept() -> set[str]:
        return {uri for uri in uris if world.value("select is_kept_out('default', %s)", uri)}

    uris = ["x:kept", "x:let-in", "x:kept-again", "x:let-in-since"]
    world.erase("x:let-in-since", "x:kept-again", keep_out=True)
    allow(world.connection, "default", "x:kept-again")
    note_allowed(world.connection, Journal(world.settings.home), "default", ["x:kept-again"], WHO)
    world.erase("x:kept-again", keep_out=True)
    copy = world.back_up()
    world.erase("x:kept", "x:let-in", keep_out=True)
    for uri in ("x:let-in", "x:let-in-since"):
        assert allow(world.connection, "default", uri)
        note_allowed(world.connection, Journal(world.settings.home), "default", [uri], WHO)
    truth = kept()
    assert truth == {"x:kept", "x:kept-again"}
    world.restore(copy)
    assert kept() == {"x:let-in-since", "x:kept-again"}
    done = world.done()
    assert kept() == truth
    assert done == {"erasures_put_back": 2, "kept_out_again": 2, "let_in_again": 2}
    assert world.done() == {}
    with pytest.raises(Exception, match="was erased"):
        world.ledger.record("x:kept")


def test_a_tenant_is_erased_again_but_not_what_it_has_had_since(world: World) -> None:
    acme = Ledger(world.connection, tenant="acme")
    for number in range(3):
        acme.record(f"crm:{number}", kind="text", location=open_spool(world.settings).put(b"text", "a.txt").name)
    world.ledger.record("crm:mine", kind="text", location=open_spool(world.settings).put(b"text", "a.txt").name)
    world.connection.execute("insert into documents (content, tenant) values ('inserted by others', 'acme')")
    world.connection.execute("insert into syncs (tenant, name, kind) values ('acme', 'wiki', 'notion')")
    copy = world.back_up()
    world.erase(tenant="acme")
    world.restore(copy)
    Ledger(world.connection, tenant="acme").record("crm:later", kind="text")
    assert world.done() == {"erasures_put_back": 1, "erased_again": 3}
    assert world.connection.execute("select tenant, uri from sources order by uri").fetchall() == [
        ("acme", "crm:later"),
        ("default", "crm:mine"),
    ]
    assert world.value("select (select count(*) from documents) + (select count(*) from syncs)") == 0
    assert world.done() == {}


def test_what_was_deleted_or_revoked_is_so_again(world: World) -> None:
    with world.http as client:
        ids = {uri: send(client, uri, f"About {uri}.")["id"] for uri in ("crm:a", "crm:b", "crm:c", "crm:d")}
    world.work()
    create_key(world.connection, "old", ["search"])
    create_key(world.connection, "same-name", ["search"])
    copy = world.back_up()
    with world.http as client:
        assert client.delete(f"/sources/{ids['crm:a']}").status_code == 200
        assert client.delete("/sources", params={"uri": "crm:b"}).status_code == 200
        client.delete("/sources", params={"uri": "crm:c"})
        send(client, "crm:c", "About crm:c.")
    for name in ("old", "same-name"):
        Journal(world.settings.home).append(revocation(world.connection, name, WHO))
        revoke_key(world.connection, name)
    world.restore(copy)
    create_key(world.connection, "made-since", ["search"])
    report = world.reconcile()
    assert report.done["deleted_again"] == 3 and report.done["keys_revoked_again"] == 2
    assert report.done["sent_again"] == 1
    world.work()
    assert world.states() == {"crm:a": "deleted", "crm:b": "deleted", "crm:c": "done", "crm:d": "done"}
    assert world.value("select string_agg(name, ' ') from api_keys") == "made-since"
    assert world.done() == {}
    assert len(list(Sent(world.settings.home).notes())) == 2, "no name of what was deleted is kept"


# --- what was sent ---------------------------------------------------------------------------------------------


def test_what_was_sent_since_comes_back_as_it_was_under_its_own_id(world: World) -> None:
    with world.http as client:
        send(client, "crm:old", "As it was.", metadata={"n": 1})
    world.work()
    copy = world.back_up()
    with world.http as client:
        changed = send(client, "crm:old", "As it is now.", metadata={"n": 2})
        text = send(client, "crm:new", "A new one.", title="New", metadata={"who": "me"}, language="german")
        files = {"file": ("a.md", b"# Uploaded\n\nWithout a uri.\n")}
        upload = client.post("/ingest/file", files=files).json()["sources"][0]
        page = client.post("/ingest/url", json={"url": "https://example.org/a"}).json()["sources"][0]
        send(client, "crm:gone", "It was there for a moment.")
        client.delete("/sources", params={"uri": "crm:gone"})
    columns = "uri, kind, fingerprint, location, filename, language, metadata, event_at"
    truth = world.connection.execute(f"select id, {columns} from sources where state <> 'deleted'").fetchall()
    world.restore(copy)
    assert world.done() == {"sent_new": 3, "sent_again": 1}
    there = world.connection.execute(f"select id, {columns} from sources where state <> 'deleted'").fetchall()
    assert sorted(there) == sorted(truth)
    assert {text["id"], upload["id"], page["id"]} < {row[0] for row in there}
    versions = dict(world.connection.execute("select uri, version from sources").fetchall())
    assert versions["crm:old"] > changed["version"] and versions["crm:new"] > text["version"]
    assert world.done() == {}
    world.connection.execute("delete from sources where kind = 'url'")
    world.work()
    content = {row[0] for row in world.connection.execute("select content from documents").fetchall()}
    assert content >= {"As it is now.", "A new one."} and "As it was." not in content


def test_ids_of_what_is_taken_back_are_never_met_again(world: World) -> None:
    copy = world.back_up()
    with world.http as client:
        last = [send(client, f"crm:{number}", f"Number {number}.")["id"] for number in range(3)][-1]
    (world.settings.home / "mark.json").unlink()
    world.restore(copy)
    assert world.reconcile().done["sent_new"] == 3
    assert world.value("select max(id) from sources") == last
    assert min(world.ledger.record(f"other:{number}", kind="text").source_id for number in range(5)) > last


def test_a_role_that_only_works_reconciles_and_says_what_the_owner_has_to_do(world: World) -> None:
    copy = world.back_up()
    with world.http as client:
        send(client, "crm:a", "Sent since.")
    world.restore(copy)
    if not world.value("select count(*) from pg_roles where rolname = 'reconciler'"):
        world.connection.execute("create role reconciler")
    world.connection.execute("select grant_worker('reconciler')")
    world.restore(f"{copy}&options=-c%20role%3Dreconciler")
    report = world.reconcile()
    assert report.done["sent_new"] == 1
    assert {one.kind for one in report.troubles} == {"sequence"}
    assert "as the owner of the tables: select setval('sources_id_seq', " in report.troubles[0].remedy
    world.work()
    assert world.states() == {"crm:a": "done"}
    world.restore(copy)
    world.connection.execute("drop owned by reconciler")


def test_an_id_that_was_given_out_again_costs_the_document_its_own(world: World) -> None:
    copy = world.back_up()
    with world.http as client:
        sent = send(client, "crm:new", "A new one.")
    world.restore(copy)
    assert world.ledger.record("other:document", kind="text").source_id == sent["id"]
    world.reconcile()
    assert world.value("select id from sources where uri = 'crm:new'") > sent["id"]
    assert world.value("select uri from sources where id = %s", sent["id"]) == "other:document"


def test_what_is_in_the_spool_alone_is_not_swept_before_it_was_reconciled(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    copy = world.back_up()
    with world.http as client:
        send(client, "crm:new", "A new one.")
        nameless = open_spool(world.settings).put(b"named by nobody", "a.txt")
        lost = send(client, "crm:lost", "Its bytes will be gone.")
    spool = world.settings.home / "spool"
    long_ago = time.time() - KEEP_SECONDS - 60
    for path in spool.rglob("*.txt"):
        os.utime(path, (long_ago, long_ago))
    name = world.value("select location from sources where id = %s", lost["id"])
    (spool / name[:2] / name).unlink()
    world.restore(copy)
    assert not advance_mark(world.connection, world.settings), "nor does the mark move"
    assert sweep_spool(world.connection, world.settings) == 0
    assert "older than what this home has seen" in caplog.text and "run: gristmill reconcile" in caplog.text
    report = world.reconcile()
    assert report.done["sent_new"] == 1
    assert [(one.kind, one.documents) for one in report.troubles] == [("sent_lost", ("crm:lost",))]
    assert any("1 files in the spool are named by no document" in one for one in report.notices)
    assert sweep_spool(world.connection, world.settings) == 0, "left for a day"
    assert advance_mark(world.connection, world.settings)
    world.work()
    assert world.states() == {"crm:new": "done"}
    mark = json.loads((world.settings.home / "mark.json").read_text())
    (world.settings.home / "mark.json").write_text(json.dumps(mark | {"spared_until": "2020-01-01T00:00:00+00:00"}))
    assert sweep_spool(world.connection, world.settings) == 1
    assert nameless.name not in open_spool(world.settings).names()


def test_a_new_database_beside_an_old_home_is_noticed_and_gets_what_was_sent(
    world: World, migrated_template: str, new_database: Callable[..., str]
) -> None:
    with world.http as client:
        send(client, "crm:a", "Sent before.")
    world.write("a.md", "A file.\n")
    world.erase("crm:erased", keep_out=True)
    other = new_database(migrated_template)
    with connect(other) as connection:
        connection.execute("update erasure_salt set salt = sha256('another')")
    world.restore(other)
    assert "another one" in (restored(world.connection, world.settings.home) or "")
    assert sweep_spool(world.connection, world.settings) == 0
    report = world.reconcile()
    assert report.done["sent_new"] == 1 and report.done["files_new"] == 1
    assert any("1 erasures in the journal are of another database" in one for one in report.notices)
    world.work()
    assert set(world.states().values()) == {"done"}
    assert world.done() == {}
    assert restored(world.connection, world.settings.home) is None
    world.erase("crm:a", keep_out=True)
    assert list(Sent(world.settings.home).notes()) == [], "under the new hash"


def test_a_note_of_what_another_machine_deleted_or_erased_is_not_taken_in(world: World) -> None:
    with world.http as client:
        for uri in ("crm:deleted", "crm:erased"):
            send(client, uri, f"About {uri}.")
    elsewhere = world.settings.model_copy(update={"home": world.settings.home.with_name("elsewhere")})
    world.ledger.delete("crm:deleted")
    deleted(world.connection, elsewhere.home, "default", ["crm:deleted"])
    Eraser(elsewhere, world.connection, tenant="default", who=WHO).erase(["crm:erased"])
    assert len(list(Sent(world.settings.home).notes())) == 2
    assert world.done() == {}
    assert world.states() == {"crm:deleted": "deleted"}
    assert [note.uri for _, note in Sent(world.settings.home).notes()] == ["crm:deleted"]


# --- the index -------------------------------------------------------------------------------------------------


def test_bytes_that_are_gone_are_told_and_their_documents_stay_searchable(world: World) -> None:
    with world.http as client:
        for uri in ("crm:a", "crm:b", "crm:torn"):
            send(client, uri, f"About {uri}.")
    world.work()
    locations = dict(world.connection.execute("select uri, location from sources").fetchall())
    for uri in ("crm:b", "crm:torn"):
        (world.settings.home / "spool" / locations[uri][:2] / locations[uri]).unlink()
    world.connection.execute("delete from documents where content like '%torn%'")
    report = world.reconcile()
    told = {one.kind: (one.count, set(one.documents)) for one in report.troubles}
    assert told == {"bytes_gone": (2, {"crm:b", "crm:torn"}), "chunks": (1, {"crm:torn"})}
    assert "chunks_mended" not in report.done
    assert set(world.states().values()) == {"done"}
    assert world.value("select count(*) from documents where content = 'About crm:b.'") == 1


def test_chunks_that_do_not_fit_their_source_are_made_again(world: World) -> None:
    for name in ("right", "lacking", "foreign"):
        world.write(f"{name}.md", f"# {name}\n\nOne.\n")
    world.reconcile()
    world.work()
    before = world.connection.execute("select content, embedding::text, model from documents order by id").fetchall()
    kept = world.value("select id from documents where content like '%%One%%' and context like '%%right%%'")
    world.connection.execute("delete from documents where context like '%lacking%'")
    world.connection.execute("update documents set model = 'another' where context like '%foreign%'")
    assert world.done() == {"chunks_mended": 2}
    world.work()
    after = world.connection.execute("select content, embedding::text, model from documents order by id").fetchall()
    assert sorted(after) == sorted(before)
    assert world.value("select id from documents where context like '%%right%%'") == kept
    assert world.done() == {}


def test_leases_of_yesterday_end_and_whoever_held_one_is_fenced(world: World) -> None:
    world.write("a.md", "A file.\n")
    world.reconcile()
    claim = world.ledger.claim()
    assert claim is not None
    world.connection.execute("update sources set attempts = 5, lease_until = now() - interval '1 hour'")
    copy = world.back_up()
    world.restore(copy)
    today = replace(claim, token=world.value("select gen_random_uuid()"))
    assert world.ledger.commit(today, outcome(), chunks("claimed after the backup")) is None
    assert world.done() == {"leases_ended": 1}
    assert world.ledger.commit(claim, outcome(), chunks("claimed before the backup")) is None
    assert world.value("select attempts from sources") == 0, "five deaths of a day that was not are not held against it"
    world.work()
    assert world.states() == {"a.md": "done"}


def test_no_id_is_given_out_twice_and_callbacks_have_new_names(world: World) -> None:
    world.write("a.md", "A file.\n")
    world.reconcile()
    copy = world.back_up()
    last = [world.ledger.record(f"x:{number}").source_id for number in range(20)][-1]
    world.connection.execute("insert into callbacks (source_id, version, url) values (%s, 1, 'https://x')", (last,))
    callback = world.value("select max(id) from callbacks")
    advance_mark(world.connection, world.settings)
    world.restore(copy)
    report = world.reconcile()
    assert report.done["sequences_raised"] >= 2
    assert world.ledger.record("x:later").source_id > last
    world.connection.execute("insert into callbacks (source_id, version, url) select id, 1, 'x' from sources limit 1")
    assert world.value("select max(id) from callbacks") > callback
    assert "sequences_raised" not in world.reconcile().done


def test_syncs_list_everything_and_words_are_counted(world: World, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    syncs = {"notes": {"type": "folder", "path": str(tmp_path / "notes")}}
    world.settings = world.settings.model_copy(update={"syncs": syncs})
    world.connection.execute(
        "insert into syncs (name, kind, full_at, cursor, next_at)"
        " values ('notes', 'folder', now() + interval '1 day', '{\"since\": 1}', now() + interval '1 day')"
    )
    copy = world.back_up()
    world.restore(copy)
    report = world.reconcile()
    assert (report.done["syncs_asked"], report.done["statistics_taken"]) == (1, 1)
    row = world.connection.execute("select full_at, cursor, asked_at <= now() from syncs").fetchone()
    assert row == (None, {}, True)
    assert "syncs_asked" not in world.reconcile().done


def test_a_sync_brings_what_it_has_had_since_and_takes_what_went(world: World, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    sync = {"type": "folder", "path": str(notes), "every": "1s", "confirm_after": "0s"}
    # What is written here is whole at once, so no run needs to wait until it is quiet.
    world.settings = world.settings.model_copy(update={"syncs": {"notes": sync}, "stability_seconds": 0})

    def run_syncs() -> None:
        syncer = Syncer(world.settings, load_syncs(world.settings))
        try:
            assert syncer.sync("notes")[1] is None
        finally:
            syncer.close()
        world.work()

    def index() -> dict[str, str]:
        rows = world.connection.execute("select uri, content from documents join sources on sources.id = source_id")
        return {uri.rsplit("/", 1)[-1]: content for uri, content in rows.fetchall()}

    for name in ("same.md", "changes.md", "goes.md", "kept-out.md"):
        (notes / name).write_text(f"This is {name}, as it was.\n")
    run_syncs()
    assert len(index()) == 4
    copy = world.back_up()

    (notes / "changes.md").write_text("It has changed since, and is longer.\n")
    (notes / "goes.md").unlink()
    (notes / "new.md").write_text("It came since.\n")
    kept_out = world.value("select uri from sources where uri like '%%kept-out.md'")
    run_syncs()
    world.erase(kept_out, keep_out=True)
    run_syncs()
    truth = index()
    assert truth.keys() == {"same.md", "changes.md", "new.md"}

    world.restore(copy)
    assert len(index()) == 4
    done = world.done()
    assert (done["syncs_asked"], done["erased_again"]) == (1, 1)
    run_syncs()
    assert index() == truth


# --- the command -----------------------------------------------------------------------------------------------


def test_the_command_tells_programs_and_people_and_its_code_says_whether_anybody_is_needed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = world.settings
    for name in ("home", "database_url", "broker_url"):
        monkeypatch.setenv(f"GRISTMILL_{name.upper()}", str(getattr(given, name)))
    monkeypatch.setenv("GRISTMILL_DELETE_GUARD_MINIMUM", "3")
    runner = CliRunner()
    for number in range(3):
        world.write(f"{number}.md", f"Number {number}.\n")
    looked = runner.invoke(app, ["reconcile", "--watch", str(world.drop), "--dry-run", "--json"])
    assert looked.exit_code == 0, looked.output
    answer = json.loads(looked.stdout)
    assert answer["dry_run"] and not answer["restored"] and answer["done"]["files_new"] == 3
    assert world.states() == {}
    done = runner.invoke(app, ["reconcile", "--watch", str(world.drop)])
    assert done.exit_code == 0 and "3 new files" in done.stdout and "3 documents wait for the workers" in done.stdout
    again = runner.invoke(app, ["reconcile", "--watch", str(world.drop)])
    assert "nothing to do" in again.stdout
    for path in world.drop.iterdir():
        path.unlink()
    asked = runner.invoke(app, ["reconcile", "--watch", str(world.drop), "--json"])
    assert asked.exit_code == 3
    assert json.loads(asked.stdout)["needs_a_person"][0]["kind"] == "folder_guard"
    confirmed = runner.invoke(app, ["reconcile", "--watch", str(world.drop), "--confirm-deletions", "--json"])
    assert confirmed.exit_code == 0 and json.loads(confirmed.stdout)["done"] == {"files_gone": 3}


def test_a_mark_that_cannot_be_read_stops_the_sweep_and_says_what_to_do(world: World, caplog: Any) -> None:
    (world.settings.home / "mark.json").write_text("{")
    assert sweep_spool(world.connection, world.settings) == 0
    assert "move it away" in caplog.text
    (world.settings.home / "mark.json").unlink()
    assert Marks(world.settings.home).read() is None
    assert world.reconcile().restored, "who knows what this home has seen"
    assert restored(world.connection, world.settings.home) is None
