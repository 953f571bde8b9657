"""Snapshots of released versions: an index of each, with data of every kind, as plain SQL.

`python -m tests.upgrade.snapshot 0.2.0` makes that of the checkout as it is at HEAD, and `--commit` of another commit.
The SQL has, beside the schema `public`, a schema `snapshot`: the files that go with the data, and the answers that the
version gave to some questions.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from pipelines.database import connect
from sql.ledger import FILE_NAME, Migration
from tests.upgrade.stock import QUESTIONS
from worker.embedded import start_services, stop_services
from worker.embedded.binaries import programs
from worker.embedded.places import account_of
from worker.settings import Settings

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
RELEASES = HERE / "releases.json"
PLACE = "/tmp/gristmill-snapshot"
"""Stands in the SQL for the folder that it was made in."""


@dataclass(frozen=True, slots=True)
class Release:
    """A released version: its commit, and the digest and the revision of every file of `sql/` that it came with."""

    version: str
    commit: str
    files: dict[str, tuple[str, int | None]]

    @property
    def snapshot(self) -> Path:
        """Its index as compressed SQL."""
        return HERE / f"{self.version}.sql.gz"


def releases() -> list[Release]:
    """All released versions that there is a snapshot of, oldest first."""
    found = json.loads(RELEASES.read_text())
    return [
        Release(version, one["commit"], {name: (file[0], file[1]) for name, file in one["files"].items()})
        for version, one in found.items()
    ]


def answers(connection: psycopg.Connection[Any]) -> dict[str, list[str]]:
    """What the index answers to some questions: the best five passages of each, with a vector and without."""
    found: dict[str, list[str]] = {}
    for question in QUESTIONS:
        for vector in (None, [float(place == len(question) % 8) for place in range(8)]):
            rows = connection.execute(
                "select content from search_documents(%s, %s::vector, 5)", (question, vector and str(vector))
            ).fetchall()
            found[question if vector is None else f"{question} (vector)"] = [row[0] for row in rows]
    return found


def restore(dsn: str, release: Release, place: Path) -> None:
    """Put a snapshot into an empty database that has the extensions, and its files under a folder."""
    script = gzip.decompress(release.snapshot.read_bytes()).decode().replace(PLACE, str(place))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select '[1]'::vector <=> '[2]'::vector")  # loads the library: functions set hnsw.*
        connection.execute(script.encode())
        for name, content in connection.execute("select name, content from snapshot.files").fetchall():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def source_tree(commit: str, folder: Path) -> None:
    """Unpack the code of a commit.

    Raises:
        subprocess.CalledProcessError: it is not in this clone.
        FileNotFoundError: there is no git.
    """
    done = subprocess.run(
        ["git", "-C", str(REPOSITORY), "archive", "--format=tar", commit], capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")


def dump(dsn: str, *options: str) -> str:
    """A database as SQL that any client can run."""
    command = [programs(account_of(os.geteuid())) / "pg_dump", dsn, "--no-owner", "--no-privileges", *options]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.sub(r"^(\\(un)?restrict .*|SET transaction_timeout .*)\n", "", text, flags=re.MULTILINE)


def make(version: str, commit: str) -> Path:
    """Make the snapshot of a version from the code of a commit, and enter it among the releases."""
    with tempfile.TemporaryDirectory(prefix="gm-") as name:
        place = Path(name)
        place.chmod(0o711)  # as root, Postgres runs as another user and has to get through
        code, stock, home = (place / part for part in ("code", "stock", "services"))
        stock.mkdir()
        source_tree(commit, code)
        settings = Settings(home=home)
        services = start_services(settings)
        try:
            environment = {**os.environ, "PYTHONPATH": str(code)}
            command = [sys.executable, str(HERE / "stock.py"), services.database_url, str(stock)]
            subprocess.run(command, env=environment, cwd=code, check=True)
            with connect(services.database_url) as connection:
                _keep(connection, stock)
            text = dump(services.database_url, "--schema=public", "--schema=snapshot", "--rows-per-insert=100")
        finally:
            stop_services(settings)
        text = text.replace(str(stock), PLACE)
        text = re.sub(r"^(CREATE SCHEMA public;|COMMENT ON SCHEMA public .*)\n", "", text, flags=re.MULTILINE)
        texts = {p.name: p.read_text("utf-8") for p in sorted((code / "sql").iterdir()) if FILE_NAME.match(p.name)}
    found: dict[str, Any] = json.loads(RELEASES.read_text()) if RELEASES.exists() else {}
    found[version] = {
        "commit": commit,
        "files": {name: [Migration(name, text).digest, Migration(name, text).revision] for name, text in texts.items()},
    }
    RELEASES.write_text(json.dumps(found, indent=1) + "\n")
    path = HERE / f"{version}.sql.gz"
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return path


def _keep(connection: psycopg.Connection[Any], stock: Path) -> None:
    connection.execute("create schema snapshot")
    connection.execute("create table snapshot.files (name text primary key, content bytea not null)")
    connection.execute("create table snapshot.answers (answers jsonb not null)")
    for path in sorted(stock.rglob("*")):
        if path.is_file():
            connection.execute(
                "insert into snapshot.files values (%s, %s)", (str(path.relative_to(stock)), path.read_bytes())
            )
    connection.execute("insert into snapshot.answers values (%s)", (Jsonb(answers(connection)),))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--commit", default="HEAD")
    given = parser.parse_args()
    head = subprocess.run(
        ["git", "-C", str(REPOSITORY), "rev-parse", given.commit], capture_output=True, text=True, check=True
    )
    made = make(given.version, head.stdout.strip())
    print(f"{made.relative_to(REPOSITORY)}: {made.stat().st_size / 1000:.0f} kB")
