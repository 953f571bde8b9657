"""Commands about API keys: keys add, keys list, keys revoke."""

from __future__ import annotations

import getpass
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from pipelines.errors import PermanentError
from worker.cli.output import Json, console, errors, print_json, print_table, settings
from worker.database import open_database
from worker.journal import Journal, revocation


class ScopeName(StrEnum):
    """What a key may be used for."""

    INGEST = "ingest"
    SEARCH = "search"
    ADMIN = "admin"


Name = Annotated[str, typer.Argument(help="Whoever uses the key, e.g. n8n")]

keys = typer.Typer(help="API keys of the HTTP service.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(keys, name="keys")


@keys.command()
def add(
    name: Name,
    scope: Annotated[
        list[ScopeName],
        typer.Option(help="ingest: documents in and out; search: ask; admin: both; may be given more than once"),
    ],
    tenant: Annotated[
        str | None, typer.Option(help="Good for this tenant only, and for nothing of the whole installation")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a key and print it. It is shown this once and kept nowhere."""
    from worker.receivers.auth import create_key

    scopes = sorted({one.value for one in scope})
    with open_database(settings(), application="gristmill cli") as connection:
        key = create_key(connection, name, scopes, tenant)
    if as_json:
        print_json({"name": name, "scopes": scopes, "tenant": tenant, "key": key})
        return
    errors.print("the key, shown this once; send it as Authorization: Bearer or X-API-Key:")
    print(key)


@keys.command(name="list")
def list_(as_json: Json = False) -> None:
    """Names, scopes, tenants and last use of all keys; never the keys themselves."""
    from worker.receivers.auth import list_keys

    with open_database(settings(), application="gristmill cli") as connection:
        found = list_keys(connection)
    if as_json:
        print_json([asdict(key) for key in found])
        return
    print_table(
        ["name", "scopes", "tenant", "made", "last used"],
        [
            (key.name, ", ".join(key.scopes), key.tenant or "any", key.created_at, key.last_used_at or "never")
            for key in found
        ],
    )


@keys.command()
def revoke(name: Name, as_json: Json = False) -> None:
    """Make a key invalid, from now on."""
    from worker.receivers.auth import revoke_key

    with open_database(settings(), application="gristmill cli") as connection:
        revoked = revocation(connection, name, f"os:{getpass.getuser()}")
        if not revoke_key(connection, name):
            raise PermanentError("unknown_key", f"there is no key named {name}", "see: gristmill keys list")
        Journal(settings().home).append(revoked)
    if as_json:
        print_json({"revoked": name})
    else:
        console.print(f"the key {name} is revoked", markup=False)
