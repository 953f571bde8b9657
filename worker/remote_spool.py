"""The spool in an object store, for workers on several machines, with a cache of it on each.

An object is named as its file would be in a local spool, so one can be copied to the other. What is in the bucket and
is not named like that is left alone.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from threading import Lock
from uuid import uuid4

from pipelines.errors import GristmillError, RetryableError, UnavailableError
from worker.object_store import ObjectStore, Stored, open_store

log = logging.getLogger(__name__)

NAME = re.compile(r"([0-9a-f]{64})(\.[a-z0-9]{1,10})?")
KEEP_SECONDS = 3600.0  # of a file that no row names: its row may be about to be written
FRESH_SECONDS = KEEP_SECONDS / 4
"""What was kept so lately need not be kept anew: its age is far from the sweep's, even where clocks differ by the 15
minutes that S3 allows."""

CLOCKS_SECONDS = 5.0
"""By how much the clock of the store may be ahead of ours without anything being kept for it."""

SWEEP_SECONDS = 3600.0
EVICT_SECONDS = 600.0
BATCH = 500

Needed = Callable[[Sequence[str]], set[str]]
"""Those of some names that a document needs."""


class RemoteSpool:
    """Files in a store, named by the hash of their content. Safe to use from several threads and processes.

    Errors of all methods: UnavailableError, whatever it is that keeps the store away; no document is to blame for it.

    Args:
        url: of the store, for people.
        cache: a folder of this machine; what nobody used for an hour is removed from it.
    """

    def __init__(self, store: ObjectStore, url: str, cache: Path) -> None:
        self._store = store
        self._url = url
        self._cache = cache
        self._lock = Lock()
        self._next_sweep = self._next_eviction = -1.0

    def keep(self, path: Path, name: str) -> None:
        """Keep a file, durably; its content is uploaded only if it is not there."""
        with self._told():
            found = self._store.look(_place(name))
            if found is None or found.size != path.stat().st_size or _age(found, time.time()) > FRESH_SECONDS:
                # An old one may be about to be swept: written again, it is a young one.
                self._store.upload(path, _place(name))

    def cache(self, part: Path, name: str) -> None:
        """Move a file that was kept into the cache, where it is likely to be read soon."""
        place = self._cache / _place(name)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.replace(place)
        os.utime(place)

    def path(self, name: str) -> Path:
        """Where a file is on this machine, downloaded if need be. No file is there if it is not in the store either.

        Raises:
            RetryableError: what is in the store has another hash than its name says.
        """
        place = self._cache / _place(name)
        try:
            os.utime(place)  # in use
        except FileNotFoundError:
            self._evict_sometimes()
            self._download(name, place)
        return place

    def sweep(self, needed: Needed, *, now: float | None = None) -> int:
        """Remove what no document needs any more from the store; how many objects.

        Args:
            now: seconds since the epoch; None: now, and only once in `SWEEP_SECONDS`, since listing a store costs.
        """
        if now is None:
            with self._lock:
                if time.monotonic() < self._next_sweep:
                    return 0
                self._next_sweep = time.monotonic() + SWEEP_SECONDS
        limit = time.time() if now is None else now
        count = 0
        with self._told():
            for batch in _batches(self._old(limit)):
                required = needed([_name(one) for one in batch])
                for one in batch:
                    # Looked at again just before: somebody may have kept it anew since it was listed.
                    if _name(one) not in required and (found := self._store.look(one.name)) and _old(found, limit):
                        self._store.remove(one.name)
                        count += 1
        return count

    def names(self) -> Iterator[str]:
        """What is in the store."""
        with self._told():
            yield from (_name(one) for one in self._store.listing() if NAME.fullmatch(_name(one)))

    def drop(self, name: str, *, before: float) -> int | None:
        """Remove an object that was written before a time, in seconds since the epoch; its size, None if it stays."""
        with self._told():
            found = self._store.look(_place(name))
            if found is None or (found.modified is not None and found.modified.timestamp() > before + CLOCKS_SECONDS):
                return None
            self._store.remove(_place(name))
            return found.size

    def check(self) -> None:
        """Write, read and remove an object, to find out whether the store can be used."""
        self._cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._cache / f"{uuid4().hex}.part"
        try:
            part.write_bytes(b"gristmill doctor\n")
            with self._told():
                self._store.upload(part, part.name)
                next(iter(self._store.listing()), None)
                self._store.download(part.name, part)
                self._store.remove(part.name)
        finally:
            part.unlink(missing_ok=True)

    def close(self) -> None:
        """Give up connections."""
        self._store.close()

    def _old(self, now: float) -> Iterator[Stored]:
        for one in self._store.listing():
            if NAME.fullmatch(_name(one)) and one.name == _place(_name(one)) and _old(one, now):
                yield one

    def _download(self, name: str, place: Path) -> None:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = place.with_name(f"{uuid4().hex}.part")
        try:
            with self._told():
                try:
                    self._store.download(_place(name), part)
                except FileNotFoundError:
                    log.warning("%s is not in the spool at %s", name, self._url)
                    return
            with part.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != name[:64]:
                raise RetryableError(
                    "spool_damaged",
                    f"{name} in the spool at {self._url} has another content than its name says",
                    "see who writes there; then send the document again",
                )
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)

    def _evict_sometimes(self) -> None:
        """Not every machine has housekeeping, so whoever fills the cache sees to it that it does not grow for ever."""
        with self._lock:
            if time.monotonic() < self._next_eviction:
                return
            self._next_eviction = time.monotonic() + EVICT_SECONDS
        evict(self._cache, time.time() - KEEP_SECONDS)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except GristmillError as error:
            raise UnavailableError(
                "spool_unavailable",
                f"the spool cannot be used: {error.cause}",
                error.remedy or "check GRISTMILL_SPOOL_URL",
                retry_after=error.retry_after if isinstance(error, RetryableError) else None,
            ) from error


_opened: dict[tuple[int, str, str | None, Path], RemoteSpool] = {}


def open_remote_spool(url: str, endpoint_url: str | None, cache: Path) -> RemoteSpool:
    """The spool at an address: one for all of a process, and another one after a fork, since it has connections.

    Args:
        endpoint_url: of an S3-compatible store that is not Amazon's.
        cache: see `RemoteSpool`.

    Raises:
        ConfigurationError: the address makes no sense, or its driver is not installed.
    """
    key = (os.getpid(), url, endpoint_url, cache)
    found = _opened.get(key)
    if found is None:
        # Where two threads come here at once, the second one's never connects, so there is nothing to close.
        found = _opened.setdefault(key, RemoteSpool(open_store(url, endpoint_url=endpoint_url), url, cache))
    return found


@atexit.register
def close_remote_spools() -> None:
    """Close those of this process."""
    for key in [key for key in _opened if key[0] == os.getpid()]:
        _opened.pop(key).close()


def evict(cache: Path, limit: float) -> None:
    """Remove the files of a cache that were not used since `limit`, seconds since the epoch."""
    for path in cache.rglob("*"):
        try:
            if path.is_file() and path.stat().st_mtime < limit:
                path.unlink()
        except FileNotFoundError:  # another process was faster
            continue


def _place(name: str) -> str:
    return f"{name[:2]}/{name}"


def _name(stored: Stored) -> str:
    return stored.name.rpartition("/")[2]


def _age(stored: Stored, now: float) -> float:
    """Seconds since it was written; where the store does not tell, it is as if new to the sweep, and old to uploads."""
    return now - (stored.modified or datetime.fromtimestamp(0, UTC)).timestamp()


def _old(stored: Stored, now: float) -> bool:
    return stored.modified is not None and _age(stored, now) > KEEP_SECONDS


def _batches(objects: Iterable[Stored]) -> Iterator[list[Stored]]:
    left = iter(objects)
    while batch := list(islice(left, BATCH)):
        yield batch
