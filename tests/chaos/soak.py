"""Hours in small: thousands of documents, updates all the time, questions all the time, and what grows meanwhile.

`python -m tests.chaos.soak --minutes 30`. Every minute a line; in the end what grew how fast after the warm-up, the
vector index beside a fresh one, and whether every document is there in its last version. The exit code is 1 if
anything is beyond its limit.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import psutil
from redis import Redis

from tests.acceptance.conftest import Installation
from tests.chaos.chaos import installed
from tests.chaos.checker import wait_until
from tests.chaos.schedule import WORDS
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.ports import reserved_port
from worker.embedded import cluster, valkey

SAMPLE_SECONDS = 10.0
MOST_SLOPE = 1.0
"""MB a minute, of any process."""
MOST_INDEX = 2.0
"""Times the size of a fresh build."""
MOST_KEYS = 500
MOST_NEW_CONNECTIONS = 3
ENOUGH_MINUTES = 10.0
"""After the warm-up; slopes of less are shown, not judged."""


def content(document: int, version: int) -> str:
    """A small text, one passage."""
    rng = random.Random(document * 100_000 + version)
    return (
        f"Note {document} in version {version}, code SK-{document}-{version}. {' '.join(rng.choices(WORDS, k=40))}.\n"
    )


@dataclass
class Sample:
    """What is measured at one moment; sizes in MB."""

    minutes: float
    memory: dict[str, float]
    connections: int
    keys: int
    index: float


@dataclass
class Users:
    """Writers and askers, until told to stop."""

    service: Installation
    documents: int
    rate: float
    rng: random.Random
    versions: dict[int, int] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._url = f"http://127.0.0.1:{self.service.settings.http_port}"
        self.client = httpx.Client(base_url=self._url, timeout=30, trust_env=False)
        self._staging = self.service.drop.parent / "staging"
        self._staging.mkdir()

    def write(self, document: int) -> None:
        """The next version of a document: of even ones as a file, of odd ones over HTTP."""
        version = self.versions.get(document, 0) + 1
        said = content(document, version)
        if document % 2:
            answer = self.client.post("/ingest/text", json={"content": said, "uri": f"soak:{document}"})
            if not answer.is_success:
                self.errors.append(f"POST: {answer.status_code} {answer.text[:200]}")
                return
        else:
            new, folder = self._staging / "new.txt", self.service.drop / f"{document % 50:02}"
            folder.mkdir(exist_ok=True)
            new.write_text(said)
            new.replace(folder / f"{document}.txt")
        self.versions[document] = version

    def update(self) -> None:
        """Update documents at random, `rate` a second."""
        while not self.stop.wait(self.rng.expovariate(self.rate)):
            self.write(self.rng.randrange(self.documents))

    def ask(self) -> None:
        """Ask twice a second, and take the time."""
        rng = random.Random(0)
        with httpx.Client(base_url=self._url, timeout=30, trust_env=False) as client:
            while not self.stop.wait(0.5):
                began = time.monotonic()
                answer = client.post("/search", json={"query": " ".join(rng.choices(WORDS, k=5))})
                self.waits.append((time.monotonic() - began) * 1000)
                if not answer.is_success:
                    self.errors.append(f"search: {answer.status_code} {answer.text[:200]}")


def measure(service: Installation, began: float) -> Sample:
    """Look at everything once."""
    (connections,) = service.rows("select count(*) from pg_stat_activity where backend_type = 'client backend'")[0]
    (index,) = service.rows("select pg_relation_size('documents_embedding') / 1e6")[0]
    with Redis(unix_socket_path=str(valkey.socket_path(service.home))) as client:
        keys: Any = client.dbsize()
        told: Any = client.info()
    memory = _processes(service)
    memory["valkey"] = told["used_memory"] / 1e6
    return Sample((time.monotonic() - began) / 60, memory, connections, int(keys), float(index))


def _processes(service: Installation) -> dict[str, float]:
    """Memory of each process, MB: resident; of Postgres what its processes have to themselves, where we may look."""
    assert service.process is not None
    found = {"supervisor": psutil.Process(service.process.pid).memory_info().rss / 1e6}
    for child in service.children(""):
        with suppress(psutil.NoSuchProcess):
            found[f"{_role(child.cmdline())} {child.pid}"] = child.memory_info().rss / 1e6
    place = cluster.find_cluster(service.home)
    server = cluster.running(place) if place else None
    if server:
        own = 0.0
        with suppress(psutil.Error):
            for process in [(main := psutil.Process(server.pid)), *main.children()]:
                with suppress(psutil.NoSuchProcess):
                    own += process.memory_full_info().uss / 1e6
            found["postgres, together"] = own
    return found


def _role(command: list[str]) -> str:
    if "-Q" in command:
        return command[command.index("-Q") + 1].split(",", maxsplit=1)[0]
    return command[command.index("-m") + 1].rsplit(".", 1)[-1] if "-m" in command else command[0]


def slopes(samples: list[Sample]) -> dict[str, float]:
    """MB a minute by which each process grew that was there all the time."""
    times = [sample.minutes for sample in samples]
    lasting = set.intersection(*(set(sample.memory) for sample in samples))
    return {
        name: float(np.polyfit(times, [sample.memory[name] for sample in samples], 1)[0]) for name in sorted(lasting)
    }


def soak(minutes: float, documents: int, rate: float, seed: int) -> list[str]:
    """Run, and say what happens; returns what is beyond its limit."""
    with OpenAIServer(dimensions=256) as model, reserved_port() as port:
        settings = {
            "openai_base_url": model.base_url,
            "openai_api_key": "soak",
            "openai_model": "fake",
            "embedding_dimensions": 256,
            "http_port": port,
            "ingest_concurrency": 2,
            "ocr_concurrency": 1,
        }
        with installed(True, **settings) as service:
            users = Users(service, documents, rate, random.Random(seed))
            assert wait_until(lambda: _listens(users), 60), "no HTTP"
            return _soak(service, users, minutes)


def _listens(users: Users) -> bool:
    try:
        return users.client.get("/healthz").status_code < 500
    except httpx.TransportError:
        return False


def _all_done(service: Installation) -> bool:
    return service.rows("select count(*) from sources where state in ('pending', 'leased', 'reading')") == [(0,)]


def _current(service: Installation, users: Users) -> bool:
    """Whether every document is there in its last version, and no other."""
    want = sorted(f"SK-{document}-{version}" for document, version in users.versions.items())
    return want == sorted(
        code for (code,) in service.rows(r"select substring(content from 'SK-\d+-\d+') from documents")
    )


def _soak(service: Installation, users: Users, minutes: float) -> list[str]:
    loading = time.monotonic()
    for document in range(users.documents):
        users.write(document)
    assert wait_until(lambda: _all_done(service) and _current(service, users), 1800, every=1), "the first load"
    print(f"{users.documents} documents in {time.monotonic() - loading:.0f} s; now {users.rate:g} updates a second")
    threads = [threading.Thread(target=users.update), threading.Thread(target=users.ask)]
    for thread in threads:
        thread.start()
    began, samples, told = time.monotonic(), [], 0
    try:
        while time.monotonic() - began < minutes * 60:
            time.sleep(SAMPLE_SECONDS)
            samples.append(measure(service, began))
            if samples[-1].minutes >= told + 1:
                told = int(samples[-1].minutes)
                _tell(service, users, samples[-1])
    finally:
        users.stop.set()
        for thread in threads:
            thread.join()
    wrong = [] if wait_until(lambda: _current(service, users), 120, every=1) else ["documents are lost or stale"]
    return wrong + _judge(service, users, samples, minutes)


def _tell(service: Installation, users: Users, sample: Sample) -> None:
    waits, users.waits = users.waits, []
    p95 = f"{np.percentile(waits, 95):.0f}" if waits else "-"
    ((late,),) = service.rows(
        "select coalesce(percentile_cont(0.95) within group (order by extract(epoch from searchable_at - event_at)), 0)"
        " from sources where event_at > now() - interval '1 minute' and searchable_at > event_at"
    )
    memory = ", ".join(f"{name} {size:.0f}" for name, size in sorted(sample.memory.items()))
    print(
        f"{sample.minutes:5.1f} min: {sum(users.versions.values())} writes; search p95 {p95} ms; searchable p95"
        f" {float(late):.1f} s; {sample.connections} connections; {sample.keys} broker keys;"
        f" HNSW {sample.index:.1f} MB; MB: {memory}",
        flush=True,
    )


def _judge(service: Installation, users: Users, samples: list[Sample], minutes: float) -> list[str]:
    warm = min(5.0, minutes / 3)
    samples = [sample for sample in samples if sample.minutes >= warm]
    wrong = users.errors[:5]
    enough = minutes - warm >= ENOUGH_MINUTES
    print(f"MB a minute after {warm:.0f} min{'' if enough else ' (too short to be judged)'}:")
    for name, slope in slopes(samples).items():
        print(f"  {name}: {slope:+.2f}")
        if enough and slope > MOST_SLOPE:
            wrong.append(f"{name} grows by {slope:.2f} MB a minute")
    service.connection().execute("create index soak_fresh on documents using hnsw (embedding vector_cosine_ops)")
    ((fresh,),) = service.rows("select pg_relation_size('soak_fresh') / 1e6")
    ratio = samples[-1].index / float(fresh)
    print(f"HNSW {samples[-1].index:.1f} MB, built afresh {float(fresh):.1f} MB: {ratio:.2f} times")
    if ratio >= MOST_INDEX:
        wrong.append(f"the HNSW index is {ratio:.2f} times as large as a fresh one")
    counts = [sample.connections for sample in samples]
    print(f"connections {min(counts)} to {max(counts)}; broker keys at most {max(s.keys for s in samples)}")
    if max(counts) - counts[0] > MOST_NEW_CONNECTIONS:
        wrong.append(f"connections went from {counts[0]} to {max(counts)}")
    if max(sample.keys for sample in samples) > MOST_KEYS:
        wrong.append("the broker's keys pile up")
    errors = service.rows("select uri, state, error_code from sources where state <> 'done' or error_code is not null")
    wrong += [f"{uri} is {state} ({code})" for uri, state, code in errors[:5]]
    return wrong


def main(arguments: list[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--documents", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=5, help="updates a second")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    wrong = soak(options.minutes, options.documents, options.rate, options.seed)
    print(*(wrong or ["passed"]), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
