"""`/sources`: how far documents are, and taking them out again."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Annotated, Any, Literal

import psycopg
from fastapi import APIRouter, BackgroundTasks, Depends, Path, Query
from psycopg import Connection
from psycopg.rows import class_row
from pydantic import BaseModel, Field

from pipelines.errors import GristmillError
from worker.database import open_database
from worker.erase import Eraser, finish
from worker.receivers.auth import Caller, require
from worker.receivers.context import Context, Shared
from worker.receivers.fields import MOST_ID
from worker.receivers.problems import ProblemError
from worker.sent import deleted

log = logging.getLogger(__name__)

router = APIRouter(tags=["sources"])

State = Literal["pending", "leased", "reading", "done", "failed", "dead", "deleted"]

Reader = Annotated[Caller, Depends(require("ingest"))]
SourceId = Annotated[int, Path(ge=1, le=MOST_ID, examples=[42])]
Erase = Annotated[bool, Query(description="Forget it for good, see Erasing; needs a key with scope admin")]
KeepOut = Annotated[bool, Query(description="With `erase`: never take it up again")]
WantedUri = Annotated[str, Query(min_length=1, max_length=2048, pattern=r"^[^\x00]*$", examples=["crm:contract/4711"])]

COLUMNS = (
    "id, uri, kind, parent_id, state, version, error_code as code, error_cause as cause, error_remedy as remedy,"
    " attempts, filename, title, mime, metadata, pages, pages_done, chunks, created_at, event_at, updated_at, next_at,"
    " searchable_at"
)
NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"description": "There is no such document"}}
GONE = NOT_FOUND | {409: {"description": "Erased, it would come back: it still exists where it came from"}}


class Source(BaseModel):
    """A document as the ledger knows it."""

    id: int = Field(examples=[42])
    uri: str = Field(examples=["crm:contract/4711"])
    kind: str = Field(
        description="file, upload, text, url, synced, attachment (found inside another) or enclosure (a file of a page)"
    )
    parent_id: int | None = Field(description="Of an attachment: the document it was found inside of")
    state: State = Field(
        description="reading: its pages are with the OCR workers; failed: these bytes cannot be read;"
        " dead: given up after several attempts"
    )
    version: int = Field(description="Raised by every change")
    code: str | None = Field(description="Of the last error: a stable name")
    cause: str | None = Field(description="Of the last error: why, in plain words")
    remedy: str | None = Field(description="Of the last error: what to do about it")
    attempts: int
    filename: str | None
    title: str | None
    mime: str | None
    metadata: dict[str, Any]
    pages: int | None
    pages_done: int | None = Field(description="Progress, while it is leased or reading: of all workers together")
    chunks: int | None = Field(description="How many passages are in the index")
    created_at: datetime
    event_at: datetime = Field(description="When the last change arrived")
    updated_at: datetime
    next_at: datetime = Field(description="Not worked on before this time")
    searchable_at: datetime | None = Field(description="When the content last became searchable")


class Sources(BaseModel):
    """Documents, newest first."""

    sources: list[Source]
    next: int | None = Field(description="Give it as `after` to get the next page; null on the last")


class Page(BaseModel):
    """What was done with one page, and why."""

    number: int = Field(description="1-based", examples=[1])
    decision: Literal["text", "ocr", "blank", "failed"] = Field(
        description="Text layer, OCR, or failed: it could not be looked at"
    )
    reason: str = Field(description="The rule that decided; of a failed page, what went wrong", examples=["no-text"])
    confidence: float | None = Field(None, description="Mean OCR word confidence, 0 to 100; null without OCR")
    rotation: int = Field(0, description="Degrees, clockwise, by which OCR turned the page")
    languages: str = Field("", description="Tesseract codes it was read with; empty without OCR")
    warning: str = Field("", description="What a reader of the text should know, if anything")
    problem: str = Field("", description="Why nothing of what OCR read could be used; its text layer is kept")

    @property
    def unread(self) -> bool:
        """Whether there is, or may be, something on it that could not be read."""
        return self.decision == "failed" or bool(self.problem)


class Pages(BaseModel):
    """The pages of a document as it is indexed."""

    id: int = Field(examples=[42])
    pages: list[Page] = Field(description="Empty for formats without pages, and until it was read once")


class Deleted(BaseModel):
    """A document that is out of the index."""

    deleted: int = Field(examples=[42])
    uri: str


class Erased(BaseModel):
    """That a document was erased, and how much; not what."""

    receipt: int = Field(examples=[7])
    erased_at: datetime
    who: str = Field(examples=["key:crm"])
    hash: str = Field(description="Of its uri, with the salt of this installation, in hex")
    kept_out: bool
    counts: dict[str, int] = Field(description="Rows by table, and files of the spool")
    bytes: int = Field(description="Of its text and of its files in the spool")


class Retried(BaseModel):
    """Documents that will be tried again."""

    retried: list[int] = Field(examples=[[42]])


@router.get("/sources", summary="List documents")
def list_sources(
    context: Shared,
    caller: Reader,
    state: Annotated[State | None, Query(description="Only in this state")] = None,
    uri: WantedUri | None = None,
    id: Annotated[list[Annotated[int, Field(ge=1, le=MOST_ID)]] | None, Query(max_length=1000)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: Annotated[int | None, Query(ge=1, le=MOST_ID, description="`next` of the page before")] = None,
) -> Sources:
    """Newest first, in pages."""
    with context.connection() as connection, connection.cursor(row_factory=class_row(Source)) as cursor:
        rows = cursor.execute(
            f"select {COLUMNS} from sources where tenant = %(tenant)s"
            " and (%(state)s::text is null or state = %(state)s) and (%(uri)s::text is null or uri = %(uri)s)"
            " and (%(ids)s::bigint[] is null or id = any(%(ids)s)) and (%(after)s::bigint is null or id < %(after)s)"
            " order by id desc limit %(limit)s",
            {
                "tenant": caller.tenant,
                "state": state,
                "uri": uri,
                "ids": id,
                "after": after,
                "limit": limit + 1,
            },
        ).fetchall()
    more = len(rows) > limit
    return Sources(sources=rows[:limit], next=rows[limit - 1].id if more else None)


@router.get("/sources/{id}", summary="How far a document is", responses=NOT_FOUND)
def read_source(context: Shared, caller: Reader, id: SourceId) -> Source:
    """State, cause and remedy of a failure, and progress in pages."""
    with context.connection() as connection:
        return _source(connection, caller.tenant, id)


@router.get("/sources/{id}/pages", summary="How each page of a document was read", responses=NOT_FOUND)
def read_pages(
    context: Shared,
    caller: Reader,
    id: SourceId,
    decision: Annotated[
        Literal["text", "ocr", "blank", "failed"] | None, Query(description="Only pages of this decision")
    ] = None,
    unread: Annotated[bool, Query(description="Only pages that failed or have a problem")] = False,
) -> Pages:
    """What was done page by page when it was last indexed: text layer or OCR, why, and how sure OCR was."""
    with context.connection() as connection:
        row = connection.execute(
            "select coalesce(report->'pages', '[]') from sources where tenant = %s and id = %s",
            (caller.tenant, id),
        ).fetchone()
    if row is None:
        raise _unknown(f"id {id}")
    pages = [Page.model_validate(page) for page in row[0]]
    return Pages(id=id, pages=[page for page in pages if decision in (None, page.decision) and page.unread >= unread])


@router.delete("/sources/{id}", summary="Take a document out of the index, or erase it for good", responses=GONE)
def delete_source(
    context: Shared,
    caller: Reader,
    background: BackgroundTasks,
    id: SourceId,
    erase: Erase = False,
    keep_out: KeepOut = False,
) -> Deleted | Erased:
    """Its passages are gone from the next search on, whatever a worker is doing with it."""
    with context.connection() as connection:
        source = _source(connection, caller.tenant, id)
        if erase:
            return _erase(context, connection, caller, background, source, keep_out=keep_out)
        return _delete(context, connection, caller.tenant, source)


@router.delete("/sources", summary="Take the document of a uri out of the index, or erase it for good", responses=GONE)
def delete_uri(
    context: Shared,
    caller: Reader,
    background: BackgroundTasks,
    uri: WantedUri,
    erase: Erase = False,
    keep_out: KeepOut = False,
) -> Deleted | Erased:
    """The same by uri."""
    with context.connection() as connection:
        row = connection.execute(
            "select id from sources where tenant = %s and uri = %s", (caller.tenant, uri)
        ).fetchone()
        if row is None:
            raise _unknown(f"uri {uri}")
        source = _source(connection, caller.tenant, row[0])
        if erase:
            return _erase(context, connection, caller, background, source, keep_out=keep_out)
        return _delete(context, connection, caller.tenant, source)


@router.post("/sources/retry", status_code=202, summary="Try all failed documents again")
def retry_sources(
    context: Shared,
    caller: Reader,
    state: Annotated[Literal["failed", "dead"] | None, Query(description="Only those; left out, both")] = None,
) -> Retried:
    """All of this tenant that are failed or dead, once the cause is mended."""
    with context.connection() as connection:
        ids = None
        if state:
            rows = connection.execute(
                "select id from sources where tenant = %s and state = %s", (caller.tenant, state)
            ).fetchall()
            ids = [row[0] for row in rows]
        again = context.ledger(connection, caller.tenant).retry(ids)
    _wake(context, len(again))
    return Retried(retried=sorted(again))


@router.post(
    "/sources/{id}/retry",
    status_code=202,
    summary="Try a failed document again",
    responses=NOT_FOUND | {409: {"description": "It has not failed"}},
)
def retry_source(context: Shared, caller: Reader, id: SourceId) -> Retried:
    """A fresh start for one document that is failed or dead."""
    with context.connection() as connection:
        again = context.ledger(connection, caller.tenant).retry([id])
        if not again:
            state = _source(connection, caller.tenant, id).state
            raise ProblemError(409, "not_failed", f"the document {id} is {state}", "only failed and dead ones need it")
    _wake(context, 1)
    return Retried(retried=again)


def _source(connection: Connection[Any], tenant: str, id: int) -> Source:
    with connection.cursor(row_factory=class_row(Source)) as cursor:
        found = cursor.execute(f"select {COLUMNS} from sources where tenant = %s and id = %s", (tenant, id)).fetchone()
    if found is None:
        raise _unknown(f"id {id}")
    return found


def _delete(context: Context, connection: Connection[Any], tenant: str, source: Source) -> Deleted:
    if not context.ledger(connection, tenant).delete(source.uri):
        raise _unknown(f"uri {source.uri}")
    deleted(connection, context.settings.home, tenant, [source.uri], "http")
    return Deleted(deleted=source.id, uri=source.uri)


def _erase(
    context: Context,
    connection: Connection[Any],
    caller: Caller,
    background: BackgroundTasks,
    source: Source,
    *,
    keep_out: bool,
) -> Erased:
    if not caller.admin:
        raise ProblemError(
            403, "scope_missing", "erasing needs the scope admin", "make another key: gristmill keys add NAME"
        )
    who = f"key:{caller.name}" if caller.name else "http"
    eraser = Eraser(context.settings, connection, tenant=caller.tenant, who=who)
    receipt = eraser.erase([source.uri], keep_out=keep_out)[0]
    background.add_task(_finish, context)
    return Erased(
        receipt=receipt.id, **{name: getattr(receipt, name) for name in Erased.model_fields if name != "receipt"}
    )


def _finish(context: Context) -> None:
    """What may take as long as a vacuum does; housekeeping does it where we end before."""
    try:
        with open_database(context.settings, context.services, application="gristmill erase") as connection:
            finish(connection)
    except (GristmillError, psycopg.Error) as error:
        log.warning("an erasure is finished later: %s", error)


def _unknown(what: str) -> ProblemError:
    return ProblemError(404, "unknown_source", f"no document has the {what}", "GET /sources lists those there are")


def _wake(context: Context, count: int) -> None:
    if count:
        context.broker.wake(min(count, context.settings.ingest_processes))
