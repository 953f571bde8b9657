"""`gristmill up`: services, schema, workers, watcher and sweep of one home, under one supervisor."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pipelines.errors import ConfigurationError
from worker.broker import INGEST_QUEUE, OCR_QUEUE, SEARCH_QUEUE, SYNC_QUEUE
from worker.connectors.registry import load_syncs
from worker.embedded import Services, keep_services, prepare_home, start_services, stop_services
from worker.embedded.places import make_directory
from worker.settings import PREFIX, Settings
from worker.supervisor import ChildSpec, LoopSpec, Supervisor, stop_leftovers, stop_signals

logger = logging.getLogger(__name__)

RESERVE = 8
"""Wake-ups that an ingest worker takes from the queue for each of its processes; they are all alike."""

Only = Literal["worker", "ocr", "sync", "watcher", "http"]


@contextmanager
def home_lock(home: Path) -> Iterator[None]:
    """Hold `<home>/up.lock` for this process. The kernel lets go of it however the process dies.

    Raises:
        ConfigurationError: another process holds it.
    """
    with (home / "up.lock").open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            pid = file.read().strip() or "unknown"
            raise ConfigurationError(
                "already_running",
                f"`gristmill up` already runs on {home}, as process {pid}",
                "use that one, stop it, or set GRISTMILL_HOME to another directory",
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def child_environment(settings: Settings, services: Services, base: Mapping[str, str]) -> dict[str, str]:
    """The environment in which `load_settings` gives a child these settings and services.

    Every setting that was given, in whatever way, becomes a variable. Those win over `gristmill.env`, so a
    command-line option of ours reaches the children. Secrets travel this way too, never on a command line.

    Args:
        settings: our own settings.
        services: where the services are.
        base: the environment to start from.
    """
    given = {name: _as_text(getattr(settings, name)) for name in settings.model_fields_set}
    given |= {
        "home": str(settings.home),
        "database_url": services.database_url,
        "broker_url": services.broker_url,
    }
    return dict(base) | {PREFIX + name.upper(): text for name, text in given.items() if text is not None}


def _as_text(value: Any) -> str | None:
    if isinstance(value, tuple):
        return json.dumps([str(part) for part in value])
    if isinstance(value, dict):
        return json.dumps(value)
    return None if value is None else str(value)


def children(settings: Settings, services: Services, only: Only | None) -> list[ChildSpec]:
    """The processes to run."""
    env = child_environment(settings, services, os.environ)

    def celery(queue: str, queues: str, processes: int, *, reserve: int = 1) -> ChildSpec:
        options = {"-Q": queues, "-n": f"{queue}@%h", "--pool": "prefork", "-c": str(processes)}
        options["--prefetch-multiplier"] = str(reserve)
        argv = (sys.executable, "-m", "celery", "--quiet", "-A", "worker.app", "worker")
        flags = ("--without-gossip", "--without-mingle", "--loglevel", settings.log_level)
        return ChildSpec(queue, (*argv, *(part for pair in options.items() for part in pair), *flags), env)

    found = []
    if only in (None, "worker"):
        # The message of a process that was killed holds a place for seconds; with few of them nobody would ingest.
        found.append(celery("ingest", INGEST_QUEUE, settings.ingest_processes, reserve=RESERVE))
        # Celery's own default queue as well: that is where a stranger's client sends what it calls by name.
        found.append(celery("search", f"{SEARCH_QUEUE},celery", settings.search_concurrency))
    if only in (None, "worker", "ocr"):
        found.append(celery("ocr", OCR_QUEUE, settings.ocr_processes))
    if settings.syncs and only in (None, "sync"):
        found.append(celery("sync", SYNC_QUEUE, settings.sync_concurrency))
        beat = (sys.executable, "-m", "celery", "--quiet", "-A", "worker.app", "beat", "--loglevel", settings.log_level)
        found.append(ChildSpec("beat", beat, env))
    if only == "watcher" or (only is None and settings.watch):
        found.append(ChildSpec("watcher", (sys.executable, "-m", "worker.watchers"), env))
    if settings.http_port and only in (None, "http"):
        found.append(ChildSpec("http", (sys.executable, "-m", "worker.receivers"), env))
    return found


def loops(settings: Settings, services: Services, only: Only | None) -> list[LoopSpec]:
    """The threads to run."""
    found = []
    if not (settings.database_url and settings.broker_url):
        found.append(LoopSpec("services", lambda stop: keep_services(settings, stop)))
    if only in (None, "worker", "ocr"):

        def sweep(stop: threading.Event) -> None:
            from worker.sweep import run_sweep

            run_sweep(settings, services, stop)

        found.append(LoopSpec("sweep", sweep))
    if only in (None, "worker"):

        def housekeeping(stop: threading.Event) -> None:
            from worker.housekeeping import run_housekeeping

            run_housekeeping(settings, services, stop)

        def callbacks(stop: threading.Event) -> None:
            from worker.callbacks import run_callbacks

            run_callbacks(settings, services, stop)

        found.append(LoopSpec("callbacks", callbacks))
        found.append(LoopSpec("housekeeping", housekeeping))
    return found


def run_up(settings: Settings, *, only: Only | None = None, on_ready: Callable[[Services], None] | None = None) -> int:
    """Run everything until SIGTERM, SIGINT or SIGHUP; a second one stops it at once. Main thread only.

    Args:
        settings: the settings, which the children get as well.
        only: run the workers, those for OCR, the syncs with their beat, the watcher or the HTTP service alone.
        on_ready: called once, when the services answer, the schema is ready and the children are started.

    Returns:
        0 if everything ended by itself when asked to, 1 if something had to be killed.

    Raises:
        ConfigurationError: it cannot run as it is set up; what was started has been stopped again.
    """
    load_syncs(settings)  # what is wrong with them is said now
    prepare_home(settings.home)
    with home_lock(settings.home), stop_signals() as stop:
        records = make_directory(settings.home / "run")
        stop_leftovers(records, mark=(PREFIX + "HOME", str(settings.home)))
        supervisor: Supervisor | None = None
        clean = True
        try:
            stop.interrupts = True
            services = start_services(settings, cancelled=stop.requested)
            from worker.database import prepare_database

            prepare_database(settings, services.database_url)
            if not stop.requested():
                supervisor = Supervisor(
                    children(settings, services, only),
                    loops=loops(settings, services, only),
                    records=records,
                )
                stop.interrupts = False
                supervisor.start()
                logger.info("ready: home %s; psql %s", settings.home, _shown(settings, services))
                if on_ready:
                    on_ready(services)
                supervisor.watch(stop)
        except ConfigurationError as error:
            if error.code != "cancelled":
                raise
        finally:
            stop.interrupts = False
            if supervisor:
                clean = supervisor.stop(stop.urgent)
            stop_services(settings, urgent=stop.urgent())
        logger.info("stopped")
    return 0 if clean else 1


def _shown(settings: Settings, services: Services) -> str:
    # An address that somebody set may hold a password, and logs are read by many.
    return f"${PREFIX}DATABASE_URL" if settings.database_url else f"'{services.database_url}'"
