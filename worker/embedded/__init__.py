"""The services that Gristmill needs and brings along: Postgres and a Celery broker.

A service whose address is set in the settings is used as it is; only the others are started, found and
stopped here. They are daemons: they survive whoever started them, and are found again by every process that
knows the home.
"""

from __future__ import annotations

import fcntl
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import ConfigurationError
from worker import process
from worker.embedded import cluster, postgres, valkey
from worker.embedded.places import prepare_home
from worker.settings import Settings

__all__ = [
    "Services",
    "find_services",
    "keep_services",
    "prepare_home",
    "start_services",
    "stop_services",
    "tcp_database_url",
]

logger = logging.getLogger(__name__)

LOCK_SECONDS = 120.0
POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Services:
    """Addresses of the two services.

    `database_url` is a libpq address (psycopg and psql take it), `broker_url` one for Celery, as broker and
    as result backend.
    """

    database_url: str
    broker_url: str


def _never() -> bool:
    return False


@contextmanager
def _exclusive(home: Path, cancelled: Callable[[], bool]) -> Iterator[None]:
    """Let only one process at a time start or stop the services of a home."""
    with (home / "services.lock").open("a") as file:

        def taken() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        if not process.wait_for(lambda: cancelled() or taken(), LOCK_SECONDS):
            raise ConfigurationError(
                "services_busy",
                f"another process is starting or stopping the services of {home}",
                "try again when it has finished",
            )
        if cancelled():
            raise ConfigurationError("cancelled", "the start was stopped before it began")
        yield


def start_services(settings: Settings, *, cancelled: Callable[[], bool] = _never) -> Services:
    """Start the embedded services, or find the ones that run, and wait until they answer.

    Args:
        settings: an address set there replaces the embedded service.
        cancelled: asked now and then while waiting; true ends the start with a ConfigurationError
        `cancelled`.

    Raises:
        ConfigurationError: a service cannot be started; the error says why.
    """
    if settings.database_url and settings.broker_url:
        return Services(settings.database_url, settings.broker_url)
    prepare_home(settings.home)
    with _exclusive(settings.home, cancelled):
        broker_url = settings.broker_url or valkey.start(settings.home)
        database_url = settings.database_url or postgres.start(settings.home, settings.embedded_tcp_port, cancelled)
    return Services(database_url, broker_url)


def find_services(settings: Settings) -> Services:
    """The addresses of the services, which must be running; never starts one.

    Raises:
        ConfigurationError: an embedded service does not run (`not_running`), or is not ours to use.
    """
    database_url = settings.database_url or cluster.find(settings.home)
    broker_url = settings.broker_url or (valkey.url(settings.home) if valkey.answers(settings.home) else None)
    if database_url is None or broker_url is None:
        missing = "Postgres" if database_url is None else "Valkey"
        raise ConfigurationError(
            "not_running",
            f"the embedded {missing} of {settings.home} does not run",
            "start it with: gristmill up",
        )
    return Services(database_url, broker_url)


def stop_services(settings: Settings, *, urgent: bool = False) -> None:
    """Stop the embedded services of this home, if they run; those named in the settings are left alone.

    Args:
        settings: which home, and which services are embedded.
        urgent: do not wait for a checkpoint. Nothing committed is lost either way.
    """
    if not settings.home.is_dir() or (settings.database_url and settings.broker_url):
        return
    with _exclusive(settings.home, _never):
        if not settings.broker_url:
            valkey.stop(settings.home)
        if not settings.database_url:
            postgres.stop(settings.home, urgent=urgent)


def keep_services(settings: Settings, stop: threading.Event) -> None:
    """Look at the embedded services every second until `stop` is set, and start again what has died.

    Raises:
        ConfigurationError: a service that died cannot be started again.
    """
    while not stop.wait(POLL_SECONDS):
        dead = [
            name
            for name, set_by_user, runs in (
                ("Postgres", settings.database_url, cluster.is_running),
                ("Valkey", settings.broker_url, valkey.is_running),
            )
            if not set_by_user and not runs(settings.home)
        ]
        if dead:
            logger.warning("%s has died and is started again", " and ".join(dead))
            start_services(settings, cancelled=stop.is_set)


def tcp_database_url(settings: Settings) -> str | None:
    """Address of the embedded Postgres over TCP, password included; None where it does not serve TCP."""
    if settings.database_url:
        return None
    return postgres.tcp_url(settings.home, settings.embedded_tcp_port)
