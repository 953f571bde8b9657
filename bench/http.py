"""Many clients at once at the HTTP service, on the real thing.

A `gristmill up` of its own, in a throw-away home with the embedded services and the embedded default model, is given
some hundred one-page files to have something to find. Then come, one after the other:

- searches: so many clients at once, each on a connection of its own, each asking some questions one after the other;
- uploads: so many clients at once, each sending some new one-page files, until all of them are answered, and then until
  all of them can be searched.

For each: how many were not answered as they should be, the time that a client waits, answers a second, and the memory
of the service's process before, at its highest and after. Clients and service share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from bench.latency import VOCABULARY, code, page
from bench.service import machine, ready, until
from worker.database import open_database
from worker.embedded import stop_services
from worker.process import wait_for
from worker.settings import Settings, load_settings

ANSWER_SECONDS = 120.0
INDEX_SECONDS = 600.0
SAMPLE_SECONDS = 0.02
MIB = 2**20

Send = Callable[[httpx.AsyncClient, int], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of request, sent by many clients at once.

    Attributes:
        errors: requests that failed, or were answered with something else than what they asked for.
        seconds: from the first request to the last answer.
        memory_mib: of the service's process before, at its highest, and after.
    """

    name: str
    clients: int
    requests: int
    errors: int
    p50_ms: float
    p95_ms: float
    max_ms: float
    per_second: float
    seconds: float
    memory_mib: tuple[float, float, float]


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print; 1 if a request went wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench http", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--searchers", type=int, default=200, help="clients that search at once (200)")
    parser.add_argument("--questions", type=int, default=5, help="questions of each (5)")
    parser.add_argument("--uploaders", type=int, default=50, help="clients that upload at once (50)")
    parser.add_argument("--files", type=int, default=4, help="files of each (4)")
    parser.add_argument("--documents", type=int, default=300, help="files that are there to be found (300)")
    parser.add_argument("--json", action="store_true", help="answer as JSON")
    options = parser.parse_args(arguments)
    load = os.getloadavg()
    with running() as (settings, url, process), open_database(settings, application="bench") as connection:
        asyncio.run(fill(url, options.documents))
        wait_until_indexed(url)
        one = asyncio.run(many(url, process, "warm-up", ask, 2, 5))
        assert not one.errors, "the service answers before it is measured"
        searches = asyncio.run(many(url, process, "searches", ask, options.searchers, options.questions))
        uploads = asyncio.run(many(url, process, "uploads", upload, options.uploaders, options.files))
        began = time.perf_counter()
        wait_until_indexed(url)
        facts = machine(connection, load) | {
            "documents": options.documents,
            "indexed_after_seconds": round(time.perf_counter() - began, 1),
        }
    loads = (searches, uploads)
    if options.json:
        print(json.dumps({"machine": facts, "loads": [asdict(load) for load in loads]}, indent=2))
    else:
        show(facts, loads, Console())
    return int(any(load.errors for load in loads))


async def many(url: str, process: psutil.Process, name: str, send: Send, clients: int, each: int) -> Load:
    """Send `each` requests one after the other from every one of `clients` that begin together."""
    times: list[float] = []
    errors = 0

    async def run(client: httpx.AsyncClient, number: int) -> None:
        nonlocal errors
        for turn in range(each):
            began = time.perf_counter()
            try:
                right = await send(client, number * each + turn)
            except httpx.HTTPError as error:
                print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
                right = False
            times.append(time.perf_counter() - began)
            errors += not right

    async with AsyncExitStack() as stack:
        # Made beforehand, and without certificates, which take longer to read than a question to answer.
        made = [await stack.enter_async_context(client_of(url)) for _ in range(clients)]
        with memory(process) as sizes:
            began = time.perf_counter()
            await asyncio.gather(*(run(client, number) for number, client in enumerate(made)))
            seconds = time.perf_counter() - began
    p50, p95 = np.percentile(times, [50, 95]) * 1000
    return Load(
        name,
        clients,
        len(times),
        errors,
        round(float(p50), 1),
        round(float(p95), 1),
        round(max(times) * 1000, 1),
        round(len(times) / seconds, 1),
        round(seconds, 1),
        (round(sizes[0] / MIB, 1), round(max(sizes) / MIB, 1), round(sizes[-1] / MIB, 1)),
    )


def client_of(url: str) -> httpx.AsyncClient:
    """A client that waits long, for a service on loopback."""
    return httpx.AsyncClient(base_url=url, timeout=ANSWER_SECONDS, trust_env=False, verify=False)


async def ask(http: httpx.AsyncClient, number: int) -> bool:
    """A question in words; every fourth time for the code of a document, which must be found."""
    words = VOCABULARY.split()
    wanted = code(number % 50)
    query = wanted if number % 4 == 0 else " ".join(words[(number * 7 + step * 11) % len(words)] for step in range(6))
    answer = await http.post("/search", json={"query": query, "k": 5})
    if answer.status_code != 200:
        print(f"search: {answer.status_code} {answer.text[:200]}", file=sys.stderr)
        return False
    hits = answer.json()["hits"]
    return wanted in hits[0]["content"] if number % 4 == 0 else len(hits) == 5


async def upload(http: httpx.AsyncClient, number: int) -> bool:
    """A new file; right is a 202 with its place in the ledger."""
    return await _send_file(http, 10_000 + number)


async def fill(url: str, count: int) -> None:
    """Upload what is to be found, a few at a time."""
    turns = asyncio.Semaphore(4)

    async def one(http: httpx.AsyncClient, number: int) -> None:
        async with turns:
            assert await _send_file(http, number)

    async with client_of(url) as http:
        await asyncio.gather(*(one(http, number) for number in range(count)))


async def _send_file(http: httpx.AsyncClient, number: int) -> bool:
    name = f"page-{number:05}.txt"
    answer = await http.post(
        "/ingest/file", params={"uri": f"bench:{name}"}, files={"data": (name, page(number).encode(), "text/plain")}
    )
    if answer.status_code != 202:
        print(f"upload: {answer.status_code} {answer.text[:200]}", file=sys.stderr)
        return False
    return bool(answer.json()["sources"][0]["id"])


def wait_until_indexed(url: str) -> None:
    """Wait until no document is pending or being worked on."""

    def idle() -> bool:
        answers = [
            httpx.get(f"{url}/sources", params={"state": state, "limit": 1}, trust_env=False, timeout=30).json()
            for state in ("pending", "leased", "reading")
        ]
        return not any(answer["sources"] for answer in answers)

    if not wait_for(idle, INDEX_SECONDS):
        raise TimeoutError(f"documents were still being indexed after {INDEX_SECONDS:.0f} s")


@contextmanager
def memory(process: psutil.Process) -> Iterator[list[int]]:
    """Resident sizes of a process, in bytes, taken all the while; first and last are before and after."""
    sizes = [process.memory_info().rss]
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(SAMPLE_SECONDS):
            sizes.append(process.memory_info().rss)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield sizes
    finally:
        stop.set()
        thread.join()
        sizes.append(process.memory_info().rss)


@contextmanager
def running() -> Iterator[tuple[Settings, str, psutil.Process]]:
    """`gristmill up` on a home of its own: its settings, the address of its HTTP service, and that process."""
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        place.chmod(0o711)  # as root, Postgres runs as another user and has to get through
        for variable in [v for v in os.environ if v.startswith(("GRISTMILL_", "OPENAI_"))]:
            del os.environ[variable]  # the measurement has a home and settings of its own
        os.environ["GRISTMILL_HOME"] = str(place / "home")
        os.environ["GRISTMILL_EMBEDDER"] = "use"
        os.environ["GRISTMILL_HTTP_PORT"] = str(free_port())
        settings = load_settings()
        url = f"http://127.0.0.1:{settings.http_port}"
        log = place / "log"
        with log.open("w") as output:
            up = subprocess.Popen([sys.executable, "-m", "worker.cli", "up"], stdout=output, stderr=subprocess.STDOUT)
        try:
            until(lambda: ready(settings, up, log) and answers(f"{url}/readyz"), "the service to start")
            yield settings, url, http_process(up.pid)
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait(60)
            stop_services(settings)


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def answers(url: str) -> bool:
    """Whether something answers there with 200."""
    try:
        return httpx.get(url, trust_env=False, timeout=10).status_code == 200
    except httpx.HTTPError:
        return False


def http_process(parent: int) -> psutil.Process:
    """The process of the HTTP service among the children of `gristmill up`."""
    for child in psutil.Process(parent).children(recursive=True):
        if "worker.receivers" in child.cmdline():
            return child
    raise RuntimeError("gristmill up has started no HTTP service")


def show(facts: dict[str, Any], loads: Sequence[Load], console: Console) -> None:
    """The machine in a line, the figures as a table."""
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
    table = Table(header_style="bold")
    table.add_column("load")
    for column in ("clients", "requests", "errors", "p50 ms", "p95 ms", "max ms", "a second"):
        table.add_column(column, justify="right")
    table.add_column("MiB before, most, after", justify="right")
    for load in loads:
        figures = (load.clients, load.requests, load.errors, load.p50_ms, load.p95_ms, load.max_ms, load.per_second)
        table.add_row(load.name, *(f"{value:,}" for value in figures), ", ".join(f"{m:,}" for m in load.memory_mib))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
