"""Services that tests share: one embedded Postgres a session, one fresh database a test."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import psycopg
import pytest
from psycopg import Connection

import worker.shutdown
from pipelines.database import connect
from sql.migrate import migrate
from worker.embedded import Services, start_services, stop_services
from worker.settings import Settings

# A machine at work on something else must not fail a test, and in CI the same commit gives the same examples.
hypothesis.settings.register_profile("here", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("ci", hypothesis.settings.get_profile("here"), derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")

# Whoever starts the tests in the background (nohup, a job of a shell) hands ignored signals down to all processes that
# the tests start, and these are to be stopped by them.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

REPOSITORY = Path(__file__).parent.parent
SHARED = REPOSITORY.parent / "shared"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the machine reaches a test."""
    for name in list(os.environ):
        if name.startswith(("GRISTMILL_", "OPENAI_", "NOTION_", "AWS_")):
            monkeypatch.delenv(name)


@pytest.fixture
def shutdown() -> Iterator[Callable[[bool], None]]:
    """Have this process be one of a worker that was asked to stop, or not; at the end it was not."""

    def set_it(stopping: bool) -> None:
        worker.shutdown._flag[0] = stopping

    yield set_it
    set_it(False)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The data folder beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is not there")
    return SHARED


@pytest.fixture(scope="session")
def service_home() -> Iterator[Path]:
    """A home with a short path: sockets allow about 100 bytes."""
    with tempfile.TemporaryDirectory(prefix="gm-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)  # as root, Postgres runs as another user and has to get through
        yield Path(name) / "home"


@pytest.fixture(scope="session")
def services(service_home: Path) -> Iterator[Services]:
    """The embedded Postgres and Valkey, shared by the tests of a session."""
    settings = Settings(home=service_home)
    found = start_services(settings)
    with psycopg.connect(found.database_url, autocommit=True) as admin:
        # No test of these pulls the plug, and a database is made for most of them.
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            admin.execute(f"alter system set {setting} = off".encode())
        admin.execute("select pg_reload_conf()")
    yield found
    stop_services(settings)


_databases = 0


@pytest.fixture
def new_database(services: Services) -> Iterator[Callable[..., str]]:
    """Make a fresh database from a template; gives its DSN."""
    made: list[str] = []

    def make(template: str = "template0") -> str:
        global _databases  # noqa: PLW0603 - a number that is never used twice
        _databases += 1
        name = f"test_{_databases}"
        with psycopg.connect(services.database_url, autocommit=True) as admin:
            admin.execute(f"create database {name} template {template}".encode())
        made.append(name)
        return services.database_url.replace("/gristmill?", f"/{name}?")

    yield make
    with psycopg.connect(services.database_url, autocommit=True) as admin:
        for name in made:
            admin.execute(f"drop database {name} with (force)".encode())


DIMENSIONS = 8


@pytest.fixture(scope="session")
def migrated_template(services: Services) -> str:
    """Name of a database that has our schema with vectors of 8 dimensions."""
    with psycopg.connect(services.database_url, autocommit=True) as admin:
        admin.execute("create database migrated")
    migrate(services.database_url.replace("/gristmill?", "/migrated?"), dimensions=DIMENSIONS)
    return "migrated"


@pytest.fixture
def dsn(new_database: Callable[..., str], migrated_template: str) -> str:
    """DSN of a fresh database with our schema, vectors of 8 dimensions."""
    return new_database(migrated_template)


@pytest.fixture
def database(dsn: str) -> Iterator[Connection[Any]]:
    """A connection to a fresh database with our schema."""
    connection = connect(dsn)
    yield connection
    connection.close()


@pytest.fixture
def another(dsn: str) -> Iterator[Callable[[], Connection[Any]]]:
    """Opens further connections to the same database."""
    opened: list[Connection[Any]] = []

    def open_one() -> Connection[Any]:
        opened.append(connect(dsn))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()
