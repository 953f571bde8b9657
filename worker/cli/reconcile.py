"""The command that brings a restored database to today's truth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from pipelines.errors import ConfigurationError
from worker.app import connect_app
from worker.broker import SYNC_QUEUE, Broker
from worker.cli.output import Json, console, errors, print_json, settings
from worker.database import open_database
from worker.embedded import Services, find_services, start_services, stop_services
from worker.logs import configure_logging
from worker.reconcile import Report, Trouble, reconcile
from worker.settings import Settings, load_settings
from worker.up import home_lock

NEEDS_A_PERSON = 3

TOLD = {
    "leases_ended": "leases of before the backup ended",
    "sequences_raised": "sequences raised past the ids that were given out since",
    "keys_revoked_again": "API keys revoked again",
    "deleted_again": "documents deleted again",
    "erasures_put_back": "receipts of erasures put back",
    "erased_again": "documents erased again",
    "kept_out_again": "documents or tenants kept out again",
    "let_in_again": "documents or tenants let in again",
    "files_new": "new files",
    "files_changed": "changed files",
    "files_renamed": "renamed files",
    "files_gone": "files that are gone",
    "sent_new": "documents that were sent since, taken in again",
    "sent_again": "documents that were sent anew since, taken in again",
    "fetched_again": "addresses fetched again, for OCR",
    "chunks_mended": "documents whose passages do not fit, read again",
    "syncs_asked": "syncs that list everything again",
    "statistics_taken": "statistics of words taken anew",
    "setting_made": "setting hnsw.iterative_scan made",
}


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(name="reconcile")(command)


def command(
    watch: Annotated[list[Path] | None, typer.Option(help="Folder to compare, as for up; may be given again")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; change nothing")] = False,
    confirm_deletions: Annotated[
        bool, typer.Option("--confirm-deletions", help="Delete what is gone from a folder, however much it is")
    ] = False,
    as_json: Json = False,
) -> None:
    """Bring a database that was restored from a backup to today's truth. Exit code 3 if something needs a person."""
    found = load_settings(watch=tuple(watch)) if watch else settings()
    configure_logging("WARNING")
    with _services(found) as services, open_database(found, services, application="gristmill reconcile") as connection:
        report = reconcile(found, connection, dry_run=dry_run, confirmed=confirm_deletions)
        if report.done and not dry_run:
            broker = Broker(connect_app(found, services))
            broker.wake(min(report.due or 1, found.ingest_processes))
            if report.done.get("syncs_asked"):
                broker.wake(queue=SYNC_QUEUE)
    if as_json:
        print_json(report.plain())
    else:
        _print(report)
    raise typer.Exit(NEEDS_A_PERSON if report.troubles else 0)


@contextmanager
def _services(found: Settings) -> Iterator[Services]:
    """Those that run; embedded ones that do not run are started for the time being."""
    services = None
    try:
        services = find_services(found)
    except ConfigurationError as error:
        if error.code != "not_running" or not found.home.is_dir():
            raise
    if services is not None:
        yield services
        return
    with home_lock(found.home):
        try:
            yield start_services(found)
        finally:
            stop_services(found)


def _print(report: Report) -> None:
    if report.restored:
        console.print(
            "the database is older than this home, or this home is new: everything was compared", soft_wrap=True
        )
    for kind, count in report.done.items():
        console.print(f"{count:>8} {TOLD.get(kind, kind)}", markup=False)
    for notice in report.notices:
        console.print(notice, markup=False, soft_wrap=True)
    for one in report.troubles:
        _print_trouble(one)
    if not report.done and not report.troubles:
        console.print("nothing to do: the database is as the folders and this home have it")
    elif report.dry_run:
        console.print("nothing was changed")
    elif report.due:
        console.print(f"{report.due} documents wait for the workers: gristmill up, then gristmill status")


def _print_trouble(one: Trouble) -> None:
    errors.print(f"{one.count} × {one.cause}\n  → {one.remedy}", markup=False)
    for document in one.documents:
        errors.print(f"    {document}", markup=False, soft_wrap=True)
    if one.count > len(one.documents) > 0:
        errors.print(f"    and {one.count - len(one.documents)} more")
