"""The command about syncs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Annotated, Any

import typer
from psycopg import Connection

from pipelines.errors import ConfigurationError
from worker.app import connect_app
from worker.broker import Broker
from worker.cli.output import Json, console, fail, print_json, print_table, settings
from worker.connectors.config import SyncConfig
from worker.connectors.registry import load_syncs
from worker.database import open_database
from worker.logs import configure_logging
from worker.settings import Settings
from worker.sync.overview import SyncState, overview
from worker.sync.storable import storable_error
from worker.sync.syncer import Syncer, open_schedule


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
    forget: Annotated[
        bool, typer.Option("--forget", help="Take its documents out of the index, once it is out of GRISTMILL_SYNCS")
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
    if forget:
        _forget(found, syncs, name, as_json=as_json)
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
        error = failure and dict(zip(("code", "message", "remedy"), storable_error(failure), strict=True))
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


def failing_syncs(found: Settings, connection: Connection[Any]) -> list[dict[str, str | None]]:
    """Name, code, cause and remedy of each sync whose last run failed, or of what is wrong with their settings."""
    try:
        states = overview(connection, found.tenant, load_syncs(found))
    except ConfigurationError as error:
        return [{"name": "GRISTMILL_SYNCS", "code": error.code, "cause": error.cause, "remedy": error.remedy}]
    return [
        {"name": one.name, "code": one.code, "cause": one.cause, "remedy": one.remedy} for one in states if one.code
    ]


def _forget(found: Settings, syncs: dict[str, SyncConfig], name: str, *, as_json: bool) -> None:
    if name in syncs:
        raise ConfigurationError(
            "sync_in_use", f"{name} is in GRISTMILL_SYNCS, so it would all come back", "take it out there first"
        )
    syncer = Syncer(found, syncs)
    try:
        count = syncer.forget(name)
    finally:
        syncer.close()
    if as_json:
        print_json({"sync": name, "removed": count})
    else:
        console.print(f"{count} documents deleted from the index")


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
        states = overview(connection, found.tenant, syncs)
    if as_json:
        print_json([asdict(state) for state in states])
    elif not states:
        console.print("no sync is set: docs/syncs.md shows how")
    else:
        columns = ["sync", "type", "documents", "last success", "next run", ""]
        print_table(columns, [_line(state) for state in states])


def _line(state: SyncState) -> tuple[Any, ...]:
    story = [_numbers(state.counts)] if state.counts else []
    story += state.notices
    if state.code:
        story.append(f"{state.cause}\n→ {state.remedy}")
    success = state.succeeded_at.strftime("%Y-%m-%d %H:%M") if state.succeeded_at else "never"
    due = state.next_at.strftime("%Y-%m-%d %H:%M") if state.next_at else "when asked"
    return state.name, state.type, state.documents, success, "running" if state.running else due, "\n".join(story)


def _numbers(counts: Any) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count and name != "full") or "nothing to do"
