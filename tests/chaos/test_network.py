"""A network between the service and what it depends on that is slow, cut, or silent: nothing hangs, nothing is lost."""

from __future__ import annotations

import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import Connection
from psycopg.conninfo import make_conninfo

from pipelines.database import PATIENCE, PATIENCE_OF_THE_SERVER, connect, patient
from pipelines.errors import UnavailableError
from tests.acceptance.conftest import Installation, stopped, until
from tests.chaos.proxy import Proxy
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.ports import reserved_port
from worker.app import create_app
from worker.broker import Broker
from worker.embedded import Services, start_services, stop_services, tcp_database_url
from worker.embedded.valkey import socket_path
from worker.settings import Settings

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="silence is a filter of the Linux kernel"),
    pytest.mark.timeout(600),
]

FAST = {"tcp_user_timeout": 1500, "keepalives_idle": 1, "keepalives_interval": 1}
"""As much patience as a test has. It is the kernels that answer in time, however busy the machine is."""

SECONDS = 120.0


@dataclass
class Network:
    """A Postgres and a Valkey of our own, and the ways to them."""

    database: Proxy
    broker: Proxy
    direct: str
    through: str
    broker_url: str


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """Both services behind a proxy each."""
    with tempfile.TemporaryDirectory(prefix="gm-", ignore_cleanup_errors=True) as name, reserved_port() as port:
        Path(name).chmod(0o711)  # as root, Postgres runs as another user and has to get through
        settings = Settings(home=Path(name) / "home", embedded_tcp_port=port)
        start_services(settings)
        direct = tcp_database_url(settings)
        assert direct
        with psycopg.connect(direct) as admin:
            admin.execute("create extension vector")
        with (
            Proxy(("127.0.0.1", settings.embedded_tcp_port)) as database,
            Proxy(str(socket_path(settings.home))) as broker,
        ):
            through = make_conninfo(direct, port=database.port, **FAST)
            yield Network(database, broker, direct, through, f"redis://127.0.0.1:{broker.port}/0")
        stop_services(settings)


class Timer:
    """Seconds that a block took."""

    def __enter__(self) -> Timer:
        self._began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._began


# --- connections ------------------------------------------------------------------------------------------------


def test_an_operators_limits_come_before_ours() -> None:
    assert patient("postgresql://h/d") == {"host": "h", "dbname": "d", **PATIENCE}
    assert patient("postgresql://h/d?tcp_user_timeout=7")["tcp_user_timeout"] == "7"


def test_a_server_that_accepts_and_says_nothing_is_given_up(network: Network) -> None:
    network.database.mute()
    try:
        with Timer() as took, pytest.raises(UnavailableError, match="timeout"):
            connect(make_conninfo(network.through, connect_timeout=2))  # libpq takes no less
    finally:
        network.database.heal()
    assert 1 < took.seconds < 30


def _answer(connection: Connection[Any]) -> Any:
    return connection.execute("select 1").fetchone()


def _long_answer(connection: Connection[Any]) -> Any:
    return connection.execute(f"select pg_sleep({SECONDS})".encode()).fetchone()


@pytest.mark.parametrize("ask", [_answer, _long_answer], ids=["when it is asked", "while it is waited for"])
def test_a_server_that_went_without_a_word_is_given_up(network: Network, ask: Callable[[Connection[Any]], Any]) -> None:
    """Also where nothing is on its way: then it is the keepalives that find out."""
    made = psycopg.connect(network.through, autocommit=True)
    assert _answer(made) == (1,)
    lost: list[int] = []
    timer = threading.Timer(0.3 if ask is _long_answer else 0, lambda: lost.append(network.database.forget()))
    timer.start()
    if ask is _answer:
        timer.join()
    with Timer() as took, pytest.raises(psycopg.OperationalError):
        ask(made)
    assert lost == [1]
    assert took.seconds < SECONDS / 2
    assert made.closed
    with connect(network.direct) as connection:  # the server does not know yet, and migrations wait for its statement
        connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where query like 'select pg_sleep%'")


def test_both_sides_of_a_connection_know_when_to_give_up(network: Network) -> None:
    with connect(network.direct) as connection:
        own = socket.socket(fileno=connection.fileno())
        try:
            limit = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            idle = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        finally:
            own.detach()
        assert (limit, idle) == (PATIENCE["tcp_user_timeout"], PATIENCE["keepalives_idle"])
        told = {name: connection.execute(f"show {name}".encode()).fetchone() for name in PATIENCE_OF_THE_SERVER}
        assert told == {name: (value,) for name, value in PATIENCE_OF_THE_SERVER.items()}


def test_a_silent_broker_costs_a_producer_a_few_seconds_once(network: Network) -> None:
    broker = Broker(create_app(Settings(), Services(network.direct, network.broker_url)))
    assert broker.wake()
    network.broker.mute()
    try:
        with Timer() as took:
            assert not broker.wake(9)
        assert took.seconds < 20, "3 s, and not for each of them"
        asked = network.broker.accepted
        with Timer() as again:
            assert not broker.wake()
        assert again.seconds < 2
        assert network.broker.accepted == asked
    finally:
        network.broker.heal()
    until(broker.wake, "the broker to be asked again", seconds=SECONDS)


# --- a whole installation ---------------------------------------------------------------------------------------


class NetworkHouse(Installation):
    """`gristmill up` with both services across the network."""

    def __init__(self, place: Path, network: Network, provider: OpenAIServer, port: int) -> None:
        super().__init__(
            place,
            database_url=network.through,
            broker_url=network.broker_url,
            ingest_concurrency=1,
            lease_seconds=3,
            sweep_seconds=0.3,
            http_port=port,
            **provider.settings,
        )
        self.provider = provider
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{self.settings.http_port}", timeout=SECONDS, trust_env=False
        )
        self.own = network.direct

    def serves(self) -> bool:
        """Whether the HTTP service answers."""
        try:
            return self.client.get("/healthz").is_success
        except httpx.TransportError:
            return False

    def send(self, name: str) -> httpx.Response:
        """Send a document over HTTP."""
        return self.client.post("/ingest/text", json={"content": f"Text of {name}.", "uri": f"sent:{name}"})

    def index(self) -> dict[str, tuple[str, int, list[str]]]:
        """State, attempts and contents of every document, looked at past the network."""
        with connect(self.own) as connection:
            found = connection.execute(
                "select s.uri, s.state, s.attempts,"
                " coalesce(array_agg(d.content) filter (where d.id is not null), '{}')"
                " from sources s left join documents d on d.source_id = s.id group by s.id"
            ).fetchall()
        return {uri.removeprefix("sent:"): (state, attempts, contents) for uri, state, attempts, contents in found}

    def done(self, *names: str) -> None:
        """Wait for documents to be in the index, whole and once."""
        expected = {name: ("done", 0, [f"Text of {name}."]) for name in names}
        until(lambda: expected.items() <= self.index().items(), f"{names} to be done", seconds=SECONDS)


@pytest.fixture(scope="module")
def house(network: Network) -> Iterator[NetworkHouse]:
    """One installation for all tests."""
    with (
        OpenAIServer() as provider,
        reserved_port() as port,
        tempfile.TemporaryDirectory(prefix="gm-", ignore_cleanup_errors=True) as name,
    ):
        made = NetworkHouse(Path(name), network, provider, port)
        try:
            made.start()
            until(made.serves, "the HTTP service")
            made.send("first")
            made.done("first")
            yield made
        finally:
            made.client.close()
            provider.release()
            if made.process is not None and made.process.poll() is None:
                made.stop()


def test_cuts_and_latency_lose_nothing(house: NetworkHouse, network: Network) -> None:
    names = [f"cut{number}" for number in range(8)]
    network.database.latency = network.broker.latency = 0.005
    cut = 0
    try:
        for name in names:
            answer = house.send(name)
            if answer.status_code != 202:  # then it says so, and the sender comes again
                assert answer.status_code == 503
                until(lambda name=name: house.send(name).status_code == 202, f"{name} to be taken", seconds=SECONDS)
            cut += network.database.cut()
        cut += network.broker.cut()
    finally:
        network.database.latency = network.broker.latency = 0.0
    assert cut > len(names)
    house.done(*names)


def test_work_goes_on_when_connections_were_forgotten_in_the_middle_of_it(
    house: NetworkHouse, network: Network
) -> None:
    """The lease runs out or the connection is given up, whichever comes first, and the document is done once."""
    before = len(house.provider.requests)
    house.provider.misbehave("slow", times=1)
    assert house.send("middle").status_code == 202
    until(lambda: len(house.provider.requests) > before, "the work to begin", seconds=SECONDS)
    assert network.database.forget() >= 2
    house.provider.release()
    house.done("middle")
    house.send("after")
    house.done("after")


def test_a_silent_broker_stops_no_producer_and_the_sweep_announces_later(house: NetworkHouse, network: Network) -> None:
    names = [f"quiet{number}" for number in range(6)]
    said = len(house.log.read_text())
    assert network.broker.mute() >= 1
    try:
        # A worker that still looks whether there is more to do would need no wake-up.
        with stopped(lambda: house.children("-Q ingest")), Timer() as took:
            assert [house.send(name).status_code for name in names] == [202] * len(names)
            with connect(network.direct) as connection:
                states = connection.execute("select state from sources where uri like 'sent:quiet%'").fetchall()
            assert states == [("pending",)] * len(names)
        assert took.seconds < 15, "3 s, and not for each of them"
        until(lambda: "the broker does not answer" in house.log.read_text()[said:], "a wake-up to fail")
    finally:
        network.broker.heal()
    network.broker.cut()  # a network that is back resets what it does not know
    house.done(*names)
