"""A Postgres of one's own that archives its write-ahead log, and can be taken back to a moment."""

from __future__ import annotations

import shutil
import subprocess
from datetime import datetime
from pathlib import Path

import psycopg

from worker.embedded.binaries import programs
from worker.embedded.places import make_directory, server_account
from worker.process import wait_for

SUPERUSER = "postgres"


class ArchivedServer:
    """Servers in one place, one at a time: the first one, and what is restored from its archive.

    Args:
        place: an empty directory that every account may pass, with a short path.
    """

    def __init__(self, place: Path) -> None:
        self._account = server_account()
        self._programs = programs(self._account)
        self._place = place
        for name in ("archive", "run"):
            make_directory(place / name, 0o711, self._account)
        self._data = self._new("first")
        identity = (f"--username={SUPERUSER}", "--auth=trust", "--encoding=UTF8", "--locale=C")
        self._run("initdb", f"--pgdata={self._data}", "--no-sync", *identity)
        self._configure(
            f"listen_addresses = ''\nunix_socket_directories = '{place / 'run'}'\nfsync = off\narchive_mode = on\n"
            f"archive_command = 'test ! -f {place / 'archive'}/%f && cp %p {place / 'archive'}/%f'\n"
        )
        self._start()

    @property
    def address(self) -> str:
        """How libpq reaches its first database."""
        return f"host={self._place / 'run'} user={SUPERUSER} dbname=postgres"

    def base_backup(self) -> None:
        """Copy the data directory of the running server."""
        base = self._new("base")
        source = f"--dbname={self.address}"
        self._run("pg_basebackup", source, f"--pgdata={base}", "--wal-method=none", "--checkpoint=fast", "--no-sync")

    def restore(self, moment: datetime) -> None:
        """Stop the server and go on with one that is as this one was at a moment after its base backup."""
        self.stop()
        self._data = self._new("restored")
        self._data.rmdir()
        shutil.copytree(self._place / "base", self._data)
        self._own(self._data, *self._data.rglob("*"))
        signal = self._data / "recovery.signal"
        signal.touch()
        self._own(signal)
        self._configure(
            f"restore_command = 'cp {self._place / 'archive'}/%f %p'\nrecovery_target_time = '{moment.isoformat()}'\n"
            "recovery_target_action = 'promote'\narchive_mode = off\n"
        )
        self._start()
        # It counts as started as soon as it can be read, which is before it has come to that moment.
        if not wait_for(self._recovered, 120):
            raise RuntimeError(f"no end of recovery: {(self._place / 'run' / 'log').read_text()}")

    def stop(self) -> None:
        """Stop it as an operator does; its log is archived to the end."""
        self._run("pg_ctl", "stop", "--mode=fast", "--timeout=120", f"--pgdata={self._data}")

    def _recovered(self) -> bool:
        with psycopg.connect(self.address) as connection:
            return connection.execute("select pg_is_in_recovery()").fetchone() == (False,)

    def _new(self, name: str) -> Path:
        return make_directory(self._place / name, 0o700, self._account)

    def _configure(self, lines: str) -> None:
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(lines)

    def _start(self) -> None:
        log = f"--log={self._place / 'run' / 'log'}"
        self._run("pg_ctl", "start", "--wait", "--timeout=120", f"--pgdata={self._data}", log)

    def _own(self, *paths: Path) -> None:
        for path in paths:
            shutil.chown(path, self._account.uid, self._account.gid)

    def _run(self, program: str, *arguments: str) -> None:
        starts = program == "pg_ctl"  # and what it starts would keep a pipe open
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            stdout=subprocess.DEVNULL if starts else subprocess.PIPE,
            stderr=subprocess.DEVNULL if starts else subprocess.STDOUT,
            text=True,
            check=False,
            cwd=self._place,
            **self._account.run_as(),
        )
        if done.returncode != 0:
            log = self._place / "run" / "log"
            raise RuntimeError(f"{program}: {done.stdout or (log.read_text() if log.exists() else '')}")


def now(address: str) -> datetime:
    """The time at a server."""
    with psycopg.connect(address) as connection:
        row = connection.execute("select clock_timestamp()").fetchone()
    assert row is not None
    found: datetime = row[0]
    return found
