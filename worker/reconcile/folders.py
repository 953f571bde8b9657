"""Watched folders compared with the ledger, by the watcher's own rules, once and at once."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from worker.kept_out import is_kept_out
from worker.places import file_uri
from worker.reconcile.report import Report
from worker.settings import Settings
from worker.watchers.ignore import Ignore
from worker.watchers.ledger_sink import LedgerSink
from worker.watchers.listen import file_system_of
from worker.watchers.messages import Decision, Delete, Known, Paused, Record, Rename, Scanned
from worker.watchers.scan import scan
from worker.watchers.tracker import Tracker
from worker.watchers.watched_root import check_folders

LATER = 3600.0  # seconds: longer than anything waits

REMEDIES = {
    "absent": "mount or create it again, then reconcile again",
    "unreadable": "let this user read and enter it, then reconcile again",
    "guard": "bring the files back, or, if they are meant to be gone: gristmill reconcile --confirm-deletions",
}


class QuietSink(LedgerSink):
    """The watcher's sink, but for the wake-ups: one for all comes in the end."""

    def kept_out(self, path: Path, out: Collection[str]) -> bool:
        """Whether a file was erased, and is not to come back.

        Args:
            out: hashes of what is about to be kept out.
        """
        ledger = self._ledger()
        tenant, uri = ledger.tenant, file_uri(path)
        if is_kept_out(ledger.connection, tenant, uri):
            return True
        row = ledger.connection.execute(
            "select encode(erasure_hash(%(tenant)s, %(uri)s), 'hex'), encode(erasure_hash(%(tenant)s, null), 'hex')",
            {"tenant": tenant, "uri": uri},
        ).fetchone()
        return bool(out) and row is not None and not set(out).isdisjoint(row)

    def close(self) -> None:
        """Give up the connection."""
        if self._connection is not None:
            self._connection.close()

    def _wake(self) -> None:
        pass


def compare_folders(settings: Settings, report: Report, *, confirmed: bool, out: Collection[str] = ()) -> None:
    """Record, rename and delete in the ledger what differs from what is on the disk.

    Nobody waits for a file to be quiet: the watcher records one that was being written once more.

    Args:
        confirmed: the guard against deletions of many is not asked.
        out: hashes of what is about to be kept out.

    Raises:
        ConfigurationError: the folders cannot be watched together.
    """
    if not settings.watch:
        return
    check_folders(settings)
    tracker = Tracker(
        settings.watch,
        stability_seconds=0.0,
        grace_seconds=0.0,
        guard_share=1.0 if confirmed else settings.delete_guard_share,
        guard_minimum=settings.delete_guard_minimum,
    )
    sink = QuietSink(settings)
    try:
        known: set[Path] = set()
        for root in settings.watch:
            stable = root.is_dir() and file_system_of(root).stable_inodes
            listing = scan(root, Ignore(settings.ignore), stable_inodes=stable)
            marks = sink.known_files(root)
            known.update(marks)
            tracker.handle(Known(root, marks), 0.0)
            event = Scanned(root, listing.files, tuple(listing.unreadable), root_present=listing.present)
            tracker.handle(event, 0.0)
        for decision in tracker.decide(LATER):
            _apply(decision, sink, known, report, out)
    finally:
        sink.close()


def _apply(decision: Decision, sink: QuietSink, known: set[Path], report: Report, out: Collection[str]) -> None:
    match decision:
        case Record(path, mark):
            if path not in known and sink.kept_out(path, out):
                return
            report.add("files_changed" if path in known else "files_new")
            if not report.dry_run:
                sink.record_file(path, mark)
        case Rename(old, new, mark):
            report.add("files_renamed")
            if not report.dry_run:
                sink.rename_file(old, new, mark)
        case Delete(path):
            report.add("files_gone")
            if not report.dry_run:
                sink.delete_file(path)
        case Paused(root, kind, reason, _):
            report.trouble(f"folder_{kind}", reason, REMEDIES[kind], [str(root)])
