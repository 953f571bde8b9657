"""`gristmill up` is asked to stop while more is due than a stop can wait for: nobody has to be killed for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from redis import Redis

from tests.acceptance.conftest import Installation, until
from tests.fakes.openai_server import OpenAIServer
from worker.broker import INGEST_QUEUE
from worker.embedded import valkey
from worker.supervisor import STOP_SECONDS

pytestmark = pytest.mark.timeout(600)

Install = Callable[..., Installation]


@contextmanager
def provided(install: Install, *, delay: float) -> Iterator[Installation]:
    with OpenAIServer(dimensions=32, delay=delay) as model:
        yield install(
            **model.settings,
            http_port=0,
            ingest_concurrency=2,
            ocr_concurrency=1,
        )


def test_a_backlog_waits_for_the_next_start(install: Install) -> None:
    with provided(install, delay=2.0) as service:
        service.start()
        count = int(4 * STOP_SECONDS)  # at two seconds each, on two processes, four times as long as a stop waits
        for number in range(count):
            (service.drop / f"{number}.txt").write_text(f"Document {number} waits until a provider has time for it.")
        until(lambda: len(service.states()) == count, "all to be known")
        until(lambda: "done" in service.states().values(), "the first to be done")
        assert service.stop() == 0
        service.start()
        states = list(service.states().values())
        assert set(states) <= {"done", "pending", "leased"}
        assert states.count("done") < count / 2, "it did not stay to do them all"
        assert max(attempts for (attempts,) in service.rows("select attempts from sources")) <= 1, "none was broken off"
        done = states.count("done")
        until(lambda: list(service.states().values()).count("done") > done, "work to go on")
        assert service.stop() == 0


def test_a_message_on_its_way_to_a_pool_process_does_not_hold_up_the_stop(install: Install) -> None:
    with provided(install, delay=0.0) as service:
        service.start()
        (service.drop / "first.txt").write_text("The first one shows that the workers are there.")
        service.settled(1)
        worker = service.main("-Q ingest")
        pool = worker.children()
        assert len(pool) == 2
        for process in pool:
            process.suspend()
        (service.drop / "second.txt").write_text("The second one is announced to processes that do not move.")
        broker = Redis(unix_socket_path=str(valkey.socket_path(service.home)))
        until(lambda: len(service.states()) == 2 and not broker.llen(INGEST_QUEUE), "the message to be taken")
        assert service.process is not None
        threads = worker.num_threads()
        os.kill(service.process.pid, signal.SIGTERM)
        # The worker has taken back what it had not begun to send, and has one thread more while it waits for its pool.
        until(lambda: worker.num_threads() > threads, "the worker to wait for its pool")
        for process in pool:
            process.resume()
        # 0: nobody had to be killed, as whoever takes STOP_SECONDS has.
        assert service.process.wait(180) == 0, service.log.read_text()[-2000:]
