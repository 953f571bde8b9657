"""What was sent after the backup, taken in again from the notes of this home; and what the spool has or lacks."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from pipelines.errors import PermanentError
from worker.kept_out import CODE as KEPT_OUT
from worker.ledger import Ledger
from worker.mark import SPARE
from worker.reconcile.report import Report
from worker.sent import Note, Sent
from worker.spool import Spool

# The hashes are taken once, not once for every receipt.
LOOK = """
with hashed as materialized (
  select erasure_hash(%(tenant)s, %(uri)s) as own, erasure_hash(%(tenant)s, null) as tenants
)
select encode(own, 'hex'),
  (select event_at from sources where tenant = %(tenant)s and uri = %(uri)s),
  exists (select from erasures where erased_at > %(at)s and hash in (own, tenants))
from hashed
"""

# Under the id that its sender was told, where nobody has got that meanwhile.
PLACE = """
insert into sources (id, tenant, uri, kind, state, version, done_version)
overriding system value values (%(id)s, %(tenant)s, %(uri)s, %(kind)s, 'deleted', %(version)s, %(version)s)
on conflict do nothing
"""

# Versions that were told to somebody are not used for anything else.
SETTLE = """
update sources set event_at = %(at)s,
  version = case when %(changed)s then greatest(version, %(version)s + 1) else version end
where id = %(id)s
"""

LACKING = """
select s.id, s.uri, s.kind, s.location,
  s.kind in ('synced', 'enclosure') and exists (
    select from synced m join syncs y on y.id = m.sync_id
    where m.source_id in (s.id, s.parent_id) and y.name = any(%(syncs)s)),
  p.state in ('pending', 'leased', 'reading')
from sources s left join sources p on p.id = s.parent_id
where s.location is not null and s.state <> 'deleted' and s.kind <> 'url' and s.kind <> 'file'
order by s.id
"""


# What was fetched for them went with the spool; the address is still there.
PARKED = """
select distinct s.id, r.location from page_ranges r join sources s on s.id = r.source_id
where s.kind = 'url' and s.state = 'reading' and r.location is not null
"""

FETCH_AGAIN = """
with gone as (delete from page_ranges where source_id = any(%(ids)s))
update sources set state = 'pending', next_at = now() where id = any(%(ids)s) and state = 'reading'
"""


class Arrivals:
    """Takes in again what was sent.

    Args:
        syncs: names of those in the settings.
        own_ids: no id of a note will be given out to others any more.
    """

    def __init__(
        self,
        connection: Connection[Any],
        sent: Sent,
        spool: Spool,
        report: Report,
        *,
        syncs: list[str],
        own_ids: bool,
    ) -> None:
        self._connection = connection
        self._sent = sent
        self._spool = spool
        self._report = report
        self._syncs = syncs
        self._own_ids = own_ids
        self.lacking: set[int] = set()
        """Documents whose bytes are in the spool no more."""

    def take_back(self) -> None:
        """Record what the notes tell and the ledger does not know, or knows an older state of.

        Raises:
            UnavailableError: the spool is away.
        """
        there = self._spool.names()
        lost = []
        for under, note in self._sent.notes():
            values = {"tenant": note.tenant, "uri": note.uri, "at": note.event_at}
            row = self._connection.execute(LOOK, values).fetchone()
            assert row is not None
            digest, known, erased = row
            if erased:
                if not self._report.dry_run:
                    self._sent.forget([under])
            elif known is not None and known >= note.event_at:
                continue
            elif note.kind != "url" and note.location not in there:
                lost.append(note.uri)
            else:
                self._report.add("sent_again" if known is not None else "sent_new")
                if not self._report.dry_run:
                    self._record(note, digest)
                    if digest != under:  # the salt is another one
                        self._sent.forget([under])
        if lost:
            self._report.trouble(
                "sent_lost",
                "they were sent since the backup, and their bytes are not in the spool",
                "have them sent again",
                lost,
            )

    def look_into_spool(self) -> None:
        """Tell which documents lack their bytes, and which bytes no document names.

        Raises:
            UnavailableError: the spool is away.
        """
        there = self._spool.names()
        parked = self._connection.execute(PARKED).fetchall()
        if unfetched := [source for source, location in parked if location not in there]:
            self._report.add("fetched_again", len(unfetched))
            if not self._report.dry_run:
                self._connection.execute(FETCH_AGAIN, {"ids": unfetched})
        alone = []
        for source, uri, _, location, synced, waiting in self._connection.execute(
            LACKING, {"syncs": self._syncs}
        ).fetchall():
            if location in there:
                continue
            self.lacking.add(source)
            if not synced and not waiting:
                alone.append(uri)
        if alone:
            self._report.trouble(
                "bytes_gone",
                "their bytes are not in the spool; what is in the index of them stays, and cannot be read anew",
                "have them sent again (attachments: the document that they are in); or restore the spool",
                alone,
            )
        if len(self.lacking) > len(alone):
            self._report.notices.append(
                f"the bytes of {len(self.lacking) - len(alone)} documents are not in the spool,"
                " and come with their sync or with the document that they are in"
            )

    def tell_unnamed(self) -> bool:
        """Tell of bytes that no document names; whether there are any."""
        unnamed = self._spool.unneeded(self._connection)
        if unnamed:
            self._report.notices.append(
                f"{len(unnamed)} files in the spool are named by no document: older versions, or parts of what is"
                f" still to be read; they are kept for {SPARE.days} day"
            )
        return bool(unnamed)

    def _record(self, note: Note, digest: str) -> None:
        try:
            with self._connection.transaction():
                if self._own_ids:
                    values = {name: getattr(note, name) for name in ("id", "tenant", "uri", "kind", "version")}
                    self._connection.execute(PLACE, values)
                recorded = Ledger(self._connection, tenant=note.tenant).record(
                    note.uri,
                    kind=note.kind,
                    fingerprint=note.fingerprint,
                    metadata=note.metadata,
                    location=note.location,
                    filename=note.filename,
                    language=note.language,
                    force=note.kind == "url",
                )
                values = {"id": recorded.source_id, "at": note.event_at, "version": note.version}
                self._connection.execute(SETTLE, values | {"changed": recorded.changed})
        except PermanentError as error:
            if error.code != KEPT_OUT:
                raise
            self._report.notices.append("what was sent is kept out, and its note was removed")
            self._sent.forget([digest])
            return
        self._sent.note(self._connection, [recorded.source_id])
