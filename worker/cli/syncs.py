"""The command about syncs."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer
from psycopg.rows import dict_row

from pipelines.errors import ConfigurationError
from worker.app import connect_app
from worker.broker import Broker
from worker.cli.output import Json, console, fail, print_json, print_table, settings
from worker.connectors.config import SyncConfig
from worker.connectors.registry import load_syncs
from worker.database import open_database
from worker.logs import configure_logging
from worker.settings import Settings
from worker.sync.syncer import Syncer, open_schedule

STATUS = """
select s.name, s.kind, s.begun_at, s.succeeded_at, greatest(s.next_at, s.not_before) as next_at, s.counts, s.notices,
  s.error_code, s.error_cause, s.error_remedy, s.token is not null and s.lease_until > now() as running,
  (select count(*) from synced m where m.sync_id = s.id and m.removed_at is null) as documents
from syncs s where s.tenant = %s and s.name = any(%s) order by s.name
"""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(sync)


def sync(
    name: Annotated[str | None, typer.Argument(help="A sync of GRISTMILL_SYNCS; none: list them all")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would happen; fetch and write nothing")] = False,
    full: Annotated[bool, typer.Option("--full", help="List everything, not only what has changed")] = False,
    confirm_deletions: Annotated[
        bool, typer.Option("--confirm-deletions", help="Delete what is gone, however much it is")
    ] = False,
    as_json: Json = False,
) -> None:
    """Bring the documents of a sync in step, now; or show how all syncs are."""
    found = settings()
    configure_logging("WARNING")
    syncs = load_syncs(found)
    if name is None:
        _show(found, syncs, as_json=as_json)
        return
    if name not in syncs:
        names = ", ".join(sorted(syncs)) or "none"
        raise ConfigurationError("unknown_sync", f"there is no sync {name}; there are: {names}", "set GRISTMILL_SYNCS")
    broker = Broker(connect_app(found))
    syncer = Syncer(found, syncs, news=lambda: broker.wake(found.ingest_processes))
    try:
        if dry_run:
            _preview(syncer, name, full=full, as_json=as_json)
            return
        report, failure = syncer.sync(name, full=full, confirmed=confirm_deletions)
    finally:
        syncer.close()
    if as_json:
        error = failure and {"code": failure.code, "message": failure.cause, "remedy": failure.remedy}
        print_json({"sync": name, "counts": report.counts, "notices": report.notices, "error": error})
    else:
        console.print(_numbers(report.counts))
        for notice in report.notices:
            console.print(notice, markup=False)
        if failure is not None:
            fail(failure, as_json=False)
        elif report.counts.get("failed"):
            console.print("causes and remedies: gristmill sources --state failed")
    raise typer.Exit(1 if failure or report.counts.get("held") else 0)


def _preview(syncer: Syncer, name: str, *, full: bool, as_json: bool) -> None:
    if as_json:
        print_json([{"action": action, "what": what} for action, what in syncer.preview(name, full=full)])
        return
    counts: Counter[str] = Counter()
    for action, what in syncer.preview(name, full=full):
        counts[action] += 1
        console.print(f"{action:<10} {what}", markup=False, soft_wrap=True)
    console.print(_numbers(counts) + "; nothing was fetched or written")


def _show(found: Settings, syncs: dict[str, SyncConfig], *, as_json: bool) -> None:
    with open_database(found, application="gristmill cli") as connection:
        open_schedule(found, connection, syncs).register()
        with connection.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(STATUS, (found.tenant, list(syncs))).fetchall()
    if as_json:
        print_json(rows)
    elif not rows:
        console.print("no sync is set: docs/syncs.md shows how")
    else:
        columns = ["sync", "type", "documents", "last success", "next run", ""]
        print_table(columns, [_line(row) for row in rows])


def _line(row: dict[str, Any]) -> tuple[Any, ...]:
    story = [_numbers(row["counts"])] if row["counts"] else []
    story += row["notices"]
    if row["error_cause"]:
        story.append(f"{row['error_cause']}\n→ {row['error_remedy']}")
    success = row["succeeded_at"].strftime("%Y-%m-%d %H:%M") if row["succeeded_at"] else "never"
    due = row["next_at"].strftime("%Y-%m-%d %H:%M") if row["next_at"] else "when asked"
    return row["name"], row["kind"], row["documents"], success, "running" if row["running"] else due, "\n".join(story)


def _numbers(counts: Any) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count and name != "full") or "nothing to do"
