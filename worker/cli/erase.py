"""The command that erases documents for good."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from psycopg import Connection

from pipelines.errors import PermanentError
from worker.cli.documents import target_uri
from worker.cli.output import Json, console, errors, print_json, print_table, settings
from worker.database import open_database
from worker.erase import Eraser, Receipt, finish
from worker.journal import Journal, note_allowed
from worker.kept_out import allow as allow_back

REMAINS = (
    "not erased: the source itself, backups, lines of logs that name it, and what Postgres has not overwritten yet;"
    " see Erasing in docs/operations.md"
)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(erase)


def erase(
    targets: Annotated[list[str] | None, typer.Argument(metavar="[URI]...", help="Uris, paths or ids")] = None,
    tenant: Annotated[str | None, typer.Option(help="Everything of this tenant instead")] = None,
    keep_out: Annotated[bool, typer.Option("--keep-out", help="Never take it up again, until --allow")] = False,
    allow: Annotated[bool, typer.Option("--allow", help="Erase nothing: let what was kept out come back")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False,
    as_json: Json = False,
) -> None:
    """Forget documents for good, with all that was found in them, and print a receipt. There is no way back."""
    found = settings()
    if bool(targets) == bool(tenant):
        raise PermanentError(
            "nothing_named", "name documents, or a tenant, and not both", "see: gristmill erase --help"
        )
    with open_database(found, application="gristmill erase") as connection:
        journal = Journal(found.home)
        uris = [_named(connection, found.tenant, target) for target in targets or []]
        if allow:
            _allow(connection, journal, tenant or found.tenant, uris, as_json=as_json)
            return
        _confirm(f"{len(uris)} documents" if uris else f"everything of the tenant {tenant}", yes=yes, as_json=as_json)
        who = f"os:{getpass.getuser()}"
        eraser = Eraser(found, connection, tenant=tenant or found.tenant, who=who)
        receipts = [eraser.erase_tenant(keep_out=keep_out)] if tenant else eraser.erase(uris, keep_out=keep_out)
        kept = [receipt for receipt in receipts if not receipt.empty or receipt.kept_out or receipt.scope == "tenant"]
        finished = finish(connection) if kept else None
    if as_json:
        print_json({"erased": [one.plain() for one in kept], "unknown": len(receipts) - len(kept), "index": finished})
    else:
        for uri, receipt in zip(uris, receipts, strict=False):
            if receipt not in kept:
                errors.print(f"nothing is known of {uri}", markup=False)
        _print(kept, finished)
    raise typer.Exit(0 if len(kept) == len(receipts) else 1)


def _named(connection: Connection[Any], tenant: str, target: str) -> str:
    """A uri may look like anything; a path is what names nothing that is known."""
    row = connection.execute("select from sources where tenant = %s and uri = %s", (tenant, target)).fetchone()
    if row is not None or (":" in target and not Path(target).exists()):
        return target
    return target_uri(connection, tenant, target)


def _allow(connection: Connection[Any], journal: Journal, tenant: str, uris: list[str], *, as_json: bool) -> None:
    wanted: list[str | None] = list(uris) or [None]
    allowed = [uri for uri in wanted if allow_back(connection, tenant, uri)]
    note_allowed(connection, journal, tenant, allowed, f"os:{getpass.getuser()}")
    done = len(allowed)
    if as_json:
        print_json({"allowed": done})
    else:
        console.print(f"{done} of {len(wanted)} were kept out and may come back: a file or page when it is next met")
    raise typer.Exit(0 if done == len(wanted) else 1)


def _confirm(what: str, *, yes: bool, as_json: bool) -> None:
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        raise PermanentError("not_confirmed", f"erasing {what} cannot be undone", "if you mean it: --yes")
    typer.confirm(f"Erase {what} for good?", abort=True, err=True)


def _print(receipts: list[Receipt], finished: dict[str, Any] | None) -> None:
    for one in receipts:
        counts = ", ".join(f"{count} {name}" for name, count in one.counts.items() if count) or "nothing was there"
        facts = [
            ("receipt", one.id),
            ("time", one.erased_at.isoformat()),
            ("by", one.who),
            ("what", f"{one.scope} {one.hash}"),
            ("kept out", "yes" if one.kept_out else "no"),
            ("erased", counts),
            ("bytes", one.bytes),
        ]
        print_table(["", "erasure"], facts)
    if finished:
        console.print(
            f"{finished['embedding_cache']} vectors and {finished['lexeme_statistics']} words went from the cache and"
            f" the statistics; {len(finished['vacuumed'])} tables vacuumed"
        )
        if finished["not_vacuumed"]:
            errors.print(f"have their owner vacuum: {', '.join(finished['not_vacuumed'])}", markup=False)
        console.print(REMAINS, markup=False)
