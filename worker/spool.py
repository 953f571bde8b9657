"""The spool: bytes that came in from outside and lie on no disk that we watch, kept under their hash."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from uuid import uuid4

from psycopg import Connection

from pipelines.errors import PermanentError
from worker.remote_spool import KEEP_SECONDS, NAME, RemoteSpool, evict

__all__ = ["CACHE", "KEEP_SECONDS", "Incoming", "Spool", "Spooled"]

CACHE = "cached"
"""Below the spool's folder: copies of what is kept elsewhere."""

_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,10}$")
_PIECE_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Spooled:
    """A file in the spool: its name there, the SHA-256 of its bytes in hex, its size in bytes."""

    name: str
    digest: str
    size: int


class Spool:
    """Files named by the hash of their content, so that the same bytes are kept once.

    Args:
        folder: where they are, or what is on its way in.
        max_bytes: largest file taken.
        remote: where they are instead, for workers on several machines. What is in the folder already is moved there.
    """

    def __init__(self, folder: Path, *, max_bytes: int, remote: RemoteSpool | None = None) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._remote = remote

    def open(self, filename: str) -> Incoming:
        """Begin to take a file in. Only the suffix of `filename` matters here."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Incoming(self._folder, filename, self._max_bytes, self._remote)

    def put(self, content: bytes, filename: str) -> Spooled:
        """Take in bytes that are in memory already.

        Raises:
            UnavailableError: the place where they are to be kept does not answer.
        """
        with self.open(filename) as incoming:
            incoming.write(content)
            return incoming.finish()

    def copy(self, path: Path, filename: str) -> Spooled:
        """Take in a file as it is now.

        Raises:
            UnavailableError: the place where it is to be kept does not answer.
        """
        with path.open("rb") as file, self.open(filename) as incoming:
            while piece := file.read(_PIECE_BYTES):
                incoming.write(piece)
            return incoming.finish()

    def path(self, name: str) -> Path:
        """Where a spooled file is on this machine; no file is there if it is gone.

        Raises:
            PermanentError: the name is not one of ours.
            UnavailableError: the place where it is kept does not answer.
            RetryableError: it was damaged there.
        """
        if not NAME.fullmatch(name):
            raise PermanentError("bad_spool_name", f"{name!r} is no file of the spool", "send the document again")
        path = self._folder / name[:2] / name
        return path if self._remote is None or path.is_file() else self._remote.path(name)

    def names(self) -> set[str]:
        """All that is kept, on this machine or in the store.

        Raises:
            UnavailableError: the place where they are kept does not answer.
        """
        found = {path.name for path, _ in self._files() if NAME.fullmatch(path.name)}
        return found if self._remote is None else found.union(self._remote.names())

    def unneeded(self, connection: Connection[Any]) -> list[str]:
        """What is kept and no document names.

        Raises:
            UnavailableError: the place where they are kept does not answer.
        """
        found = sorted(self.names())
        return sorted(set(found) - _needed(connection, found))

    def sweep(self, connection: Connection[Any], *, now: float | None = None) -> int:
        """Remove what no document needs any more, and uploads that were broken off; how many files.

        Raises:
            UnavailableError: the place where they are kept does not answer.
        """
        needed = partial(_needed, connection)
        limit = (time.time() if now is None else now) - KEEP_SECONDS
        evict(self._folder / CACHE, limit)
        old = [path for path, modified in self._files() if modified < limit]
        kept = needed([path.name for path in old])
        gone = [path for path in old if path.name not in kept]
        for path in gone:
            path.unlink(missing_ok=True)
        if self._remote is None:
            return len(gone)
        for path in old:
            if path.name in kept:
                self._remote.keep(path, path.name)
                path.unlink(missing_ok=True)
        return len(gone) + self._remote.sweep(needed, now=now)

    def drop(self, connection: Connection[Any], names: Sequence[str], *, before: float) -> tuple[int, int]:
        """Remove some files at once, unless a document names them; how many, and how many bytes.

        Args:
            before: seconds since the epoch; what was taken in later is about to be named, and is left to the sweep.

        Raises:
            UnavailableError: the place where they are kept does not answer.
        """
        sizes: dict[str, int] = {}
        if not names:
            return 0, 0
        with connection.transaction():
            # Nobody comes to name one of them while we look and remove.
            connection.execute("lock table sources in exclusive mode")
            kept = _needed(connection, names)
            for name in sorted(set(names) - kept):
                for path in (self._folder / name[:2] / name, self._folder / CACHE / name[:2] / name):
                    if NAME.fullmatch(name) and path.is_file() and path.stat().st_mtime <= before:
                        sizes[name] = path.stat().st_size
                        path.unlink()
        if self._remote is not None:
            for name in sorted({name for name in names if NAME.fullmatch(name)} - kept):
                size = self._remote.drop(name, before=before)
                sizes |= {name: size} if size is not None else {}
        return len(sizes), sum(sizes.values())

    def _files(self) -> Iterator[tuple[Path, float]]:
        """What is in the folder but for copies, with the time of its last change."""
        cache = self._folder / CACHE
        for path in self._folder.rglob("*") if self._folder.is_dir() else ():
            try:
                if path.is_file() and not path.is_relative_to(cache):
                    yield path, path.stat().st_mtime
            except FileNotFoundError:  # an upload that has ended meanwhile
                continue


def _needed(connection: Connection[Any], names: Sequence[str]) -> set[str]:
    """Those of some names that a document needs."""
    rows = connection.execute(
        "select location from sources where location = any(%(names)s) and state <> 'deleted'"
        " union select location from page_ranges where location = any(%(names)s)",
        {"names": list(names)},
    ).fetchall()
    return {row[0] for row in rows}


class Incoming:
    """One file on its way in: written in pieces, hashed as it comes, thrown away unless finished."""

    def __init__(self, folder: Path, filename: str, max_bytes: int, remote: RemoteSpool | None = None) -> None:
        found = _SUFFIX.search(filename)
        self._suffix = found[0].lower() if found else ""
        self._folder = folder
        self._max_bytes = max_bytes
        self._remote = remote
        self._hash = hashlib.sha256()
        self._size = 0
        self._part = folder / f"{uuid4().hex}.part"
        self._file: IO[bytes] = self._part.open("xb")

    def write(self, piece: bytes) -> None:
        """Add some bytes.

        Raises:
            PermanentError: it becomes larger than `max_bytes`.
        """
        self._size += len(piece)
        if self._size > self._max_bytes:
            raise PermanentError(
                "too_large",
                f"the document has more than the {self._max_bytes:,} bytes allowed",
                "raise GRISTMILL_MAX_BYTES or split the document",
            )
        self._hash.update(piece)
        self._file.write(piece)

    def finish(self) -> Spooled:
        """Keep it, durably, under its hash.

        Raises:
            UnavailableError: the place where it is to be kept does not answer.
        """
        digest = self._hash.hexdigest()
        spooled = Spooled(digest + self._suffix, digest, self._size)
        self._file.flush()
        if self._remote is not None:
            self._file.close()
            self._remote.keep(self._part, spooled.name)
            self._remote.cache(self._part, spooled.name)
            return spooled
        os.fsync(self._file.fileno())
        self._file.close()
        place = self._folder / spooled.name[:2] / spooled.name
        place.parent.mkdir(mode=0o700, exist_ok=True)
        self._part.replace(place)
        os.utime(place)
        return spooled

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)
