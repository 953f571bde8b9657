"""`gristmill up` as a process of its own, with children that only wait."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from pipelines.errors import ConfigurationError
from worker import process
from worker.embedded import Services, find_services, prepare_home, stop_services, valkey
from worker.embedded.cluster import find_cluster, running
from worker.settings import load_settings
from worker.up import Only, child_environment, children, home_lock, loops, run_up

# A supervisor's start takes long where the machine is at work on something else, and some tests have two.
pytestmark = pytest.mark.timeout(400)
SECONDS = 90.0
"""Within which whatever a test waits for happens, or never will."""

SERVICES = Services("postgresql://postgres@/gristmill?host=/x", "redis+socket:///x/valkey.sock")

DRIVER = """
import functools, logging, os, signal, sys, types
from worker import up
from worker.settings import load_settings
from worker.supervisor import ChildSpec, LoopSpec

logging.basicConfig(level="INFO", format="%(message)s", stream=sys.stdout)
if sys.argv[2] == "stopped":

    class Stop(logging.Handler):
        def emit(self, record):
            if "making the database" in record.getMessage():
                os.kill(os.getpid(), signal.SIGTERM)

    logging.getLogger().addHandler(Stop())
database = types.ModuleType("worker.database")
database.prepare_database = lambda settings, services: []
sys.modules["worker.database"] = database

wait = "import time; time.sleep(600)"
fork = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.fork(); time.sleep(600)"

def children(settings, services, only):
    env = up.child_environment(settings, services, os.environ)
    return [ChildSpec(name, (sys.executable, "-c", code), env) for name, code in CHILDREN.items()]

CHILDREN = {"stubborn": fork} if sys.argv[2] == "stubborn" else {"patient": wait}
real = up.loops
up.Supervisor = functools.partial(up.Supervisor, stop_timeout=600.0)  # longer than any test waits
up.stop_leftovers = functools.partial(up.stop_leftovers, grace=1.0)
up.children = children
up.loops = lambda *a: [loop for loop in real(*a) if loop.name == "services"]
from pathlib import Path
sys.exit(up.run_up(load_settings(home=Path(sys.argv[1])), on_ready=lambda services: print("READY", flush=True)))
"""


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("DATABASE_URL", "BROKER_URL", "HOME"):
        monkeypatch.delenv(f"GRISTMILL_{name}", raising=False)
    # Not tmp_path: root's is closed to the account that runs Postgres.
    outer = Path(tempfile.mkdtemp(prefix="gm-"))
    outer.chmod(0o711)
    home = outer / "home"
    yield home
    for pid in ours(home):
        with suppress(ProcessLookupError):  # asked to end when its supervisor died, it may have done so just now
            os.kill(pid, signal.SIGKILL)
    stop_services(load_settings(home=home), urgent=True)
    shutil.rmtree(outer)


def ours(home: Path) -> set[int]:
    """Pids of the children of a supervisor of this home, theirs included."""
    found = set()
    for candidate in psutil.process_iter():
        try:
            if candidate.environ().get("GRISTMILL_HOME") == str(home) and process.identify(candidate.pid):
                found.add(candidate.pid)
        except psutil.Error:
            continue
    return found


def until_ours(home: Path, count: int) -> set[int]:
    """Them, once there are so many: one that is about to become its command has no environment for a moment."""
    found: set[int] = set()

    def all_there() -> bool:
        nonlocal found
        found = ours(home)
        return len(found) == count

    assert process.wait_for(all_there, SECONDS), found
    return found


class Up:
    """A running supervisor and what it has said."""

    def __init__(self, home: Path, kind: str = "patient") -> None:
        self.home = home
        self.log = home.parent / f"up-{time.monotonic_ns()}.log"
        with self.log.open("w") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-c", DRIVER, str(home), kind], stdout=log, stderr=subprocess.STDOUT
            )

    def wait_for(self, words: str) -> re.Match[str]:
        found: list[re.Match[str]] = []

        def said() -> bool:
            match = re.search(words, self.log.read_text())
            found.extend([match] if match else [])
            return match is not None or self.popen.poll() is not None

        assert process.wait_for(said, SECONDS), self.log.read_text()
        assert found, self.log.read_text()
        return found[0]

    def __enter__(self) -> Up:
        self.wait_for("READY")
        return self

    def __exit__(self, *_: object) -> None:
        self.popen.kill()
        self.popen.wait()


def service_pids(home: Path) -> dict[str, int]:
    cluster = find_cluster(home)
    server = running(cluster) if cluster else None
    broker = process.recall(home / "valkey" / "valkey.json")
    assert server and broker
    return {"Postgres": server.pid, "Valkey": broker.pid}


def test_it_runs_until_asked_to_stop_and_leaves_nothing(home: Path) -> None:
    with Up(home) as up:
        pids = service_pids(home)
        assert find_services(load_settings(home=home)).database_url in up.log.read_text()
        assert until_ours(home, 1)
        up.popen.send_signal(signal.SIGTERM)
        assert up.popen.wait(SECONDS) == 0
    assert ours(home) == set()
    assert [process.identify(pid) for pid in pids.values()] == [None, None]
    assert list((home / "run").iterdir()) == []


def test_a_stop_that_comes_while_it_starts_is_obeyed(home: Path) -> None:
    up = Up(home, "stopped")
    try:
        assert up.popen.wait(SECONDS) == 0
        assert "making the database" in up.log.read_text()
        assert "READY" not in up.log.read_text()
    finally:
        up.popen.kill()
        up.popen.wait()
    assert ours(home) == set()
    assert not valkey.is_running(home)
    cluster = find_cluster(home)
    assert cluster is None or running(cluster) is None


def test_a_second_one_on_the_same_home_is_refused(home: Path) -> None:
    with Up(home) as up:
        with pytest.raises(ConfigurationError) as caught:
            run_up(load_settings(home=home))
        assert caught.value.code == "already_running"
        assert str(home) in caught.value.cause
        assert f"process {up.popen.pid}" in caught.value.cause
        assert up.popen.poll() is None


def test_the_lock_is_free_again_when_its_holder_has_gone(tmp_path: Path) -> None:
    code = (
        "import os, signal; from pathlib import Path; from worker.up import home_lock\n"
        f"with home_lock(Path({str(tmp_path)!r})): os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    with home_lock(tmp_path):
        assert (tmp_path / "up.lock").read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize("kind", ["patient", "stubborn"])
def test_after_a_kill_the_next_one_takes_over(home: Path, kind: str) -> None:
    with Up(home, kind) as first:
        pids = service_pids(home)
        left = until_ours(home, 1 if kind == "patient" else 2)
        with psycopg.connect(find_services(load_settings(home=home)).database_url) as connection:
            connection.execute("create table kept (n int)")
        first.popen.kill()
        first.popen.wait()
    with Up(home) as second:
        assert service_pids(home) == pids
        assert process.wait_for(lambda: not left & ours(home), SECONDS)
        assert until_ours(home, 1)
        with psycopg.connect(find_services(load_settings(home=home)).database_url) as connection:
            assert connection.execute("select count(*) from kept").fetchone() == (0,)
        second.popen.send_signal(signal.SIGINT)
        assert second.popen.wait(SECONDS) == 0
    assert [process.identify(pid) for pid in pids.values()] == [None, None]


def test_a_killed_child_and_killed_services_come_back(home: Path) -> None:
    with Up(home) as up:
        before = service_pids(home)
        (child,) = until_ours(home, 1)
        for pid in (child, *before.values()):
            os.kill(pid, signal.SIGKILL)
        assert process.wait_for(lambda: ours(home) - {child} != set(), SECONDS)

        def back() -> bool:
            cluster = find_cluster(home)
            server = running(cluster) if cluster else None
            if not (server and server.ready and server.pid != before["Postgres"] and valkey.answers(home)):
                return False
            return service_pids(home)["Valkey"] != before["Valkey"]  # written down once it answers

        assert process.wait_for(back, SECONDS), up.log.read_text()
        with psycopg.connect(find_services(load_settings(home=home)).database_url) as connection:
            assert connection.execute("select 1").fetchone() == (1,)
        assert "was killed by SIGKILL; started again in 1 s" in up.log.read_text()
        assert "has died and is started again" in up.log.read_text()


def test_a_second_request_kills_what_does_not_obey(home: Path) -> None:
    with Up(home, "stubborn") as up:
        assert until_ours(home, 2)
        up.popen.send_signal(signal.SIGINT)
        up.wait_for("stopping stubborn")
        up.popen.send_signal(signal.SIGINT)
        assert up.popen.wait(SECONDS) == 1
    assert ours(home) == set()


def test_children_read_the_very_settings_that_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "gristmill.env").write_text("GRISTMILL_TENANT=file\nGRISTMILL_MAX_PAGES=7\n")
    given = load_settings(
        home=tmp_path,
        watch=(tmp_path / "a:b", tmp_path / "c"),
        tenant="default",
        openai_api_key="secret",
        sweep_seconds=0.5,
    )
    env = child_environment(given, SERVICES, {"PATH": "/bin"})
    assert env["PATH"] == "/bin"
    for name in [name for name in os.environ if name.startswith("GRISTMILL_")]:
        monkeypatch.delenv(name)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    read = load_settings()
    assert read.model_dump() == given.model_dump() | {
        "database_url": SERVICES.database_url,
        "broker_url": SERVICES.broker_url,
    }
    assert (read.tenant, read.max_pages, read.watch) == ("default", 7, (tmp_path / "a:b", tmp_path / "c"))


@pytest.mark.parametrize(
    ("only", "watch", "names", "threads"),
    [
        (None, False, ["ingest", "search", "ocr", "http"], ["services", "sweep", "callbacks", "housekeeping"]),
        (
            None,
            True,
            ["ingest", "search", "ocr", "watcher", "http"],
            ["services", "sweep", "callbacks", "housekeeping"],
        ),
        ("worker", True, ["ingest", "search", "ocr"], ["services", "sweep", "callbacks", "housekeeping"]),
        ("ocr", False, ["ocr"], ["services", "sweep"]),
        ("watcher", False, ["watcher"], ["services"]),
    ],
)
def test_what_runs_under_which_option(
    tmp_path: Path, only: Only | None, watch: bool, names: list[str], threads: list[str]
) -> None:
    settings = load_settings(
        home=tmp_path,
        watch=(tmp_path,) if watch else (),
        ingest_concurrency=3,
        ocr_concurrency=4,
        openai_api_key="secret",
    )
    found = children(settings, SERVICES, only)
    assert [child.name for child in found] == names
    assert [loop.name for loop in loops(settings, SERVICES, only)] == threads
    assert "secret" not in json.dumps([child.argv for child in found])
    if "ingest" in names:
        argv = found[0].argv
        assert [argv[argv.index(option) + 1] for option in ("-A", "-Q", "-c")] == ["worker.app", "ingest", "3"]
    if "ocr" in names:
        argv = found[names.index("ocr")].argv
        assert [argv[argv.index(option) + 1] for option in ("-A", "-Q", "-c")] == ["worker.app", "ocr", "4"]


def test_a_home_that_exists_keeps_its_mode_and_a_new_one_is_closed(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir(mode=0o750)
    prepare_home(tmp_path / "old")
    assert (tmp_path / "old").stat().st_mode & 0o777 == 0o750
    prepare_home(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == (0o711 if os.geteuid() == 0 else 0o700)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be made"):
        prepare_home(tmp_path / "file")
