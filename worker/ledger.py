"""The ledger: what must be done and what has been done, one row a document in the table `sources`.

A producer records an event and only then sends a wake-up. A worker claims the oldest due row under a lease, works
outside any transaction, and commits in one transaction that first checks that its claim still stands. So a message
that is lost, doubled or late changes nothing, and neither does a worker that dies or comes back from the dead.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from pipelines.errors import GristmillError, RetryableError, UnavailableError
from pipelines.store import Swapped, swap
from pipelines.types import EmbeddedChunk
from worker.places import file_name


@dataclass(frozen=True, slots=True)
class Recorded:
    """Answer to an event: the row, its version, and whether the event changed anything."""

    source_id: int
    version: int
    changed: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """A row under our lease."""

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


RECORD = """
insert into sources as s (tenant, uri, kind, fingerprint, metadata, location, filename, language)
values (%(tenant)s, %(uri)s, %(kind)s, %(fingerprint)s, %(metadata)s, %(location)s, %(filename)s, %(language)s)
on conflict (tenant, uri) do update set
  version = s.version + 1,
  kind = excluded.kind,
  state = case when s.state = 'leased' then 'leased' else 'pending' end,
  attempts = case when s.state = 'leased' then s.attempts else 0 end,
  delays = 0,
  next_at = now(),
  error_code = null, error_cause = null, error_remedy = null,
  fingerprint = coalesce(excluded.fingerprint, s.fingerprint),
  location = excluded.location, filename = excluded.filename, language = excluded.language,
  metadata = case when %(keep_metadata)s then s.metadata else excluded.metadata end,
  event_at = now(), updated_at = now()
where %(force)s or s.state = 'deleted' or s.fingerprint is distinct from excluded.fingerprint
returning id, version
"""

# A row whose last lease ran out without a word, once too often: whatever it holds kills its workers.
BURY = """
update sources set state = 'dead', token = null, lease_until = null, holder = null, updated_at = now(),
  error_code = 'worker_died',
  error_cause = 'the worker died ' || attempts || ' times while working on this document',
  error_remedy = 'look into the log for its last attempt, then: gristmill retry'
where state = 'leased' and lease_until < now() and attempts >= %(max_attempts)s
"""

CLAIM = """
update sources set
  state = 'leased', token = gen_random_uuid(), leased_version = version, attempts = attempts + 1,
  lease_until = now() + make_interval(secs => %(lease)s), holder = %(holder)s, pages_done = null, updated_at = now()
where id = (
  select id from sources
  where (state = 'pending' and next_at <= now())
     or (state = 'leased' and lease_until < now() and attempts < %(max_attempts)s)
  order by next_at, id
  limit 1
  for update skip locked
)
returning id, tenant, uri, kind, version, attempts, delays, token, content_hash, recipe, done_version, metadata,
  location, filename, language
"""

RENEW = """
update sources set lease_until = now() + make_interval(secs => %(lease)s),
  pages_done = %(pages_done)s, pages = coalesce(%(pages)s, pages)
where id = %(id)s and token = %(token)s
"""

# Nobody else can change the row until we commit; no row means that the claim no longer stands.
HOLD = "select version from sources where id = %s and token = %s for update"

COMMIT = """
update sources set
  done_version = leased_version,
  state = case when version = leased_version then 'done' else 'pending' end,
  attempts = 0, delays = 0, next_at = now(), token = null, lease_until = null, holder = null,
  error_code = null, error_cause = null, error_remedy = null,
  content_hash = %(content_hash)s, recipe = %(recipe)s, mime = %(mime)s, title = %(title)s,
  pages = %(pages)s, pages_done = %(pages)s, chunks = %(chunks)s, tokens = %(tokens)s, report = %(report)s,
  searchable_at = clock_timestamp(), updated_at = clock_timestamp()
where id = %(id)s
"""

COMMIT_UNCHANGED = """
update sources set
  done_version = leased_version,
  state = case when version = leased_version then 'done' else 'pending' end,
  attempts = 0, delays = 0, next_at = now(), token = null, lease_until = null, holder = null, pages_done = pages,
  error_code = null, error_cause = null, error_remedy = null,
  searchable_at = clock_timestamp(), updated_at = clock_timestamp()
where id = %(id)s and token = %(token)s
"""

FAIL = """
update sources set
  state = case when version <> leased_version then 'pending' else %(state)s end,
  attempts = case when version <> leased_version then 0 else attempts - %(forgive)s end,
  delays = case when version <> leased_version then 0 else delays + 1 end,
  next_at = case when version <> leased_version then now() else now() + make_interval(secs => %(delay)s) end,
  token = null, lease_until = null, holder = null,
  error_code = %(code)s, error_cause = %(cause)s, error_remedy = %(remedy)s, updated_at = now()
where id = %(id)s and token = %(token)s
"""

DELETE = """
update sources set version = version + 1, done_version = version + 1, state = 'deleted', attempts = 0, delays = 0,
  token = null, lease_until = null, holder = null, fingerprint = null, content_hash = null, chunks = 0,
  error_code = null, error_cause = null, error_remedy = null, event_at = now(), updated_at = now()
where id = %s
"""

# Due again: that size, time and inode are the same does not prove that the content is. The worker compares hashes.
RENAME = """
update sources set uri = %(new)s, fingerprint = coalesce(%(fingerprint)s, fingerprint), version = version + 1,
  state = 'pending', attempts = 0, delays = 0, next_at = now(), token = null, lease_until = null, holder = null,
  event_at = now(), updated_at = now()
where id = %(id)s
"""

RETRY = """
update sources set version = version + 1, state = 'pending', attempts = 0, delays = 0, next_at = now(),
  event_at = now(), updated_at = now()
where state = any(%(states)s) and tenant = %(tenant)s and (%(ids)s::bigint[] is null or id = any(%(ids)s::bigint[]))
returning id
"""

DUE = """
select count(*) from (
  select from sources
  where (state = 'pending' and next_at <= now()) or (state = 'leased' and lease_until < now())
  limit %s
) due
"""


class Ledger:
    """The ledger as one connection sees it. Not to be shared between threads, nor kept across a fork."""

    def __init__(
        self,
        connection: Connection[Any],
        *,
        tenant: str = "default",
        lease_seconds: float = 30.0,
        max_attempts: int = 5,
        backoff_seconds: float = 2.0,
        backoff_cap_seconds: float = 600.0,
    ) -> None:
        self.connection = connection
        self.tenant = tenant
        self._lease = lease_seconds
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
        row = self.connection.execute(RECORD, values).fetchone()
        if row:
            return Recorded(row[0], row[1], changed=True)
        row = self.connection.execute(
            "select id, version from sources where tenant = %s and uri = %s", (self.tenant, uri)
        ).fetchone()
        if row is None:  # deleted for good between the two statements
            return self.record(
                uri,
                kind=kind,
                fingerprint=fingerprint,
                metadata=metadata,
                location=location,
                filename=filename,
                language=language,
                force=force,
            )
        return Recorded(row[0], row[1], changed=False)

    def delete(self, uri: str) -> bool:
        """Remove a document from the index at once; whoever works on it is fenced. False if it was not there."""
        with self.connection.transaction():
            row = self.connection.execute(
                "select id from sources where tenant = %s and uri = %s and state <> 'deleted' for update",
                (self.tenant, uri),
            ).fetchone()
            if row is None:
                return False
            self.connection.execute("delete from documents where source_id = %s", row)
            self.connection.execute(DELETE, row)
        return True

    def rename(self, old: str, new: str, *, fingerprint: str | None = None) -> bool:
        """Give a document a new uri; its chunks keep rows, ids and vectors. False if `old` was not there."""
        with self.connection.transaction():
            rows = self.connection.execute(
                "select uri, id from sources where tenant = %s and (uri = %s and state <> 'deleted' or uri = %s)"
                " order by id for update",
                (self.tenant, old, new),
            ).fetchall()
            found: dict[str, int] = dict(rows)
            if old not in found:
                return False
            if new in found and new != old:
                self.connection.execute("delete from sources where id = %s", (found[new],))
            self.connection.execute(RENAME, {"id": found[old], "new": new, "fingerprint": fingerprint})
            self.connection.execute(
                "update documents set metadata = metadata || %s, updated_at = now() where source_id = %s",
                (Jsonb(place(new)), found[old]),
            )
        return True

    def known(self, prefix: str) -> dict[str, str | None]:
        """Documents that are not deleted and whose uri starts with `prefix`, with their fingerprints."""
        pattern = prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        return dict(
            self.connection.execute(
                "select uri, fingerprint from sources where tenant = %s and uri like %s and state <> 'deleted'",
                (self.tenant, pattern),
            ).fetchall()
        )

    def retry(self, ids: Sequence[int] | None = None) -> list[int]:
        """Give failed and dead documents a fresh start: those with these ids, or all of the tenant."""
        values = {
            "states": ["failed", "dead"],
            "tenant": self.tenant,
            "ids": list(ids) if ids is not None else None,
        }
        return [row[0] for row in self.connection.execute(RETRY, values).fetchall()]

    # --- workers -----------------------------------------------------------------------------------------------

    def claim(self) -> Claim | None:
        """Take the oldest due document of any tenant under a lease; None where nothing is due."""
        values = {"lease": self._lease, "holder": self._holder, "max_attempts": self._max_attempts}
        with self.connection.transaction():
            self.connection.execute(BURY, values)
            with self.connection.cursor(row_factory=class_row(Claim)) as cursor:
                return cursor.execute(CLAIM, values).fetchone()

    def renew(self, claim: Claim, *, pages_done: int | None = None, pages: int | None = None) -> bool:
        """Extend the lease and note progress. False when the claim no longer stands: stop working."""
        values = {
            "lease": self._lease,
            "id": claim.id,
            "token": claim.token,
            "pages_done": pages_done,
            "pages": pages,
        }
        return self.connection.execute(RENEW, values).rowcount == 1

    def commit(self, claim: Claim, outcome: Outcome, chunks: Sequence[EmbeddedChunk]) -> Swapped | None:
        """Make a new version visible: swap the chunks and set the row done, in one transaction.

        Returns:
            What changed, or None if the claim no longer stood: then nothing was written.
        """
        with self.connection.transaction():
            if self.connection.execute(HOLD, (claim.id, claim.token)).fetchone() is None:
                return None
            metadata = {
                **dict(outcome.report.get("metadata", {})),
                **claim.metadata,
                **place(claim.uri, claim.filename),
            }
            metadata["title"] = claim.metadata.get("title") or outcome.title or metadata["filename"]
            metadata["source_id"] = claim.id
            swapped = swap(self.connection, source_id=claim.id, tenant=claim.tenant, metadata=metadata, chunks=chunks)
            self.connection.execute(
                COMMIT,
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
        return swapped

    def commit_unchanged(self, claim: Claim) -> bool:
        """The content is what is indexed already: done. False if the claim no longer stood."""
        return self.connection.execute(COMMIT_UNCHANGED, {"id": claim.id, "token": claim.token}).rowcount == 1

    def fail(self, claim: Claim, error: GristmillError) -> str | None:
        """Record an attempt that ended in an error, and when the next one may start.

        Unavailable dependencies never use up attempts. Returns the new state, None if the claim no longer stood.
        """
        waiting = isinstance(error, UnavailableError)
        if not isinstance(error, RetryableError):
            state = "failed"
        elif not waiting and claim.attempts >= self._max_attempts:
            state = "dead"
        else:
            state = "pending"
        delay = self._delay(claim.delays)
        if isinstance(error, RetryableError) and error.retry_after is not None:
            delay = max(error.retry_after, 0.0) + random.uniform(0, self._backoff)
        values = {
            "id": claim.id,
            "token": claim.token,
            "state": state,
            "forgive": 1 if waiting else 0,
            "delay": delay if state == "pending" else 0,
            "code": error.code,
            "cause": error.cause,
            "remedy": error.remedy,
        }
        return state if self.connection.execute(FAIL, values).rowcount == 1 else None

    def due(self, limit: int = 1000) -> int:
        """How many documents could be claimed now, counted up to `limit`."""
        row = self.connection.execute(DUE, (limit,)).fetchone()
        return int(row[0]) if row else 0

    def _delay(self, earlier: int) -> float:
        """Full jitter over the upper half of an exponential back-off, so that failures do not come back in step."""
        longest = min(self._backoff_cap, self._backoff * 2 ** min(earlier, 30))
        return random.uniform(longest / 2, longest)


def place(uri: str, filename: str | None = None) -> dict[str, str]:
    """What metadata says of where a document is."""
    return {"uri": uri, "filename": filename or file_name(uri)}
