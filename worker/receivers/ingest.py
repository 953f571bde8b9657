"""`POST /ingest/file`, `/ingest/url` and `/ingest/text`: documents in."""

from __future__ import annotations

import mimetypes
from contextlib import ExitStack
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from worker.receivers.auth import Caller, require
from worker.receivers.body import json_field, read_model, validated
from worker.receivers.context import Context, Shared
from worker.receivers.fields import Filename, HttpUrl, Language, Metadata, Text, Uri, Wait, mend, safe_filename
from worker.receivers.idempotency import idempotency_of
from worker.receivers.intake import Accepted, Document, admit, spooled_document, take_in, url_document
from worker.receivers.multipart import Form, Upload, receive_form, receive_raw
from worker.receivers.problems import ProblemError

router = APIRouter(tags=["ingest"])

Ingester = Annotated[Caller, Depends(require("ingest"))]

CALLBACK = "Called, signed, when the document is done, failed or dead"


class SentText(BaseModel):
    """A text, and what is known of it; only `content` is needed."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"content": "The notice period is three months.", "uri": "hr:notice", "title": "Notice"}]
        },
    )

    content: Text = Field(min_length=1, description="The text; Markdown if `filename` ends in .md")
    uri: Uri | None = None
    filename: Filename | None = None
    title: Text | None = Field(None, max_length=1000, description="Shown in citations")
    metadata: Metadata | None = None
    language: Language | None = None
    wait: Wait = 0.0
    callback_url: HttpUrl | None = Field(None, description=CALLBACK)


class SentUrl(BaseModel):
    """An address to fetch, and what is known of it; only `url` is needed."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"url": "https://example.com/handbook"}]})

    url: HttpUrl
    uri: Uri | None = None
    metadata: Metadata | None = None
    language: Language | None = None
    wait: Wait = 0.0
    callback_url: HttpUrl | None = Field(None, description=CALLBACK)


class SentFiles(BaseModel):
    """What is known of the files of one request: fields of its form, or of its query."""

    model_config = ConfigDict(extra="forbid")

    uri: list[Annotated[Uri | None, BeforeValidator(lambda value: value or None)]] = Field(
        default_factory=list, description="One for each file, in their order; left out, a file is known by its content"
    )
    filename: Filename | None = Field(None, description="Of a file that is the body of the request")
    metadata: Metadata | None = None
    language: Language | None = None
    wait: Wait = 0.0
    callback_url: HttpUrl | None = Field(None, description=CALLBACK)


def _documented(model: type[BaseModel], *media_types: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in media_types}}}


RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"model": Accepted, "description": "With `wait`: every document is done, failed or dead"},
    202: {"model": Accepted, "description": "Noted; the documents become searchable soon"},
}

TOO_LARGE: dict[int | str, dict[str, Any]] = {413: {"description": "More bytes than GRISTMILL_MAX_BYTES allows"}}

_BINARY = {"type": "string", "format": "binary"}
_FILE: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/octet-stream": {"schema": _BINARY}}},
    "parameters": [
        {"name": name, "in": "query", "schema": schema}
        for name, schema in {
            "filename": {"type": "string", "examples": ["contract.pdf"]},
            "metadata": {"type": "string", "contentMediaType": "application/json"},
            "language": {"type": "string"},
            "wait": {"type": "number", "minimum": 0, "maximum": 300},
            "callback_url": {"type": "string", "format": "uri"},
        }.items()
    ],
}
_FORM = {
    "type": "object",
    "properties": {
        "file": _BINARY,
        "uri": {"type": "array", "items": {"type": "string"}, "description": "One for each file, in their order"},
        "metadata": {"type": "string", "contentMediaType": "application/json", "examples": ['{"year": 2026}']},
        "language": {"type": "string", "examples": ["french"]},
        "wait": {"type": "number", "minimum": 0, "maximum": 300},
        "callback_url": {"type": "string", "format": "uri"},
    },
    "required": ["file"],
}
_FILES: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": _FORM},
            "application/octet-stream": {"schema": _BINARY},
        },
    },
    "parameters": [{"name": "uri", "in": "query", "schema": {"type": "string"}}, *_FILE["parameters"]],
}


@router.post(
    "/ingest/text",
    status_code=202,
    summary="Send a text",
    response_model=Accepted,
    responses=RESPONSES,
    openapi_extra=_documented(SentText, "application/json", "application/x-www-form-urlencoded"),
)
async def ingest_text(request: Request, context: Shared, caller: Ingester) -> Response:
    """The same `uri` again is an update; the same content again changes nothing and says so."""
    await admit(context, caller)
    sent = await read_model(request, SentText)
    idempotency = idempotency_of(request, caller, sent.model_dump())
    document = await context.lanes.intake.run(_text_document, context, sent)
    return await take_in(
        request,
        context,
        caller,
        [document],
        wait=sent.wait,
        callback_url=sent.callback_url,
        idempotency=idempotency,
    )


@router.post(
    "/ingest/url",
    status_code=202,
    summary="Send the address of a web page or file",
    response_model=Accepted,
    responses=RESPONSES,
    openapi_extra=_documented(SentUrl, "application/json", "application/x-www-form-urlencoded"),
)
async def ingest_url(request: Request, context: Shared, caller: Ingester) -> Response:
    """A worker fetches it, from public addresses only. Sent again it is fetched again and compared."""
    await admit(context, caller)
    sent = await read_model(request, SentUrl)
    idempotency = idempotency_of(request, caller, sent.model_dump())
    document = url_document(sent.url, uri=sent.uri, metadata=sent.metadata, language=sent.language)
    return await take_in(
        request,
        context,
        caller,
        [document],
        wait=sent.wait,
        callback_url=sent.callback_url,
        idempotency=idempotency,
    )


@router.post(
    "/ingest/file",
    status_code=202,
    summary="Send files",
    response_model=Accepted,
    responses=RESPONSES | TOO_LARGE,
    openapi_extra=_FILES,
)
async def ingest_file(request: Request, context: Shared, caller: Ingester) -> Response:
    """A form with files under any names, or one file as the body itself.

    A form may also have the fields `uri` (one for each file), `metadata` (JSON), `language`, `wait` and
    `callback_url`; with a file as the body they stand in the query, and `filename` as well.
    """
    return await _ingest_files(request, context, caller)


@router.put(
    "/sources",
    status_code=202,
    summary="Send a file as the content of a uri",
    response_model=Accepted,
    responses=RESPONSES | TOO_LARGE,
    openapi_extra=_FILE,
)
async def put_source(request: Request, context: Shared, caller: Ingester, uri: Uri) -> Response:
    """The same as `/ingest/file` with a file as the body and its uri in the query."""
    return await _ingest_files(request, context, caller)


async def _ingest_files(request: Request, context: Context, caller: Caller) -> Response:
    await admit(context, caller)
    query: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        query.setdefault(name, []).append(value)
    with ExitStack() as stack:
        spool, limit = context.spool, context.settings.max_bytes
        if request.headers.get("content-type", "").split(";")[0].strip().lower() == "multipart/form-data":
            form = await receive_form(request, spool, stack, limit)
            sent = _sent_files(query | form.fields)
        else:
            sent = _sent_files(query)
            form = Form(uploads=[await receive_raw(request, _raw_name(request, sent), spool, stack, limit)])
        if not form.uploads:
            raise ProblemError(400, "no_file", "the form has no file", "give one of its fields a file name")
        if sent.uri and len(sent.uri) != len(form.uploads):
            raise ProblemError(
                422,
                "uris_do_not_fit",
                f"there are {len(form.uploads)} files and {len(sent.uri)} uris",
                "send one uri for each file, in their order, or none",
            )
        uris = sent.uri or [None] * len(form.uploads)
        documents = await context.lanes.intake.run(_file_documents, form.uploads, uris, sent)
    facts = [sent.model_dump(), [[one.location, one.filename] for one in documents]]
    return await take_in(
        request,
        context,
        caller,
        documents,
        wait=sent.wait,
        callback_url=sent.callback_url,
        idempotency=idempotency_of(request, caller, facts),
    )


def _sent_files(values: dict[str, list[str]]) -> SentFiles:
    """The fields as they are meant: blank ones count as left out, all but `uri` come once."""
    fields: dict[str, Any] = {}
    for name, given in values.items():
        if name == "uri":
            fields[name] = given if any(given) else []
        elif len(given) > 1:
            raise ProblemError(422, "invalid_request", f"{name[:100]}: given more than once", "give it once")
        elif given[0].strip():
            fields[name] = json_field(name, given[0]) if name == "metadata" else given[0]
    return validated(SentFiles, fields)


def _raw_name(request: Request, sent: SentFiles) -> str:
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    suffix = "" if kind == "application/octet-stream" else mimetypes.guess_extension(kind) or ""
    return safe_filename(sent.filename or "", "upload" + suffix)


def _file_documents(uploads: list[Upload], uris: list[str | None], sent: SentFiles) -> list[Document]:
    return [
        spooled_document(
            upload.keep(),
            kind="upload",
            filename=upload.filename,
            uri=uri,
            metadata=sent.metadata,
            language=sent.language,
        )
        for upload, uri in zip(uploads, uris, strict=True)
    ]


def _text_document(context: Context, sent: SentText) -> Document:
    metadata = sent.metadata
    if sent.title:
        metadata = {**(metadata or {}), "title": mend(sent.title)}
    name = safe_filename(sent.filename or sent.title or "text", "text")
    if not name.lower().endswith((".txt", ".md", ".markdown")):
        name += ".txt"
    spooled = context.spool.put(sent.content.encode(), name)
    return spooled_document(
        spooled, kind="text", filename=name, uri=sent.uri, metadata=metadata, language=sent.language
    )
