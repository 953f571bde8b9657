"""Commands about the service itself: up, migrate, doctor, url."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipelines.errors import ConfigurationError
from worker.cli.output import Json, console, print_json, print_table, settings
from worker.settings import load_settings


class Part(StrEnum):
    """What `up --only` can run on a machine of its own."""

    WORKER = "worker"
    OCR = "ocr"
    SYNC = "sync"
    WATCHER = "watcher"
    HTTP = "http"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(up)
    app.command()(migrate)
    app.command()(doctor)
    app.command()(url)


def up(
    watch: Annotated[list[Path] | None, typer.Option(help="Folder to mirror; may be given more than once")] = None,
    only: Annotated[Part | None, typer.Option(help="Run only this part on this machine")] = None,
) -> None:
    """Run the service: embedded Postgres and Valkey unless others are set, workers, sweep, HTTP and folder watchers."""
    from worker.logs import configure_logging
    from worker.up import run_up

    found = load_settings(watch=tuple(watch)) if watch else settings()
    configure_logging(found.log_level)
    raise typer.Exit(run_up(found, only=only.value if only else None))


def migrate(as_json: Json = False) -> None:
    """Bring the database up to this version. `up` does it too."""
    from worker.database import database_url, prepare_database

    found = settings()
    names = prepare_database(found, database_url(found))
    if as_json:
        print_json({"applied": names})
    else:
        console.print("\n".join(f"applied {name}" for name in names) or "nothing to do: the database is up to date")


def doctor(
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the embedding model; for health checks")] = False,
    as_json: Json = False,
) -> None:
    """Check everything that Gristmill needs, and name the remedy for what is missing. Exit code 1 if anything is."""
    from worker.doctor import examine

    checks = examine(settings(), quick=quick)
    if as_json:
        print_json({"ok": all(c.ok is not False for c in checks), "checks": [c.as_json() for c in checks]})
    else:
        marks = {True: "ok", None: "note", False: "MISSING"}
        print_table(["", "what", "found", "remedy"], [(marks[c.ok], c.name, c.found, c.remedy) for c in checks])
    raise typer.Exit(0 if all(c.ok is not False for c in checks) else 1)


def url(
    broker: Annotated[bool, typer.Option("--broker", help="The broker's address instead")] = False,
    tcp: Annotated[bool, typer.Option("--tcp", help="The embedded Postgres over TCP, password included")] = False,
    as_json: Json = False,
) -> None:
    """Print the database's address, for psql or n8n."""
    from worker.embedded import find_services, tcp_database_url

    found = settings()
    services = find_services(found)
    if as_json:
        print_json(
            {
                "database_url": services.database_url,
                "broker_url": services.broker_url,
                "database_url_tcp": tcp_database_url(found),
            }
        )
        return
    address = services.broker_url if broker else services.database_url
    if tcp:
        over_tcp = tcp_database_url(found)
        if over_tcp is None:
            raise ConfigurationError(
                "no_tcp",
                "the embedded Postgres is not served over TCP",
                "set GRISTMILL_EMBEDDED_TCP_PORT, then up",
            )
        address = over_tcp
    print(address)
