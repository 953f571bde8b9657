"""Reconciliation: a database that was restored from a backup, brought to today's truth.

Today's truth is in the folders, with the providers of the syncs, and in the home: the journal of what was erased,
deleted and revoked (`worker.journal`), the notes of what was sent (`worker.sent`), and the mark of how far the database
had come (`worker.mark`). Every step compares and does what differs, so it may be broken off, and a second run has
nothing to do.
"""

from __future__ import annotations

import getpass
from typing import Any

from psycopg import Connection

from pipelines.errors import ConfigurationError
from sql.migrate import pending
from worker.connectors.registry import load_syncs
from worker.content import open_spool
from worker.mark import Marks
from worker.reconcile.arrivals import Arrivals
from worker.reconcile.folders import compare_folders
from worker.reconcile.gone import Gone
from worker.reconcile.index import Index
from worker.reconcile.report import Report, Trouble
from worker.sent import Sent
from worker.settings import Settings

__all__ = ["Report", "Trouble", "reconcile"]

LOCK = 0x7265636F6E63  # any fixed number
DUE = "select count(*) from sources where state in ('pending', 'leased', 'reading')"


def reconcile(
    settings: Settings, connection: Connection[Any], *, dry_run: bool = False, confirmed: bool = False
) -> Report:
    """Compare ledger and index with the folders, the spool and what the home remembers, and mend the ledger.

    What is to be read, fetched or listed again is due when this returns; the workers and syncs do it.

    Args:
        dry_run: change nothing.
        confirmed: files that are gone are deleted however many they are.

    Raises:
        ConfigurationError: the schema is not this version's, another reconciliation runs, or settings are wrong.
        UnavailableError: ledger, journal or spool cannot be had now; run it again.
    """
    if names := [migration.name for migration in pending(connection)]:
        raise ConfigurationError("not_migrated", f"the database lacks {', '.join(names)}", "run: gristmill migrate")
    if connection.execute("select pg_try_advisory_lock(%s)", (LOCK,)).fetchone() != (True,):
        raise ConfigurationError("already_running", "another reconciliation is under way", "wait for it")
    try:
        return _reconcile(settings, connection, dry_run=dry_run, confirmed=confirmed)
    finally:
        connection.execute("select pg_advisory_unlock(%s)", (LOCK,))


def _reconcile(settings: Settings, connection: Connection[Any], *, dry_run: bool, confirmed: bool) -> Report:
    syncs = list(load_syncs(settings))
    marks = Marks(settings.home)
    mark = marks.read()
    report = Report(restored=mark is None or marks.behind(connection), dry_run=dry_run)
    index = Index(connection, report)
    spool = open_spool(settings)
    sent = Sent(settings.home)
    seen = dict(mark.sequences) if report.restored and mark else {}
    seen["sources"] = max([seen.get("sources", 0), *(note.id for _, note in sent.notes())])
    numbered = index.raise_sequences(seen)
    if report.restored:
        index.end_leases()
    gone = Gone(settings, connection, report, who=f"os:{getpass.getuser()}")
    gone.run()
    compare_folders(settings, report, confirmed=confirmed, out=gone.out)
    arrivals = Arrivals(connection, sent, spool, report, syncs=syncs, own_ids=numbered)
    arrivals.take_back()
    arrivals.look_into_spool()
    index.mend_chunks(arrivals.lacking)
    if report.restored:
        index.ask_syncs(syncs)
        index.count_words()
    index.set_iterative_scan()
    unnamed = report.restored and arrivals.tell_unnamed()
    if not dry_run:
        if report.restored:
            marks.accept(connection, spare=unnamed)
        else:
            marks.advance(connection)
        row = connection.execute(DUE).fetchone()
        report.due = row[0] if row else 0
    return report
