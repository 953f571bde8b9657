"""The ledger: what must be done and what has been done, one row a document in the table `sources`.

A producer records an event and only then sends a wake-up. A worker claims the oldest due row under a lease, works
outside any transaction, and commits in one transaction that first checks that its claim still stands. So a message
that is lost, doubled or late changes nothing, and neither does a worker that dies or comes back from the dead.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from psycopg import Connection, Rollback
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from pipelines.errors import GristmillError, PausedError, RetryableError, UnavailableError
from pipelines.store import Swapped, swap
from pipelines.types import EmbeddedChunk
from worker import ledger_statements as statements
from worker.backoff import asked_wait, backoff
from worker.children import Child, delete_source, move_children, record_children
from worker.crash import crash_point
from worker.kept_out import is_kept_out, refusal
from worker.places import file_name


@dataclass(frozen=True, slots=True)
class Recorded:
    """Answer to an event: the row, its version, and whether the event changed anything."""

    source_id: int
    version: int
    changed: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """A row under our lease.

    Attributes:
        scout: this claim finds out whether a pause is over: how many there were in a row; None: there is none.
    """

    id: int
    tenant: str
    uri: str
    kind: str
    version: int
    attempts: int
    delays: int
    token: UUID
    content_hash: bytes | None
    recipe: str | None
    done_version: int
    metadata: dict[str, Any]
    location: str | None
    filename: str | None
    language: str | None
    depth: int
    scout: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an ingest learnt about a document, besides its chunks."""

    content_hash: bytes
    recipe: str
    mime: str
    title: str | None
    pages: int | None
    tokens: int
    report: Mapping[str, Any]


class Ledger:
    """The ledger as one connection sees it. Not to be shared between threads, nor kept across a fork."""

    def __init__(
        self,
        connection: Connection[Any],
        *,
        tenant: str = "default",
        lease_seconds: float = 30.0,
        scouting_seconds: float = 90.0,
        max_attempts: int = 5,
        backoff_seconds: float = 2.0,
        backoff_cap_seconds: float = 600.0,
    ) -> None:
        self.connection = connection
        self.tenant = tenant
        self._lease = lease_seconds
        self._scouting = scouting_seconds
        self._max_attempts = max_attempts
        self._backoff = backoff_seconds
        self._backoff_cap = backoff_cap_seconds
        self._holder = f"{socket.gethostname()}:{os.getpid()}"

    # --- producers ---------------------------------------------------------------------------------------------

    def record(
        self,
        uri: str,
        *,
        kind: str = "file",
        fingerprint: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        location: str | None = None,
        filename: str | None = None,
        language: str | None = None,
        force: bool = False,
    ) -> Recorded:
        """Note that a document is new or has changed. Committed when this returns; then send a wake-up.

        Args:
            fingerprint: what the producer can see of the content; the same as before means that nothing happened.
            metadata: put on every chunk; None keeps what the row has.
            location: where the bytes are, for kinds whose uri does not say it.
            filename: what people call it; None takes it from the uri.
            language: text search configuration; None detects it.
            force: raise the version even if the fingerprint is the same.

        Raises:
            PermanentError: `kept_out`: it was erased, and is not to come back.
        """
        values = {
            "tenant": self.tenant,
            "uri": uri,
            "kind": kind,
            "fingerprint": fingerprint,
            "metadata": Jsonb(dict(metadata or {})),
            "keep_metadata": metadata is None,
            "location": location,
            "filename": filename,
            "language": language,
            "force": force,
        }
        while True:
            row = self.connection.execute(statements.RECORD, values).fetchone()
            if row:
                return Recorded(row[0], row[1], changed=True)
            row = self.connection.execute(
                "select id, version from sources where tenant = %s and uri = %s", (self.tenant, uri)
            ).fetchone()
            if row:
                return Recorded(row[0], row[1], changed=False)
            if is_kept_out(self.connection, self.tenant, uri):
                raise refusal()
            # Deleted for good between the two statements: it is new.

    def refuse(self, uri: str, error: GristmillError, *, kind: str, settled: bool, state: str = "failed") -> int:
        """Note that a document cannot be had, so that it is seen; what is indexed of it stays. Returns its id.

        Args:
            settled: it counts as failed even if it is in the index, until it is recorded anew.
            state: of a document that is new: `failed`, or `deleted` where that is no fault.

        Raises:
            PermanentError: `kept_out`: it was erased, and is not to come back.
        """
        values = {
            "tenant": self.tenant,
            "uri": uri,
            "kind": kind,
            "settled": settled,
            "state": state,
            "code": error.code,
            "cause": error.cause,
            "remedy": error.remedy,
        }
        row = self.connection.execute(statements.REFUSE, values).fetchone()
        if row is None:
            raise refusal()
        return int(row[0])

    def well(self, source: int) -> None:
        """Note that what is in the index could be had again: an error that it stayed in spite of is over."""
        self.connection.execute(statements.WELL, (source,))

    def delete(self, uri: str) -> bool:
        """Remove a document from the index at once; whoever works on it is fenced. False if it was not there."""
        with self.connection.transaction():
            row = self.connection.execute(
                "select id from sources where tenant = %s and uri = %s and state <> 'deleted' for update",
                (self.tenant, uri),
            ).fetchone()
            if row is None:
                return False
            delete_source(self.connection, row[0])
        return True

    def rename(self, old: str, new: str, *, fingerprint: str | None = None) -> bool:
        """Give a document a new uri; its chunks keep rows, ids and vectors. False if `old` was not there.

        Where what has the new uri is kept out, the document leaves the index.
        """
        with self.connection.transaction():
            rows = self.connection.execute(
                "select uri, id, state from sources where tenant = %s and uri in (%s, %s) order by id for update",
                (self.tenant, old, new),
            ).fetchall()
            found: dict[str, int] = {uri: row_id for uri, row_id, state in rows if uri != old or state != "deleted"}
            if old not in found:
                return False
            if is_kept_out(self.connection, self.tenant, new):
                delete_source(self.connection, found[old])
                return True
            if new in found and new != old:
                self.connection.execute("delete from sources where id = %s", (found[new],))
            self.connection.execute(statements.RENAME, {"id": found[old], "new": new, "fingerprint": fingerprint})
            self.connection.execute(
                "update documents set metadata = metadata || %s, updated_at = now() where source_id = %s",
                (Jsonb(place(new)), found[old]),
            )
            move_children(self.connection, found[old], old, new)
        return True

    def known(self, prefix: str) -> dict[str, str | None]:
        """Documents that came by themselves, are not deleted and whose uri starts with `prefix`: their fingerprints."""
        pattern = prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        return dict(
            self.connection.execute(
                "select uri, fingerprint from sources"
                " where tenant = %s and uri like %s and state <> 'deleted' and parent_id is null",
                (self.tenant, pattern),
            ).fetchall()
        )

    def retry(self, ids: Sequence[int] | None = None) -> list[int]:
        """Give failed and dead documents a fresh start: those with these ids, or all of the tenant.

        What a sync could not fetch is visited by its next run, whatever time it was given.
        """
        values = {
            "states": ["failed", "dead"],
            "tenant": self.tenant,
            "ids": list(ids) if ids is not None else None,
        }
        with self.connection.transaction():
            again = [row[0] for row in self.connection.execute(statements.RETRY, values).fetchall()]
            self.connection.execute(statements.FORGET_FAILED_PAGES, (again,))
            again += [row[0] for row in self.connection.execute(statements.RETRY_UNFETCHED, values).fetchall()]
            self.connection.execute(statements.VISIT_AGAIN, (again,))
        return again

    # --- workers -----------------------------------------------------------------------------------------------

    def claim(self) -> Claim | None:
        """Take the oldest due document of any tenant under a lease; None where nothing is due, or all wait."""
        values = {
            "lease": self._lease,
            "scouting": self._scouting,
            "holder": self._holder,
            "max_attempts": self._max_attempts,
        }
        self.connection.execute(statements.BURY, values)
        claim = None
        with self.connection.transaction() as transaction:
            with self.connection.cursor(row_factory=class_row(Claim)) as cursor:
                claim = cursor.execute(statements.CLAIM, values).fetchone()
            if claim is None:  # nobody became the scout either
                raise Rollback(transaction)
        return claim

    def renew(self, claim: Claim, *, pages_done: int | None = None, pages: int | None = None) -> bool:
        """Extend the lease and note progress. False when the claim no longer stands: stop working."""
        values = {
            "lease": self._lease,
            "id": claim.id,
            "token": claim.token,
            "pages_done": pages_done,
            "pages": pages,
        }
        return self.connection.execute(statements.RENEW, values).rowcount == 1

    def commit(
        self,
        claim: Claim,
        outcome: Outcome,
        chunks: Sequence[EmbeddedChunk],
        children: Sequence[Child] = (),
    ) -> Swapped | None:
        """Make a new version visible: swap the chunks, note what was found inside, set the row done; one transaction.

        Returns:
            What changed, or None if the claim no longer stood: then nothing was written.
        """
        with self.connection.transaction():
            if self.connection.execute(statements.HOLD, (claim.id, claim.token)).fetchone() is None:
                return None
            metadata = {
                **dict(outcome.report.get("metadata", {})),
                **claim.metadata,
                **place(claim.uri, claim.filename),
            }
            metadata["title"] = claim.metadata.get("title") or outcome.title or metadata["filename"]
            metadata["source_id"] = claim.id
            swapped = swap(
                self.connection,
                source_id=claim.id,
                tenant=claim.tenant,
                metadata=metadata,
                chunks=chunks,
                halfway=partial(crash_point, "mid_swap"),
            )
            record_children(
                self.connection,
                claim.id,
                tenant=claim.tenant,
                depth=claim.depth,
                language=claim.language,
                metadata=claim.metadata | {"parent_uri": claim.uri, "parent_title": metadata["title"]},
                children=children,
            )
            self.connection.execute(
                statements.COMMIT,
                {
                    "id": claim.id,
                    "content_hash": outcome.content_hash,
                    "recipe": outcome.recipe,
                    "mime": outcome.mime,
                    "title": outcome.title,
                    "pages": outcome.pages,
                    "chunks": len(chunks),
                    "tokens": outcome.tokens,
                    "report": Jsonb(dict(outcome.report)),
                },
            )
            self.connection.execute(statements.FORGET_PAGES, (claim.id,))
            crash_point("before_commit")
        crash_point("after_commit")
        return swapped

    def commit_unchanged(self, claim: Claim) -> bool:
        """The content is what is indexed already: done. False if the claim no longer stood."""
        with self.connection.transaction():
            done = self.connection.execute(statements.COMMIT_UNCHANGED, {"id": claim.id, "token": claim.token})
            if done.rowcount == 1:
                self.connection.execute(statements.FORGET_PAGES, (claim.id,))
        return done.rowcount == 1

    def fail(self, claim: Claim, error: GristmillError) -> str | None:
        """Record an attempt that ended in an error, and when the next one may start.

        Unavailable dependencies never use up attempts, and in a pause a document keeps its turn.

        Returns:
            The new state, None if the claim no longer stood.
        """
        waiting = isinstance(error, UnavailableError)
        if not isinstance(error, RetryableError):
            state = "failed"
        elif not waiting and claim.attempts >= self._max_attempts:
            state = "dead"
        else:
            state = "pending"
        delay = backoff(claim.delays, self._backoff, self._backoff_cap)
        if isinstance(error, RetryableError) and error.retry_after is not None:
            delay = asked_wait(error.retry_after) + random.uniform(0, self._backoff)
        values = {
            "id": claim.id,
            "token": claim.token,
            "state": state,
            "forgive": 1 if waiting else 0,
            "keep_turn": isinstance(error, PausedError),
            "delay": delay if state == "pending" else 0,
            "code": error.code,
            "cause": error.cause,
            "remedy": error.remedy,
        }
        with self.connection.transaction():
            row = self.connection.execute(statements.FAIL, values).fetchone()
            if row == ("failed",):  # not where it is dead: what OCR has read may still be good
                self.connection.execute(statements.FORGET_PAGES, (claim.id,))
        return row[0] if row else None

    def due(self, limit: int = 1000) -> int:
        """How many documents could be claimed now, counted up to `limit`."""
        row = self.connection.execute(statements.DUE, (limit,)).fetchone()
        return int(row[0]) if row else 0


def content_fingerprint(digest: str, metadata: Mapping[str, Any] | None, filename: str, language: str | None) -> str:
    """The fingerprint of bytes with this SHA-256 (hex) under a name, with what a producer says of them."""
    facts = json.dumps([metadata, filename, language], sort_keys=True)
    return f"sha256:{digest}:{hashlib.sha256(facts.encode()).hexdigest()[:16]}"


def place(uri: str, filename: str | None = None) -> dict[str, str]:
    """What metadata says of where a document is."""
    return {"uri": uri, "filename": filename or file_name(uri)}
