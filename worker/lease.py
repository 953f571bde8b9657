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

from pipelines.errors import GristmillError
from worker.database import open_database
from worker.settings import Settings

log = logging.getLogger(__name__)

Pages = tuple[int, int]
Renew = Callable[[Connection[Any], Pages | None], bool]
"""Renews a claim; it is given (pages begun, pages in all) once known. False: the claim no longer stands."""


class FencedError(Exception):
    """The claim no longer stands: somebody else has the work, or it changed or went."""


class Lease:
    """Renews a claim from a thread of its own, on a connection of its own, for as long as the work takes."""

    def __init__(self, settings: Settings, what: str, renew: Renew) -> None:
        self.stop = threading.Event()
        self.pages: Pages | None = None
        self._settings = settings
        self._what = what
        self._renew = renew
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
        """Renew until `stop` is set or the claim is lost; what the thread runs."""
        connection: Connection[Any] | None = None
        wait = self._settings.lease_seconds / 3
        while not self.stop.wait(wait):
            try:
                connection = connection or open_database(self._settings, application="gristmill lease")
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
def kept_lease(settings: Settings, what: str, renew: Renew) -> Iterator[Lease]:
    """Keep a claim alive until the block ends.

    Args:
        what: its document, for the log.
    """
    lease = Lease(settings, what, renew)
    thread = threading.Thread(target=lease.keep, name="lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        lease.stop.set()
        thread.join()
