"""What the command prints: tables for people, JSON for programs, errors in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipelines.errors import GristmillError
from worker.settings import Settings, load_settings

console = Console()
errors = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Answer as JSON")]


Tenant = Annotated[str | None, typer.Option(help="Act for this tenant, not for GRISTMILL_TENANT")]


def settings(tenant: str | None = None) -> Settings:
    """The settings, read anew for each command; with another tenant, if one is given."""
    return load_settings() if tenant is None else load_settings(tenant=tenant)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2, default=_plain) + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str | None = None) -> None:
    """A table; cells are shown as they are, never read as markup."""
    table = Table(title=title, header_style="bold", title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else escape(str(cell)) for cell in row))
    console.print(table)


def fail(error: GristmillError, *, as_json: bool) -> None:
    """Say what went wrong and what to do about it."""
    if as_json:
        print_json({"error": {"code": error.code, "message": error.cause, "remedy": error.remedy}})
        return
    errors.print(f"[bold red]error:[/] {escape(error.cause)}")
    if error.remedy:
        errors.print(f"  [bold]remedy:[/] {escape(error.remedy)}")


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
