"""The command `gristmill`."""

from __future__ import annotations

import os
import sys
from importlib import import_module, metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pipelines.errors import GristmillError

# Each command and the module that has it, in the order in which --help names them.
COMMANDS = {
    "up": "service",
    "migrate": "service",
    "doctor": "service",
    "url": "service",
    "ingest": "documents",
    "status": "documents",
    "sources": "documents",
    "pages": "documents",
    "retry": "documents",
    "delete": "documents",
    "erase": "erase",
    "reconcile": "reconcile",
    "sync": "syncs",
    "extract": "extract",
    "search": "query",
    "keys": "keys",
    "eval": "evaluation",
}


class Commands(TyperGroup):
    """The commands, each imported when it is asked for: most need little of what the others do."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all, whether imported or not."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; None where there is none."""
        # Where there is none, all are, so that the nearest can be proposed.
        wanted = [COMMANDS[cmd_name]] if cmd_name in COMMANDS else dict.fromkeys(COMMANDS.values())
        if cmd_name not in self.commands:
            for module in wanted:
                part = typer.Typer()
                import_module(f"worker.cli.{module}").register(part)
                self.commands.update(typer.main.get_group(part).commands)
        return super().get_command(ctx, cmd_name)


app = typer.Typer(
    name="gristmill",
    cls=Commands,
    help="Ingestion and fused search for retrieval, on Postgres.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"gristmill {metadata.version('gristmill')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point: errors of ours become one clear line and exit code 1, never a traceback."""
    try:
        app(prog_name="gristmill")
    except GristmillError as error:
        from worker.cli.output import fail

        fail(error, as_json="--json" in sys.argv[1:])
        sys.exit(1)
    except BrokenPipeError:
        # The reader of a pipe has gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
