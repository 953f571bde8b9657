"""The embedded Postgres: a server of our own in the home directory, reached over a Unix socket.

Whoever connects is known to the server by the kernel (peer authentication): our account, the home's owner
and root, nobody else. TCP is served on 127.0.0.1 only where a port is set, with a generated password.
"""

from __future__ import annotations

import logging
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
from psycopg import sql

from pipelines.errors import ConfigurationError
from worker import process
from worker.embedded.binaries import major_version, programs
from worker.embedded.cluster import (
    DATABASE,
    DEFAULT_PORT,
    SUPERUSER,
    Cluster,
    Running,
    find_cluster,
    new_cluster,
    running,
    works_in,
)
from worker.embedded.places import account_of, is_open_to, make_directory, socket_directory

logger = logging.getLogger(__name__)

START_SECONDS = 24 * 3600  # Recovery takes what it takes; the wait can be cancelled.
STOP_SECONDS = 60
EXIT_SECONDS = 5.0
ORPHAN_SECONDS = 30.0
PROGRESS_SECONDS = 5.0
LOG_BYTES = 10 * 2**20


def start(home: Path, tcp_port: int, cancelled: Callable[[], bool]) -> str:
    """Start this home's server unless it runs already; make it on the first start.

    Args:
        home: the home directory, which exists.
        tcp_port: port to serve on 127.0.0.1 as well, 0 for none.
        cancelled: asked while waiting; true makes the wait end with an error and the server stop.

    Returns:
        The address of our database.

    Raises:
        ConfigurationError: it cannot be made or started; the error says why and where its log is.
    """
    cluster = find_cluster(home) or new_cluster(home)
    if cluster.account.run_as() and not is_open_to(cluster.root, cluster.account):
        raise ConfigurationError(
            "closed_directory",
            f"the account {cluster.account.name}, which runs Postgres, can no longer reach {cluster.root}",
            f"let it pass again (chmod o+x on {home} or what is above it)",
        )
    binaries = programs(cluster.account)
    if not (cluster.data / "PG_VERSION").is_file():
        _create(cluster, binaries)
    _check_version(cluster, binaries)
    port = tcp_port or DEFAULT_PORT
    sockets = socket_directory(cluster.root / "run", f".s.PGSQL.{port}", home, owner=cluster.account)
    changed = _configure(cluster, sockets, port, tcp=bool(tcp_port))
    server = running(cluster)
    if server and changed:
        logger.info("Postgres is started anew, since its settings have changed")
        _stop(cluster, binaries, "fast")
        server = None
    if server is None or not server.ready:
        _launch(cluster, binaries, sockets, cancelled)
        server = running(cluster)
        if server is None:
            raise _failed(cluster)
    _prepare(home, server, tcp_port)
    return server.url()


def _create(cluster: Cluster, binaries: Path) -> None:
    logger.info("making the database in %s", cluster.data)
    new = cluster.root / "data.new"
    if new.exists():
        shutil.rmtree(new)
    make_directory(new, 0o700, cluster.account)
    done = _run(
        cluster,
        binaries / "initdb",
        *("--username", SUPERUSER, "--auth", "peer", "--encoding", "UTF8", "--no-sync"),
        *("--locale-provider", "builtin", "--builtin-locale", "C.UTF-8", "--locale", "C"),
        *("--pgdata", str(new)),
    )
    if done.returncode != 0:
        raise ConfigurationError(
            "initdb_failed",
            f"the embedded database could not be made: {_last_words(done.stdout)}",
            "check the space and the permissions there, or set GRISTMILL_DATABASE_URL",
        )
    new.rename(cluster.data)
    # The new files reach the disk within moments and nobody has to wait for it; all later writes are fsynced.
    threading.Thread(target=os.sync, name="sync", daemon=True).start()


def _check_version(cluster: Cluster, binaries: Path) -> None:
    found = (cluster.data / "PG_VERSION").read_text(encoding="ascii").strip()
    ours = major_version(binaries)
    if found != str(ours):
        raise ConfigurationError(
            "postgres_version",
            f"the data in {cluster.data} was written by Postgres {found}, the embedded one is {ours}",
            f"install the Gristmill version that embeds Postgres {found} and dump the data with pg_dump, "
            "or move the directory away to start afresh",
        )


def _configure(cluster: Cluster, sockets: Path, port: int, *, tcp: bool) -> bool:
    """Write the configuration; returns whether it is another than before.

    The files are ours and only read by the server. `ALTER SYSTEM` wins over them, they win over `initdb`'s
    file.
    """
    names = {account_of(os.geteuid()).name, account_of(cluster.home.stat().st_uid).name, "root"}
    hba, ident = cluster.root / "pg_hba.conf", cluster.root / "pg_ident.conf"
    values = {
        "hba_file": _quoted(str(hba)),
        "ident_file": _quoted(str(ident)),
        "listen_addresses": _quoted("127.0.0.1" if tcp else ""),
        "port": str(port),
        "unix_socket_directories": _quoted('"{}"'.format(str(sockets).replace('"', '""'))),
        "shared_buffers": "128MB",
        "maintenance_work_mem": "256MB",
        "max_connections": "100",
        "log_timezone": "'UTC'",
    }
    host = "host all all 127.0.0.1/32 scram-sha-256\n" if tcp else ""
    texts = {
        hba: f"local all all peer map=gristmill\n{host}",
        ident: "".join(f'gristmill "{name}" all\n' for name in sorted(names)),
        cluster.configuration: f"include {_quoted(str(cluster.data / 'postgresql.conf'))}\n"
        + "".join(f"{key} = {value}\n" for key, value in values.items()),
    }
    changed = False
    for path, text in texts.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            path.chmod(0o644)
            changed = True
    return changed


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _environment(cluster: Cluster) -> dict[str, str]:
    """All that the server gets to see of our environment: nothing, since it may hold secrets."""
    return {"PATH": os.defpath, "LC_ALL": "C", "PGDATA": str(cluster.data)}


def _run(cluster: Cluster, *argv: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in argv],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd="/",
        env=_environment(cluster),
        start_new_session=True,
        **cluster.account.run_as(),
    )


def _launch(cluster: Cluster, binaries: Path, sockets: Path, cancelled: Callable[[], bool]) -> None:
    """Start the server, or join its start, and wait until it is ready, however long recovery takes."""
    began = told = time.monotonic()
    control = None
    if running(cluster) is None:
        _clear_stale(cluster, sockets)
        control = _start_control(cluster, binaries)

    def pending() -> bool:
        if control:
            return control.poll() is None
        server = running(cluster)
        return server is not None and not server.ready

    while pending():
        if cancelled():
            if control:
                # At an interrupt, pg_ctl takes the server down with it.
                control.send_signal(signal.SIGINT)
                control.wait()
            _stop(cluster, binaries, "fast")
            raise ConfigurationError("cancelled", "the start was stopped before Postgres was ready")
        if time.monotonic() - told >= PROGRESS_SECONDS:
            told = time.monotonic()
            logger.info("Postgres is starting (%d s); after a crash it first replays its log", told - began)
        time.sleep(0.05)
    server = running(cluster)
    if server is None or (control and control.returncode != 0):
        raise _failed(cluster)
    logger.info("Postgres started (pid %d) in %.1f s", server.pid, time.monotonic() - began)


def _start_control(cluster: Cluster, binaries: Path) -> subprocess.Popen[bytes]:
    """A `pg_ctl` that starts the server and ends when it is ready or has failed."""
    if cluster.log.exists() and cluster.log.stat().st_size > LOG_BYTES:
        cluster.log.replace(cluster.log.with_suffix(".log.1"))
    options = f"-c config_file={shlex.quote(str(cluster.configuration))}"
    # The log is opened here and handed down, for the server's account could not open it.
    with os.fdopen(os.open(cluster.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as log:
        return subprocess.Popen(
            [
                str(binaries / "pg_ctl"),
                *("--silent", "--wait", f"--timeout={START_SECONDS}", f"--options={options}", "start"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=_environment(cluster),
            start_new_session=True,
            **cluster.account.run_as(),
        )


def _clear_stale(cluster: Cluster, sockets: Path) -> None:
    """Get rid of what a killed server left: processes that are still ending, and its lock files.

    Postgres itself takes a lock file for stale only if its pid is free. One that is used again by another
    process, or that nobody has reaped, would keep it from starting for ever.
    """
    stale = [path for path in (cluster.data / "postmaster.pid", *sockets.glob(".s.PGSQL.*")) if path.exists()]
    if stale and process.wait_for(lambda: not any(works_in(p, cluster) for p in _alive()), ORPHAN_SECONDS):
        for path in stale:
            path.unlink(missing_ok=True)


def _alive() -> list[psutil.Process]:
    return [candidate for candidate in psutil.process_iter() if process.identify(candidate.pid)]


def _failed(cluster: Cluster) -> ConfigurationError:
    words = cluster.log.read_text(encoding="utf-8", errors="replace") if cluster.log.exists() else ""
    return ConfigurationError(
        "postgres_failed", f"the embedded Postgres did not start: {_last_words(words)}", f"see {cluster.log}"
    )


def _last_words(text: str) -> str:
    lines = text.strip().splitlines()[-20:]
    telling = [line for line in lines if any(word in line for word in ("FATAL", "PANIC", "ERROR", "error:", "HINT"))]
    return " / ".join((telling or lines)[-3:]) or "it said nothing"


def _prepare(home: Path, server: Running, tcp_port: int) -> None:
    """Make our database if it is missing, and set the password that TCP asks for."""
    address = server.url().replace(f"@/{DATABASE}?", "@/postgres?", 1)
    with psycopg.connect(address, autocommit=True) as connection:
        if not connection.execute("select 1 from pg_database where datname = %s", [DATABASE]).fetchone():
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(DATABASE)))
        if tcp_port:
            password = _password(home, create=True) or ""
            # Hashed here, so that no log of the server's can hold the word itself.
            hashed = connection.pgconn.encrypt_password(password.encode(), SUPERUSER.encode(), b"scram-sha-256")
            connection.execute(
                sql.SQL("alter role {} password {}").format(sql.Identifier(SUPERUSER), sql.Literal(hashed.decode()))
            )


def _password(home: Path, *, create: bool) -> str | None:
    path = home / "postgres.password"
    if create and not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(24) + "\n")
    return path.read_text(encoding="ascii").strip() if path.exists() else None


def tcp_url(home: Path, tcp_port: int) -> str | None:
    """Address of our database over TCP, password included; None where it does not serve TCP."""
    password = _password(home, create=False) if tcp_port else None
    return f"postgresql://{SUPERUSER}:{password}@127.0.0.1:{tcp_port}/{DATABASE}" if password else None


def stop(home: Path, *, urgent: bool = False) -> None:
    """Stop this home's server; nothing happens if none runs.

    Args:
        home: the home directory.
        urgent: do not wait for a checkpoint; the next start replays the log. Nothing committed is lost
        either way.
    """
    cluster = find_cluster(home)
    server = running(cluster) if cluster else None
    if cluster and server:
        identity = process.identify(server.pid)
        _stop(cluster, programs(cluster.account), "immediate" if urgent else "fast")
        process.reap(server.pid)
        # `pg_ctl` waits for its pid file to go, and it ends a moment later.
        process.wait_for(lambda: identity is None or not process.is_running(identity), EXIT_SECONDS)
        logger.info("Postgres stopped")


def _stop(cluster: Cluster, binaries: Path, mode: str) -> None:
    done = _run(cluster, binaries / "pg_ctl", "--mode", mode, "--wait", f"--timeout={STOP_SECONDS}", "stop")
    if done.returncode != 0 and running(cluster):
        logger.warning("Postgres did not stop in %d s and is stopped at once", STOP_SECONDS)
        _run(cluster, binaries / "pg_ctl", "--mode", "immediate", "--wait", "stop")
