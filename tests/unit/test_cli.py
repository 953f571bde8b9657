"""The command itself: what it is made of, and what it loads."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from importlib.resources import files
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from worker.cli import COMMANDS, app


def test_every_module_of_commands_is_in_the_table_with_all_it_has() -> None:
    group: Any = typer.main.get_command(app)
    assert all(group.get_command(None, name) for name in COMMANDS)
    # A module brings all its commands, so that none of them is missing in the table.
    assert set(group.commands) == set(COMMANDS)
    modules = {path.name[:-3] for path in files("worker.cli").iterdir() if path.name.endswith(".py")}
    assert set(COMMANDS.values()) == modules - {"__init__", "__main__", "output"}


def test_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"gristmill {metadata.version('gristmill')}\n"


def test_a_mistyped_command_is_put_right() -> None:
    answer = CliRunner().invoke(app, ["statu"])
    assert answer.exit_code == 2
    assert "Did you mean 'status'?" in answer.output


@pytest.mark.parametrize(
    ("arguments", "spared"),
    [(["--version"], ("psycopg", "celery", "numpy")), (["doctor", "--help"], ("celery", "numpy", "httpx"))],
)
def test_a_command_loads_what_it_needs_and_no_more(arguments: list[str], spared: tuple[str, ...]) -> None:
    program = (
        "import sys; from worker.cli import main; sys.argv[1:] = " + repr(arguments) + "\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print('loaded:', [name for name in {spared!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "loaded: []"
