"""A service of its own for a measurement, and what a reader must know of the machine."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from psycopg import Connection

from pipelines.errors import ConfigurationError, UnavailableError
from worker.database import open_database
from worker.embedded import stop_services
from worker.settings import PREFIX, Settings, load_settings

POLL_SECONDS = 0.01
DEADLINE_SECONDS = 120.0


@contextmanager
def running(**wanted: Any) -> Iterator[tuple[Settings, Path]]:
    """`gristmill up` on a home and a folder of its own, with the embedded default model: its settings and the folder.

    Args:
        wanted: settings besides those; the HTTP service is off unless it is asked for.

    Raises:
        RuntimeError: the service ended by itself.
        TimeoutError: it did not start.
    """
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        place.chmod(0o711)  # as root, Postgres runs as another user and has to get through
        drop = place / "drop"
        drop.mkdir()
        for variable in [v for v in os.environ if v.startswith(("GRISTMILL_", "OPENAI_"))]:
            del os.environ[variable]  # the measurement has a home and settings of its own
        given = {"home": place / "home", "embedder": "use", "http_port": 0} | wanted
        os.environ.update({PREFIX + name.upper(): str(value) for name, value in given.items()})
        settings = load_settings()
        log = place / "log"
        command = [sys.executable, "-m", "worker.cli", "up", "--watch", str(drop)]
        with log.open("w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            until(lambda: ready(settings, process, log), "the service to start")
            yield settings, drop
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            stop_services(settings)


def ready(settings: Settings, process: subprocess.Popen[bytes], log: Path) -> bool:
    """Whether the schema is there; raises if the service ended instead."""
    if process.poll() is not None:
        raise RuntimeError(f"gristmill up ended with {process.returncode}:\n{log.read_text()[-3000:]}")
    try:
        with open_database(settings) as connection:
            return connection.execute("select to_regclass('index_models') is not null").fetchone() == (True,)
    except (ConfigurationError, UnavailableError):
        return False


def until(condition: Callable[[], bool], what: str, *, seconds: float = DEADLINE_SECONDS) -> None:
    """Wait for a condition, but not for ever."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(POLL_SECONDS)


def machine(connection: Connection[Any], load: tuple[float, float, float]) -> dict[str, Any]:
    """What a reader must know of the machine to judge the figures; `load` is from before the run."""
    row = connection.execute(
        "select current_setting('server_version'), (select extversion from pg_extension where extname = 'vector')"
    ).fetchone()
    assert row is not None
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_before": [round(value, 2) for value in load],
        "load_after": [round(value, 2) for value in os.getloadavg()],
        "python": platform.python_version(),
        "postgres": row[0],
        "pgvector": row[1],
    }
