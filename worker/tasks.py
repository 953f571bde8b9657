"""The Celery tasks. Any Celery client can call `gristmill.ingest` and `gristmill.search` by name, with JSON."""

from __future__ import annotations

import os
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import psycopg
from celery import Celery, current_task, shared_task
from psycopg import Connection

from pipelines.embed import Embedder, open_embedder
from pipelines.search import Mode, Options, search
from worker.broker import OCR_QUEUE, OCR_TASK, SYNC_TASK, WAKE_TASK, Broker
from worker.connectors.registry import load_syncs
from worker.database import embedder_spec, open_database, open_ledger
from worker.ingest import Ingester
from worker.ocr import OcrWorker
from worker.places import file_uri
from worker.settings import Settings, load_settings
from worker.sync.syncer import Syncer
from worker.tenants import check_tenant

DRAIN_SECONDS = 60.0
SYNC_SECONDS = 86_400
"""Most that one message's syncs may take: the first run over a large wiki takes hours, at the pace it allows."""


@cache
def _settings() -> Settings:
    return load_settings()


@cache
def _embedder() -> Embedder:
    return open_embedder(embedder_spec(_settings()))


class _PerProcess:
    """What a pool process keeps between tasks. Made after the fork: a connection shared by two processes is poison."""

    def __init__(self, app: Celery) -> None:
        self.pid = os.getpid()
        self._broker = Broker(app)
        self._connection: Connection[Any] | None = None

    @cached_property
    def ingester(self) -> Ingester:
        def parked(ranges: int) -> None:
            self._broker.wake(min(ranges, _settings().ocr_processes), queue=OCR_QUEUE)

        return Ingester(_settings(), _embedder(), parked=parked)

    @cached_property
    def ocr_worker(self) -> OcrWorker:
        return OcrWorker(_settings(), released=self._broker.wake)

    @cached_property
    def syncer(self) -> Syncer:
        return Syncer(_settings(), load_syncs(_settings()), news=self._broker.wake)

    def connection(self) -> Connection[Any]:
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection = open_database(_settings(), application="gristmill tasks")
        return self._connection


_kept: _PerProcess | None = None


def _process() -> _PerProcess:
    global _kept  # noqa: PLW0603 - the one place where a process keeps its state
    if _kept is None or _kept.pid != os.getpid():
        _kept = _PerProcess(current_task.app)
    return _kept


@shared_task(name=WAKE_TASK)
def wake() -> int:
    """There is work: take due documents until none is left. Harmless at any time, in any number."""
    return _process().ingester.work(seconds=DRAIN_SECONDS)


@shared_task(name=OCR_TASK)
def ocr() -> int:
    """Pages wait for OCR: take due ranges until none is left. Harmless at any time, in any number."""
    return _process().ocr_worker.work(seconds=DRAIN_SECONDS)


@shared_task(name=SYNC_TASK, time_limit=SYNC_SECONDS)
def sync() -> int:
    """Syncs may be due: run them until none is. Harmless at any time, in any number."""
    return _process().syncer.work(seconds=DRAIN_SECONDS)


@shared_task(name="gristmill.ingest", bind=True, ignore_result=False)
def ingest(self: Any, path: str, metadata: dict[str, Any] | None = None, tenant: str | None = None) -> dict[str, Any]:
    """Index a file that the worker can read; again, if it has changed.

    Args:
        path: absolute path, or a `file:` uri.
        metadata: put on every chunk of it.
        tenant: whose it is; None: GRISTMILL_TENANT.

    Returns:
        `{"source_id", "version"}` of its ledger row, which says what became of it.
    """
    uri = path if path.startswith("file:") else file_uri(Path(path))
    ledger = open_ledger(_settings(), _process().connection(), None if tenant is None else check_tenant(tenant))
    recorded = ledger.record(uri, metadata=metadata, force=True)
    Broker(self.app).wake()
    return {"source_id": recorded.source_id, "version": recorded.version}


@shared_task(name="gristmill.search", ignore_result=False)
def search_task(query: str, k: int = 10, mode: Mode = "hybrid", **options: Any) -> list[dict[str, Any]]:
    """The `k` best passages for a question.

    Args:
        options: the other fields of `pipelines.search.Options`, as JSON; times in ISO 8601. Without `tenant` only
            documents of GRISTMILL_TENANT are found.

    Returns:
        JSON objects, best first: `id, uri, content, metadata, score, ranks, similarity, snippet`.
    """
    for name in ("since", "until"):
        if isinstance(options.get(name), str):
            options[name] = datetime.fromisoformat(options[name])
    tenant = options.pop("tenant", None)
    whose = _settings().tenant if tenant is None else check_tenant(tenant)
    wanted = Options(k=k, mode=mode, tenant=whose, **options)
    for attempt in (1, 2):
        try:
            return [hit.as_json() for hit in search(_process().connection(), query, _embedder(), wanted)]
        except psycopg.OperationalError:  # the server was restarted since the last question
            if attempt == 2:
                raise
    raise AssertionError("unreachable")
