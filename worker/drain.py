"""What the two kinds of workers share: they take what is due, one after the other, until none is left."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import psycopg
from psycopg import Connection

from pipelines.errors import ConfigurationError, GristmillError, RetryableError, UnavailableError
from worker.database import open_database
from worker.settings import Settings
from worker.shutdown import shutting_down

log = logging.getLogger(__name__)

REST_SECONDS = 5.0
"""How long a process rests after it found that nothing can be taken, so that wake-ups and log lines stay few."""


class Drain(ABC):
    """Works off what is due. One a process; it owns its connection."""

    application: ClassVar[str]
    """What Postgres shows of its connection."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connection: Connection[Any] | None = None

    def work(self, *, seconds: float) -> int:
        """Take what is due, one after the other, until none is left, the time is up or the process is to end.

        Returns:
            How many were worked on, whatever became of them.
        """
        until = time.monotonic() + seconds
        done = 0
        while time.monotonic() < until and not shutting_down():
            try:
                if not self._work_one():
                    break
            except (psycopg.OperationalError, psycopg.InterfaceError, UnavailableError) as error:
                # The lease runs out by itself and the sweep announces the row again.
                log.warning("lost the database: %s", str(error).strip().splitlines()[0])
                self.close()
                break
            except (psycopg.Error, ConfigurationError) as error:
                # Not one document's: all would meet it, and the sweep goes on to send wake-ups.
                log.error("nothing can be taken: %s: %s", type(error).__name__, str(error).strip().splitlines()[0])
                self.close()
                time.sleep(REST_SECONDS)
                break
            done += 1
        return done

    def close(self) -> None:
        """Give up the connection; the next claim opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @abstractmethod
    def _work_one(self) -> bool:
        """Claim one and work on it; False where none is due."""

    def _connected(self) -> Connection[Any]:
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection = open_database(self._settings, application=self.application)
            self._check(self._connection)
        return self._connection

    def _check(self, connection: Connection[Any]) -> None:
        """Refuse a database that this worker must not work on."""
        return


def to_record(error: Exception) -> GristmillError:
    """An error as the ledger keeps it: one that nobody foresaw may pass, a wrong set-up is waited out."""
    if isinstance(error, ConfigurationError):
        return UnavailableError(error.code, error.cause, error.remedy)
    if isinstance(error, GristmillError):
        return error
    if isinstance(error, MemoryError):
        return RetryableError(
            "out_of_memory", "the worker ran out of memory over this document", "give it more memory, or split this"
        )
    first = (str(error).strip() or "no message").splitlines()[0][:300]
    return RetryableError("internal_error", f"{type(error).__name__}: {first}", "see the log for the traceback")
