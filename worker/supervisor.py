"""Keep a few child processes and threads running until told to stop.

Knows nothing of what the children do. A child that ends is started again, after a pause that doubles while
it keeps ending at once. SIGTERM, SIGINT or SIGHUP ask everything to stop; a second one stops it without
waiting.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol

from worker import process

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.2

STOP_SECONDS = 30.0
"""What a child gets between SIGTERM and SIGKILL. More than a worker's patience with its work (`worker.lease`)."""


@dataclass(frozen=True)
class ChildSpec:
    """A child process: a name for people, the command, its whole environment."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True)
class LoopSpec:
    """Something that runs in a thread of the supervisor until the event it is given is set."""

    name: str
    run: Callable[[threading.Event], None]


class Child(Protocol):
    """A started child, as far as the supervisor cares."""

    @property
    def pid(self) -> int:
        """Pid of the child, which leads a process group of its own."""

    def poll(self) -> int | None:
        """Exit code (negative: the signal that killed it), or None while it runs."""

    def terminate(self) -> None:
        """Ask the child itself to end; how it ends its own children is its affair."""

    def kill(self) -> None:
        """Kill the child's whole process group."""


class _ProcessChild:
    def __init__(self, spec: ChildSpec) -> None:
        guard = (sys.executable, "-m", "worker.process", str(os.getpid()))
        self._popen = subprocess.Popen(
            guard + spec.argv, env=dict(spec.env), stdin=subprocess.DEVNULL, start_new_session=True
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def poll(self) -> int | None:
        return self._popen.poll()

    def terminate(self) -> None:
        self._popen.terminate()

    def kill(self) -> None:
        process.kill_group(self._popen.pid)


def spawn_process(spec: ChildSpec) -> Child:
    """Start a child as a process that leads its own session and group, and that is told if we die (Linux).

    Must be called from the thread that lives as long as the process: Linux reports the death of the thread.

    Raises:
        OSError: it could not be started.
    """
    return _ProcessChild(spec)


@dataclass
class Backoff:
    """How long to wait before the next start: `first` seconds, doubling to `longest`.

    A run of at least `healthy` seconds starts the count anew.
    """

    first: float = 1.0
    longest: float = 30.0
    healthy: float = 60.0
    _delay: float = field(default=0.0, init=False)

    def after(self, lived: float) -> float:
        """Seconds to wait after a run that lasted `lived` seconds."""
        again = self._delay > 0 and lived < self.healthy
        self._delay = min(self._delay * 2, self.longest) if again else self.first
        return self._delay


class StopRequest:
    """Counts how often we were asked to stop.

    The signal handler only adds to a number: locks and events may be held by the very code that it
    interrupts.
    """

    def __init__(self) -> None:
        self.count = 0
        self.interrupts = False
        """Whether a second request raises KeyboardInterrupt: for work that cannot be asked to stop."""

    def requested(self) -> bool:
        """Whether to stop."""
        return self.count > 0

    def urgent(self) -> bool:
        """Whether to stop without waiting for anything."""
        return self.count > 1

    def receive(self, signum: int, frame: FrameType | None) -> None:
        """The signal handler."""
        self.count += 1
        if self.urgent() and self.interrupts:
            raise KeyboardInterrupt


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Turn SIGTERM, SIGINT and SIGHUP into a `StopRequest` while the block runs; main thread only.

    A signal that is ignored on entry (SIGHUP under nohup) stays ignored.
    """
    stop = StopRequest()
    wanted = [s for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN]
    before = {signum: signal.signal(signum, stop.receive) for signum in wanted}
    try:
        yield stop
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def describe_exit(code: int) -> str:
    """Plain words for an exit code as `Popen.returncode` gives it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def keep_running(
    loop: LoopSpec,
    stop: threading.Event,
    *,
    clock: Callable[[], float] = time.monotonic,
    backoff: Backoff | None = None,
) -> None:
    """Run a loop until `stop` is set; when it raises or returns before that, log it and run it again."""
    backoff = backoff or Backoff()
    while not stop.is_set():
        began = clock()
        try:
            loop.run(stop)
        except Exception:
            logger.exception("%s failed", loop.name)
        if stop.is_set():
            return
        delay = backoff.after(clock() - began)
        logger.warning("%s ended; started again in %g s", loop.name, delay)
        stop.wait(delay)


@dataclass
class _Slot:
    spec: ChildSpec
    backoff: Backoff = field(default_factory=Backoff)
    child: Child | None = None
    began: float = 0.0
    due: float = 0.0


class Supervisor:
    """Runs children and loops.

    Args:
        children: processes to keep running; names are unique and fit a file name.
        loops: threads to keep running.
        stop_timeout: seconds that children get between SIGTERM and SIGKILL.
        records: directory in which running children are written down, so that the next supervisor finds what
            a killed one left behind (`stop_leftovers`); None: nowhere.
        spawn, clock, sleep: what starts a child, tells the time (seconds) and waits.
    """

    def __init__(
        self,
        children: Sequence[ChildSpec],
        *,
        loops: Sequence[LoopSpec] = (),
        stop_timeout: float = STOP_SECONDS,
        records: Path | None = None,
        spawn: Callable[[ChildSpec], Child] = spawn_process,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._slots = [_Slot(spec) for spec in children]
        self._loops = tuple(loops)
        self._stop_timeout = stop_timeout
        self._records = records
        self._spawn = spawn
        self._clock = clock
        self._sleep = sleep
        self._loops_stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the loops and every child."""
        for loop in self._loops:
            thread = threading.Thread(target=keep_running, args=(loop, self._loops_stop), name=loop.name, daemon=True)
            thread.start()
            self._threads.append(thread)
        self.step()

    def step(self) -> None:
        """Look at every child once: note the ones that ended, start the ones that are due."""
        for slot in self._slots:
            if slot.child is None:
                if self._clock() >= slot.due:
                    self._start(slot)
                continue
            code = slot.child.poll()
            if code is not None:
                pid = slot.child.pid
                self._clear(slot)
                delay = self._postpone(slot)
                logger.warning("%s (pid %d) %s; started again in %g s", slot.spec.name, pid, describe_exit(code), delay)

    def watch(self, stop: StopRequest) -> None:
        """Keep everything running until a stop is requested. To be called after `start`, before `stop`."""
        while not stop.requested():
            self.step()
            self._sleep(TICK_SECONDS)

    def stop(self, urgent: Callable[[], bool] = lambda: False) -> bool:
        """Ask everything to end, wait, kill what is left when the time is up or the matter has become urgent.

        Returns:
            True if every child ended by itself in time, False if some had to be killed.
        """
        self._loops_stop.set()
        names = ", ".join(slot.spec.name for slot in self._slots if slot.child)
        if names:
            logger.info("stopping %s; what runs may finish within %g s", names, self._stop_timeout)
        for slot in self._slots:
            if slot.child:
                slot.child.terminate()
        deadline = self._clock() + self._stop_timeout
        while self._collect() and self._clock() < deadline and not urgent():
            self._sleep(TICK_SECONDS)
        left = self._collect()
        for slot in left:
            if slot.child:
                logger.warning("%s (pid %d) did not stop in time and is killed", slot.spec.name, slot.child.pid)
                slot.child.kill()
        while self._collect():
            self._sleep(TICK_SECONDS)
        for thread in self._threads:
            thread.join(0.0 if urgent() else max(0.0, deadline - self._clock()))
            if thread.is_alive():
                logger.warning("%s did not stop in time and is abandoned", thread.name)
        return not left

    def _start(self, slot: _Slot) -> None:
        slot.began = self._clock()
        try:
            slot.child = self._spawn(slot.spec)
        except OSError as error:
            delay = self._postpone(slot)
            logger.error("%s could not be started: %s; tried again in %g s", slot.spec.name, error, delay)
            return
        logger.info("%s started (pid %d)", slot.spec.name, slot.child.pid)
        identity = process.identify(slot.child.pid) if self._records else None
        if self._records and identity:
            process.record(self._records / f"{slot.spec.name}.json", identity)

    def _postpone(self, slot: _Slot) -> float:
        delay = slot.backoff.after(self._clock() - slot.began)
        slot.due = self._clock() + delay
        return delay

    def _clear(self, slot: _Slot) -> None:
        """Forget an ended child, and kill what it left in its group."""
        if slot.child:
            slot.child.kill()
            slot.child = None
        if self._records:
            (self._records / f"{slot.spec.name}.json").unlink(missing_ok=True)

    def _collect(self) -> list[_Slot]:
        """Clear the children that have ended; returns those that have not."""
        for slot in self._slots:
            if slot.child and (code := slot.child.poll()) is not None:
                logger.info("%s (pid %d) %s", slot.spec.name, slot.child.pid, describe_exit(code))
                self._clear(slot)
        return [slot for slot in self._slots if slot.child]


def stop_leftovers(records: Path, *, mark: tuple[str, str], grace: float = STOP_SECONDS) -> list[str]:
    """End the children that a killed supervisor left behind.

    Args:
        records: the directory that supervisor recorded its children in.
        mark: a variable and value in the environment of those children, see `process.end_group`.
        grace: seconds between SIGTERM and SIGKILL, for each.

    Returns:
        Names of the children that were found and ended.
    """
    found = []
    for path in sorted(records.glob("*.json")):
        leader = process.recall(path)
        if leader and process.end_group(leader, grace, mark):
            logger.warning("ended %s (pid %d), left behind by an earlier run", path.stem, leader.pid)
            found.append(path.stem)
        path.unlink(missing_ok=True)
    return found
