"""The command `gristmill`."""

from __future__ import annotations

import sys

import click
import typer

from pipelines.errors import GristmillError
from worker.cli import documents, query, service
from worker.cli.output import fail

app = typer.Typer(
    name="gristmill",
    help="Ingestion and fused search for retrieval, on Postgres.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (service, documents, query):
    module.register(app)


def main() -> None:
    """Entry point: errors of ours become one clear line and exit code 1, never a traceback."""
    try:
        app(standalone_mode=False)
    except GristmillError as error:
        fail(error, as_json="--json" in sys.argv[1:])
        sys.exit(1)
    except (KeyboardInterrupt, click.exceptions.Abort):
        sys.exit(130)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.exceptions.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(141)
