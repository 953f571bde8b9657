"""The command `gristmill`."""

from __future__ import annotations

import os
import sys

import typer

from pipelines.errors import GristmillError
from worker.cli import documents, erase, evaluation, extract, keys, query, reconcile, service, syncs
from worker.cli.output import fail

app = typer.Typer(
    name="gristmill",
    help="Ingestion and fused search for retrieval, on Postgres.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (service, documents, erase, reconcile, syncs, extract, query, keys, evaluation):
    module.register(app)


def main() -> None:
    """Entry point: errors of ours become one clear line and exit code 1, never a traceback."""
    try:
        app(prog_name="gristmill")
    except GristmillError as error:
        fail(error, as_json="--json" in sys.argv[1:])
        sys.exit(1)
    except BrokenPipeError:
        # The reader of a pipe has gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
