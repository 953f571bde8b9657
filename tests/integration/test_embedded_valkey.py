"""The embedded Valkey."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery
from redis import Redis

from pipelines.errors import ConfigurationError
from worker import process
from worker.embedded import find_services, start_services, stop_services, valkey
from worker.settings import Settings, load_settings

DATABASE = "postgresql://nowhere.invalid/none"


def settings_of(home: Path) -> Settings:
    return load_settings(home=home, database_url=DATABASE, broker_url=None)


@pytest.fixture
def home() -> Iterator[Path]:
    outer = Path(tempfile.mkdtemp(prefix="gm-"))
    home = outer / "home"
    yield home
    identity = process.recall(home / "valkey" / "valkey.json")
    stop_services(settings_of(home))
    shutil.rmtree(outer)
    assert identity is None or not process.is_running(identity)


def pid_of(home: Path) -> int:
    with Redis(unix_socket_path=str(valkey.socket_path(home))) as client:
        return int(client.info("server")["process_id"])


# Celery 5.7 still writes results with SETEX, which redis-py has deprecated.
@pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "written"), [("home", "home"), ("a home%20#1?", "a%20home%2520%231%3F")], ids=["plain", "odd"]
)
def test_celery_takes_the_address_as_broker_and_as_result_backend(home: Path, name: str, written: str) -> None:
    home = home.with_name(name)
    services = start_services(settings_of(home))
    assert services.database_url == DATABASE
    assert services.broker_url == f"redis+socket://{home.parent}/{written}/valkey/valkey.sock"
    app = Celery(broker=services.broker_url, backend=services.broker_url, set_as_current=False)
    with app.connection_for_write() as connection:
        queue = connection.SimpleQueue("probe")
        queue.put({"n": 1})
        message = queue.get(timeout=30)
        assert message.payload == {"n": 1}
        message.ack()
        queue.close()
    app.backend.store_result("a-task", {"n": 2}, "SUCCESS")
    assert app.AsyncResult("a-task").get(timeout=30) == {"n": 2}
    app.close()
    stop_services(settings_of(home))


def test_it_is_private_and_writes_no_data(home: Path) -> None:
    start_services(settings_of(home))
    socket = valkey.socket_path(home)
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700
    with Redis(unix_socket_path=str(socket)) as client:
        facts = {name: client.config_get(name)[name] for name in ("port", "save", "appendonly")}
        client.set("key", "value")
    assert facts == {"port": "0", "save": "", "appendonly": "no"}
    stop_services(settings_of(home))
    assert not [path for path in home.rglob("*") if path.suffix in {".rdb", ".aof"}]


def test_a_second_start_finds_the_first_ones_server(home: Path) -> None:
    settings = settings_of(home)
    services = start_services(settings)
    pid = pid_of(home)
    assert start_services(settings) == services
    assert find_services(settings) == services
    assert pid_of(home) == pid


def test_a_killed_server_is_missed_and_started_again(home: Path) -> None:
    settings = settings_of(home)
    services = start_services(settings)
    pid = pid_of(home)
    os.kill(pid, signal.SIGKILL)
    assert process.wait_for(lambda: not valkey.is_running(home), 30)
    with pytest.raises(ConfigurationError) as caught:
        find_services(settings)
    assert (caught.value.code, caught.value.remedy) == ("not_running", "start it with: gristmill up")
    assert start_services(settings) == services
    assert pid_of(home) != pid


def test_a_server_whose_socket_was_deleted_is_replaced(home: Path) -> None:
    settings = settings_of(home)
    start_services(settings)
    pid = pid_of(home)
    valkey.socket_path(home).unlink()
    start_services(settings)
    assert pid_of(home) != pid
    assert process.identify(pid) is None


def test_stop_ends_it_and_may_be_repeated(home: Path) -> None:
    settings = settings_of(home)
    start_services(settings)
    pid = pid_of(home)
    stop_services(settings)
    assert process.identify(pid) is None
    stop_services(settings)


def test_a_server_that_was_never_written_down_is_stopped_too(home: Path) -> None:
    settings = settings_of(home)
    start_services(settings)
    pid = pid_of(home)
    (home / "valkey" / "valkey.json").unlink()
    stop_services(settings)
    assert process.identify(pid) is None


def test_a_recycled_pid_is_never_stopped(home: Path) -> None:
    settings = settings_of(home)
    start_services(settings)
    stop_services(settings)
    ours = process.identify(os.getpid())
    assert ours
    process.record(home / "valkey" / "valkey.json", process.Identity(ours.pid, "another start"))
    assert not valkey.is_running(home)
    stop_services(settings)
    assert process.is_running(ours)
