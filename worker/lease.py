"""A claim kept alive while its work is done outside any transaction."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import Connection

from pipelines.errors import GristmillError, UnavailableError
from worker.database import open_database
from worker.settings import Settings
from worker.shutdown import shutting_down

log = logging.getLogger(__name__)

Pages = tuple[int, int]
Renew = Callable[[Connection[Any], Pages | None], bool]
"""Renews a claim; it is given (pages begun, pages in all) once known. False: the claim no longer stands."""
GiveBack = Callable[[Connection[Any]], object]
"""Gives a claim up, without a stain on it."""

PATIENCE_SECONDS = 20.0
"""How long work may go on once the worker was asked to stop: less than it takes until its processes are killed."""

LOOK_SECONDS = 1.0

STOPPED = UnavailableError(
    "worker_stopped", "the worker was stopped before it was through", "nothing: the next one takes it up again"
)


class FencedError(Exception):
    """The claim no longer stands: somebody else has the work, or it changed or went."""


class Lease:
    """Renews a claim from a thread of its own, on a connection of its own, for as long as the work takes."""

    def __init__(self, settings: Settings, what: str, renew: Renew, give_back: GiveBack, patience: float) -> None:
        self.stop = threading.Event()
        self.pages: Pages | None = None
        self._settings = settings
        self._what = what
        self._renew = renew
        self._give_back = give_back
        self._patience = patience
        self._lost = False

    def progress(self, done: int, total: int) -> None:
        """Told by extraction; written with the next renewal."""
        self.pages = (done, total)

    def check(self) -> None:
        """Raise FencedError once the claim no longer stands."""
        if self._lost:
            raise FencedError

    def wait(self, seconds: float) -> None:
        """Sleep, but raise FencedError as soon as the claim no longer stands."""
        until = time.monotonic() + seconds
        self.check()
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.5))
            self.check()

    def keep(self) -> None:
        """Renew until `stop` is set or the claim is lost; what the thread runs.

        A process that is killed over its claim leaves an attempt behind, and a document whose work takes long would be
        dead after a few restarts of the service. So the claim is given back in time.
        """
        connection: Connection[Any] | None = None
        every = self._settings.lease_seconds / 3
        renewed = time.monotonic()
        patient_until: float | None = None
        while not self.stop.wait(min(every, LOOK_SECONDS)):
            now = time.monotonic()
            if patient_until is None and shutting_down():
                patient_until = now + self._patience
            if patient_until is not None and now >= patient_until:
                self._lost = True
            elif now - renewed < every:
                continue
            renewed = now
            try:
                connection = connection or open_database(self._settings, application="gristmill lease")
                if self._lost:
                    self._give_back(connection)
                    log.info("given back, since the worker stops: %s", self._what)
                    break
                if not self._renew(connection, self.pages):
                    self._lost = True
                    break
            except (psycopg.Error, GristmillError) as error:
                # The lease may run out; then the commit finds that out.
                log.warning("could not renew the lease of %s: %s", self._what, error)
                connection = None
        if connection is not None:
            connection.close()


@contextmanager
def kept_lease(
    settings: Settings, what: str, renew: Renew, give_back: GiveBack, *, patience: float | None = None
) -> Iterator[Lease]:
    """Keep a claim alive until the block ends, or for some time after the worker was asked to stop.

    Args:
        what: its document, for the log.
        patience: that time in seconds; by default PATIENCE_SECONDS.
    """
    lease = Lease(settings, what, renew, give_back, PATIENCE_SECONDS if patience is None else patience)
    thread = threading.Thread(target=lease.keep, name="lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        lease.stop.set()
        thread.join()
