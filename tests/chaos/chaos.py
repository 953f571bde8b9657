"""A run of chaos: everything that uses an installation goes on while everything that it is made of dies.

`python -m tests.chaos.chaos SEED…` runs seeds and says what happened; the exit code is 1 if anything was wrong.
"""

from __future__ import annotations

import os
import random
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
from psycopg import Connection
from redis import Redis

from pipelines.errors import GristmillError
from tests.acceptance.conftest import Installation
from tests.chaos.checker import AUDIT, ROWS, Onlooker, Verdict, compare, examine_ledger, wait_until
from tests.chaos.faults import Reaper
from tests.chaos.schedule import SPACING_SECONDS, Channel, Expected, Operation, Plan, make_plan, marks, text
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.ports import reserved_port
from worker.broker import INGEST_QUEUE
from worker.database import open_database, open_ledger
from worker.embedded import stop_services, valkey
from worker.places import file_uri

WARM = 9999
"""Number of the document that shows that all is up."""

FAILED_LOOP = re.compile(r"worker\.supervisor: \w+ failed")
"""A thread of the supervisor that ended by an exception, which it must not when a service goes away."""

RETRY_SECONDS = 0.25
GIVE_UP_SECONDS = 180.0

Say = Callable[[str], None]


class SlowModel(OpenAIServer):
    """An embeddings endpoint that takes its time, as real ones do, so that work is under way when its worker dies."""

    def __init__(self, seed: int, seconds: tuple[float, float]) -> None:
        super().__init__(dimensions=64)
        self.passages: set[Any] = set()
        """Every passage that it was asked for, once."""
        self._rng = random.Random(seed)
        self._seconds = seconds

    def next_fault(self, body: dict[str, Any]) -> Any:
        """Wait, as long as it takes."""
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        with self._lock:
            self.passages.update(mark for one in texts for mark in marks(one))
            wait = self._rng.uniform(*self._seconds)
        time.sleep(wait)
        return super().next_fault(body)


class Unswept(Installation):
    """An installation whose supervisor has no sweep."""

    service = (sys.executable, "-m", "tests.chaos.without_sweep")


class Users:
    """The users of an installation, one thread a channel: each asks again until it has been answered."""

    def __init__(self, service: Installation, plan: Plan, onlooker: Onlooker) -> None:
        self.done = 0
        self.errors: list[BaseException] = []
        self.unforeseen: list[str] = []
        """Answers of the HTTP service that say neither yes nor wait."""
        self._service = service
        self._onlooker = onlooker
        self._staging = service.drop.parent / "staging"
        self._outside = service.drop.parent / "outside"
        for folder in (self._staging, self._outside, service.drop / "moved"):
            folder.mkdir()
        self._client = httpx.Client(
            base_url=f"http://127.0.0.1:{service.settings.http_port}", timeout=60, trust_env=False
        )
        self._connection: Connection[Any] | None = None
        self._threads = [
            threading.Thread(
                target=self._use, args=([o for o in plan.operations if o.channel == channel],), name=channel
            )
            for channel in ("folder", "http", "ledger")
        ]

    def start(self) -> None:
        """Begin."""
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Wait until all have been answered; raises what went wrong with one of them."""
        for thread in self._threads:
            thread.join()
        self._client.close()
        if self._connection is not None:
            self._connection.close()
        if self.errors:
            raise self.errors[0]

    def _use(self, operations: list[Operation]) -> None:
        doing: dict[Channel, Callable[[Operation], bool]] = {
            "folder": self._in_folder,
            "http": self._over_http,
            "ledger": self._in_ledger,
        }
        try:
            for operation in operations:
                time.sleep(max(0.0, self._began + operation.at - time.monotonic()))
                if operation.kind != "write":
                    self._onlooker.may_go(operation.document)
                done = wait_until(lambda o=operation: doing[o.channel](o), GIVE_UP_SECONDS, every=RETRY_SECONDS)
                assert done, f"not answered for {GIVE_UP_SECONDS:.0f} s: {operation}"
                if operation.kind == "delete" and operation.channel != "folder":
                    self._onlooker.removed(operation.document, operation.version)
                self.done += 1
        except BaseException as error:  # noqa: BLE001 - raised in the main thread
            self.errors.append(error)

    def _in_folder(self, operation: Operation) -> bool:
        path = self._service.drop / operation.place
        if operation.kind == "delete":
            path.unlink()
        elif operation.kind == "rename":
            (self._service.drop / operation.before).rename(path)
        elif (operation.document + operation.version) % 3:
            self._replace(path, operation)
        else:
            path.write_text(text(operation.document, operation.version))
        return True

    def _replace(self, path: Path, operation: Operation) -> None:
        new = self._staging / path.name
        new.write_text(text(operation.document, operation.version))
        new.replace(path)

    def _over_http(self, operation: Operation) -> bool:
        uri = f"chaos:{operation.place}"
        try:
            if operation.kind == "delete":
                answer = self._client.delete("/sources", params={"uri": uri})
            else:
                content = text(operation.document, operation.version)
                sent = {"content": content, "uri": uri, "filename": operation.place}
                answer = self._client.post("/ingest/text", json=sent)
        except httpx.TransportError:
            return False
        if not answer.is_success and answer.status_code != 503:
            self.unforeseen.append(f"{operation.kind} D{operation.document}: {answer.status_code} {answer.text[:200]}")
        return answer.is_success

    def _in_ledger(self, operation: Operation) -> bool:
        """A producer that dies before it can send the wake-up: the row is all there is."""
        path = self._outside / operation.place
        if operation.kind == "write":
            self._replace(path, operation)
        try:
            if self._connection is None or self._connection.closed or self._connection.broken:
                self._connection = open_database(self._service.settings, application="chaos producer")
            ledger = open_ledger(self._service.settings, self._connection)
            if operation.kind == "delete":
                ledger.delete(file_uri(path))
            else:
                ledger.record(file_uri(path), fingerprint=str(operation.version))
        except (psycopg.OperationalError, GristmillError):
            return False
        return True


@dataclass
class Report:
    """What a run did and what it found."""

    seed: int
    operations: int
    faults: dict[str, int]
    working: int
    """Of the pool processes and workers that were killed: how many had a document in their hands."""
    wake_ups: int
    passages: int
    embedded: int
    looks: int
    drained: float
    seconds: float
    verdict: Verdict = field(default_factory=Verdict)

    def __str__(self) -> str:
        killed = ", ".join(f"{count} {casualty}" for casualty, count in sorted(self.faults.items()))
        return (
            f"seed {self.seed}: {self.operations} operations; died: {killed} ({self.working} at work);"
            f" {self.wake_ups} wake-ups ({self.wake_ups / self.operations:.1f} an operation);"
            f" {self.embedded} texts embedded for {self.passages} passages"
            f" ({self.embedded / max(1, self.passages):.2f});"
            f" {self.looks} looks; drained in {self.drained:.1f} s, {self.seconds:.0f} s in all\n{self.verdict}"
        )


@contextmanager
def installed(swept: bool, **settings: Any) -> Iterator[Installation]:
    """An installation of its own, started; stopped in the end, whatever happened to it."""
    with tempfile.TemporaryDirectory(prefix="gm-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        place.chmod(0o711)  # as root, Postgres runs as another user and has to get through
        service = (Installation if swept else Unswept)(place, **settings)
        try:
            service.start()
            yield service
        except BaseException:
            print(f"--- the end of its log\n{service.log.read_text()[-6000:]}", file=sys.stderr)
            raise
        finally:
            if service.process is not None and service.process.poll() is None:
                service.stop()
            stop_services(service.settings)
            if keep := os.environ.get("CHAOS_LOG"):
                Path(keep).write_bytes(service.log.read_bytes())


def run(
    plan: Plan,
    *,
    swept: bool = True,
    lease_seconds: float = 3.0,
    drain_seconds: float = 180.0,
    model_seconds: tuple[float, float] = (0.1, 0.5),
    say: Say = lambda line: None,
) -> Report:
    """Carry a plan out and judge what came of it.

    Args:
        swept: whether the installation has its sweep.
        lease_seconds: how long the work of a dead worker is left alone.
        drain_seconds: most that is waited, after the last fault, for the index to be what it must be.
        model_seconds: how long the embedding model takes for one request: least and most.

    Raises:
        AssertionError: a fault did not happen, or something was not answered: the run says nothing.
    """
    began = time.monotonic()
    with SlowModel(plan.seed, model_seconds) as model, reserved_port() as port:
        settings = {
            "openai_base_url": model.base_url,
            "openai_api_key": "chaos",
            "openai_model": "fake",
            "embedding_dimensions": 64,
            "http_port": port,
            "lease_seconds": lease_seconds,
            "sweep_seconds": 0.5,
            "backoff_seconds": 0.5,
            "max_attempts": 12,  # processes are killed while they work: that is not the documents' fault
            "ingest_concurrency": 2,
            "ocr_concurrency": 1,
        }
        with installed(swept, **settings) as service:
            report = _run(service, plan, drain_seconds, model, say)
    report.seconds = time.monotonic() - began
    return report


def _run(service: Installation, plan: Plan, drain_seconds: float, model: SlowModel, say: Say) -> Report:
    for setting in ("fsync", "full_page_writes", "synchronous_commit"):
        assert service.rows(f"show {setting}") == [("on",)], f"without {setting}, losses would prove nothing"
    service.connection().execute(AUDIT.encode())
    onlooker = Onlooker(service.settings)
    users = Users(service, plan, onlooker)
    reaper = Reaper(service, onlooker.count_wake_ups)
    _warm_up(service)
    began = time.monotonic()
    onlooker.start()
    users.start()
    last = 0.0
    try:
        for fault in plan.faults:
            time.sleep(max(0.0, began + fault.at - time.monotonic(), last + SPACING_SECONDS - time.monotonic()))
            tried = time.monotonic()
            death = reaper.inject(fault.casualty)
            last = time.monotonic()
            say(
                f"{tried - began:6.1f} s  {fault.casualty} {death.was if isinstance(death.was, str) else death.was.pid}"
                f"{', at work' if death.working else ''}, {last - tried:.1f} s"
            )
    finally:
        users.finish()
    reaper.heal()
    healed = time.monotonic()
    expected = plan.expected() | {WARM: Expected(None, "folder", "warm.md")}

    def settled() -> bool:
        waiting = service.rows("select count(*) from sources where state in ('pending', 'leased', 'reading')")
        return waiting == [(0,)] and not compare(expected, service.rows(ROWS))

    wait_until(settled, drain_seconds, every=0.5)
    drained = time.monotonic() - healed
    onlooker.stop()
    onlooker.count_wake_ups()
    wait_until(lambda: not _waiting(service), 60)
    verdict = compare(expected, service.rows(ROWS))
    examine_ledger(service.connection(), verdict)
    for kind, flaws in onlooker.verdict.flaws.items():
        verdict.flaws[kind] += flaws
    verdict.flaws["unforeseen answers"] += users.unforeseen
    verdict.flaws["left in the queue"] += _waiting(service)
    verdict.flaws["failed loops"] += FAILED_LOOP.findall(service.log.read_text())
    assert users.done == len(plan.operations)
    assert onlooker.looks > 50, "the onlooker saw next to nothing"
    service.stop()
    stop_services(service.settings)
    wait_until(lambda: not reaper.left_behind(), 60)
    verdict.flaws["left behind"] += [str(identity) for identity in reaper.left_behind()]
    return Report(
        plan.seed,
        len(plan.operations),
        reaper.counts(),
        sum(death.working for death in reaper.deaths),
        onlooker.wake_ups,
        len(model.passages),
        model.texts_embedded,
        onlooker.looks,
        drained,
        0.0,
        verdict,
    )


def _waiting(service: Installation) -> list[str]:
    """Wake-ups that nobody has taken."""
    with Redis(unix_socket_path=str(valkey.socket_path(service.home)), socket_timeout=5) as client:
        return [str(message) for message in client.lrange(INGEST_QUEUE, 0, -1)]


def _warm_up(service: Installation) -> None:
    """Wait until a first document has come and gone: what dies in its start would test only that."""
    path = service.drop / "warm.md"
    path.write_text(text(WARM, 1))
    assert wait_until(lambda: service.states().get(path.name) == "done", 90), "no worker came up"
    path.unlink()
    assert wait_until(lambda: service.states().get(path.name) == "deleted", 90), "its deletion was not seen"


def too_much(report: Report) -> list[str]:
    """Where a run took more than is promised, though nothing was wrong in the end."""
    found = []
    if report.wake_ups > 5 * report.operations:
        found.append(f"{report.wake_ups} wake-ups for {report.operations} operations")
    if report.embedded > 1.3 * report.passages:
        found.append(f"{report.embedded} texts embedded for {report.passages} passages")
    return found


def main(arguments: list[str]) -> int:
    """Run the seeds that are named, and say what happens."""
    wrong = 0
    for seed in map(int, arguments or ["1"]):
        report = run(make_plan(seed), say=lambda line: print(line, flush=True))
        print(report, *too_much(report), sep="\n", flush=True)
        wrong += bool(report.verdict) or bool(too_much(report))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
