"""A database that is taken back to a moment of its day, by base backup and archived log, and then reconciled."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sql.migrate import migrate
from tests.conftest import DIMENSIONS
from tests.fakes.archived_server import ArchivedServer, now
from tests.integration.test_reconcile import World, send
from worker.embedded import Services
from worker.mark import advance_mark, restored


@pytest.fixture
def server() -> Iterator[ArchivedServer]:
    with tempfile.TemporaryDirectory(prefix="gm-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)  # as root, Postgres runs as another user and has to get through
        made = ArchivedServer(Path(name))
        yield made
        made.stop()


@pytest.mark.timeout(400)  # two servers are started, and one of them stopped
def test_a_database_taken_back_to_a_moment_is_brought_to_todays_truth(
    server: ArchivedServer, services: Services, tmp_path: Path
) -> None:
    with psycopg.connect(server.address, autocommit=True) as admin:
        admin.execute("create database app")
    address = make_conninfo(server.address, dbname="app")
    migrate(address, dimensions=DIMENSIONS)
    world = World(tmp_path, address, services.broker_url, lambda template: template)
    for name in ("same.md", "changes.md", "goes.md", "erased.md"):
        world.write(name, f"This is {name}, as it was.\n")
    world.reconcile()
    world.work()
    server.base_backup()

    world.write("after-the-backup.md", "It came between the backup and the moment.\n")
    with world.http as client:
        before = send(client, "crm:before", "Sent between the backup and the moment.")
    world.reconcile()
    world.work()
    assert advance_mark(world.connection, world.settings)
    moment = now(address)

    world.write("changes.md", "It has changed since, and is longer.\n")
    for name in ("goes.md", "erased.md"):
        (world.drop / name).unlink()
    world.erase((world.drop / "erased.md").as_uri())
    with world.http as client:
        since = send(client, "crm:since", "Sent since.")
    world.reconcile()
    world.work()
    assert advance_mark(world.connection, world.settings)
    truth = world.states()
    live = ["same.md", "changes.md", "after-the-backup.md", "crm:before", "crm:since"]
    assert truth == dict.fromkeys(live, "done") | {"goes.md": "deleted"}
    world.close()

    server.restore(moment)
    assert world.states() == dict.fromkeys(
        ["same.md", "changes.md", "goes.md", "erased.md", "after-the-backup.md", "crm:before"], "done"
    ), "all that was there at the moment, and nothing of what came after it"
    assert restored(world.connection, world.settings.home) is not None
    done = world.done()
    expected = {"files_changed": 1, "files_gone": 1, "erasures_put_back": 1, "erased_again": 1, "sent_new": 1}
    assert done == expected
    world.work()
    assert world.states() == truth
    ids = dict(world.connection.execute("select uri, id from sources where uri like 'crm:%'").fetchall())
    assert ids == {"crm:before": before["id"], "crm:since": since["id"]}
    assert world.value("select content from documents where content like '%%since, and is longer%%'")
    assert world.done() == {}
    world.close()
