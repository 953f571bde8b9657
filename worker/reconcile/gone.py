"""What was erased, deleted or revoked after the backup, done again as the journal of this home tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import Connection
from psycopg.types.json import Jsonb

from worker.erase import Eraser, finish
from worker.journal import Entry, Journal, salt_mark
from worker.ledger import Ledger
from worker.reconcile.report import Report
from worker.settings import Settings

KNOWN = """
select j.n from unnest(%(hashes)s::text[], %(times)s::timestamptz[]) with ordinality j (hash, at, n)
where exists (select from erasures e where e.hash = decode(j.hash, 'hex') and e.erased_at = j.at)
"""

# A row that was made since is another document with the same name. One that was renamed since the backup has another
# hash in it, and the same id.
ERASED = """
with gone as (select * from unnest(%(hashes)s::bytea[], %(times)s::timestamptz[]) g (hash, at)),
erased as (select hash, max(at) as at from gone group by hash),
numbered as (
  select id, max(at) as at from unnest(%(ids)s::bigint[], %(id_times)s::timestamptz[]) i (id, at) group by id
),
tenants as (
  select t.tenant, e.at from (
    select tenant from sources union select tenant from documents union select tenant from syncs
  ) t join erased e on e.hash = erasure_hash(t.tenant, null)
)
select s.tenant, s.uri, false from sources s join erased e on e.hash = erasure_hash(s.tenant, s.uri)
where s.created_at < e.at
union
select s.tenant, s.uri, false from sources s join numbered n on n.id = s.id
where s.created_at < n.at and s.parent_id is null
union
select s.tenant, s.uri, true from sources s join tenants t using (tenant) where s.created_at < t.at
union
select d.tenant, d.metadata ->> 'uri', false from documents d
  join erased e on e.hash = erasure_hash(d.tenant, d.metadata ->> 'uri')
where d.source_id is null and d.metadata ->> 'uri' is not null and d.created_at < e.at
"""

TENANT_ROWS = """
with erased as (
  select hash, max(at) as at from unnest(%(hashes)s::bytea[], %(times)s::timestamptz[]) g (hash, at) group by hash
),
rows_of_others as (
  delete from documents d using erased e
  where d.source_id is null and e.hash = erasure_hash(d.tenant, null) and d.created_at < e.at
  returning 1
),
their_syncs as (
  delete from syncs y using erased e where e.hash = erasure_hash(y.tenant, null) and y.created_at < e.at returning 1
)
select (select count(*) from rows_of_others) + (select count(*) from their_syncs)
"""

RECEIPT = """
insert into erasures (erased_at, who, scope, hash, kept_out, counts, bytes)
values (%(at)s, %(who)s, %(scope)s, decode(%(hash)s, 'hex'), %(kept_out)s, %(counts)s, %(bytes)s)
"""

DELETED = """
with gone as (
  select hash, max(at) as at from unnest(%(hashes)s::bytea[], %(times)s::timestamptz[]) g (hash, at) group by hash
)
select s.tenant, s.uri, d.at from sources s join gone d on d.hash = erasure_hash(s.tenant, s.uri)
where s.state <> 'deleted' and s.event_at < d.at and s.parent_id is null
"""


class Gone:
    """Does again what the journal tells.

    Args:
        who: is on the receipts of what is erased again.
    """

    def __init__(self, settings: Settings, connection: Connection[Any], report: Report, *, who: str) -> None:
        self._settings = settings
        self._connection = connection
        self._report = report
        self._who = who
        self._salt = salt_mark(connection)
        self.out: set[str] = set()
        """Hashes that are, or with a dry run would be, kept out again."""

    def run(self) -> None:
        """Erase, keep out, let in, delete and revoke again what the database does not know of.

        Raises:
            UnavailableError: the journal cannot be read, the ledger is locked by others, or the spool is away.
        """
        entries = Journal(self._settings.home).read()
        ours = [one for one in entries if one.salt == self._salt]
        if strange := sum(one.deed == "erase" for one in entries) - sum(one.deed == "erase" for one in ours):
            self._report.notices.append(
                f"{strange} erasures in the journal are of another database with a salt of its own:"
                " what they were of cannot be told here"
            )
        self._revoke([one for one in ours if one.deed == "revoke"])
        self._delete([one for one in ours if one.deed == "delete"])
        self._erase(self._unknown([one for one in ours if one.deed == "erase"]))
        self._let_in(ours)

    def _unknown(self, erasures: Sequence[Entry]) -> list[Entry]:
        values = {"hashes": [one.hash for one in erasures], "times": [one.at for one in erasures]}
        known = {row[0] for row in self._connection.execute(KNOWN, values).fetchall()}
        return [one for number, one in enumerate(erasures, 1) if number not in known]

    def _erase(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        self._report.add("erasures_put_back", len(entries))
        documents = [one for one in entries if one.scope == "document"]
        values = {
            "hashes": [bytes.fromhex(one.hash) for one in entries],
            "times": [one.at for one in entries],
            "ids": [number for one in documents for number in one.ids],
            "id_times": [one.at for one in documents for _ in one.ids],
        }
        found: dict[tuple[str, bool], set[str]] = {}
        for tenant, uri, whole in self._connection.execute(ERASED, values).fetchall():
            found.setdefault((tenant, whole), set()).add(uri)
        self._report.add("erased_again", len({(tenant, uri) for (tenant, _), uris in found.items() for uri in uris}))
        self._keep_out(entries)
        if self._report.dry_run:
            return
        for (tenant, whole), uris in sorted(found.items()):
            eraser = Eraser(self._settings, self._connection, tenant=tenant, who=self._who, journal=False)
            if whole:
                eraser.erase_again(sorted(uris), whole_tenant=True)
            else:
                for uri in sorted(uris):
                    eraser.erase_again([uri])
        self._connection.execute(TENANT_ROWS, values)
        # Last: until then, a second run begins anew.
        with self._connection.transaction():
            for one in entries:
                values = {"at": one.at, "who": one.who, "scope": one.scope, "hash": one.hash}
                values |= {"kept_out": one.kept_out, "counts": Jsonb(one.counts), "bytes": one.bytes}
                self._connection.execute(RECEIPT, values)
        finish(self._connection)

    def _keep_out(self, entries: Sequence[Entry]) -> None:
        since = {one.hash: one.at for one in entries if one.kept_out}
        self.out.update(since)
        known = self._connection.execute(
            "select encode(hash, 'hex') from kept_out where hash = any(%s)", ([bytes.fromhex(one) for one in since],)
        ).fetchall()
        again = since.keys() - {row[0] for row in known}
        self._report.add("kept_out_again", len(again))
        if not self._report.dry_run:
            self._connection.cursor().executemany(
                "insert into kept_out (hash, since) values (decode(%s, 'hex'), %s) on conflict do nothing",
                [(digest, since[digest]) for digest in sorted(again)],
            )

    def _let_in(self, entries: Sequence[Entry]) -> None:
        """What was let in after it was last kept out."""
        last: dict[str, Entry] = {}
        for one in entries:
            if one.deed == "allow" or (one.deed == "erase" and one.kept_out):
                last[one.hash] = one
        allowed = [one for one in last.values() if one.deed == "allow"]
        for one in allowed:
            where = "from kept_out where hash = decode(%s, 'hex') and since < %s"
            if self._report.dry_run:
                row = self._connection.execute(f"select count(*) {where}".encode(), (one.hash, one.at)).fetchone()
                self._report.add("let_in_again", row[0] if row else 0)
            else:
                done = self._connection.execute(f"delete {where}".encode(), (one.hash, one.at))
                self._report.add("let_in_again", done.rowcount)

    def _delete(self, entries: Sequence[Entry]) -> None:
        values = {"hashes": [bytes.fromhex(one.hash) for one in entries], "times": [one.at for one in entries]}
        for tenant, uri, at in self._connection.execute(DELETED, values).fetchall():
            self._report.add("deleted_again")
            if not self._report.dry_run:
                with self._connection.transaction():
                    Ledger(self._connection, tenant=tenant).delete(uri)
                    # It may have been sent again later that day.
                    self._connection.execute(
                        "update sources set event_at = %s where tenant = %s and uri = %s", (at, tenant, uri)
                    )

    def _revoke(self, entries: Sequence[Entry]) -> None:
        """A key that was made since has another hash, even under the same name."""
        where = "from api_keys where encode(sha256(key_hash), 'hex') = any(%s)"
        found = self._connection.execute(f"select name {where}".encode(), ([one.hash for one in entries],)).fetchall()
        self._report.add("keys_revoked_again", len(found))
        if not self._report.dry_run and found:
            self._connection.execute(f"delete {where}".encode(), ([one.hash for one in entries],))
