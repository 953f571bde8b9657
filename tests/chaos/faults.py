"""What dies in a run of chaos, and the proof that it did: another process, or another run, is there instead."""

from __future__ import annotations

import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil
import psycopg
from redis import Redis
from redis.exceptions import RedisError

from pipelines.errors import GristmillError
from tests.acceptance.conftest import Installation
from tests.chaos.checker import wait_until
from tests.chaos.schedule import Casualty
from worker import process
from worker.embedded import cluster, valkey
from worker.process import Identity

RECOVERY_SECONDS = 150.0
WORK_SECONDS = 5.0
"""How long a kill waits for somebody to be at work."""
STARTED_SECONDS = 10.0
"""Age of a worker that has started; to kill it earlier would only test its start."""

COMMANDS: dict[Casualty, str] = {"worker": "-Q ingest", "watcher": "worker.watchers", "http": "worker.receivers"}


@dataclass(frozen=True, slots=True)
class Death:
    """One fault that has happened: who it was, and whether it had a document in its hands."""

    casualty: Casualty
    was: Identity | str
    working: bool = False


class Reaper:
    """Kills parts of an installation: pool processes and workers while they work on a document, if any does.

    Args:
        before_broker: called before the broker is killed, with which its counters go.
    """

    def __init__(self, service: Installation, before_broker: Callable[[], None]) -> None:
        self.deaths: list[Death] = []
        self.met: set[Identity] = set()
        """Every process that was seen, so that it can be told whether one is left in the end."""
        self._service = service
        self._before_broker = before_broker

    def inject(self, casualty: Casualty) -> Death:
        """Have one die.

        Raises:
            AssertionError: it did not, or nothing came in its place.
        """
        self.meet()
        death: Death = getattr(self, f"_{casualty}")(casualty)
        self.deaths.append(death)
        return death

    def counts(self) -> dict[str, int]:
        """Deaths by kind."""
        return dict(Counter(death.casualty for death in self.deaths))

    def meet(self) -> None:
        """Take down which processes the installation has now."""
        assert self._service.process is not None
        for found in [self._service.process, *self._service.children("")]:
            if identity := process.identify(found.pid):
                self.met.add(identity)

    def heal(self) -> None:
        """Wait until everything that was killed is there again, under another pid each."""
        for command in COMMANDS.values():
            assert wait_until(lambda command=command: bool(self._mains(command)), RECOVERY_SECONDS), command
            for main in self._mains(command):
                assert process.identify(main.pid) not in [death.was for death in self.deaths]
        self.meet()

    def left_behind(self) -> list[Identity]:
        """Processes of the installation that still run."""
        return [identity for identity in self.met if process.is_running(identity)]

    # --- who dies ----------------------------------------------------------------------------------------------

    def _mains(self, command: str) -> list[psutil.Process]:
        assert self._service.process is not None
        found = self._service.children(command)
        with suppress(psutil.NoSuchProcess):
            return [child for child in found if child.ppid() == self._service.process.pid]
        return []

    def _pool(self, casualty: Casualty) -> Death:
        pool, _, working = self._aim()
        return Death(casualty, self._kill(pool), working)

    def _worker(self, casualty: Casualty) -> Death:
        _, main, working = self._aim()
        return Death(casualty, self._kill(main), working)

    def _aim(self) -> tuple[Identity, Identity, bool]:
        """A pool process and its worker, at work on a document; after a while, of any worker that has long started."""
        began = time.monotonic()
        found: list[tuple[Identity, Identity, bool]] = []

        def choose() -> bool:
            holders = self._holders()
            patience = time.monotonic() - began > WORK_SECONDS
            for main in self._mains(COMMANDS["worker"]):
                with suppress(psutil.NoSuchProcess):
                    started = time.time() - main.create_time() > STARTED_SECONDS
                    worker = process.identify(main.pid)
                    for pool in map(process.identify, [child.pid for child in main.children()]):
                        if worker and pool and (pool.pid in holders or (patience and started)):
                            found.append((pool, worker, pool.pid in holders))
            return bool(found)

        assert wait_until(choose, RECOVERY_SECONDS, every=0.02), "no pool process to kill"
        return max(found, key=lambda one: one[2])

    def _watcher(self, casualty: Casualty) -> Death:
        return Death(casualty, self._kill(self._main(casualty)))

    _http = _watcher

    def _main(self, casualty: Casualty) -> Identity:
        found: list[Identity] = []

        def look() -> bool:
            found.extend(filter(None, (process.identify(main.pid) for main in self._mains(COMMANDS[casualty]))))
            return bool(found)

        assert wait_until(look, RECOVERY_SECONDS, every=0.05), f"no {casualty} to kill"
        return found[0]

    def _supervisor(self, casualty: Casualty) -> Death:
        assert self._service.process is not None
        before = self._service.process
        identity = process.identify(before.pid)
        assert identity is not None
        before.kill()
        before.wait(30)
        self._service.start()
        assert process.identify(self._service.process.pid) not in (None, identity)
        return Death(casualty, identity)

    def _broker(self, casualty: Casualty) -> Death:
        assert wait_until(lambda: self._broker_run() is not None, RECOVERY_SECONDS), "no broker to kill"
        before = self._broker_run()
        assert before is not None
        run, pid = before
        broker = process.identify(pid)
        assert broker is not None
        self._before_broker()
        self._kill(broker)

        def again() -> bool:
            now = self._broker_run()
            return now is not None and now[0] != run and now[1] != pid

        assert wait_until(again, RECOVERY_SECONDS, every=0.05), "the broker did not come back as another"
        return Death(casualty, run)

    def _broker_run(self) -> tuple[str, int] | None:
        path = str(valkey.socket_path(self._service.home))
        try:
            with Redis(unix_socket_path=path, socket_timeout=2) as client:
                told: dict[str, Any] = client.info("server")
                assert client.config_get("save") == {"save": ""} and client.config_get("appendonly") == {
                    "appendonly": "no"
                }, "this broker would remember"
                return told["run_id"], int(told["process_id"])
        except (RedisError, OSError):
            return None

    def _postgres(self, casualty: Casualty) -> Death:
        assert wait_until(lambda: self._postmaster() is not None, RECOVERY_SECONDS), "no Postgres to stop"
        before = self._postmaster()
        assert before is not None
        # What `pg_ctl stop -m immediate` sends. It would wait as well, and take the next server for this one.
        process.send(before, signal.SIGQUIT)
        assert wait_until(lambda: not process.is_running(before), 30, every=0.01), "Postgres did not stop"

        def again() -> bool:
            now = self._postmaster()
            return now is not None and now != before and bool(self._answers())

        assert wait_until(again, RECOVERY_SECONDS, every=0.05), "Postgres did not come back as another"
        return Death(casualty, before)

    def _postmaster(self) -> Identity | None:
        found = cluster.find_cluster(self._service.home)
        server = cluster.running(found) if found else None
        return process.identify(server.pid) if server and server.ready else None

    def _answers(self) -> bool:
        try:
            return self._service.rows("select 1") == [(1,)]
        except (psycopg.OperationalError, GristmillError):
            return False

    def _holders(self) -> set[int]:
        """Pids of this machine's processes that have a document under their lease."""
        try:
            found = self._service.rows("select holder from sources where state = 'leased' and lease_until > now()")
        except (psycopg.OperationalError, GristmillError):
            return set()
        here = socket.gethostname()
        return {int(pid) for host, pid in (holder.rsplit(":", 1) for (holder,) in found) if host == here}

    def _kill(self, identity: Identity) -> Identity:
        process.send(identity, signal.SIGKILL)

        def dead() -> bool:
            process.reap(identity.pid)
            return not process.is_running(identity)

        assert wait_until(dead, 30, every=0.01), f"{identity} did not die"
        return identity
