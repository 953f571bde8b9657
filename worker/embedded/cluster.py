"""Where an embedded Postgres lives, and whether it runs.

The server's own `postmaster.pid` is the one record of that: pid, port, socket directory and state.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil

from pipelines.errors import ConfigurationError
from worker import process
from worker.embedded import places
from worker.embedded.places import (
    Account,
    account_of,
    digest_of,
    is_open_to,
    make_directory,
    server_account,
    state_root,
)

logger = logging.getLogger(__name__)

DATABASE = "gristmill"
SUPERUSER = "postgres"
DEFAULT_PORT = 5432


@dataclass(frozen=True)
class Cluster:
    """Where one server lives.

    `root` and what lies directly in it is ours; `data` and the socket directory belong to the server's
    account.
    """

    home: Path
    root: Path
    account: Account

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.root / "data"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.root / "postgres.log"

    @property
    def configuration(self) -> Path:
        """The main configuration file, written anew at every start."""
        return self.root / "postgresql.conf"


@dataclass(frozen=True)
class Running:
    """What a running server says of itself in `postmaster.pid`."""

    pid: int
    port: int
    sockets: str
    ready: bool

    def url(self) -> str:
        """A libpq address of our database on the Unix socket."""
        port = "" if self.port == DEFAULT_PORT else f"&port={self.port}"
        return f"postgresql://{SUPERUSER}@/{DATABASE}?host={quote(self.sockets, safe='/')}{port}"


def _roots(home: Path) -> tuple[Path, Path]:
    return home / "postgres", places.STATE_ROOT / "homes" / digest_of(home) / "postgres"


def find_cluster(home: Path) -> Cluster | None:
    """The server that was made for this home, running or not; None if there is none yet.

    Raises:
        ConfigurationError: it belongs to another account, and we are not root.
    """
    for root in _roots(home):
        try:
            owner = (root / "data").stat().st_uid
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            raise _foreign(root / "data") from error
        if os.geteuid() not in {0, owner}:
            raise _foreign(root / "data")
        return Cluster(home, root, account_of(owner))
    return None


def _foreign(data: Path) -> ConfigurationError:
    return ConfigurationError(
        "not_yours",
        f"the Postgres in {data} belongs to another account",
        "run the command as the account that ran `gristmill up`, or set GRISTMILL_DATABASE_URL",
    )


def new_cluster(home: Path) -> Cluster:
    account = server_account()
    root, elsewhere = _roots(home)
    mode = 0o711 if account.run_as() else 0o700
    if account.run_as() and not is_open_to(home, account):
        base = make_directory(state_root(account) / "homes", 0o711)
        owner = make_directory(base / digest_of(home), 0o711)
        (owner / "home").write_text(f"{home}\n", encoding="utf-8", errors="surrogateescape")
        logger.info("data goes to %s, since the account %s cannot reach %s", owner, account.name, home)
        root = elsewhere
    return Cluster(home, make_directory(root, mode), account)


def running(cluster: Cluster) -> Running | None:
    """The server that runs on this data directory now, ready or still starting; None if there is none."""
    try:
        lines = (cluster.data / "postmaster.pid").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        pid, port, sockets = int(lines[0]), int(lines[3]), lines[4]
    except (FileNotFoundError, ValueError, IndexError):
        return None
    if process.identify(pid) is None or not works_in(psutil.Process(pid), cluster):
        return None
    return Running(pid, port, sockets, ready=len(lines) > 7 and lines[7].startswith("ready"))


def works_in(candidate: psutil.Process, cluster: Cluster) -> bool:
    """Whether this is a process of a server on this data directory, in which all of them work."""
    try:
        if not candidate.name().startswith("postgres") or candidate.uids().effective != cluster.account.uid:
            return False
        return Path(candidate.cwd()) == cluster.data.resolve()
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        # A server's process that does not let us look: better taken for ours than started over.
        return True


def is_running(home: Path) -> bool:
    """Whether this home's server runs, ready or not."""
    cluster = find_cluster(home)
    return cluster is not None and running(cluster) is not None


def find(home: Path) -> str | None:
    """Address of this home's server if it runs and takes connections; None otherwise.

    Raises:
        ConfigurationError: it belongs to another account.
    """
    cluster = find_cluster(home)
    server = running(cluster) if cluster else None
    return server.url() if server and server.ready else None
