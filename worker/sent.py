"""What was sent to us: a note in the home for each document that came over HTTP, for when a backup is restored.

Files are found again in their folders and pages by their syncs; of a document that somebody sent, only the bytes would
be left, in the spool, without a name. So `<home>/sent` has a file for each, named by the salted hash of its uri and
holding what the ledger was told. It goes when the document is deleted or erased.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from psycopg import Connection
from psycopg.rows import class_row

from pipelines.errors import GristmillError
from worker.journal import Entry, Journal, hashes, salt_mark

log = logging.getLogger(__name__)

KINDS = ("upload", "text", "url")

NAMES = """
select id, encode(erasure_hash(tenant, uri), 'hex') from sources where id = any(%s) and kind = any(%s)
"""

NOTE = """
select id, tenant, uri, kind, version, fingerprint, location, filename, language, metadata, event_at
from sources where id = %s and state <> 'deleted' and encode(erasure_hash(tenant, uri), 'hex') = %s
"""


@dataclass(frozen=True, slots=True)
class Note:
    """A document as the ledger had it when it was last sent."""

    id: int
    tenant: str
    uri: str
    kind: str
    version: int
    fingerprint: str | None
    location: str | None
    filename: str | None
    language: str | None
    metadata: dict[str, Any]
    event_at: datetime


class Sent:
    """The notes of one home. Safe to use from several threads and processes.

    Args:
        home: they are in its folder `sent`.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._folder = home / "sent"

    def note(self, connection: Connection[Any], ids: Sequence[int]) -> None:
        """Note documents that were just recorded and committed, as the ledger has them now. Never fails: they are taken
        all the same.
        """
        try:
            for source, digest in connection.execute(NAMES, (list(ids), list(KINDS))).fetchall():
                # Read in our turn: whoever sends, deletes or erases it meanwhile comes after us.
                with self._held(digest), connection.cursor(row_factory=class_row(Note)) as cursor:
                    if (found := cursor.execute(NOTE, (source, digest)).fetchone()) is not None:
                        self._write(digest, found)
        except OSError as error:
            log.warning(
                "what was sent is not noted in %s, and a restored backup would lack it: %s", self._folder, error
            )

    def forget(self, digests: Iterable[str]) -> None:
        """Remove the notes of documents, given as salted hashes, after the ledger has let go of them."""
        for digest in digests if self._folder.is_dir() else ():
            with self._held(digest):
                self._place(digest).unlink(missing_ok=True)

    def notes(self) -> Iterator[tuple[str, Note]]:
        """All of them, each with the hash that it is under; what cannot be read is logged and left out."""
        for path in sorted(self._folder.glob("??/*.json")):
            try:
                facts = json.loads(path.read_bytes())
                yield path.stem, Note(**{**facts, "event_at": datetime.fromisoformat(facts["event_at"])})
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("%s is left out: %s", path, error)

    def _place(self, digest: str) -> Path:
        return self._folder / digest[:2] / f"{digest}.json"

    def _write(self, digest: str, note: Note) -> None:
        place = self._place(digest)
        place.parent.mkdir(mode=0o700, exist_ok=True)
        part = self._folder / f"{uuid4().hex}.part"
        try:
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
                json.dump(asdict(note) | {"event_at": note.event_at.isoformat()}, file)
                file.flush()
                os.fsync(file.fileno())
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)

    @contextmanager
    def _held(self, digest: str) -> Iterator[None]:
        """One at a time writes or removes the note of a document."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = self._folder / f"lock-{digest[0]}"
        with open(os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb") as file:  # noqa: PTH123
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def deleted(connection: Connection[Any], home: Path, tenant: str, uris: Sequence[str], who: str = "") -> None:
    """Note that somebody had documents deleted, after that was committed. Never fails: they are gone all the same."""
    if not uris:
        return
    try:
        digests = hashes(connection, tenant, uris)
        salt = salt_mark(connection)
        row = connection.execute("select clock_timestamp()").fetchone()
        assert row is not None
        Journal(home).append([Entry("delete", row[0], digest, salt, who) for digest in digests.values()])
        Sent(home).forget(digests.values())
    except (GristmillError, OSError) as error:
        log.warning("a deletion is not noted, and a restored backup would undo it: %s", error)
