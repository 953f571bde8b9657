"""What a visit found, put into the ledger: one transaction a document, which first checks that the run still stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from psycopg import Connection

from pipelines.errors import GristmillError, PermanentError
from worker.children import Child, record_children
from worker.connectors.config import SyncConfig
from worker.connectors.contract import Document, Unchanged
from worker.crash import crash_point
from worker.kept_out import is_kept_out
from worker.lease import FencedError
from worker.ledger import Ledger, content_fingerprint
from worker.places import file_name
from worker.spool import Spool, Spooled
from worker.sync.memory import Memories, Memory
from worker.sync.schedule import Turn
from worker.sync.storable import is_name, said, storable_error, storable_json

SENT = ("upload", "text", "url")
"""Kinds of documents that were sent to us."""

WEB = ("pages", "sitemap", "feed")
"""Syncs that have documents from the web: what one of them found, another may find as well."""


class Taker:
    """Writes for one run of one sync.

    Args:
        name: of the sync; on every chunk as `metadata.sync`.
    """

    def __init__(
        self,
        connection: Connection[Any],
        ledger: Ledger,
        spool: Spool,
        memories: Memories,
        turn: Turn,
        config: SyncConfig,
    ) -> None:
        self._connection = connection
        self._ledger = ledger
        self._spool = spool
        self._memories = memories
        self._turn = turn
        self._config = config

    def document(self, key: str, memory: Memory | None, found: Document, own: str, now: datetime) -> bool:
        """Record a document that was fetched. Whether it, or a file of it, is new or has changed.

        Args:
            own: the uri of this key; where several keys turn out to be one document, the one whose own uri it has
                says what it says, else the first.
        """
        metadata = {**storable_json(self._config.metadata), **found.metadata, "sync": self._turn.name}
        language = self._config.language
        spooled = self._put(found.content, found.filename)
        if spooled is None:
            kind, location, fingerprint = "file", None, found.version
        else:
            kind, location = "synced", spooled.name
            fingerprint = content_fingerprint(spooled.digest, metadata, found.filename, language)
        enclosures = []
        for one in found.enclosures:
            if self.kept_out(one.uri):
                continue
            stored = self._put(one.path, one.filename)
            place, digest = (stored.name, stored.digest) if stored else (None, "")
            enclosures.append(Child(one.uri, one.filename, place, digest))
        with self._connection.transaction():
            self._hold()
            if memory is not None and memory.uri != found.uri:
                self._move(memory, found.uri)
            source = self._came_another_way(found.uri, own)
            if source is None and found.uri != own:
                source = self._said_by_another(key, memory, found.uri)
            if source is not None:
                self._remember(key, source, found, now)
                return False
            recorded = self._ledger.record(
                found.uri,
                kind=kind,
                fingerprint=fingerprint,
                metadata=metadata,
                location=location,
                filename=None if kind == "file" else found.filename,
                language=language,
            )
            crash_point("after_sync_record")
            news = recorded.changed or self._mended(memory, recorded.source_id)
            news |= record_children(
                self._connection,
                recorded.source_id,
                tenant=self._ledger.tenant,
                depth=0,
                language=language,
                metadata=metadata | {"parent_uri": found.uri, "parent_title": _title(metadata, found.filename)},
                children=enclosures,
                kind="enclosure",
            )
            if not self._there(enclosures):
                found = replace(found, version=None, state={}, again_in=None)  # the next run reads it whole
            self._remember(key, recorded.source_id, found, now)
        return news

    def unchanged(self, key: str, memory: Memory, found: Unchanged, now: datetime) -> bool:
        """Note that a document is as it was. Whether it has to be indexed again all the same."""
        with self._connection.transaction():
            self._hold()
            news = self._mended(memory, memory.source_id)
            self._remember(key, memory.source_id, found, now)
            return news

    def refused(
        self,
        key: str,
        memory: Memory | None,
        uri: str,
        error: GristmillError,
        *,
        version: str | None,
        again_in: float,
        now: datetime,
    ) -> None:
        """Note that a visit failed, where people look for what failed.

        Args:
            version: that made us visit; another one is worth a visit before `again_in` is over.
        """
        with self._connection.transaction():
            self._hold()
            settled = isinstance(error, PermanentError)
            source = self._came_another_way(uri, uri)
            if memory is not None and (memory.removed_at is not None or self._sent(memory)):
                source = memory.source_id
            elif source is None:
                told = PermanentError(*storable_error(error))
                source = self._ledger.refuse(uri, told, kind="synced", settled=settled)
            check_at = now + timedelta(seconds=again_in)
            lost = memory is not None and memory.lost
            self._memories.failed(key, source, version=version, check_at=check_at, lost=lost, now=now)

    def left_out(self, key: str, uri: str, reason: str, *, version: str | None, again_in: float, now: datetime) -> None:
        """Note that a new document is not to be taken, so that it is not asked for at each run."""
        error = PermanentError("left_out", said(reason), "nothing, if that is as it should be")
        check_at = now + timedelta(seconds=again_in)
        with self._connection.transaction():
            self._hold()
            source = self._came_another_way(uri, uri)
            if source is None:
                source = self._ledger.refuse(uri, error, kind="synced", settled=False, state="deleted")
            self._memories.failed(key, source, version=version, check_at=check_at, now=now)
            self._memories.missed(key, version=version, check_at=check_at, removed=True, now=now)

    def missed(self, memory: Memory, *, version: str | None, remove: bool, again_in: float, now: datetime) -> None:
        """Note that a document was not found; with `remove` it leaves the index.

        Args:
            version: that made us look; another one is worth a visit before `again_in` is over.
        """
        check_at = now + timedelta(seconds=again_in)
        with self._connection.transaction():
            self._hold()
            # Rows of the ledger are locked before those of the memory, here as elsewhere.
            if remove and not self._memories.shared(memory) and not self._sent(memory):
                self._ledger.delete(memory.uri)
            self._memories.missed(memory.key, version=version, check_at=check_at, removed=remove, now=now)

    def forget(self, memory: Memory) -> None:
        """The document is gone for good."""
        with self._connection.transaction():
            self._hold()
            self._memories.forget(memory.key)

    def rename(self, memory: Memory, key: str, uri: str) -> None:
        """The document is elsewhere, with the same content: its chunks keep rows, ids and vectors."""
        with self._connection.transaction():
            self._hold()
            if memory.uri != uri:
                self._ledger.rename(memory.uri, uri)
                self._connection.execute(
                    "update sources set filename = %s where tenant = %s and uri = %s and filename = %s",
                    (file_name(uri), self._ledger.tenant, uri, file_name(memory.uri)),
                )
            self._memories.rename(memory.key, key)

    def kept_out(self, uri: str) -> bool:
        """Whether the document of this uri was erased, and is not to come back."""
        return is_name(uri) and is_kept_out(self._connection, self._ledger.tenant, uri)

    def _hold(self) -> None:
        """Nobody else can take the sync until we commit."""
        held = self._connection.execute(
            "select from syncs where id = %s and token = %s for share", (self._turn.id, self._turn.token)
        ).fetchone()
        if held is None:
            raise FencedError

    def _there(self, children: Sequence[Child]) -> bool:
        """Whether the ledger has all those whose bytes were not brought again; somebody may have deleted one there."""
        uris = {child.uri for child in children if child.location is None}
        row = self._connection.execute(
            "select count(*) from sources where tenant = %s and uri = any(%s) and state <> 'deleted'",
            (self._ledger.tenant, list(uris)),
        ).fetchone()
        return row == (len(uris),)

    def _put(self, content: bytes | Path | None, filename: str) -> Spooled | None:
        if content is None:
            return None
        if isinstance(content, bytes):
            return self._spool.put(content, filename)
        return self._spool.copy(content, filename)

    def _move(self, memory: Memory, uri: str) -> None:
        """Its identity has changed: renamed where the new one is free, else the two have turned out to be one."""
        taken = self._connection.execute(
            "select from sources where tenant = %s and uri = %s and state <> 'deleted'", (self._ledger.tenant, uri)
        ).fetchone()
        if self._memories.shared(memory) or self._sent(memory):
            return  # another key, or whoever sent it, keeps the old identity
        if taken is None:
            self._ledger.rename(memory.uri, uri)
            return
        others = self._memories.others(uri, memory.key)
        if others and all(seen >= self._turn.begun_at for _, seen in others):
            self._succeed(memory, uri, [name for name, _ in others])
        else:
            self._ledger.delete(memory.uri)

    def _succeed(self, memory: Memory, uri: str, newcomers: Sequence[str]) -> None:
        """This run has met the new identity before the old one told of it: the document keeps its row all the same."""
        said = self._connection.execute(
            "select kind, fingerprint, metadata, location, filename, language from sources"
            " where tenant = %s and uri = %s",
            (self._ledger.tenant, uri),
        ).fetchone()
        assert said is not None
        for key in newcomers:
            self._memories.entrust(key, memory.source_id)
        self._ledger.rename(memory.uri, uri)
        kind, fingerprint, metadata, location, filename, language = said
        self._ledger.record(
            uri,
            kind=kind,
            fingerprint=fingerprint,
            metadata=metadata,
            location=location,
            filename=filename,
            language=language,
        )

    def _came_another_way(self, uri: str, own: str) -> int | None:
        """The ledger row of a document which is not for this sync to rewrite, whatever a page says of itself.

        It was sent to us, or a sync of another family keeps it: what the web shows of a page of Notion is a form to
        log in. Under its own uri a document may be taken over, but for what a feed links to, which is anybody's word.
        """
        claimed = own != uri or self._config.type == "feed"
        row = self._connection.execute(
            "select s.id from sources s where s.tenant = %(tenant)s and s.uri = %(uri)s and s.state <> 'deleted' and ("
            " s.parent_id is not null or %(claimed)s and s.kind = any(%(sent)s) or exists (select from synced m"
            " join syncs y on y.id = m.sync_id where m.source_id = s.id and m.removed_at is null"
            " and y.kind <> all(%(family)s)))",
            {
                "tenant": self._ledger.tenant,
                "uri": uri,
                "claimed": claimed,
                "sent": list(SENT),
                "family": list(WEB if self._config.type in WEB else (self._config.type,)),
            },
        ).fetchone()
        return int(row[0]) if row else None

    def _sent(self, memory: Memory) -> bool:
        """Whether the document that a key stands for came another way, see `_came_another_way`."""
        row = self._connection.execute(
            "select from sources where id = %s and (kind = any(%s) or parent_id is not null)",
            (memory.source_id, list(SENT)),
        ).fetchone()
        return row is not None

    def _said_by_another(self, key: str, memory: Memory | None, uri: str) -> int | None:
        """The ledger row of the document, if another key says what it says."""
        others = self._memories.others(uri, key)
        mine = (memory.first_seen, key) if memory is not None and memory.uri == uri else None
        if not others or (mine is not None and all(name != uri and mine < (seen, name) for name, seen in others)):
            return None
        row = self._connection.execute(
            "select id from sources where tenant = %s and uri = %s", (self._ledger.tenant, uri)
        ).fetchone()
        return int(row[0]) if row else None

    def _mended(self, memory: Memory | None, source: int) -> bool:
        """A document that counted as failed since visits failed is tried again; of others it is no longer said."""
        if memory is None or not memory.failures:
            return False
        if memory.source_state != "failed":
            self._ledger.well(source)
            return False
        return bool(self._ledger.retry([source]))

    def _remember(self, key: str, source: int, found: Document | Unchanged, now: datetime) -> None:
        check_at = None if found.again_in is None else now + timedelta(seconds=found.again_in)
        if found.version is None and check_at is None:
            check_at = now  # not settled: the next run visits again
        self._memories.visited(key, source, version=found.version, state=found.state, check_at=check_at, now=now)


def _title(metadata: Mapping[str, Any], filename: str) -> str:
    return str(metadata.get("title") or filename)
