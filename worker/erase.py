"""Erasure: a document, or a tenant, leaves every table, cache and folder of ours, and a receipt without content stays.

Deleting takes a document out of the index and remembers that; erasing forgets it. What is erased in one transaction
holds the ledger still meanwhile, so whoever works on the document either has committed and is erased with it, or finds
its claim gone and writes nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import psycopg
from psycopg import Connection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from pipelines.errors import GristmillError, PermanentError, UnavailableError
from worker import erase_statements as statements
from worker.content import open_spool
from worker.journal import Entry, Journal, hashes, salt_mark
from worker.kept_out import keep_out
from worker.places import local_path
from worker.sent import Sent
from worker.settings import Settings

log = logging.getLogger(__name__)

LOCK_SECONDS = 30.0
STATISTICS_LOCK = 0x73746174  # that of housekeeping
UNFINISHED_SECONDS = 60
TABLES = (*statements.DELETIONS, "syncs", "embedding_cache", "lexeme_statistics")
"""All that an erasure may take rows from."""

WHY = {
    "sync": "the sync that brought it still has it",
    "file": "its file is still there",
    "parent": "the document that it is part of stays",
}


@dataclass(frozen=True, slots=True)
class Receipt:
    """That something was erased, and how much; not what.

    Attributes:
        hash: of tenant and uri with the installation's salt, in hex: `select erasure_hash('default', 'file:///…')`.
        counts: rows by table, and `spool_files`.
        bytes: of the text in the chunks and of the files in the spool, together.
    """

    id: int
    erased_at: datetime
    who: str
    scope: Literal["document", "tenant"]
    hash: str
    kept_out: bool
    counts: dict[str, int]
    bytes: int

    @property
    def empty(self) -> bool:
        """Whether there was nothing to erase."""
        return not any(self.counts.values())

    def plain(self) -> dict[str, Any]:
        """As JSON types, but for the time."""
        return asdict(self)


@dataclass(slots=True)
class _Taken:
    """What the transactions of one erasure took, and what is left to be done for it afterwards."""

    counts: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    before: float = 0.0
    locations: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    ids: set[int] = field(default_factory=set)
    hashes: set[str] = field(default_factory=set)
    syncs: set[int] = field(default_factory=set)
    again: bool = False


class Eraser:
    """Erases documents of one tenant, on a connection of its own that is in autocommit.

    Args:
        who: is on the receipts.
        journal: note it for the day when a backup is restored.
    """

    def __init__(
        self, settings: Settings, connection: Connection[Any], *, tenant: str, who: str, journal: bool = True
    ) -> None:
        self._connection = connection
        self._spool = open_spool(settings)
        self._sent = Sent(settings.home)
        self._journal = Journal(settings.home) if journal else None
        self._tenant = tenant
        self._who = who

    def erase(self, uris: Sequence[str], *, keep_out: bool = False) -> list[Receipt]:
        """Erase documents, each with everything found inside it or coming with it; then call `finish`.

        Returns:
            One receipt a document, in order; an empty one where there was nothing, which is not kept.

        Raises:
            PermanentError: `would_return`: one of them still exists out there, and is not to be kept out.
            UnavailableError: the ledger is locked by others, or the spool is away.
        """
        if not keep_out:
            self._check_gone(self._ids(uris))
        return [self._erase(uri, keep_out) for uri in uris]

    def erase_tenant(self, *, keep_out: bool = False) -> Receipt:
        """Erase all documents of the tenant, those inserted by others, and its syncs; then call `finish`.

        Raises:
            PermanentError: `would_return`: some still exist out there, and are not to be kept out.
            UnavailableError: the ledger is locked by others, or the spool is away.
        """
        if not keep_out:
            rows = self._connection.execute("select id from sources where tenant = %s", (self._tenant,)).fetchall()
            self._check_gone([row[0] for row in rows])
        taken = _Taken()
        with self._held():
            if keep_out:
                self._keep_out(None)
            receipt = self._receipt("tenant", None, keep_out, taken)
            newest = self._value("select max(id) from sources where tenant = %s", self._tenant)
            self._note(receipt, taken)
        while ids := self._batch(taken, newest):
            log.info("%d documents of a tenant were erased", len(ids))
        for table, query in (
            ("documents", "delete from documents where tenant = %s"),
            ("syncs", "delete from syncs where tenant = %s"),
        ):
            taken.counts[table] += self._connection.execute(query.encode(), (self._tenant,)).rowcount
        return self._after(receipt, taken)

    def erase_again(self, uris: Sequence[str], *, whole_tenant: bool = False) -> Receipt:
        """Erase what a backup has brought back, whether or not it still exists out there; then call `finish`.

        Args:
            uris: one document, or all that were of the tenant when it was erased.

        Returns:
            What went. It is not kept: the receipt of the day when it was erased is.

        Raises:
            UnavailableError: the ledger is locked by others, or the spool is away.
        """
        taken = _Taken(again=True)
        with self._held():
            receipt = self._receipt("tenant" if whole_tenant else "document", uris[0], False, taken)
        for first in range(0, len(uris), statements.BATCH_DOCUMENTS):
            with self._held():
                batch = list(uris[first : first + statements.BATCH_DOCUMENTS])
                self._take(self._ids(batch), batch, taken)
        receipt = self._after(receipt, taken)
        self._connection.execute("delete from erasures where id = %s", (receipt.id,))
        return receipt

    # --- one document ------------------------------------------------------------------------------------------

    def _erase(self, uri: str, keep_out: bool) -> Receipt:
        taken = _Taken()
        with self._held():
            self._take(self._ids([uri]), [uri], taken)
            if keep_out:
                self._keep_out(uri)
            receipt = self._receipt("document", uri, keep_out, taken)
            if receipt.empty and not keep_out:
                self._connection.execute("delete from erasures where id = %s", (receipt.id,))
                return receipt
            self._note(receipt, taken)
        return self._after(receipt, taken)

    def _note(self, receipt: Receipt, taken: _Taken) -> None:
        """Durably, before the transaction commits: what is erased and not noted would come back with a backup."""
        if self._journal is None:
            return
        facts = {name: getattr(receipt, name) for name in ("hash", "who", "scope", "kept_out", "counts", "bytes")}
        entry = Entry("erase", receipt.erased_at, salt=salt_mark(self._connection), ids=sorted(taken.ids), **facts)
        self._journal.append([entry])

    def _take(self, ids: list[int], uris: list[str], taken: _Taken) -> None:
        """Delete all rows that are of these documents or mention them; the ledger is locked."""
        values: dict[str, Any] = {"ids": ids, "tenant": self._tenant}
        values["uris"] = sorted({*uris, *self._value(statements.URIS, values)})
        locations, newest = self._row(statements.SPOOLED, values)
        taken.locations.update(locations)
        taken.before = max(taken.before, newest)
        taken.bytes += self._value(statements.TEXT_BYTES, values)
        taken.names.update(values["uris"])
        taken.ids.update(ids)
        taken.hashes.update(hashes(self._connection, self._tenant, values["uris"]).values())
        for sync, key in self._connection.execute(statements.KEYS, values).fetchall():
            taken.syncs.add(sync)
            taken.names.add(key)
        for table, query in statements.DELETIONS.items():
            taken.counts[table] += self._connection.execute(query.encode(), values).rowcount

    def _batch(self, taken: _Taken, newest: int | None) -> list[int]:
        with self._held():
            some = self._value(statements.BATCH, (self._tenant, newest, statements.BATCH_DOCUMENTS))
            uris = self._value(statements.URIS, {"ids": some})
            ids: list[int] = sorted({*some, *self._ids(uris)})
            if ids:
                self._take(ids, uris, taken)
        return ids

    def _after(self, receipt: Receipt, taken: _Taken) -> Receipt:
        """What needs no lock on the ledger, or must not be done under one."""
        names = {"names": sorted(taken.names), "tenant": self._tenant, "syncs": sorted(taken.syncs)}
        with self._connection.transaction():
            self._connection.execute(statements.SCRUB, names)
            self._connection.execute(statements.SCRUB_MEMORIES, names)
        if not taken.again:  # else it may have been sent after it was erased
            self._sent.forget(sorted(taken.hashes))
        try:
            files, size = self._spool.drop(self._connection, sorted(taken.locations), before=taken.before + 1)
        finally:
            # Of a spool that is away the rows are gone all the same; it is swept once it is back.
            counts = {**taken.counts, "spool_files": 0}
            receipt = self._correct(receipt, counts, taken.bytes)
        counts["spool_files"] = files
        return self._correct(receipt, counts, taken.bytes + size)

    def _check_gone(self, ids: list[int]) -> None:
        """Refuse to erase what would be back soon.

        Raises:
            PermanentError: `would_return`.
        """
        reasons: Counter[str] = Counter()
        for uri, reason in self._connection.execute(statements.RETURNING, {"ids": ids}).fetchall():
            if reason is not None and (reason != "file" or _exists(uri)):
                reasons[reason] += 1
        if reasons:
            told = "; ".join(f"{count} × {WHY[reason]}" for reason, count in reasons.most_common())
            raise PermanentError(
                "would_return",
                f"what is erased would come back: {told}",
                "have it kept out (--keep-out, keep_out=true), or remove it there first",
            )

    def _keep_out(self, uri: str | None) -> None:
        keep_out(self._connection, self._tenant, [uri])

    def _ids(self, uris: Sequence[str]) -> list[int]:
        found: list[int] = self._value(statements.FAMILY, {"tenant": self._tenant, "uris": list(uris)})
        return found

    @contextmanager
    def _held(self) -> Iterator[None]:
        """A transaction during which the ledger stands still."""
        try:
            with self._connection.transaction():
                self._connection.execute(f"set local lock_timeout = '{int(LOCK_SECONDS * 1000)}ms'")
                self._connection.execute(statements.LOCK)
                yield
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            raise UnavailableError(
                "ledger_busy", "others hold the ledger, and nothing was erased", "try again in a moment"
            ) from error

    def _receipt(self, scope: str, uri: str | None, kept: bool, taken: _Taken) -> Receipt:
        values = {"who": self._who, "scope": scope, "tenant": self._tenant, "uri": uri, "kept_out": kept}
        return self._read(statements.RECEIPT, {**values, "counts": Jsonb(dict(taken.counts)), "bytes": taken.bytes})

    def _correct(self, receipt: Receipt, counts: dict[str, int], size: int) -> Receipt:
        return self._read(statements.CORRECT, {"id": receipt.id, "counts": Jsonb(counts), "bytes": size})

    def _read(self, query: str, values: dict[str, Any]) -> Receipt:
        with self._connection.cursor(row_factory=class_row(Receipt)) as cursor:
            receipt = cursor.execute(query.encode(), values).fetchone()
        assert receipt is not None
        return receipt

    def _row(self, query: str, values: Any) -> Any:
        row = self._connection.execute(query.encode(), values if isinstance(values, dict | tuple) else (values,))
        return row.fetchone()

    def _value(self, query: str, values: Any) -> Any:
        return self._row(query, values)[0]


def finish_erasures(connection: Connection[Any], settings: Settings | None = None) -> bool:
    """Do what follows erasures that were broken off before it was done; a chore of housekeeping. False: there are none.

    Entries of the embedding cache that no chunk uses any more go, whatever document they were of; the lexeme
    statistics are counted anew, for they are words; and the tables are vacuumed.
    """
    due = connection.execute(
        "select exists (select from erasures where finished_at is null"
        " and erased_at < now() - make_interval(secs => %s))",
        (UNFINISHED_SECONDS,),
    ).fetchone()
    if due != (True,):
        return False
    finish(connection)
    return True


def finish(connection: Connection[Any]) -> dict[str, Any]:
    """Rid cache, statistics and tables of what was erased; how much went, and which tables were vacuumed."""
    newest = connection.execute("select max(id) from erasures").fetchone()
    vectors = connection.execute(statements.UNUSED_VECTORS).rowcount
    with connection.transaction():
        # Whoever counts at this moment may still count what is gone.
        connection.execute("select pg_advisory_xact_lock(%s)", (STATISTICS_LOCK,))
        before = connection.execute("select count(*) from lexeme_statistics").fetchone()
        connection.execute("select refresh_statistics()")
        after = connection.execute("select count(*) from lexeme_statistics").fetchone()
    assert newest is not None and before is not None and after is not None
    connection.execute("update erasures set finished_at = now() where finished_at is null and id <= %s", newest)
    skipped = _vacuum(connection)
    return {
        "embedding_cache": vectors,
        "lexeme_statistics": max(before[0] - after[0], 0),
        "vacuumed": [table for table in TABLES if table not in skipped],
        "not_vacuumed": skipped,
    }


def _vacuum(connection: Connection[Any]) -> list[str]:
    """Vacuum and analyse, since Postgres keeps samples of what it analysed; the tables that it would not let us."""
    told: list[str] = []
    skipped = []

    def note(notice: psycopg.errors.Diagnostic) -> None:
        told.append(notice.message_primary or "")

    connection.add_notice_handler(note)
    try:
        for table in TABLES:
            connection.execute(f"vacuum (analyze) {table}".encode())
            if any(f'"{table}"' in text and "skipping" in text for text in told):
                skipped.append(table)
        if skipped:
            log.warning("not vacuumed, for another role owns them: %s", ", ".join(skipped))
        _clear_empty(connection, [table for table in TABLES if table not in skipped])
    finally:
        connection.remove_notice_handler(note)
    return skipped


def _clear_empty(connection: Connection[Any], tables: Sequence[str]) -> None:
    if connection.info.server_version < 180000:
        return
    for table in tables:
        if connection.execute(f"select not exists (select from {table})".encode()).fetchone() == (True,):
            connection.execute(statements.CLEAR_STATISTICS, {"tables": [table]})


def _exists(uri: str) -> bool:
    """Whether this machine has the file; another one may have it as well, which nobody can tell here."""
    try:
        return Path(local_path(uri)).exists()
    except (GristmillError, OSError, ValueError):
        return False
