"""A running installation: `gristmill up` in a process of its own, on a home of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from psycopg import Connection

from tests.fakes.ports import reserved_port
from worker.database import open_database
from worker.embedded import Services, find_services, stop_services
from worker.settings import Settings, load_settings

COMMAND = (sys.executable, "-m", "worker.cli")
REPOSITORY = Path(__file__).parents[2]
READY = "ready: home"
"""What the service says once a run, when everything is started and a signal is a request to stop."""


def until(condition: Callable[[], Any], what: str, *, seconds: float = 90.0) -> Any:
    """Poll until a condition holds; its value, or a failure that says what was waited for."""
    deadline = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.05)


def is_dead(pid: int) -> bool:
    """Whether a process has ended, and at most waits to be reaped."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@contextmanager
def stopped(processes: Callable[[], Iterable[psutil.Process]]) -> Iterator[None]:
    """Hold processes, oldest first; looks again until there is none that one of them started meanwhile."""
    held: list[psutil.Process] = []
    try:
        while more := [process for process in processes() if process not in held]:
            for process in sorted(more, key=_age):
                held.append(process)
                with suppress(psutil.NoSuchProcess):
                    process.suspend()
        yield
    finally:
        for process in held:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def _age(process: psutil.Process) -> float:
    try:
        return process.create_time()
    except psutil.NoSuchProcess:
        return float("inf")


class Installation:
    """One home, its drop folder, and the service that runs over it."""

    service: tuple[str, ...] = (*COMMAND, "up")
    """The command that is the service."""

    def __init__(self, place: Path, **settings: Any) -> None:
        self.home = place / "home"
        self.drop = place / "drop"
        self.drop.mkdir()
        given = {
            "home": self.home,
            "watch": json.dumps([str(self.drop)]),
            "stability_seconds": 0.2,
            **settings,
        }
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("GRISTMILL_", "OPENAI_"))},
            "COLUMNS": "200",
            **{f"GRISTMILL_{key.upper()}": str(value) for key, value in given.items()},
        }
        self.settings: Settings = load_settings(**{**given, "watch": (self.drop,)})
        self.log = place / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self._said_before = 0
        self._connection: Connection[Any] | None = None

    def start(self) -> None:
        """Start the service and wait until this run of it is ready."""
        self._said_before = self._said()
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                self.service, env=self.environment, stdout=log, stderr=subprocess.STDOUT, cwd=REPOSITORY
            )
        until(self.is_up, "the service to start", seconds=180)

    def is_up(self) -> bool:
        """Whether the service is ready; fails the test if it ended instead.

        Its database tells nothing: that, and workers, may be those of an earlier run that was killed.
        """
        assert self.process is not None
        if self.process.poll() is not None:
            pytest.fail(f"gristmill up ended with {self.process.returncode}:\n{self.log.read_text()[-3000:]}")
        return self._said() > self._said_before

    def _said(self) -> int:
        return self.log.read_text().count(READY) if self.log.exists() else 0

    def services(self) -> Services:
        """Addresses of the embedded services."""
        return find_services(self.settings)

    def connection(self) -> Connection[Any]:
        """A connection to its database, opened again if it was lost."""
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection = open_database(self.settings)
        return self._connection

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a query against its database."""
        return self.connection().execute(query.encode(), values).fetchall()

    def states(self) -> dict[str, str]:
        """State of every document by file name."""
        return {uri.rsplit("/", 1)[-1]: state for uri, state in self.rows("select uri, state from sources")}

    def settled(self, count: int, *, seconds: float = 90.0) -> dict[str, str]:
        """Wait until so many documents are known and none is pending, leased or reading; their states."""

        def look() -> dict[str, str] | None:
            states = self.states()
            waiting = [name for name, state in states.items() if state in ("pending", "leased", "reading")]
            return states if len(states) >= count and not waiting else None

        found: dict[str, str] = until(look, f"{count} documents to settle", seconds=seconds)
        return found

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command line against this installation."""
        return subprocess.run(
            [*COMMAND, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    def answer(self, *arguments: str) -> Any:
        """Run the command line with `--json`; its answer."""
        done = self.run(*arguments, "--json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def children(self, text: str) -> list[psutil.Process]:
        """Processes of the service whose command line holds a text."""
        assert self.process is not None
        found = []
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if text in " ".join(child.cmdline()):
                        found.append(child)
        return found

    def main(self, text: str) -> psutil.Process:
        """The oldest process of the service whose command line holds a text: a worker, and not one of its pool."""
        found: psutil.Process = until(lambda: min(self.children(text), key=_age, default=None), f"a process of {text}")
        return found

    def disconnect(self) -> None:
        """Give up the connection to its database."""
        if self._connection is not None:
            self._connection.close()

    def stop(self) -> int:
        """Stop it as a service manager would; its exit code."""
        assert self.process is not None
        self.disconnect()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(180)


@pytest.fixture
def free_port() -> Iterator[Callable[[], int]]:
    """Gives ports that are nobody else's until the end of the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(reserved_port())


@contextmanager
def installations() -> Iterator[Callable[..., Installation]]:
    """Make installations; all are stopped at the end, whatever happened to them."""
    made: list[tuple[Installation, tempfile.TemporaryDirectory[str]]] = []

    def make(**settings: Any) -> Installation:
        place = tempfile.TemporaryDirectory(prefix="gm-", ignore_cleanup_errors=True)
        Path(place.name).chmod(0o711)  # as root, Postgres runs as another user and has to get through
        made.append((Installation(Path(place.name), **settings), place))
        return made[-1][0]

    yield make
    for installation, place in made:
        if installation.process is not None and installation.process.poll() is None:
            installation.stop()
        installation.disconnect()
        stop_services(installation.settings)
        place.cleanup()


@pytest.fixture
def install() -> Iterator[Callable[..., Installation]]:
    """Make installations of one test."""
    with installations() as make:
        yield make


@pytest.fixture(scope="module")
def running() -> Iterator[Installation]:
    """One that runs, for the tests of a file that add documents of their own and leave it as it is otherwise."""
    with installations() as make:
        service = make()
        service.start()
        yield service
