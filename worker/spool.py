"""The spool: bytes that came in from outside and lie on no disk that we watch, kept under their hash."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from uuid import uuid4

from psycopg import Connection

from pipelines.errors import PermanentError

_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,10}$")
_PIECE_BYTES = 2**20
KEEP_SECONDS = 3600.0  # of a file that no row names: its row may be about to be written


@dataclass(frozen=True, slots=True)
class Spooled:
    """A file in the spool: its name there, the SHA-256 of its bytes in hex, its size in bytes."""

    name: str
    digest: str
    size: int


class Spool:
    """A directory of files named by the hash of their content, so that the same bytes are kept once."""

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def open(self, filename: str) -> Incoming:
        """Begin to take a file in. Only the suffix of `filename` matters here."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Incoming(self._folder, filename, self._max_bytes)

    def put(self, content: bytes, filename: str) -> Spooled:
        """Take in bytes that are in memory already."""
        with self.open(filename) as incoming:
            incoming.write(content)
            return incoming.finish()

    def copy(self, path: Path, filename: str) -> Spooled:
        """Take in a file as it is now."""
        with path.open("rb") as file, self.open(filename) as incoming:
            while piece := file.read(_PIECE_BYTES):
                incoming.write(piece)
            return incoming.finish()

    def path(self, name: str) -> Path:
        """Where a spooled file is.

        Raises:
            PermanentError: the name is not one of ours.
        """
        if not re.fullmatch(r"[0-9a-f]{64}(\.[a-z0-9]{1,10})?", name):
            raise PermanentError("bad_spool_name", f"{name!r} is no file of the spool", "send the document again")
        return self._folder / name[:2] / name

    def sweep(self, connection: Connection[Any], *, now: float | None = None) -> int:
        """Remove what no document needs any more, and uploads that were broken off; how many files."""
        limit = (time.time() if now is None else now) - KEEP_SECONDS
        old = [path for path in self._files() if path.stat().st_mtime < limit]
        rows = connection.execute(
            "select location from sources where location = any(%(names)s) and state <> 'deleted'"
            " union select location from page_ranges where location = any(%(names)s)",
            {"names": [path.name for path in old]},
        ).fetchall()
        needed = {row[0] for row in rows}
        gone = [path for path in old if path.name not in needed]
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)

    def _files(self) -> Iterable[Path]:
        return (path for path in self._folder.rglob("*") if path.is_file()) if self._folder.is_dir() else ()


class Incoming:
    """One file on its way in: written in pieces, hashed as it comes, thrown away unless finished."""

    def __init__(self, folder: Path, filename: str, max_bytes: int) -> None:
        found = _SUFFIX.search(filename)
        self._suffix = found[0].lower() if found else ""
        self._folder = folder
        self._max_bytes = max_bytes
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
        """Keep it, durably, under its hash."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        digest = self._hash.hexdigest()
        name = digest + self._suffix
        place = self._folder / name[:2] / name
        place.parent.mkdir(mode=0o700, exist_ok=True)
        self._part.replace(place)
        os.utime(place)
        return Spooled(name, digest, self._size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)
