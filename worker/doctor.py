"""What Gristmill needs, looked at one by one, each with the remedy where it is missing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg

from pipelines.embed import open_embedder
from pipelines.errors import GristmillError
from pipelines.search import check_model
from sql.migrate import ahead, pending
from worker.app import connect_app
from worker.backlog import measure_backlog
from worker.broker import Broker
from worker.connectors.contract import Surroundings
from worker.connectors.registry import load_syncs, open_connector
from worker.database import embedder_spec, open_database
from worker.embedded import find_services
from worker.mark import REMEDY, restored
from worker.receivers.handshake import token_file
from worker.receivers.receiver import load_receivers
from worker.remote_spool import open_remote_spool
from worker.settings import Settings
from worker.spool import CACHE

DISK_NEEDED = 2 * 2**30
BEHIND_SECONDS = 300.0
"""A document that has been due for longer is worth a note."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: `ok` is True, False, or None for a note that stops nothing."""

    name: str
    ok: bool | None
    found: str
    remedy: str = ""

    def as_json(self) -> dict[str, Any]:
        """The check as plain JSON types."""
        return asdict(self)


def examine(settings: Settings, *, quick: bool = False) -> list[Check]:
    """Look at everything. A check that fails never stops those after it.

    Args:
        quick: leave out the embedding model, which takes seconds to load, and a spool that is not on this machine.
    """
    parts: list[Callable[[Settings], Iterator[Check]]] = [_machine, _tesseract, _services, _folders, _syncs, _webhooks]
    if not quick:
        parts += [_spool, _model]
    checks: list[Check] = []
    for part in parts:
        try:
            checks.extend(part(settings))
        except GristmillError as error:
            checks.append(Check(part.__name__.strip("_"), False, error.cause, error.remedy))
    return checks


def _machine(settings: Settings) -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check("python", (3, 11) <= sys.version_info[:2] <= (3, 14), version, "use Python 3.11 to 3.14")
    place = next(p for p in (settings.home, *settings.home.parents) if p.exists())
    free = shutil.disk_usage(place).free
    yield Check("disk", free >= DISK_NEEDED, f"{free / 2**30:.1f} GiB free at {place}", "free 2 GiB or move the home")
    yield Check("home", os.access(place, os.W_OK), str(settings.home), f"make {place} writable, or set GRISTMILL_HOME")


def _tesseract(settings: Settings) -> Iterator[Check]:
    command = "apt-get install tesseract-ocr tesseract-ocr-fra tesseract-ocr-osd (macOS: brew install tesseract-lang)"
    if shutil.which("tesseract") is None:
        yield Check("tesseract", False, "not installed: scans and images cannot be read", command)
        return
    import pytesseract

    languages = set(pytesseract.get_languages())
    yield Check("tesseract", True, str(pytesseract.get_tesseract_version()))
    wanted = set(settings.ocr_languages.split("+"))
    lacking = ", ".join(sorted(wanted - languages))
    yield Check(
        "tesseract languages",
        not lacking,
        f"lacking {lacking}" if lacking else ", ".join(sorted(languages)),
        command if lacking else "",
    )


def _services(settings: Settings) -> Iterator[Check]:
    services = find_services(settings)
    with open_database(settings, services, application="gristmill doctor") as connection:
        row = connection.execute(
            "select current_setting('server_version'),"
            " (select extversion from pg_extension where extname = 'vector'),"
            " (select extversion from pg_extension where extname = 'unaccent')"
        ).fetchone()
        assert row is not None
        yield Check("postgres", True, row[0])
        vector = tuple(int(part) for part in (row[1] or "0").split(".")[:3])
        # Before 0.8.4 a vacuum beside inserts could leave the HNSW graph damaged.
        good = None if (0, 8) <= vector < (0, 8, 4) else vector >= (0, 8)
        yield Check("pgvector", good, row[1] or "missing", "" if good else "update pgvector to 0.8.4 or newer")
        yield Check("unaccent", row[2] is not None, row[2] or "missing", "" if row[2] else "create extension unaccent")
        try:
            left = [migration.name for migration in pending(connection)]
            newer = [] if left else ahead(connection)
        except psycopg.Error as error:
            left, newer = [str(error)], []
        if newer:
            found = f"newer than this version, which can live with it: {', '.join(newer)}"
            yield Check("schema", None, found, "upgrade gristmill on this machine too")
        else:
            yield Check("schema", not left, ", ".join(left) or "up to date", "gristmill migrate" if left else "")
        if not left:
            backlog = measure_backlog(connection)
            late = (backlog.oldest_due_seconds or 0) > BEHIND_SECONDS
            remedy = "see whether `gristmill status` tells of a pause; else wait, or raise GRISTMILL_INGEST_CONCURRENCY"
            yield Check("queue", None if late else True, str(backlog), remedy if late else "")
            behind = restored(connection, settings.home)
            yield Check("history", not behind, behind or "as this home has seen it", REMEDY if behind else "")
    waiting = Broker(connect_app(settings, services)).waiting()
    yield Check(
        "broker",
        waiting is not None,
        "does not answer" if waiting is None else f"answers, {waiting} wake-ups waiting",
        "check GRISTMILL_BROKER_URL; documents wait in the ledger meanwhile" if waiting is None else "",
    )


def _spool(settings: Settings) -> Iterator[Check]:
    if settings.spool_url is not None:
        open_remote_spool(settings.spool_url, settings.s3_endpoint_url, settings.home / "spool" / CACHE).check()
        yield Check("spool", True, settings.spool_url)


def _model(settings: Settings) -> Iterator[Check]:
    embedder = open_embedder(embedder_spec(settings))
    size = embedder.embed_query("doctor").shape[0]
    yield Check("embedding model", True, f"{embedder.model}, {size} dimensions")
    with open_database(settings, application="gristmill doctor") as connection:
        check_model(connection, embedder)
    yield Check("index model", True, "the same")


def _folders(settings: Settings) -> Iterator[Check]:
    for folder in settings.watch:
        readable = folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)
        yield Check("folder", readable, str(folder), "" if readable else f"create {folder} and make it readable")
    limit = Path("/proc/sys/fs/inotify/max_user_watches")
    if settings.watch and limit.exists():
        count = int(limit.read_text())
        yield Check(
            "inotify",
            None if count < 8192 else True,
            f"{count} watches",
            "sysctl fs.inotify.max_user_watches",
        )


def _syncs(settings: Settings) -> Iterator[Check]:
    """Each is opened, which shows what is wrong with its settings and asks nothing of anybody."""
    syncs = load_syncs(settings)
    wrong = False
    for name, config in syncs.items():
        try:
            open_connector(config, Surroundings(settings)).close()
        except GristmillError as error:
            wrong = True
            yield Check(f"sync {name}", False, error.cause, error.remedy)
    if syncs and not wrong:
        yield Check("syncs", True, ", ".join(f"{name} ({config.type})" for name, config in syncs.items()))


def _webhooks(settings: Settings) -> Iterator[Check]:
    for name, receiver in load_receivers(settings).items():
        if receiver.secret is None:
            path = token_file(settings, name)
            found, remedy = f"waits for Notion's handshake at /webhooks/{name}", "make the subscription in Notion"
            if path.is_file():
                found, remedy = f"Notion's token is in {path}", "confirm it in Notion, then set it as the secret"
            yield Check(f"webhook {name}", None, found, remedy)
