"""More events than the workers can follow, and documents that harm their worker: what stays bounded, and who is told.

No figure of speed is asserted here: `python -m bench flood` takes those.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest
from redis import Redis

from tests.acceptance.conftest import Installation, until
from tests.fakes.openai_server import OpenAIServer
from worker.broker import INGEST_QUEUE, LOOK_EVERY, MOST_WAITING
from worker.embedded import valkey
from worker.process import VICTIM
from worker.receivers.context import MOST_CONNECTIONS

# Whole installations, beside other tests: the deadlines of a test together may be longer than the usual limit.
pytestmark = pytest.mark.timeout(600)

Install = Callable[..., Installation]

EVENTS = 600
FOLDER_EVENTS = 100
PRODUCERS = 8
GOOD = 24
"""Documents beside those that harm their worker: few enough to be through before one has hung twice."""
POISON = Path(__file__).parents[1] / "fakes" / "poison"


class Watch:
    """Looks at broker, connections and backlog all the while; keeps the most that it saw."""

    def __init__(self, service: Installation, client: httpx.Client) -> None:
        self.queue = self.keys = self.connections = self.due = 0
        self.oldest = 0.0
        self._service, self._client = service, client
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _look(self) -> None:
        from worker.database import open_database

        with (
            Redis(unix_socket_path=str(valkey.socket_path(self._service.home))) as broker,
            open_database(self._service.settings) as connection,
        ):
            while not self._stop.wait(0.1):
                self.queue = max(self.queue, int(broker.llen(INGEST_QUEUE)))  # type: ignore[arg-type]
                self.keys = max(self.keys, int(broker.dbsize()))  # type: ignore[arg-type]
                row = connection.execute(
                    "select count(*) from pg_stat_activity where backend_type = 'client backend'"
                ).fetchone()
                assert row is not None
                self.connections = max(self.connections, row[0])
                queue = self._client.get("/status").json()["queue"]
                self.due = max(self.due, queue["due"])
                self.oldest = max(self.oldest, queue["oldest_due_seconds"] or 0)


def test_a_flood_is_bounded_seen_and_lost_to_nobody(install: Install, free_port: Callable[[], int]) -> None:
    # Slow until everybody has been asked, so that much is due all the while, however long the commands take to start.
    with OpenAIServer(dimensions=32, delay=2) as model:
        service = install(
            **model.settings,
            http_port=free_port(),
            ingest_concurrency=2,
            ocr_concurrency=1,
        )
        service.start()
        with httpx.Client(
            base_url=f"http://127.0.0.1:{service.settings.http_port}", timeout=60, trust_env=False
        ) as http:
            until(lambda: _answers(http), "the HTTP service")
            with Watch(service, http) as seen:
                told = flood(service, http)
                assert any(told), "answers say how much is due"
                shown = service.answer("status")
                assert shown["due"] > 0, "and so does the command line"
                assert shown["oldest_due_seconds"] > 0
                named = {check["name"]: check for check in service.answer("doctor", "--quick")["checks"]}
                assert " due, the oldest for " in named["queue"]["found"]
                assert http.post("/search", json={"query": "flood", "k": 3}).status_code == 200
                model.delay = 0.02
                service.settled(EVENTS, seconds=300)
        assert seen.due > EVENTS / 10
        assert seen.oldest > 1
        assert seen.queue <= MOST_WAITING + LOOK_EVERY * 4, "watcher, HTTP, sweep and what is sent at this very moment"
        assert seen.keys < 40
        # The service's pool, and two connections for each process that works: one for itself, one for its lease.
        assert seen.connections <= MOST_CONNECTIONS + 2 * (2 + 1) + 12
        assert service.rows("select state, count(*) from sources group by 1") == [("done", EVENTS)]
        assert service.rows("select count(distinct substring(content from 'FL-\\d+')), count(*) from documents") == [
            (EVENTS, EVENTS)
        ]
        # Two work at a time, so that one can be overtaken, and by much if its process stands still; but not many.
        ((late,),) = service.rows(
            "select count(*) filter (where newest - event_at > interval '5 s') from (select event_at, max(event_at)"
            " over (order by searchable_at rows between unbounded preceding and current row) as newest from sources) s"
        )
        assert late <= EVENTS / 100, "documents that waited while others were served that came 5 s after them"
        assert service.stop() == 0


def _answers(http: httpx.Client) -> bool:
    try:
        return http.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def text(number: int) -> str:
    return f"Document {number} of the flood has the code FL-{number}."


def flood(service: Installation, http: httpx.Client) -> list[int]:
    """All events as fast as they can be sent: what each answer over HTTP said to be due."""
    told: list[int] = []

    def post(start: int) -> None:
        for number in range(start, EVENTS - FOLDER_EVENTS, PRODUCERS):
            answer = http.post("/ingest/text", json={"content": text(number), "uri": f"flood:{number}"})
            assert answer.status_code == 202, answer.text
            told.append(answer.json()["queue"]["due"])

    threads = [threading.Thread(target=post, args=(start,)) for start in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    for number in range(EVENTS - FOLDER_EVENTS, EVENTS):
        (service.drop / f"{number}.txt").write_text(text(number))
    for thread in threads:
        thread.join(60)
    assert len(told) == EVENTS - FOLDER_EVENTS
    return told


def victims(worker: psutil.Process) -> set[int]:
    """What the kernel was told of a worker's pool processes."""
    found = set()
    for process in worker.children():
        with suppress(FileNotFoundError, ProcessLookupError):
            found.add(int(Path(f"/proc/{process.pid}/oom_score_adj").read_text()))
    return found


def test_poison_dies_with_a_reason_and_its_neighbours_live(install: Install) -> None:
    with OpenAIServer(dimensions=32) as model:
        service = install(
            **model.settings,
            http_port=0,
            ingest_concurrency=2,
            ocr_concurrency=1,
            lease_seconds=6,
            sweep_seconds=0.2,
            max_attempts=2,
            backoff_seconds=0.2,
        )
        service.environment |= {"PYTHONPATH": f"{POISON}:{Path.cwd()}", "POISON_SECONDS": "10"}
        service.start()
        until(lambda: len(service.children("-Q ingest")) >= 3, "the worker and its two processes")
        worker = service.main("-Q ingest")
        names = ["dies-1", "dies-2", "hangs-1", "eats-1"]
        for number, name in enumerate(names):
            verb = name.split("-")[0].upper()
            (service.drop / f"{name}.txt").write_text(f"Number {number} holds POISON-{verb} and is bad.")
        for number in range(GOOD):
            (service.drop / f"good-{number}.txt").write_text(f"{text(number)} It is a good neighbour.")
        states = service.settled(GOOD + len(names), seconds=240)
        assert {name for name, state in states.items() if state == "done"} == {f"good-{n}.txt" for n in range(GOOD)}
        found = {
            uri.rsplit("/", 1)[-1]: rest
            for uri, *rest in service.rows(
                "select uri, state, attempts, error_code, error_cause from sources where state <> 'done'"
            )
        }
        died = ["dead", 2, "worker_died", "the worker died 2 times while working on this document"]
        assert found == {
            "dies-1.txt": died,
            "dies-2.txt": died,
            "hangs-1.txt": died,
            "eats-1.txt": ["dead", 2, "out_of_memory", "the worker ran out of memory over this document"],
        }
        # Who hangs is stopped by the limit of a task, twice 10 s here; the good ones did not wait for that.
        ((after,),) = service.rows(
            "select count(*) from sources g, sources p where g.state = 'done' and p.uri like '%%hangs-1.txt'"
            " and g.searchable_at > p.updated_at"
        )
        assert after == 0
        assert worker.is_running(), "its pool processes die, and it goes on"
        # One that has just taken the place of another may not have come to that yet.
        until(lambda: victims(worker) == {VICTIM}, "its processes to go before the database where memory runs out")
        assert service.stop() == 0
