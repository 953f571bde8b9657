"""The supervisor with a turned clock and children made of paper; process facts with real ones."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from worker import process
from worker.supervisor import (
    Backoff,
    Child,
    ChildSpec,
    LoopSpec,
    StopRequest,
    Supervisor,
    describe_exit,
    keep_running,
    spawn_process,
    stop_leftovers,
    stop_signals,
)


@dataclass
class Paper:
    """A child that ends when told so, or asked so."""

    pid: int
    obeys: bool = True
    code: int | None = None
    calls: list[str] = field(default_factory=list)

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.calls.append("terminate")
        if self.obeys:
            self.code = 0

    def kill(self) -> None:
        self.calls.append("kill")
        if self.code is None:
            self.code = -9


@dataclass
class World:
    """A clock, and all that was ever started."""

    now: float = 1000.0
    started: list[tuple[float, str, Paper]] = field(default_factory=list)
    obeys: bool = True
    refuses: bool = False

    def spawn(self, spec: ChildSpec) -> Child:
        if self.refuses:
            raise OSError("no more processes")
        # Numbers beyond any real pid.
        child = Paper(2**30 + len(self.started), self.obeys)
        self.started.append((self.now, spec.name, child))
        return child

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def supervisor(world: World, *names: str, stop_timeout: float = 10.0) -> Supervisor:
    return Supervisor(
        [ChildSpec(name, ("true",), {}) for name in names],
        stop_timeout=stop_timeout,
        spawn=world.spawn,
        clock=lambda: world.now,
        sleep=world.sleep,
    )


def run_for(world: World, subject: Supervisor, seconds: float) -> None:
    end = world.now + seconds
    while world.now < end:
        subject.step()
        world.sleep(0.25)


def test_backoff_doubles_to_its_limit_and_forgets_after_a_healthy_run() -> None:
    backoff = Backoff()
    assert [backoff.after(0.1) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert backoff.after(59.9) == 30
    assert [backoff.after(60), backoff.after(1)] == [1, 2]


def test_a_child_that_ends_is_started_again_with_growing_pauses() -> None:
    world = World()
    subject = supervisor(world, "ingest", "search")
    subject.start()
    assert [name for _, name, _ in world.started] == ["ingest", "search"]
    starts = []
    for _ in range(4):
        began, _, child = [entry for entry in world.started if entry[1] == "ingest"][-1]
        starts.append(began)
        child.code = 1
        ended = world.now
        count = len(world.started)
        while len(world.started) == count:
            subject.step()
            world.sleep(0.25)
        starts[-1] = world.started[-1][0] - ended
    assert starts == [1, 2, 4, 8]
    assert [name for _, name, _ in world.started].count("search") == 1


def test_a_healthy_minute_resets_the_pause() -> None:
    world = World()
    subject = supervisor(world, "ingest")
    subject.start()
    for lived in (0.0, 0.0, 61.0):
        run_for(world, subject, lived)
        world.started[-1][2].code = -9
        count = len(world.started)
        ended = world.now
        while len(world.started) == count:
            subject.step()
            world.sleep(0.25)
    assert world.started[-1][0] - ended == 1


def test_what_an_ended_child_left_in_its_group_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    subject = supervisor(world, "ingest")
    subject.start()
    child = world.started[0][2]
    child.code = -9
    with caplog.at_level(logging.WARNING):
        subject.step()
    assert child.calls == ["kill"]
    assert caplog.messages == [f"ingest (pid {child.pid}) was killed by SIGKILL; started again in 1 s"]


def test_a_child_that_cannot_be_started_is_tried_again() -> None:
    world = World(refuses=True)
    subject = supervisor(world, "ingest")
    subject.start()
    run_for(world, subject, 0.5)
    world.refuses = False
    run_for(world, subject, 2)
    assert [entry[0] for entry in world.started] == [1001.0]


def test_stop_asks_all_children_and_waits() -> None:
    world = World()
    subject = supervisor(world, "ingest", "search")
    subject.start()
    assert subject.stop() is True
    assert [child.calls[0] for _, _, child in world.started] == ["terminate", "terminate"]
    assert world.now == 1000.0


def test_stop_kills_what_does_not_end_in_time() -> None:
    world = World(obeys=False)
    subject = supervisor(world, "ingest", stop_timeout=10)
    subject.start()
    assert subject.stop() is False
    assert world.started[0][2].calls[:2] == ["terminate", "kill"]
    assert 10 <= world.now - 1000 < 11


def test_an_urgent_stop_does_not_wait() -> None:
    world = World(obeys=False)
    subject = supervisor(world, "ingest", stop_timeout=1000)
    subject.start()
    assert subject.stop(lambda: True) is False
    assert world.now - 1000 < 1


def test_watch_returns_when_a_stop_is_requested() -> None:
    world = World()
    stop = StopRequest()
    subject = Supervisor(
        [ChildSpec("ingest", ("true",), {})],
        spawn=world.spawn,
        clock=lambda: world.now,
        sleep=lambda seconds: stop.receive(signal.SIGTERM, None),
    )
    subject.start()
    subject.watch(stop)
    assert (stop.requested(), stop.urgent()) == (True, False)


def test_signals_are_counted_and_the_second_interrupts_only_when_asked_to() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert (stop.count, stop.urgent()) == (2, True)
        stop.interrupts = True
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "ended with exit code 0"),
        (3, "ended with exit code 3"),
        (-15, "was killed by SIGTERM"),
        (-99, "was killed by signal 99"),
    ],
)
def test_exit_codes_in_plain_words(code: int, words: str) -> None:
    assert describe_exit(code) == words


class TurnedEvent(threading.Event):
    """An event on which waiting takes no time and is written down."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        return self.is_set()


def test_a_loop_that_raises_or_returns_is_run_again_until_the_stop(caplog: pytest.LogCaptureFixture) -> None:
    stop = TurnedEvent()
    runs = []

    def run(given: threading.Event) -> None:
        runs.append(given)
        if len(runs) == 1:
            raise RuntimeError("the broker is away")
        if len(runs) == 3:
            stop.set()

    with caplog.at_level(logging.WARNING):
        keep_running(LoopSpec("sweep", run), stop, clock=lambda: 0.0)
    assert runs == [stop, stop, stop]
    assert stop.waits == [1, 2]
    assert "sweep failed" in caplog.text
    assert "the broker is away" in caplog.text


SLEEP = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)")
STUBBORN = (
    "import os, signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "os.fork()\n"
    "open({path!r} + str(os.getpid()), 'w').close()\n"
    "time.sleep(60)\n"
)


@pytest.fixture
def group() -> Iterator[list[subprocess.Popen[bytes]]]:
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for popen in found:
        process.kill_group(popen.pid)
        popen.wait()


def stubborn(tmp_path: Path, group: list[subprocess.Popen[bytes]], mark: str) -> tuple[int, list[int]]:
    """A process and its child that ignore SIGTERM; returns the leader's pid and both pids."""
    code = STUBBORN.format(path=f"{tmp_path}/pid-")
    popen = subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, env=dict(os.environ) | {"MARK": mark}
    )
    group.append(popen)
    assert process.wait_for(lambda: len(list(tmp_path.glob("pid-*"))) == 2, 30)
    return popen.pid, [int(path.name.removeprefix("pid-")) for path in tmp_path.glob("pid-*")]


def test_an_identity_is_of_one_process_only() -> None:
    ours = process.identify(os.getpid())
    assert ours == process.identify(os.getpid())
    assert ours
    assert process.is_running(ours)
    assert not process.is_running(process.Identity(ours.pid, "another start"))
    with subprocess.Popen([sys.executable, "-c", ""]) as popen:
        # Ended but not reaped: gone for everyone who asks.
        assert process.wait_for(lambda: process.identify(popen.pid) is None, 30)
    assert process.identify(popen.pid) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": "x", "started": "y"}', "null"])
def test_a_record_that_makes_no_sense_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "child.json"
    assert process.recall(path) is None
    path.write_text(text)
    assert process.recall(path) is None


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    identity = process.Identity(7, "boot:12")
    process.record(tmp_path / "child.json", identity)
    assert process.recall(tmp_path / "child.json") == identity


def test_leftovers_are_ended_group_and_all(tmp_path: Path, group: list[subprocess.Popen[bytes]]) -> None:
    leader, pids = stubborn(tmp_path, group, "ours")
    identity = process.identify(leader)
    assert identity
    process.record(tmp_path / "ingest.json", identity)
    assert stop_leftovers(tmp_path, mark=("MARK", "ours"), grace=0.2) == ["ingest"]
    assert process.wait_for(lambda: not any(process.identify(pid) for pid in pids), 30)
    assert list(tmp_path.glob("*.json")) == []


@pytest.mark.parametrize(("mark", "ended"), [("ours", True), ("a stranger's", False)])
def test_of_a_group_without_its_leader_only_our_own_are_ended(
    tmp_path: Path, group: list[subprocess.Popen[bytes]], mark: str, ended: bool
) -> None:
    leader, pids = stubborn(tmp_path, group, mark)
    identity = process.identify(leader)
    assert identity
    process.record(tmp_path / "ingest.json", identity)
    os.kill(leader, signal.SIGKILL)
    assert process.wait_for(lambda: process.identify(leader) is None, 30)
    (orphan,) = [pid for pid in pids if pid != leader]
    assert stop_leftovers(tmp_path, mark=("MARK", "ours"), grace=0.2) == (["ingest"] if ended else [])
    assert process.wait_for(lambda: process.identify(orphan) is None, 30 if ended else 0.1) is ended


def test_a_recycled_pid_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(SLEEP, stdout=subprocess.PIPE, start_new_session=True) as stranger:
        assert stranger.stdout
        stranger.stdout.readline()
        process.record(tmp_path / "ingest.json", process.Identity(stranger.pid, "an earlier start"))
        assert stop_leftovers(tmp_path, mark=("MARK", "ours"), grace=0.2) == []
        assert stranger.poll() is None
        stranger.kill()


def test_a_real_child_leads_its_group_and_ends_when_asked(tmp_path: Path) -> None:
    child = spawn_process(ChildSpec("sleep", SLEEP, dict(os.environ)))
    assert os.getpgid(child.pid) == child.pid != os.getpgid(0)
    child.terminate()
    assert process.wait_for(lambda: child.poll() is not None, 30)
    assert child.poll() == -signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's death")
def test_a_child_is_asked_to_end_when_its_supervisor_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, sys, time\n"
        "from worker.supervisor import ChildSpec, spawn_process\n"
        f"child = spawn_process(ChildSpec('sleep', {SLEEP!r}, dict(os.environ)))\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        assert parent.stdout.readline() == "up\n"
        assert process.identify(pid)
        parent.kill()
    assert process.wait_for(lambda: process.identify(pid) is None, 30)
