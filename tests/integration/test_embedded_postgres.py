"""The embedded Postgres, for whoever runs the tests: root or a plain user."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from pipelines.errors import ConfigurationError
from tests.fakes.ports import reserved_port
from worker import process
from worker.embedded import find_services, places, start_services, stop_services, tcp_database_url
from worker.embedded.cluster import Running, find_cluster, running
from worker.settings import Settings, load_settings

# A server is made in most of these, and its programs are copied in one.
pytestmark = pytest.mark.timeout(300)
AS_ROOT = os.geteuid() == 0


def settings_of(home: Path, *, tcp_port: int = 0) -> Settings:
    # A broker that is never spoken to: this file is about Postgres alone.
    return load_settings(
        home=home, database_url=None, broker_url="memory://", embedded_tcp_port=tcp_port, openai_api_key=None
    )


@pytest.fixture
def outer() -> Iterator[Path]:
    # Not tmp_path: root's is closed to the account that runs Postgres, and may be too long for a socket.
    path = Path(tempfile.mkdtemp(prefix="gm-"))
    path.chmod(0o711)
    yield path
    for home in [p for p in path.rglob("home") if p.is_dir()]:
        stop_services(settings_of(home), urgent=True)
    shutil.rmtree(path)
    assert not [p for p in psutil.process_iter() if _in(p, path)]


def _in(candidate: psutil.Process, path: Path) -> bool:
    try:
        return process.identify(candidate.pid) is not None and Path(candidate.cwd()).is_relative_to(path)
    except psutil.Error:
        return False


@pytest.fixture
def home(outer: Path) -> Path:
    return outer / "home"


@pytest.fixture
def port() -> Iterator[int]:
    with reserved_port() as port:
        yield port


def server(home: Path) -> Running:
    cluster = find_cluster(home)
    assert cluster
    found = running(cluster)
    assert found
    return found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_first_start_makes_a_database_with_what_we_need_and_opens_nothing(home: Path, outer: Path) -> None:
    accounts = pwd.getpwall()
    parents = {path: mode(path) for path in outer.parents} | {outer: mode(outer)}
    services = start_services(settings_of(home))
    with psycopg.connect(services.database_url, autocommit=True) as connection:
        facts = {
            name: connection.execute(f"show {name}").fetchone()
            for name in ("fsync", "listen_addresses", "server_encoding", "shared_buffers", "data_checksums")
        }
        for name in ("vector", "unaccent", "pg_trgm"):
            connection.execute(f"create extension {name}")
        row = connection.execute(
            "select current_database(), current_user, '[1,2]'::vector <-> '[1,4]', unaccent('é'), "
            "datlocprovider::text, datlocale from pg_database where datname = current_database()"
        ).fetchone()
    assert row == ("gristmill", "postgres", 2.0, "e", "b", "C.UTF-8")
    assert facts == {
        "fsync": ("on",),
        "listen_addresses": ("",),
        "server_encoding": ("UTF8",),
        "shared_buffers": ("128MB",),
        "data_checksums": ("on",),
    }
    assert services.database_url == f"postgresql://postgres@/gristmill?host={home}/postgres/run"
    assert mode(home / "postgres" / "run") == 0o700
    assert mode(home / "postgres" / "data") == 0o700
    assert mode(home) == (0o711 if AS_ROOT else 0o700)
    assert pwd.getpwall() == accounts
    assert {path: mode(path) for path in parents} == parents
    assert (psutil.Process(server(home).pid).uids().effective == 0) is False


def test_another_process_finds_the_server_and_psql_takes_its_address(home: Path) -> None:
    settings = settings_of(home)
    services = start_services(settings)
    first = server(home)
    assert start_services(settings) == services
    assert server(home).pid == first.pid
    code = (
        "from pathlib import Path; from worker.settings import load_settings; from worker.embedded import *;"
        f"print(find_services(load_settings(home=Path({str(home)!r}), broker_url='memory://')).database_url)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    assert found == services.database_url
    psql = shutil.which("psql")
    if psql:
        said = subprocess.run([psql, found, "-Atc", "select 40 + 2"], check=True, capture_output=True, text=True)
        assert said.stdout == "42\n"


def test_a_killed_server_comes_back_with_all_that_was_committed(home: Path) -> None:
    settings = settings_of(home)
    services = start_services(settings)
    with psycopg.connect(services.database_url, autocommit=True) as connection:
        connection.execute("create table kept as select generate_series(1, 1000) as n")
    killed = server(home).pid
    os.kill(killed, signal.SIGKILL)
    assert process.wait_for(lambda: process.identify(killed) is None, 30)
    with pytest.raises(ConfigurationError) as caught:
        find_services(settings)
    assert (caught.value.code, str(home) in caught.value.cause) == ("not_running", True)
    assert "gristmill up" in caught.value.remedy
    assert start_services(settings) == services
    assert server(home).pid != killed
    with psycopg.connect(services.database_url) as connection:
        assert connection.execute("select count(*), sum(n) from kept").fetchone() == (1000, 500500)


def test_a_pid_file_that_names_a_stranger_does_not_keep_it_down(home: Path) -> None:
    settings = settings_of(home)
    start_services(settings)
    pid_file = home / "postgres" / "data" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    account = places.account_of((home / "postgres" / "data").stat().st_uid)
    os.kill(int(lines[0]), signal.SIGKILL)
    with subprocess.Popen(["sleep", "600"], **account.run_as()) as stranger:
        try:
            pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
            start_services(settings)
            assert server(home).pid != stranger.pid
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_stop_is_graceful_and_may_be_repeated(home: Path) -> None:
    settings = settings_of(home)
    start_services(settings)
    pid = server(home).pid
    stop_services(settings)
    assert process.identify(pid) is None
    assert not (home / "postgres" / "data" / "postmaster.pid").exists()
    assert "database system is shut down" in (home / "postgres" / "postgres.log").read_text()
    stop_services(settings)


def test_a_start_that_is_under_way_is_joined(home: Path) -> None:
    settings = settings_of(home)
    services = start_services(settings)
    pid = server(home).pid
    pid_file = home / "postgres" / "data" / "postmaster.pid"
    ready = pid_file.read_text()
    pid_file.write_text(ready.replace("ready   ", "starting"))
    assert not server(home).ready
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        if asked == 6:
            pid_file.write_text(ready)
        return False

    assert start_services(settings, cancelled=cancelled) == services
    assert asked >= 6
    assert server(home).pid == pid


def test_a_start_can_be_cancelled_at_once_and_while_the_server_starts(home: Path) -> None:
    settings = settings_of(home)
    data = home / "postgres" / "data"

    def starting() -> bool:
        # Asked of a start that is under way, it holds that up until the server has begun.
        return data.exists() and process.wait_for((data / "postmaster.pid").exists, 60)

    for cancelled in (lambda: True, starting):
        with pytest.raises(ConfigurationError) as caught:
            start_services(settings, cancelled=cancelled)
        assert caught.value.code == "cancelled"
        cluster = find_cluster(home)
        assert cluster is None or running(cluster) is None
    start_services(settings)


def test_tcp_asks_for_the_generated_password(home: Path, port: int) -> None:
    settings = settings_of(home)
    assert tcp_database_url(settings) is None
    start_services(settings)
    without = server(home).pid
    settings = settings_of(home, tcp_port=port)
    services = start_services(settings)
    assert server(home).pid != without
    address = tcp_database_url(settings)
    assert address
    password = (home / "postgres.password").read_text().strip()
    assert mode(home / "postgres.password") == 0o600
    assert password not in (home / "postgres" / "postgres.log").read_text()
    for url in (address, services.database_url):
        with psycopg.connect(url) as connection:
            assert connection.execute("select current_database()").fetchone() == ("gristmill",)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(address.replace(password, "wrong"))
    start_services(settings)
    with psycopg.connect(address) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_a_home_too_long_for_a_socket_gets_a_short_private_directory(outer: Path) -> None:
    home = outer / ("d" * 60) / ("e f,'é" * 8) / "home"
    home.parent.mkdir(parents=True, mode=0o711)
    for path in (home.parent, home.parent.parent):
        path.chmod(0o711)
    services = start_services(settings_of(home))
    sockets = Path(server(home).sockets)
    try:
        assert sockets.parent == Path("/tmp")
        assert mode(sockets) == 0o700
        with psycopg.connect(services.database_url) as connection:
            assert connection.execute("select 1").fetchone() == (1,)
        assert find_services(settings_of(home)) == services
    finally:
        stop_services(settings_of(home))
        shutil.rmtree(sockets)


def test_a_short_directory_that_is_open_to_others_is_not_used(outer: Path) -> None:
    home = outer / ("d" * 90) / "home"
    planted = places.socket_directory_path(home / "postgres" / "run", ".s.PGSQL.5432", home)
    planted.mkdir()
    planted.chmod(0o777)
    try:
        with pytest.raises(ConfigurationError) as caught:
            places.socket_directory(home / "postgres" / "run", ".s.PGSQL.5432", home)
        assert caught.value.code == "unsafe_directory"
    finally:
        planted.rmdir()


def test_data_of_another_version_is_named_as_such(home: Path) -> None:
    settings = settings_of(home)
    start_services(settings)
    stop_services(settings)
    (home / "postgres" / "data" / "PG_VERSION").write_text("12\n")
    with pytest.raises(ConfigurationError) as caught:
        start_services(settings)
    assert caught.value.code == "postgres_version"
    assert "written by Postgres 12, the embedded one is 18" in caught.value.cause


def test_a_start_that_fails_says_why(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigurationError) as caught:
            start_services(settings_of(home, tcp_port=taken.getsockname()[1]))
    assert caught.value.code == "postgres_failed"
    assert "could not create any TCP/IP sockets" in caught.value.cause
    assert "postgres.log" in caught.value.remedy


@pytest.mark.skipif(not AS_ROOT, reason="only root runs Postgres under another account")
def test_data_and_programs_go_elsewhere_where_the_account_cannot_reach_them(
    outer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = outer / "closed"
    home = closed / "home"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(places, "STATE_ROOT", outer / "state")
    monkeypatch.setattr("worker.embedded.binaries.is_program_for", lambda path, account: False)
    settings = settings_of(home)
    try:
        services = start_services(settings)
        assert services.database_url.endswith(f"?host={outer}/state/homes/{places.digest_of(home)}/postgres/run")
        assert Path(psutil.Process(server(home).pid).exe()).is_relative_to(outer / "state")
        assert find_services(settings) == services
        assert mode(closed) == 0o700
        assert mode(outer / "state") == 0o711
        with psycopg.connect(services.database_url, autocommit=True) as connection:
            connection.execute("create extension vector")
    finally:
        stop_services(settings)


@pytest.mark.skipif(not AS_ROOT, reason="needs a second account")
def test_no_other_account_gets_in_even_through_an_open_directory(home: Path) -> None:
    services = start_services(settings_of(home))
    psql = shutil.which("psql")
    if psql is None:
        pytest.skip("no psql")
    sockets = Path(server(home).sockets)
    for path in (home / "postgres", sockets):
        path.chmod(0o711)
    account = places.account_of(sockets.stat().st_uid)
    said = subprocess.run(
        [psql, services.database_url, "-c", "select 1"],
        check=False,
        capture_output=True,
        text=True,
        **account.run_as(),
    )
    assert said.returncode == 2
    assert "Peer authentication failed" in said.stderr
