"""The journal: what must stay true when the database goes back in time, kept outside it and without content.

A backup brings back what was erased, deleted or revoked after it was made. `<home>/journal.jsonl` has a line for each
of these, so that `gristmill reconcile` can do it again. A uri stands there only as the salted hash under which the
table `erasures` knows it; the salt comes back with the backup.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from psycopg import Connection

from pipelines.errors import UnavailableError

log = logging.getLogger(__name__)

Deed = Literal["erase", "allow", "delete", "revoke"]
DEEDS = ("erase", "allow", "delete", "revoke")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line.

    Attributes:
        deed: what was done; `allow`: what was kept out may come back.
        at: when, by the clock of the database.
        hash: `erasure_hash()` in hex; of a key that was revoked, the SHA-256 of its hash.
        salt: which installation's salt that is, see `salt_mark`.
        ids: rows of the ledger that were erased: a document that was renamed since the backup has another hash in it.
    """

    deed: Deed
    at: datetime
    hash: str
    salt: str
    who: str = ""
    scope: Literal["document", "tenant"] = "document"
    kept_out: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    ids: list[int] = field(default_factory=list)


class Journal:
    """A file that lines are only ever added to, each in one piece and durably. Safe with several writers at once.

    Args:
        home: where it is, as `journal.jsonl`, readable for its owner alone.
    """

    def __init__(self, home: Path) -> None:
        self.path = home / "journal.jsonl"

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries; they are on the disk when this returns.

        Raises:
            UnavailableError: the file cannot be written.
        """
        if not entries:
            return
        lines = "".join(json.dumps(_plain(one), ensure_ascii=True) + "\n" for one in entries).encode()
        try:
            new = not self.path.exists()
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                size = os.fstat(descriptor).st_size
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    lines = b"\n" + lines  # whoever wrote before died in the middle of a line
                written = 0
                while written < len(lines):
                    written += os.write(descriptor, lines[written:])
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if new:
                sync_directory(self.path.parent)
        except OSError as error:
            raise UnavailableError(
                "journal_unwritable",
                f"{self.path} cannot be written, and without it a backup would bring back what is gone: {error}",
                "free the disk, or give this user the home",
            ) from error

    def read(self, salt: str | None = None) -> list[Entry]:
        """All entries, oldest first; a line that was torn, or is no entry, is left out and logged.

        Args:
            salt: only those of the installation with this salt.

        Raises:
            UnavailableError: the file cannot be read.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UnavailableError(
                "journal_unreadable", f"{self.path} cannot be read: {error}", "run it as the service's user"
            ) from error
        found = []
        for number, line in enumerate(content.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                found.append(_entry(json.loads(line)))
            except (ValueError, KeyError, TypeError) as error:
                log.warning("line %d of %s is left out, it is torn: %s", number, self.path, error)
        return [one for one in found if salt in (None, one.salt)]


def salt_mark(connection: Connection[Any]) -> str:
    """Tells the salt of this installation from another's, and nothing about it."""
    row = connection.execute("select left(encode(sha256(salt || 'journal'), 'hex'), 16) from erasure_salt").fetchone()
    assert row is not None
    return str(row[0])


def note_allowed(
    connection: Connection[Any], journal: Journal, tenant: str, uris: Sequence[str | None], who: str
) -> None:
    """Note that documents, or with None the tenant, may come back.

    Raises:
        UnavailableError: the journal cannot be written.
    """
    rows = connection.execute(
        "select encode(erasure_hash(%s, uri), 'hex'), clock_timestamp() from unnest(%s::text[]) u (uri)",
        (tenant, list(uris)),
    ).fetchall()
    salt = salt_mark(connection)
    journal.append([Entry("allow", at, digest, salt, who) for digest, at in rows])


def revocation(connection: Connection[Any], name: str, who: str) -> list[Entry]:
    """What to note when the API key of this name is revoked."""
    rows = connection.execute(
        "select encode(sha256(key_hash), 'hex'), clock_timestamp() from api_keys where name = %s", (name,)
    ).fetchall()
    salt = salt_mark(connection)
    return [Entry("revoke", at, digest, salt, who) for digest, at in rows]


def hashes(connection: Connection[Any], tenant: str, uris: Iterable[str]) -> dict[str, str]:
    """The salted hash of each uri, in hex."""
    rows = connection.execute(
        "select uri, encode(erasure_hash(%s, uri), 'hex') from unnest(%s::text[]) u (uri)", (tenant, list(uris))
    )
    return dict(rows.fetchall())


def sync_directory(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _plain(entry: Entry) -> dict[str, Any]:
    return {name: value for name, value in asdict(entry).items() if value not in ("", [], {}, 0, False)} | {
        "at": entry.at.isoformat()
    }


def _entry(facts: dict[str, Any]) -> Entry:
    found = Entry(**{**facts, "at": datetime.fromisoformat(facts["at"])})
    if found.deed not in DEEDS or found.scope not in ("document", "tenant") or len(bytes.fromhex(found.hash)) != 32:
        raise ValueError("it is no entry of this version")
    if found.at.tzinfo is None or not all(type(one) is int for one in found.ids):
        raise ValueError("it is no entry of this version")
    return found
