"""What a backup leaves in the database itself: leases of another day, ids given out since, chunks that do not fit."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import Connection

from worker.housekeeping import STATISTICS_LOCK
from worker.mark import SEQUENCES
from worker.reconcile.report import Report

log = logging.getLogger(__name__)

MARGIN = 100_000
"""So much further than the highest id seen: some were given out after the home last looked."""

LEASES = """
with documents_of as (
  update sources set state = 'pending', attempts = 0, delays = 0, next_at = now(),
    token = null, lease_until = null, holder = null
  where state = 'leased' returning 1
),
pages_of as (
  update page_ranges set state = 'pending', attempts = 0, delays = 0, next_at = now(),
    token = null, lease_until = null, holder = null
  where state = 'leased' returning 1
),
runs as (
  update syncs set token = null, lease_until = null, holder = null where token is not null returning 1
)
select (select count(*) from documents_of) + (select count(*) from pages_of) + (select count(*) from runs)
"""

COUNT_LEASES = """
select (select count(*) from sources where state = 'leased')
  + (select count(*) from page_ranges where state = 'leased') + (select count(*) from syncs where token is not null)
"""

UNFIT = """
select s.id from sources s
left join (
  select source_id, count(*) as found,
    count(*) filter (where embedding is null or model <> (select model from index_models)) as wrong
  from documents where source_id is not null group by source_id
) d on d.source_id = s.id
where s.state = 'done' and s.done_version = s.version
  and (coalesce(d.found, 0) <> coalesce(s.chunks, 0) or coalesce(d.wrong, 0) > 0)
"""

# Without the hash of what was indexed last nobody takes it for unchanged; passages that fit keep their rows.
AGAIN = """
update sources set version = version + 1, state = 'pending', attempts = 0, delays = 0, next_at = now(),
  content_hash = null, event_at = now(), updated_at = now()
where id = any(%s) and state = 'done'
"""

ASK_SYNCS = "update syncs set full_at = null, cursor = '{}', asked_at = now(), not_before = null"

SETTING = """
select exists (
  select from pg_db_role_setting s, unnest(s.setconfig) c
  where s.setrole = 0 and s.setdatabase = (select oid from pg_database where datname = current_database())
    and c like 'hnsw.iterative_scan=%'
), quote_ident(current_database())
"""


class Index:
    """Mends what a backup left in the database."""

    def __init__(self, connection: Connection[Any], report: Report) -> None:
        self._connection = connection
        self._report = report

    def end_leases(self) -> None:
        """Whoever held one is fenced; what they were at is due, and the deaths of that day are not held against it."""
        row = self._connection.execute(COUNT_LEASES if self._report.dry_run else LEASES).fetchone()
        self._report.add("leases_ended", row[0] if row else 0)

    def raise_sequences(self, seen: Mapping[str, int]) -> bool:
        """Give out no id again that the home has seen. False if this role may not see to it.

        Args:
            seen: the highest, by table.
        """
        may = True
        for table, sequence, last in self._connection.execute(SEQUENCES.encode()).fetchall():
            if seen.get(table, 0) <= (last or 0):
                continue
            try:
                if not self._report.dry_run:
                    self._connection.execute("select setval(%s::regclass, %s)", (sequence, seen[table] + MARGIN))
                self._report.add("sequences_raised")
            except psycopg.errors.InsufficientPrivilege:
                may = False
                self._report.trouble(
                    "sequence",
                    f"ids of {table} that were given out since the backup would be given out again",
                    f"as the owner of the tables: select setval('{sequence}', {seen[table] + MARGIN})",
                )
        return may

    def mend_chunks(self, lacking: set[int]) -> None:
        """Have documents read again whose chunks are not those that were committed.

        Args:
            lacking: those whose bytes are gone; they stay as they are.
        """
        found = {row[0] for row in self._connection.execute(UNFIT).fetchall()}
        again = sorted(found - lacking)
        self._report.add("chunks_mended", len(again))
        if again and not self._report.dry_run:
            self._connection.execute(AGAIN, (again,))
        if found & lacking:
            rows = self._connection.execute("select uri from sources where id = any(%s)", (sorted(found & lacking),))
            self._report.trouble(
                "chunks",
                "the index does not have all of them, and their bytes are not in the spool",
                "have them sent again",
                [row[0] for row in rows.fetchall()],
            )

    def ask_syncs(self, names: list[str]) -> None:
        """Have every sync list everything at its next run, which is due now."""
        where = " where name = any(%s)"
        if self._report.dry_run:
            row = self._connection.execute(f"select count(*) from syncs{where}".encode(), (names,)).fetchone()
            self._report.add("syncs_asked", row[0] if row else 0)
        else:
            self._report.add("syncs_asked", self._connection.execute((ASK_SYNCS + where).encode(), (names,)).rowcount)

    def count_words(self) -> None:
        """Take the statistics of words anew."""
        self._report.add("statistics_taken")
        if not self._report.dry_run:
            with self._connection.transaction():
                self._connection.execute("select pg_advisory_xact_lock(%s)", (STATISTICS_LOCK,))
                self._connection.execute("select refresh_statistics()")

    def set_iterative_scan(self) -> None:
        """A dump of one database does not hold its settings."""
        row = self._connection.execute(SETTING).fetchone()
        assert row is not None
        if row[0]:
            return
        statement = f"alter database {row[1]} set hnsw.iterative_scan = 'strict_order'"
        if not self._report.dry_run:
            try:
                self._connection.execute(statement.encode())
            except psycopg.errors.InsufficientPrivilege:
                self._report.notices.append(f"readers of other programs want, as the database's owner: {statement}")
                return
        self._report.add("setting_made")
