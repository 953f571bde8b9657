"""From a document that was sent to its row in the ledger, and the answer that says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from psycopg import Connection
from pydantic import BaseModel, Field
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pipelines.errors import PermanentError, UnavailableError
from worker.addresses import parse_url
from worker.crash import crash_point
from worker.kept_out import CODE as KEPT_OUT
from worker.ledger import Ledger, content_fingerprint
from worker.receivers.auth import Caller
from worker.receivers.context import Context
from worker.receivers.idempotency import REPLAYED, Idempotency, Remembered, recall, remember, say_more
from worker.receivers.status import Queue
from worker.spool import Spooled

FIRST_POLL_SECONDS = 0.05
LONGEST_POLL_SECONDS = 0.5
WAITING = ("pending", "leased", "reading")


@dataclass(frozen=True, slots=True)
class Document:
    """A document on its way into the ledger: the arguments of `Ledger.record`."""

    uri: str
    kind: str
    fingerprint: str | None
    location: str
    filename: str | None
    metadata: Mapping[str, Any] | None
    language: str | None
    force: bool = False


class Taken(BaseModel):
    """What became of a document that was sent."""

    id: int = Field(examples=[42])
    uri: str = Field(examples=["crm:contract/4711"])
    version: int = Field(description="Raised by every change", examples=[1])
    unchanged: bool = Field(description="The same uri with the same content is in the index already")
    state: str = Field(description="pending, leased, reading, done, failed, dead or deleted", examples=["pending"])
    code: str | None = Field(None, description="If it failed: a stable name of the kind of failure")
    cause: str | None = Field(None, description="If it failed: why, in plain words")
    remedy: str | None = Field(None, description="If it failed: what to do about it")
    chunks: int | None = Field(None, description="How many passages it has, once done")
    status_url: str = Field(examples=["http://127.0.0.1:8765/sources/42"])


class Accepted(BaseModel):
    """The documents are in the ledger; none of them can get lost any more."""

    sources: list[Taken]
    status_url: str = Field(description="Where to look how far they are")
    queue: Queue | None = Field(default=None, description="Of a 202: what was due before them")


def spooled_document(
    spooled: Spooled,
    *,
    kind: str,
    filename: str,
    uri: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    language: str | None = None,
) -> Document:
    """A document whose bytes are in the spool; without a uri, it is known by its content.

    In that case its name does not count as a change: webhooks give the same file a new name each time.
    """
    name = filename if uri else PurePath(filename).suffix.lower()
    return Document(
        uri=uri or f"{kind}:sha256:{spooled.digest}",
        kind=kind,
        fingerprint=content_fingerprint(spooled.digest, metadata, name, language),
        location=spooled.name,
        filename=filename,
        metadata=metadata,
        language=language,
    )


def url_document(
    url: str,
    *,
    uri: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    language: str | None = None,
) -> Document:
    """A document that the worker fetches. Sent again it is fetched again: only the bytes tell whether it changed.

    Raises:
        PermanentError: the url makes no sense.
    """
    address = str(parse_url(url))
    return Document(
        uri=uri or address,
        kind="url",
        fingerprint=None,
        location=address,
        filename=None,
        metadata=metadata,
        language=language,
        force=True,
    )


async def admit(context: Context, caller: Caller | None = None) -> None:
    """Refuse a document while too many are due. Asked before its bytes are read.

    Raises:
        UnavailableError: `queue_full`.
        psycopg.OperationalError: the database is away.
    """
    if context.gauge.most_due is None:
        return
    try:
        await run_in_threadpool(context.gauge.admit)
    except UnavailableError as error:
        if caller is None or not caller.bound:
            raise
        # How much it is would tell of what others send.
        cause, remedy = "the workers are behind", "send it again after Retry-After"
        raise UnavailableError(error.code, cause, remedy, retry_after=error.retry_after) from error


async def take_in(
    request: Request,
    context: Context,
    caller: Caller,
    documents: Sequence[Document],
    *,
    wait: float = 0.0,
    callback_url: str | None = None,
    idempotency: Idempotency | None = None,
) -> Response:
    """Note documents in the caller's ledger, all or none, wake the workers and answer, after `wait` seconds at most.

    Raises:
        PermanentError: a language is not known; or `kept_out`: one of them was erased, and is not to come back.
        psycopg.OperationalError: the database is away; nothing was noted.
    """
    base = base_url(context, request)
    try:
        noted = await context.lanes.intake.run(_note, context, caller, documents, callback_url, idempotency, base)
    except PermanentError as error:
        if error.code == KEPT_OUT:
            await context.lanes.intake.run(_unspool, context, documents)
        raise
    if isinstance(noted, Remembered):
        return JSONResponse(noted.response, noted.status, {REPLAYED: "true"})
    crash_point("after_record")
    news = sum(not one.unchanged for one in noted.sources)
    count = min(news, context.settings.ingest_processes)
    if not wait:
        later = BackgroundTask(context.lanes.intake.run, _wake, context, count)
        return JSONResponse(noted.model_dump(exclude_none=True), 202, background=later)
    until = time.monotonic() + wait
    await context.lanes.intake.run(_wake, context, count)
    found, settled = await _settle(request, context, noted, until)
    if settled:
        found.queue = None
    body = found.model_dump(exclude_none=True)
    status = 200 if settled else 202
    if idempotency:
        await context.lanes.intake.run(_remember, context, idempotency, status, body)
    return JSONResponse(body, status)


def base_url(context: Context, request: Request) -> str:
    """How the caller reaches this service, without a slash at the end."""
    return (context.settings.public_url or str(request.base_url)).rstrip("/")


def check_language(connection: Connection[Any], language: str | None) -> None:
    """Refuse a language that this Postgres has no text search configuration for.

    Raises:
        PermanentError: naming it.
    """
    if language is None:
        return
    if connection.execute("select from pg_ts_config where cfgname = %s", (language,)).fetchone() is None:
        raise PermanentError(
            "unknown_language",
            f"a language is not known: {language}",
            "leave it out, or name a text search configuration: select cfgname from pg_ts_config",
        )


def _note(
    context: Context,
    caller: Caller,
    documents: Sequence[Document],
    callback_url: str | None,
    idempotency: Idempotency | None,
    base: str,
) -> Accepted | Remembered:
    queue = (
        None if caller.bound else Queue.of(context.gauge.backlog())
    )  # on a connection of its own, so not while we have one
    with context.connection() as connection:
        with connection.transaction():
            if idempotency and (remembered := recall(connection, idempotency)):
                return remembered
            answer = note(context, connection, caller.tenant, documents, base, callback_url=callback_url)
            answer.queue = queue
            if idempotency:
                remember(connection, idempotency, 202, answer.model_dump(exclude_none=True))
        context.sent.note(connection, [one.id for one in answer.sources])
    return answer


def note(
    context: Context,
    connection: Connection[Any],
    tenant: str,
    documents: Sequence[Document],
    base: str,
    *,
    callback_url: str | None = None,
) -> Accepted:
    """Note documents of a tenant in the ledger, within the caller's transaction.

    Args:
        base: how others reach this service, for `status_url`.

    Raises:
        PermanentError: a language is not known.
    """
    for language in {one.language for one in documents}:
        check_language(connection, language)
    # In one order for everybody, so that two requests never wait for each other.
    ledger = context.ledger(connection, tenant)
    order = sorted(range(len(documents)), key=lambda index: documents[index].uri)
    unchanged: dict[int, bool] = {}
    ids = [0] * len(documents)
    for index in order:
        ids[index], changed = _record(ledger, documents[index], callback_url)
        unchanged[ids[index]] = unchanged.get(ids[index], True) and not changed
    return _accepted(connection, list(dict.fromkeys(ids)), unchanged, base)


def _record(ledger: Ledger, document: Document, callback_url: str | None) -> tuple[int, bool]:
    recorded = ledger.record(
        document.uri,
        kind=document.kind,
        fingerprint=document.fingerprint,
        metadata=document.metadata,
        location=document.location,
        filename=document.filename,
        language=document.language,
        force=document.force,
    )
    # Whoever sends again what failed wants it tried again.
    changed = recorded.changed or bool(ledger.retry([recorded.source_id]))
    if callback_url:
        ledger.connection.execute(
            "insert into callbacks as c (source_id, version, url)"
            " select id, version, %s from sources where id = %s"
            " on conflict (source_id, version, url) do update"
            " set attempts = 0, next_at = now(), delivered_at = null, error = null",
            (callback_url, recorded.source_id),
        )
    return recorded.source_id, changed


def _accepted(connection: Connection[Any], ids: Sequence[int], unchanged: Mapping[int, bool], base: str) -> Accepted:
    rows = connection.execute(
        "select id, uri, version, state, error_code, error_cause, error_remedy,"
        " case when state = 'done' then chunks end from sources where id = any(%s)",
        (list(ids),),
    ).fetchall()
    found = {
        row[0]: Taken(
            id=row[0],
            uri=row[1],
            version=row[2],
            unchanged=unchanged[row[0]],
            state=row[3],
            code=row[4],
            cause=row[5],
            remedy=row[6],
            chunks=row[7],
            status_url=f"{base}/sources/{row[0]}",
        )
        for row in rows
    }
    taken = [found[one] for one in ids if one in found]
    if len(ids) == 1:
        return Accepted(sources=taken, status_url=f"{base}/sources/{ids[0]}")
    return Accepted(sources=taken, status_url=f"{base}/sources?" + "&".join(f"id={one}" for one in ids))


def _read(context: Context, noted: Accepted, base: str) -> Accepted:
    with context.connection() as connection:
        unchanged = {one.id: one.unchanged for one in noted.sources}
        answer = _accepted(connection, list(unchanged), unchanged, base)
    answer.queue = noted.queue
    return answer


def _remember(context: Context, idempotency: Idempotency, status: int, body: dict[str, Any]) -> None:
    with context.connection() as connection:
        say_more(connection, idempotency, status, body)


def _unspool(context: Context, documents: Sequence[Document]) -> None:
    """Remove the bytes of what was refused, which nobody else names."""
    names = [one.location for one in documents if one.kind != "url"]
    with context.connection() as connection:
        context.spool.drop(connection, names, before=time.time())


def _wake(context: Context, count: int) -> None:
    if count:
        context.broker.wake(count)
        crash_point("after_publish")


async def _settle(request: Request, context: Context, noted: Accepted, until: float) -> tuple[Accepted, bool]:
    """Look until no document is on its way any more (True) or the time is up; no thread is held meanwhile."""
    pause = FIRST_POLL_SECONDS
    base = base_url(context, request)
    while True:
        noted = await context.lanes.intake.run(_read, context, noted, base)
        settled = not any(one.state in WAITING for one in noted.sources)
        left = until - time.monotonic()
        if settled or left <= 0 or await request.is_disconnected():
            return noted, settled
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 1.5, LONGEST_POLL_SECONDS)
