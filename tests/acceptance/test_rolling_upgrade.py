"""The last released version at work while the database is brought up to this one, and both next to each other."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pipelines.database import connect
from sql.locks import EXCLUSIVE_MS
from sql.migrate import migrate
from tests.acceptance.conftest import until
from tests.chaos.checker import AUDIT, Verdict, examine_ledger
from tests.fakes.openai_server import OpenAIServer
from tests.upgrade.snapshot import REPOSITORY, Release, releases, source_tree
from worker.embedded import Services
from worker.ledger import Ledger

ROLE = "rolling"
DOCUMENTS = 40
LOCKED_MS = EXCLUSIVE_MS + 2_500
"""For how long a reader may have to wait for a lock: as long as others wait for it, and for a busy machine."""
READY = "ready: home"
TROUBLE = re.compile(r"ERROR|CRITICAL|Traceback|WARNING|lost the database|failed")

SPOKEN = re.compile(
    r'"gristmill_migrations" already exists, skipping|hnsw.iterative_scan could not be made the default'
    r"|kombu.* Requeuing undeliverable message|did not stop in time and is killed"
)
"""What version 0.1.0 says of every schema that it makes, or finds, as a plain role; and of stops under load.

There its pool processes may wait 30 s for a message that Celery has forgotten; later versions do not.
"""


class Machine:
    """One machine that runs `gristmill up --only worker` from the code in a folder."""

    def __init__(self, code: Path, home: Path, environment: dict[str, str]) -> None:
        self.code = code
        self.log = home.with_suffix(".log")
        self.environment = environment | {"GRISTMILL_HOME": str(home), "PYTHONPATH": str(code)}
        self.process: subprocess.Popen[bytes] | None = None
        self.readies = 0

    def start(self) -> None:
        """Start it."""
        self.readies = self.said().count(READY)
        command = [sys.executable, "-m", "worker.cli", "up", "--only", "worker"]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                command, env=self.environment, cwd=self.code, stdout=log, stderr=subprocess.STDOUT
            )

    def ready(self) -> None:
        """Wait until it says that it is."""
        assert self.process is not None
        process = self.process
        until(lambda: process.poll() is not None or self.said().count(READY) > self.readies, "a machine")
        assert process.poll() is None, self.said()[-3000:]

    def said(self) -> str:
        """Its log."""
        return self.log.read_text() if self.log.exists() else ""

    def end(self) -> None:
        """Ask it to stop, as a service manager does."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def ended(self) -> None:
        """Wait until it has."""
        if self.process is not None:
            self.process.wait(180)


class Producer(threading.Thread):
    """Somebody who writes, changes and deletes documents all the time, by the ledger of this version."""

    def __init__(self, dsn: str, drop: Path) -> None:
        super().__init__()
        self.dsn = dsn
        self.drop = drop
        self.live: dict[int, int] = {}
        """The last version of every document that exists, by its number."""
        self.enough = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with connect(self.dsn) as connection:
                ledger = Ledger(connection)
                count = 0
                while not self.enough.wait(0.03):
                    count += 1
                    self._one(ledger, count)
        except psycopg.Error as error:
            self.error = error

    def _one(self, ledger: Ledger, count: int) -> None:
        number = count % DOCUMENTS
        path = self.drop / f"{number}.md"
        if count % 11 == 0 and number in self.live:
            del self.live[number]
            ledger.delete(path.as_uri())
            return
        fresh = path.with_suffix(".new")
        fresh.write_text(f"# Item {number}\n\nItem {number} in version {count} is in store, part SKU {number}-B.\n")
        fresh.replace(path)
        self.live[number] = count
        ledger.record(path.as_uri(), fingerprint=str(count))


class Reader(threading.Thread):
    """Somebody who asks all the time, over a connection that has been open since before the upgrade."""

    def __init__(self, dsn: str, query: str) -> None:
        super().__init__()
        self.dsn = dsn
        self.query = query
        self.longest = 0.0
        self.asked = 0
        self.errors: list[str] = []
        self.enough = threading.Event()

    def run(self) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            # Taken by the server and of locks alone: how long an answer takes is a matter of the machine.
            connection.execute(f"set lock_timeout = {LOCKED_MS}".encode())
            while not self.enough.wait(0.002):
                began = time.monotonic()
                try:
                    connection.execute(self.query.encode()).fetchall()
                except psycopg.Error as error:
                    self.errors.append(str(error))
                self.asked += 1
                self.longest = max(self.longest, time.monotonic() - began)


QUERIES = (
    "select content from hybrid_search('which part is in store?', null, 5)",
    "select content from search_documents('SKU 7-B', '[1,0,0,0,0,0,0,0]', 5)",
    "select content from match_documents('[1,0,0,0,0,0,0,0]', 5)",
)


@pytest.fixture
def dsn(new_database: Callable[..., str]) -> str:
    """A database as its owner prepares it; acts as a role that may no more than it must."""
    dsn = new_database()
    with psycopg.connect(dsn, autocommit=True) as admin:
        if admin.execute("select from pg_roles where rolname = %s", (ROLE,)).fetchone() is None:
            admin.execute(f"create role {ROLE}".encode())
        admin.execute("create extension vector")
        admin.execute("create extension unaccent")
        admin.execute(f"grant create on schema public to {ROLE}".encode())
    return f"{dsn}&options=-c%20role%3D{ROLE}"


@pytest.fixture
def release(tmp_path: Path) -> Iterator[tuple[Release, Path]]:
    """The last release, and a folder with its code."""
    last = releases()[-1]
    try:
        source_tree(last.commit, tmp_path / "old")
    except FileNotFoundError:
        pytest.skip("git is not installed")
    except subprocess.CalledProcessError:
        pytest.skip(f"commit {last.commit[:7]} of version {last.version} is not in this clone")
    yield last, tmp_path / "old"


@pytest.mark.timeout(900)
def test_the_last_version_works_on_while_the_database_is_upgraded(
    dsn: str, services: Services, release: tuple[Release, Path], tmp_path: Path
) -> None:
    (tmp_path / "drop").mkdir()
    with OpenAIServer(dimensions=8) as model:
        settings: dict[str, Any] = {
            "database_url": dsn,
            "broker_url": services.broker_url,
            "embedder": "openai",
            "openai_base_url": model.base_url,
            "openai_api_key": "any",
            "openai_model": "eight",
            "ingest_concurrency": 1,
            "ocr_concurrency": 1,
            "sweep_seconds": 0.2,
            "lease_seconds": 10,
            "backoff_seconds": 0.1,
        }
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GRISTMILL_")}
        environment |= {f"GRISTMILL_{key.upper()}": str(value) for key, value in settings.items()}
        old = Machine(release[1], tmp_path / "old-home", environment)
        new = Machine(REPOSITORY, tmp_path / "new-home", environment)
        producer = Producer(dsn, tmp_path / "drop")
        readers = [Reader(dsn, query) for query in QUERIES]
        try:
            old.start()
            old.ready()
            with connect(dsn) as connection:
                _watch(connection, old, new, producer, readers, dsn)
        finally:
            for thread in (producer, *readers):
                thread.enough.set()
                if thread.ident:
                    thread.join()
            for machine in (old, new):
                machine.end()
            for machine in (old, new):
                machine.ended()
        trouble = [line for line in old.said().splitlines() if TROUBLE.search(line) and not SPOKEN.search(line)]
        assert trouble == [], "the old version has seen nothing of it"
        assert [line for line in new.said().splitlines() if re.search(r"ERROR|CRITICAL|Traceback", line)] == []


def _watch(
    connection: psycopg.Connection[Any],
    old: Machine,
    new: Machine,
    producer: Producer,
    readers: list[Reader],
    dsn: str,
) -> None:
    connection.execute(AUDIT.encode())

    def commits() -> int:
        row = connection.execute("select count(*) from chaos_commits").fetchone()
        assert row is not None
        return int(row[0])

    def goes_on(more: int) -> None:
        target = commits() + more
        until(lambda: producer.error or commits() >= target, f"{more} more documents")
        assert producer.error is None, producer.error

    producer.start()
    goes_on(20)
    for reader in readers:
        reader.start()
    goes_on(10)
    began = time.monotonic()
    assert migrate(dsn, dimensions=8) != []
    took = time.monotonic() - began
    goes_on(20)  # the old version alone, on the new schema
    new.start()
    old.end()
    old.ended()
    old.start()  # a machine that starts again in the middle of it comes back
    for machine in (old, new):
        machine.ready()
    until(lambda: holders(connection) >= 2, "both versions to work")
    goes_on(20)
    old.end()
    old.ended()
    goes_on(20)
    producer.enough.set()
    producer.join()
    assert producer.error is None
    settled = "select count(*) = 0 from sources where state not in ('done', 'deleted')"
    until(lambda: connection.execute(settled).fetchone() == (True,), "everything to be worked off")
    for reader in readers:
        reader.enough.set()
        reader.join()
    verdict = Verdict()
    examine_ledger(connection, verdict)
    assert not verdict, str(verdict)
    rows = connection.execute("select content from documents").fetchall()
    found = Counter(tuple(map(int, re.findall(r"Item (\d+) in version (\d+)", row[0])[0])) for row in rows)
    assert found == Counter(producer.live.items()), "nothing is lost, nothing doubled, nothing old"
    assert [error for reader in readers for error in reader.errors] == [], "nobody had to wait for long either"
    longest = max(reader.longest for reader in readers)
    print(f"migrated in {took:.2f} s; {sum(r.asked for r in readers)} questions, the longest took {longest:.2f} s")
    assert min(reader.asked for reader in readers) > 100


def holders(connection: psycopg.Connection[Any]) -> int:
    """How many processes have worked on documents lately."""
    row = connection.execute(
        "select count(distinct holder) from sources where state = 'leased' or updated_at > now() - interval '2 s'"
    ).fetchone()
    assert row is not None
    return int(row[0])
