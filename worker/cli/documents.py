"""Commands about documents: ingest, status, sources, pages, retry, delete."""

from __future__ import annotations

import getpass
import time
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import Annotated, Any

import typer
from psycopg import Connection
from psycopg.rows import dict_row
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pipelines.errors import GristmillError, PermanentError
from worker.app import connect_app
from worker.backlog import measure_backlog
from worker.broker import OCR_QUEUE, Broker
from worker.budget import used_today
from worker.cli.output import Json, Tenant, console, errors, fail, print_json, print_table, settings
from worker.cli.syncs import failing_syncs
from worker.database import open_database, open_ledger
from worker.pauses import Pauses
from worker.places import file_uri, local_path
from worker.sent import deleted
from worker.settings import Settings
from worker.watchers.fingerprint import FileStat, fingerprint
from worker.watchers.ignore import Ignore
from worker.watchers.scan import missing_files, scan

STATES = ("pending", "leased", "reading", "done", "failed", "dead", "deleted")
SOURCE = """
select id, uri, state, version, attempts, mime, title, pages, pages_done, chunks, tokens,
       error_code, error_cause, error_remedy, next_at, event_at, searchable_at
from sources
"""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(ingest)
    app.command()(status)
    app.command()(sources)
    app.command()(pages)
    app.command()(retry)
    app.command()(delete)


def ingest(
    paths: Annotated[list[Path], typer.Argument(help="Files, or folders to take all files of")],
    wait: Annotated[bool, typer.Option("--wait", help="Until all are searchable or have failed")] = False,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Index files, now. A file that was indexed before is read again; if its bytes are the same nothing is redone."""
    found = settings(tenant)
    ok = True
    ids: list[int] = []
    with open_database(found, application="gristmill cli") as connection:
        ledger = open_ledger(found, connection)
        for path in paths:
            try:
                files = _files(found, path.expanduser().absolute())
            except GristmillError as error:
                fail(error, as_json=False)
                ok = False
                continue
            for file in files:
                mark = fingerprint(FileStat.of(file.stat()))
                try:
                    ids.append(ledger.record(file_uri(file), fingerprint=mark, force=True).source_id)
                except PermanentError as error:
                    fail(error, as_json=False)
                    ok = False
        if ids:
            Broker(connect_app(found)).wake(min(len(ids), found.ingest_processes))
        if wait:
            _wait(connection, found, ids)
        rows = _rows(connection, "where id = any(%s) order by id", (ids,))
    if as_json:
        print_json(rows)
    elif wait:
        _print_sources(rows)
    else:
        console.print(f"{len(ids)} documents noted; `gristmill status` shows how far they are")
    bad = wait and any(row["state"] in ("failed", "dead") for row in rows)
    raise typer.Exit(0 if ok and not bad else 1)


def status(tenant: Tenant = None, as_json: Json = False) -> None:
    """How many documents of the tenant are in which state, what waits, and with which model the index is built."""
    own, found = settings(), settings(tenant)
    with open_database(found, application="gristmill cli") as connection:
        counts = dict(
            connection.execute(
                "select state, count(*) from sources where tenant = %s group by state", (found.tenant,)
            ).fetchall()
        )
        row = connection.execute(
            "select (select count(*) from documents where tenant = %(tenant)s),"
            " (select extract(epoch from now() - min(event_at))::float8 from sources"
            "  where state in ('pending', 'leased', 'reading') and tenant = %(tenant)s),"
            " (select model from index_models), (select dimensions from index_models),"
            " ocr.done, ocr.pages"
            " from (select coalesce(sum(r.pages_done), 0), coalesce(sum(cardinality(r.pages)), 0) from page_ranges r"
            "       join sources s on s.id = r.source_id where s.tenant = %(tenant)s) ocr (done, pages)",
            {"tenant": found.tenant},
        ).fetchone()
        failing = failing_syncs(own, connection)
        paused = Pauses(connection, found).standing()
        used = used_today(connection)
        backlog = measure_backlog(connection)
    assert row is not None
    broker = Broker(connect_app(found))
    answer: dict[str, Any] = {
        "tenant": found.tenant,
        "sources": {state: counts.get(state, 0) for state in STATES},
        "chunks": row[0],
        "oldest_waiting_seconds": row[1],
        **backlog.as_json(),
        "max_due": found.max_due,
        "ocr": {"pages_done": row[4], "pages": row[5]},
        "queue": broker.waiting(),
        "ocr_queue": broker.waiting(OCR_QUEUE),
        "model": row[2],
        "dimensions": row[3],
        "home": str(found.home),
        "syncs": {"count": len(found.syncs), "failing": failing},
        "paused": paused,
        "budget": {"tokens_today": used, "tokens_per_day": found.embed_tokens_per_day},
    }
    if as_json:
        print_json(answer)
        return
    title = None if tenant is None else f"tenant {tenant}"
    print_table(["state", "documents"], [(state, counts.get(state, 0)) for state in STATES], title=title)
    waiting = f"oldest waiting for {row[1]:.0f} s" if row[1] is not None else "nothing waiting"
    queue = "not reachable" if answer["queue"] is None else f"{answer['queue']} wake-ups"
    limit = f"; over HTTP no more are taken from {found.max_due:,} on" if found.max_due else ""
    console.print(f"{backlog}{limit}")
    _print_pauses(paused)
    if found.embed_tokens_per_day:
        console.print(f"{used:,} of the {found.embed_tokens_per_day:,} tokens of this UTC day are used")
    if row[5]:
        console.print(f"OCR of long scans: {row[4]} of {row[5]} pages done")
    console.print(f"{row[0]} chunks; {waiting}; broker: {queue}; model: {row[2]} ({row[3]} dimensions)")
    if found.syncs:
        told = "; ".join(f"{one['name']}: {one['cause']} → {one['remedy']}" for one in failing)
        console.print(f"{len(found.syncs)} syncs, {len(failing)} failing{': ' if told else ''}{told}", markup=False)
    if counts.get("failed") or counts.get("dead"):
        console.print("causes and remedies: gristmill sources --state failed (or dead)")


def sources(
    state: Annotated[str | None, typer.Option(help=f"Only this state: {', '.join(STATES)}")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, newest first")] = 100,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """List documents with their state; for those that failed, the cause and the remedy."""
    if state is not None and state not in STATES:
        raise PermanentError("invalid_state", f"{state} is not a state", f"use one of {', '.join(STATES)}")
    found = settings(tenant)
    with open_database(found, application="gristmill cli") as connection:
        where = "where tenant = %s and (%s::text is null or state = %s) order by updated_at desc, id desc limit %s"
        rows = _rows(connection, where, (found.tenant, state, state, limit))
        paused = Pauses(connection, found).standing()
    if as_json:
        print_json(rows)
    else:
        _print_pauses(paused)
        _print_sources(rows)


def pages(
    target: Annotated[str, typer.Argument(help="A path, uri or id")],
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Show page by page how a document was read when it was last indexed: text layer or OCR, why, and how sure."""
    found = settings(tenant)
    with open_database(found, application="gristmill cli") as connection:
        row = connection.execute(
            "select id, coalesce(report->'pages', '[]') from sources where uri = %s and tenant = %s",
            (target_uri(connection, found.tenant, target), found.tenant),
        ).fetchone()
    if row is None:
        raise PermanentError("unknown_source", f"{target} is not in the index", "see: gristmill sources")
    if as_json:
        print_json({"id": row[0], "pages": row[1]})
    elif not row[1]:
        console.print("no pages: its format has none, or it has not been read yet")
    else:
        columns = ("number", "decision", "reason", "confidence", "rotation", "languages", "problem", "warning")
        cells = [tuple("" if page.get(name) is None else page[name] for name in columns) for page in row[1]]
        print_table(
            ["page", "read from", "because", "sure in %", "turned by", "languages", "problem", "warning"], cells
        )


def retry(
    ids: Annotated[list[int] | None, typer.Argument(help="Of documents that failed or are dead; none: all")] = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Try failed and dead documents again, once the cause is mended; where all are paused, try whether it is over."""
    found = settings(tenant)
    with open_database(found, application="gristmill cli") as connection:
        again = open_ledger(found, connection).retry(ids or None)
        paused = Pauses(connection, found).try_now()
    if again or paused:
        Broker(connect_app(found)).wake(min(len(again) or 1, found.ingest_processes))
    if as_json:
        print_json({"retried": again})
    else:
        console.print(f"{len(again)} documents will be tried again")


def delete(
    targets: Annotated[list[str] | None, typer.Argument(help="Paths, uris or ids")] = None,
    missing: Annotated[Path | None, typer.Option(help="All documents below this folder whose file is gone")] = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Take documents out of the index. Files are left where they are."""
    found = settings(tenant)
    with open_database(found, application="gristmill cli") as connection:
        ledger = open_ledger(found, connection)
        uris = [target_uri(connection, found.tenant, target) for target in targets or []]
        if missing is not None:
            root = missing.expanduser().absolute()
            known = {local_path(uri): mark or "" for uri, mark in ledger.known(file_uri(root) + "/").items()}
            uris += [file_uri(path) for path in missing_files(root, known, Ignore(found.ignore))]
        gone = [uri for uri in uris if ledger.delete(uri)]
        deleted(connection, found.home, ledger.tenant, gone, f"os:{getpass.getuser()}")
    if as_json:
        print_json({"deleted": gone})
        return
    for uri in uris:
        if uri not in gone:
            errors.print(f"not in the index: {uri}", markup=False)
    console.print(f"{len(gone)} documents deleted from the index")
    raise typer.Exit(0 if len(gone) == len(uris) else 1)


def _files(found: Settings, path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(scan(path, Ignore(found.ignore)).files)
    if not path.exists():
        raise PermanentError("not_found", f"{path} does not exist", "check the path")
    # Whoever names a link means the file; workers follow none, since others may put links into folders.
    return [path.resolve() if path.is_symlink() else path]


def _wait(connection: Connection[Any], found: Settings, ids: Sequence[int]) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors) as progress:
        bar = progress.add_task("indexing", total=len(ids))
        while True:
            row = connection.execute(
                "select count(*) filter (where state in ('pending', 'leased', 'reading')) from sources"
                " where id = any(%s)",
                (list(ids),),
            ).fetchone()
            left = row[0] if row else 0
            paused = Pauses(connection, found).standing()
            told = f"paused: {paused[0]['cause']}" if paused else "indexing"
            progress.update(bar, completed=len(ids) - left, description=told)
            if not left:
                return
            time.sleep(0.1)


def _rows(connection: Connection[Any], where: str, values: Sequence[Any]) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute((SOURCE + where).encode(), values).fetchall()


def _print_sources(rows: Sequence[dict[str, Any]]) -> None:
    def story(row: dict[str, Any]) -> str:
        if row["error_cause"]:
            return f"{row['error_cause']}\n→ {row['error_remedy']}"
        if row["state"] in ("leased", "reading") and row["pages"]:
            return f"page {row['pages_done'] or 0} of {row['pages']}"
        return f"{row['chunks']} chunks" if row["chunks"] else ""

    print_table(["id", "state", "document", ""], [(r["id"], r["state"], r["uri"], story(r)) for r in rows])


def _print_pauses(paused: Sequence[dict[str, Any]]) -> None:
    for pause in paused:
        until = f"{pause['until'].astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        console.print(
            f"paused, no document is taken until {until}: {pause['cause']} ({pause['code']})\n→ {pause['remedy']}",
            markup=False,
        )


def target_uri(connection: Connection[Any], tenant: str, target: str) -> str:
    """The uri that a path, uri or id on the command line stands for.

    Raises:
        PermanentError: no document of the tenant has the id.
    """
    if target.isdecimal():
        row = connection.execute(
            "select uri from sources where tenant = %s and id = %s", (tenant, int(target))
        ).fetchone()
        if row is None:
            raise PermanentError("unknown_source", f"no document has the id {target}", "see: gristmill sources")
        return str(row[0])
    return target if "://" in target else file_uri(Path(target))
