"""Far more events at once than the workers can follow, and documents that kill their worker, on the real thing.

A `gristmill up` of its own, in a throw-away home with the embedded services, and an OpenAI-compatible embedder that
takes its time. Small text documents come as fast as they can be sent: half of them over HTTP, a quarter as files in the
watched folder, a quarter straight into the ledger, by a producer that wakes nobody. All the while one client searches,
in turns over HTTP and by the Celery task, as it did before the flood and does after it. In the middle of the flood one
more document is sent and one is deleted. Looked at every second: memory of every process, connections, broker, backlog.

Then, each with a service of its own, documents come at a steady pace that the workers can follow, with no, one and many
among them that kill the process which works on them: how much later than else the others can be found.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import psycopg
from celery import Celery
from celery.exceptions import CeleryError
from psycopg import Connection
from redis import Redis, RedisError
from rich.console import Console
from rich.table import Table

from bench.http import answers, free_port
from bench.latency import VOCABULARY
from bench.service import machine, running, until
from worker.app import connect_app
from worker.broker import Broker
from worker.database import open_database, open_ledger
from worker.embedded import cluster, valkey
from worker.places import file_uri
from worker.settings import Settings

DIMENSIONS = 256
FLOOD_SECONDS = 1800.0
LOOK_SECONDS = 1.0
PAUSE_SECONDS = 0.25
PRODUCERS = 8
POISON = Path(__file__).parents[1] / "tests" / "fakes" / "poison"
WAITING = "select count(*) from sources where state in ('pending', 'leased', 'reading')"


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment; sizes in MB."""

    seconds: float
    memory: dict[str, float]
    connections: int
    wake_ups: int
    keys: int
    broker: float
    due: int
    oldest: float
    status_ms: float


@dataclass(slots=True)
class Times:
    """How long answers took, in ms."""

    http: list[float] = field(default_factory=list)
    task: list[float] = field(default_factory=list)

    def p95(self) -> tuple[float, float]:
        """Of both; NaN where nothing was asked."""
        http, task = (round(float(np.percentile(times or [np.nan], 95)), 1) for times in (self.http, self.task))
        return http, task

    def split(self, rounds: int) -> tuple[Times, Times]:
        """The first so many rounds, and the others."""
        return Times(self.http[:rounds], self.task[:rounds]), Times(self.http[rounds:], self.task[rounds:])


@dataclass(frozen=True, slots=True)
class Poisoned:
    """One steady run: how long its good documents took from event to searchable, in ms, and what became of the bad."""

    poison: int
    good: int
    p50_ms: float
    p95_ms: float
    max_ms: float
    dead: int
    deaths: int
    worker_restarts: int


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print; 1 if something was lost."""
    parser = argparse.ArgumentParser(prog="python -m bench flood", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=20_000, help="documents of the flood, 0: none (20,000)")
    parser.add_argument("--delay", type=float, default=0.1, help="seconds the embedder takes for an answer (0.1)")
    parser.add_argument("--processes", type=int, default=4, help="GRISTMILL_INGEST_CONCURRENCY (4)")
    parser.add_argument("--poison", default="0,1,20", help="documents that kill, of each steady run ('0,1,20')")
    parser.add_argument("--good", type=int, default=300, help="other documents of a steady run (300)")
    parser.add_argument("--rate", type=float, default=10.0, help="of these a second (10)")
    parser.add_argument("--json", action="store_true", help="answer as JSON")
    options = parser.parse_args(arguments)
    load = os.getloadavg()
    facts: dict[str, Any] = {}
    figures: dict[str, Any] = {}
    with embedder(options.delay) as url:
        wanted = {
            "embedder": "openai",
            "openai_base_url": url,
            "openai_api_key": "bench",
            "openai_model": "fake",
            "embedding_dimensions": DIMENSIONS,
            "ingest_concurrency": options.processes,
        }
        if options.events:
            with running(**wanted, http_port=free_port()) as (settings, drop):
                figures = flood(settings, drop, options.events, options.delay)
                with open_database(settings, application="bench") as connection:
                    facts = machine(connection, load)
        counts = [int(part) for part in options.poison.split(",") if part]
        poisoned = [steady(wanted, count, options.good, options.rate) for count in counts]
    facts |= {"delay": options.delay, "processes": options.processes}
    if options.json:
        print(json.dumps({"machine": facts, "flood": figures, "poison": [asdict(one) for one in poisoned]}, indent=2))
    else:
        show(facts, figures, poisoned, Console())
    lost = figures.get("not done", 0) + sum(one.poison - one.dead for one in poisoned)
    return int(lost > 0)


@contextmanager
def embedder(delay: float) -> Iterator[str]:
    """An embeddings endpoint in a process of its own that takes so many seconds for each answer: its base url."""
    command = [sys.executable, "-m", "tests.fakes.openai_server", "--port", "0", "--delay", str(delay)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def text(number: int) -> str:
    """A document of one passage like no other."""
    words = np.random.default_rng(number).choice(VOCABULARY.split(), 80)
    return f"Document {number} has the code FL-{number}. {' '.join(words)}.\n"


def service_process() -> psutil.Process:
    """`gristmill up`, which we have started."""
    for child in psutil.Process().children():
        if "worker.cli" in child.cmdline():
            return child
    raise RuntimeError("gristmill up does not run")


def ingest_worker(up: psutil.Process) -> psutil.Process | None:
    """The main process of the ingest worker, if it runs now."""
    found = []
    for child in up.children():
        with suppress(psutil.NoSuchProcess):
            if "ingest@%h" in child.cmdline():
                found.append(child)
    return found[0] if found else None


# --- the flood ---------------------------------------------------------------------------------------------------


class Repeating:
    """Does something again and again in a thread, a pause between, as long as the block runs."""

    def __init__(self, do: Callable[[], None], pause: float) -> None:
        self._do, self._pause = do, pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.failed: Exception | None = None

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._do()
            except (httpx.HTTPError, CeleryError, RedisError, psycopg.Error, RuntimeError) as error:
                self.failed = error
                return
            self._stop.wait(self._pause)

    def __enter__(self) -> Repeating:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join(120)
        if self.failed:
            raise self.failed


class Asker:
    """Asks one question over HTTP and one by the task."""

    def __init__(self, url: str, app: Celery) -> None:
        self.times = Times()
        self._client = httpx.Client(base_url=url, timeout=120, trust_env=False)
        self._app = app
        self._turn = 0

    def ask(self) -> None:
        """Both, one after the other; an answer that is none is an error."""
        words = VOCABULARY.split()
        query = " ".join(words[(self._turn * 7 + step * 11) % len(words)] for step in range(6))
        self._turn += 1
        began = time.perf_counter()
        answer = self._client.post("/search", json={"query": query, "k": 5})
        self.times.http.append((time.perf_counter() - began) * 1000)
        answer.raise_for_status()
        began = time.perf_counter()
        hits = self._app.send_task("gristmill.search", [query, 5]).get(timeout=120)
        self.times.task.append((time.perf_counter() - began) * 1000)
        if len(hits) != 5:
            raise RuntimeError(f"{len(hits)} hits")

    def take(self, rounds: int) -> Times:
        """So many rounds, with the usual pause."""
        self.times = Times()
        for _ in range(rounds):
            self.ask()
            time.sleep(PAUSE_SECONDS)
        return self.times


class Watch:
    """Takes looks."""

    def __init__(self, settings: Settings, connection: Connection[Any], url: str) -> None:
        self.looks: list[Look] = []
        self._settings, self._connection = settings, connection
        self._client = httpx.Client(base_url=url, timeout=60, trust_env=False)
        self._broker = Redis(unix_socket_path=str(valkey.socket_path(settings.home)))
        self._up = service_process()
        self._began = time.monotonic()

    def look(self) -> None:
        """Take one."""
        row = self._connection.execute(
            "select count(*) from pg_stat_activity where backend_type = 'client backend'"
        ).fetchone()
        assert row is not None
        began = time.perf_counter()
        queue = self._client.get("/status").json()["queue"]
        took = (time.perf_counter() - began) * 1000
        told: Any = self._broker.info("memory")
        self.looks.append(
            Look(
                time.monotonic() - self._began,
                self._memory(),
                row[0],
                int(self._broker.llen("ingest")),  # type: ignore[arg-type]
                int(self._broker.dbsize()),  # type: ignore[arg-type]
                told["used_memory"] / 1e6,
                queue["due"],
                queue["oldest_due_seconds"] or 0.0,
                took,
            )
        )

    def _memory(self) -> dict[str, float]:
        found = {}
        place = cluster.find_cluster(self._settings.home)
        server = cluster.running(place) if place else None
        for process in [self._up, *self._up.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                found[f"{_role(process.cmdline())} {process.pid}"] = process.memory_info().rss / 1e6
        if server:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                own = [psutil.Process(server.pid), *psutil.Process(server.pid).children()]
                found["postgres, together"] = sum(process.memory_full_info().uss for process in own) / 1e6
        return found

    def slopes(self, skip: float) -> dict[str, float]:
        """MB a minute by which each process grew that was there all the time after so many seconds."""
        looks = [look for look in self.looks if look.seconds >= skip] or self.looks
        lasting = set.intersection(*(set(look.memory) for look in looks))
        times = [look.seconds / 60 for look in looks]
        return {name: float(np.polyfit(times, [look.memory[name] for look in looks], 1)[0]) for name in sorted(lasting)}


def _role(command: list[str]) -> str:
    if "-Q" in command:
        return command[command.index("-Q") + 1].split(",", maxsplit=1)[0]
    return command[command.index("-m") + 1].rsplit(".", 1)[-1] if "-m" in command else "gristmill up"


def flood(settings: Settings, drop: Path, events: int, delay: float) -> dict[str, Any]:
    """Send everything at once, look on until nothing waits, and say what was seen."""
    url = f"http://127.0.0.1:{settings.http_port}"
    until(lambda: answers(f"{url}/readyz"), "the service to answer")
    app = connect_app(settings)
    with open_database(settings, application="bench") as connection, open_database(settings) as second:
        with httpx.Client(base_url=url, timeout=120, trust_env=False) as client:
            for number in range(events, events + 200):
                client.post("/ingest/text", json={"content": text(number), "uri": f"warm:{number}"}).raise_for_status()
            until(lambda: _count(connection, WAITING) == 0, "what is to be found")
            asker = Asker(url, app)
            asker.take(5)
            before = asker.take(60).p95()
            watch = Watch(settings, second, url)
            began = time.monotonic()
            asker.times = Times()
            with Repeating(watch.look, LOOK_SECONDS), Repeating(asker.ask, PAUSE_SECONDS):
                sent = send(settings, drop, client, events)
                asked = len(asker.times.http)
                middle = in_the_middle(connection, client, events)
                # The watcher is still at its folder when the rest has been sent.
                until(
                    lambda: (
                        _count(connection, "select count(*) from sources") >= events + 201
                        and _count(connection, WAITING) == 0
                    ),
                    "the flood to be over",
                    seconds=FLOOD_SECONDS,
                )
                seconds = time.monotonic() - began
            during, questions = asker.times.p95(), 2 * len(asker.times.http)
            coming, working = (part.p95() for part in asker.times.split(asked))
            after = asker.take(60).p95()
        return (
            summary(connection, watch, events, seconds, sent)
            | middle
            | {
                "search p95 ms, HTTP: before, during, after": f"{before[0]}, {during[0]}, {after[0]}",
                "search p95 ms, task: before, during, after": f"{before[1]}, {during[1]}, {after[1]}",
                "of these, while it was sent": f"{coming[0]} HTTP, {coming[1]} task",
                "of these, while it was worked off": f"{working[0]} HTTP, {working[1]} task",
                "search p95, during / before": _ratios(during, before, 0),
                "the same without the embedder": _ratios(during, before, delay * 1000),
                "search p95, during / after": _ratios(during, after, 0),
                "the same without the embedder, after": _ratios(during, after, delay * 1000),
                "questions during": questions,
            }
        )


def _ratios(one: tuple[float, float], other: tuple[float, float], less: float) -> str:
    """Of HTTP and task, `less` ms taken off each."""
    http, task = ((a - less) / (b - less) for a, b in zip(one, other, strict=True))
    return f"{http:.2f} HTTP, {task:.2f} task"


def send(settings: Settings, drop: Path, client: httpx.Client, events: int) -> float:
    """Everything at once: seconds until all of it was taken."""
    began = time.monotonic()
    over_http, in_folder = range(events // 2), range(events // 2, events * 3 // 4)
    beside = drop.parent / "beside"
    beside.mkdir()

    def post(start: int) -> None:
        for number in over_http[start::PRODUCERS]:
            client.post("/ingest/text", json={"content": text(number), "uri": f"flood:{number}"}).raise_for_status()

    def write() -> None:
        for number in in_folder:
            folder = drop / f"{number % 50:02}"
            folder.mkdir(exist_ok=True)
            (folder / f"{number}.txt").write_text(text(number))

    def record() -> None:
        with open_database(settings) as connection:
            ledger = open_ledger(settings, connection)
            for number in range(events * 3 // 4, events):
                path = beside / f"{number}.txt"
                path.write_text(text(number))
                ledger.record(file_uri(path), fingerprint=str(number))

    threads = [threading.Thread(target=post, args=(start,)) for start in range(PRODUCERS)]
    threads += [threading.Thread(target=write), threading.Thread(target=record)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - began


def in_the_middle(connection: Connection[Any], client: httpx.Client, events: int) -> dict[str, Any]:
    """One more document for somebody who waits for it, and one deletion."""
    sent = client.post("/ingest/text", json={"content": "The one more.", "uri": "bench:one-more"}).json()
    row = connection.execute("select id from sources where uri = %s", (f"warm:{events}",)).fetchone()
    assert row is not None
    began = time.perf_counter()
    client.delete(f"/sources/{row[0]}").raise_for_status()
    took = (time.perf_counter() - began) * 1000
    gone = _count(connection, f"select count(*) from documents where source_id = {int(row[0])}") == 0
    return {
        "due before one more document": _due(sent),
        "a deletion, ms": round(took, 1),
        "gone at once": "yes" if gone else "no",
    }


def _due(answer: dict[str, Any]) -> str:
    return f"{answer['queue']['due']:,}{' and more' if answer['queue']['more'] else ''}"


def summary(connection: Connection[Any], watch: Watch, events: int, seconds: float, sent: float) -> dict[str, Any]:
    """What the ledger and the looks say."""
    late = _numbers(
        connection,
        "select extract(epoch from newest - event_at)::float8 from (select uri, event_at, max(event_at) over"
        " (order by searchable_at rows between unbounded preceding and current row) as newest"
        " from sources where searchable_at is not null and uri not like 'warm:%%') s",
    )
    waits = _numbers(
        connection,
        "select extract(epoch from searchable_at - event_at)::float8 from sources"
        " where state = 'done' and uri not like 'warm:%%'",
    )
    one_more = _numbers(
        connection,
        "select extract(epoch from searchable_at - event_at)::float8 from sources where uri = 'bench:one-more'",
    )
    done = _count(connection, "select count(*) from sources where state = 'done' and uri not like 'warm:%%'")
    codes = _count(connection, "select count(distinct substring(content from 'FL-\\d+')) from documents") - 199
    slopes = watch.slopes(min(60.0, seconds / 4))
    steepest = max(slopes, key=lambda name: slopes[name])
    looks = watch.looks
    return {
        "events": events,
        "taken in, s": round(sent, 1),
        "all searchable after, s": round(seconds, 1),
        "documents a second": round(events / seconds, 1),
        "not done": events + 1 - done,
        "codes not found": events - codes,
        "event to searchable, s: p50, p95, max": ", ".join(f"{v:,.0f}" for v in np.percentile(waits, [50, 95, 100])),
        "out of order, s: p50, p99, max": ", ".join(f"{v:.2f}" for v in np.percentile(late, [50, 99, 100])),
        "one more document, s": round(float(one_more[0]), 1),
        "most due, oldest for s": f"{max(look.due for look in looks):,}, {max(look.oldest for look in looks):.0f}",
        "GET /status p95 ms": round(float(np.percentile([look.status_ms for look in looks], 95)), 1),
        "wake-ups waiting, most": max(look.wake_ups for look in looks),
        "broker keys, most; MB, most": f"{max(look.keys for look in looks)}; {max(look.broker for look in looks):.1f}",
        "connections, least to most": f"{min(x.connections for x in looks)} to {max(x.connections for x in looks)}",
        "steepest memory, MB a minute": f"{slopes[steepest]:+.2f} ({steepest.split()[0].strip(',')})",
        "memory of all, MB: first, most, last": ", ".join(
            f"{value:,.0f}"
            for value in (
                sum(looks[0].memory.values()),
                max(sum(look.memory.values()) for look in looks),
                sum(looks[-1].memory.values()),
            )
        ),
    }


def _count(connection: Connection[Any], query: str) -> int:
    row = connection.execute(query.replace("%%", "%").encode()).fetchone()
    assert row is not None
    return int(row[0])


def _numbers(connection: Connection[Any], query: str) -> list[float]:
    return [row[0] for row in connection.execute(query.replace("%%", "%").encode()).fetchall()]


# --- poison ------------------------------------------------------------------------------------------------------


def steady(wanted: dict[str, Any], poison: int, good: int, rate: float) -> Poisoned:
    """Good documents at a steady pace, and so many among them that kill their process each time."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(POISON), str(Path.cwd())])
    try:
        with (
            running(**wanted, lease_seconds=5, max_attempts=5) as (settings, drop),
            open_database(settings, application="bench") as connection,
        ):
            up = service_process()
            until(lambda: ingest_worker(up) is not None, "the worker")
            producer = Producer(settings, connection, drop.parent)
            producer.send("warm", "This warms.")
            until(lambda: _count(connection, WAITING) == 0, "the worker to work")
            workers = {worker.pid for worker in [ingest_worker(up)] if worker}
            every = max(1, good // poison) if poison else 0
            bad = 0
            for number in range(good):
                if every and number % every == 0 and bad < poison:
                    producer.send(f"bad-{bad}", "This is POISON-DIES.")
                    bad += 1
                producer.send(f"good-{number}", text(number))
                time.sleep(1 / rate)
                workers |= {worker.pid for worker in [ingest_worker(up)] if worker}
            until(lambda: _count(connection, WAITING) == 0, "everything to settle", seconds=FLOOD_SECONDS)
            workers |= {worker.pid for worker in [ingest_worker(up)] if worker}
            waits = _numbers(
                connection,
                "select extract(epoch from searchable_at - event_at)::float8 * 1000 from sources"
                " where uri like '%good-%'",
            )
            p50, p95, most = (round(float(value), 1) for value in np.percentile(waits, [50, 95, 100]))
            dead = _count(
                connection, "select count(*) from sources where state = 'dead' and error_code = 'worker_died'"
            )
            deaths = _count(connection, "select coalesce(sum(attempts), 0) from sources where state = 'dead'")
            return Poisoned(poison, len(waits), p50, p95, most, dead, deaths, len(workers) - 1)
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


class Producer:
    """Puts a file beside the folder, notes it in the ledger and wakes a worker."""

    def __init__(self, settings: Settings, connection: Connection[Any], place: Path) -> None:
        self._ledger = open_ledger(settings, connection)
        self._broker = Broker(connect_app(settings))
        self._place = place

    def send(self, name: str, content: str) -> None:
        """One file."""
        path = self._place / f"{name}.txt"
        path.write_text(content)
        self._ledger.record(file_uri(path), fingerprint=name)
        self._broker.wake()


def show(facts: dict[str, Any], figures: dict[str, Any], poisoned: Sequence[Poisoned], console: Console) -> None:
    """The machine in a line, the figures as tables."""
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
    if figures:
        table = Table(header_style="bold")
        table.add_column("flood")
        table.add_column("", justify="right")
        for name, value in figures.items():
            table.add_row(name, f"{value:,}" if isinstance(value, int | float) else str(value))
        console.print(table)
    if poisoned:
        table = Table(header_style="bold")
        for column in ("poison", "good", "p50 ms", "p95 ms", "max ms", "dead", "deaths", "worker restarts"):
            table.add_column(column, justify="right")
        for one in poisoned:
            table.add_row(*(f"{value:,}" for value in asdict(one).values()))
        console.print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
