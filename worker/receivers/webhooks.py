"""`POST /webhooks/{name}`: deliveries of other programs, by the receivers that the settings name.

What is verified is looked up in the ledger of deliveries in the very transaction that records the document, so a
delivery is done once or, when we fail, not at all. The same delivery again is refused (409). The same id signed anew
is the sender trying again because it missed our answer: it is acknowledged, and nothing is done (200). A push to a sync
is acknowledged either way: a wake-up more does no harm.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, FastAPI
from psycopg import Connection
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pipelines.errors import PermanentError
from worker.addresses import parse_url
from worker.broker import SYNC_QUEUE
from worker.receivers.body import read_json, too_large
from worker.receivers.context import Context, Shared
from worker.receivers.fields import Filename, Language, Metadata, Text, Uri, safe_filename
from worker.receivers.handshake import handshake_token, keep_token
from worker.receivers.intake import (
    Accepted,
    Document,
    base_url,
    note,
    spooled_document,
    url_document,
)
from worker.receivers.json_path import MISSING, JsonPath
from worker.receivers.problems import ProblemError
from worker.receivers.receiver import Receiver, load_receivers, value_of
from worker.receivers.signatures import Proof, RefusedError, verify
from worker.receivers.status import Queue
from worker.sent import deleted
from worker.settings import Settings

log = logging.getLogger(__name__)

router = APIRouter(tags=["webhooks"])

MAX_URI_BYTES = 2_048

_URI: TypeAdapter[str] = TypeAdapter(Uri)
_TEXT: TypeAdapter[str] = TypeAdapter(Text)
_FILENAME: TypeAdapter[str] = TypeAdapter(Filename)
_LANGUAGE: TypeAdapter[str] = TypeAdapter(Language)
_METADATA: TypeAdapter[dict[str, Any]] = TypeAdapter(Metadata)
_NOTION_ID = JsonPath.parse("$.id")

REMEMBER = """
insert into webhook_deliveries (receiver, delivery) select %s, unnest(%s::text[])
on conflict do nothing returning delivery
"""


class Pushed(BaseModel):
    """The delivery told of documents of a sync, which are visited soon."""

    sync: str = Field(examples=["notion"])
    documents: int = Field(description="How many it told of", examples=[1])


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a delivery asks for whose document is gone."""

    uri: str


def install(app: FastAPI, settings: Settings) -> None:
    """Serve the receivers of the settings.

    Raises:
        ConfigurationError: one of them is set up wrongly.
    """
    app.state.webhooks = load_receivers(settings)
    app.include_router(router)


@router.post(
    "/webhooks/{name}",
    status_code=202,
    summary="Take a delivery of a named receiver",
    response_model=Accepted,
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": {}}}}},
    responses={
        200: {"description": "Known already, ignored or a deletion: nothing is to be indexed"},
        202: {"model": Accepted | Pushed, "description": "Noted; the document becomes searchable soon"},
        400: {"description": "Verified, but not of the form that the receiver is set up for"},
        401: {"description": "Not signed as it must be, or too long ago"},
        404: {"description": "There is no such receiver"},
        409: {"description": "This very delivery came before"},
        413: {"description": "The delivery is too large"},
    },
)
async def deliver(name: str, request: Request, context: Shared) -> Response:
    """The receiver's own secret or signature is asked for, not an API key."""
    receivers: dict[str, Receiver] = request.app.state.webhooks
    receiver = receivers.get(name)
    if receiver is None:
        raise ProblemError(404, "unknown_webhook", "there is no such webhook", "name one of GRISTMILL_WEBHOOKS")
    body = await _read(request, receiver.max_bytes)
    headers = dict(request.headers)
    return await context.lanes.intake.run(_deliver, context, name, receiver, headers, body, base_url(context, request))


async def _read(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:18]) > limit:
        raise too_large(limit)
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise too_large(limit)
    return bytes(body)


def _deliver(
    context: Context, name: str, receiver: Receiver, headers: dict[str, str], body: bytes, base: str
) -> Response:
    if receiver.auth == "notion" and (token := handshake_token(body)):
        if receiver.secret is None:
            keep_token(context.settings, name, token)
        else:
            log.warning("webhook %s: a handshake came though its secret is set; nothing was changed", name)
        return JSONResponse({"verified": True})
    try:
        if receiver.secret is None:
            raise RefusedError("no secret is set yet")
        proof = verify(receiver.auth, receiver.secret.get_secret_value(), headers, body, header=receiver.header)
    except RefusedError as error:
        log.warning("webhook %s: a delivery was refused: %s", name, error)
        challenge = "Bearer" if receiver.auth == "bearer" else "Webhook"
        raise ProblemError(
            401,
            "webhook_refused",
            "the delivery is not signed as this webhook demands",
            "compare secret and form of signature on both sides, and both clocks",
            headers={"WWW-Authenticate": challenge},
        ) from error
    if receiver.auth == "github" and headers.get("x-github-event") == "ping":
        return JSONResponse({"ignored": "ping"})
    payload = read_json(body)
    if receiver.when and not receiver.when.holds(payload):
        return JSONResponse({"ignored": str(receiver.when.path)})
    if receiver.sync is not None:
        return _push(context, name, receiver.sync, _named(receiver, proof, payload, body), payload)
    wanted = _wanted(context, receiver, payload)
    tenant = receiver.tenant or context.settings.tenant
    return _note(context, tenant, name, _named(receiver, proof, payload, body), wanted, base)


# --- what the delivery says --------------------------------------------------------------------------------------


def _wanted(context: Context, receiver: Receiver, payload: Any) -> Document | Deletion:
    uri = None
    if receiver.uri:
        uri = _uri(receiver.uri.find(payload), str(receiver.uri))
    if receiver.delete_when and receiver.delete_when.holds(payload):
        return Deletion(uri or _url(receiver, payload))
    context.gauge.admit()  # after deletions, which never wait, and before anything is kept
    values = {**receiver.metadata, "title": receiver.title or receiver.metadata.get("title")}
    found = {key: value_of(value, payload) for key, value in values.items()}
    metadata = _checked(_METADATA, {key: value for key, value in found.items() if value is not None}, "metadata")
    if not isinstance(metadata.get("title", ""), str):
        raise _bad("title: it is not text")
    language = value_of(receiver.language, payload)
    language = None if language is None else _checked(_LANGUAGE, language, "language")
    if receiver.kind == "url":
        return url_document(_url(receiver, payload), uri=uri, metadata=metadata, language=language)
    content = _string(receiver, payload)
    filename = value_of(receiver.filename, payload)
    if receiver.kind == "text":
        data = _checked(_TEXT, content, "text").encode()
        name = safe_filename(_checked(_FILENAME, filename or "text.txt", "filename"), "text.txt")
    else:
        data = _decoded(content)
        name = safe_filename(_checked(_FILENAME, filename or "upload", "filename"))
    if not data.strip():
        raise _bad(f"what is at {receiver.content} is empty")
    return spooled_document(
        context.spool.put(data, name),
        kind="text" if receiver.kind == "text" else "upload",
        filename=name,
        uri=uri,
        metadata=metadata,
        language=language,
    )


def _string(receiver: Receiver, payload: Any) -> str:
    found = receiver.content.find(payload)
    if not isinstance(found, str):
        raise _bad(f"there is no text at {receiver.content}")
    return found


def _url(receiver: Receiver, payload: Any) -> str:
    try:
        return str(parse_url(_string(receiver, payload)))
    except PermanentError as error:
        raise _bad(f"what is at {receiver.content} cannot be fetched: {error.cause}") from error


def _uri(found: Any, path: str) -> str:
    if isinstance(found, int) and not isinstance(found, bool):
        found = str(found) if found.bit_length() <= 64 else MISSING
    if not isinstance(found, str):
        raise _bad(f"there is no text or number at {path}")
    uri: str = _checked(_URI, found, "uri")
    try:
        if len(uri.encode()) <= MAX_URI_BYTES:
            return uri
    except UnicodeEncodeError as error:
        raise _bad("uri: it contains half a character") from error
    raise _bad(f"uri: it has more than {MAX_URI_BYTES:,} bytes")


def _decoded(text: str) -> bytes:
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _bad("file: it is not Base64") from error


def _checked(adapter: TypeAdapter[Any], value: Any, field: str) -> Any:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        said = error.errors(include_input=False, include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise _bad(f"{field}: {said}") from error


def _bad(detail: str) -> ProblemError:
    return ProblemError(400, "bad_delivery", detail, "compare the delivery with the paths in GRISTMILL_WEBHOOKS")


# --- what becomes of it ------------------------------------------------------------------------------------------


def _named(receiver: Receiver, proof: Proof, payload: Any, body: bytes) -> Proof:
    """The proof, with the id that the payload gives where no header does. Notion's events have theirs in one place."""
    path = receiver.delivery or (_NOTION_ID if receiver.auth == "notion" else None)
    if proof.id or path is None:
        return proof
    found = path.find(payload)
    if found is MISSING and receiver.delivery is None:
        return proof
    if isinstance(found, bool) or not isinstance(found, str | int) or found == "":
        raise _bad(f"there is no text or number at {path}")
    return Proof(f"{found:d}" if isinstance(found, int) else found, proof.digest or hashlib.sha256(body).digest())


def _note(context: Context, tenant: str, name: str, proof: Proof, wanted: Document | Deletion, base: str) -> Response:
    told = isinstance(wanted, Document) and tenant == context.settings.tenant
    queue = Queue.of(context.gauge.backlog()) if told else None
    with context.connection() as connection:
        with connection.transaction():
            if not _first_time(connection, name, proof):
                return JSONResponse({"duplicate": True})
            if isinstance(wanted, Deletion):
                gone = context.ledger(connection, tenant).delete(wanted.uri)
            else:
                try:
                    answer = note(context, connection, tenant, [wanted], base)
                except PermanentError as error:
                    raise _bad(f"{error.code}: {error.cause}") from error
        if isinstance(wanted, Deletion):
            deleted(connection, context.settings.home, tenant, [wanted.uri] if gone else [], f"webhook:{name}")
            return JSONResponse({"uri": wanted.uri, "deleted": gone})
        context.sent.note(connection, [one.id for one in answer.sources])
    answer.queue = queue
    if not answer.sources[0].unchanged:
        context.broker.wake()
    return JSONResponse(answer.model_dump(exclude_none=True), 202)


def _push(context: Context, name: str, sync: str, proof: Proof, payload: Any) -> Response:
    """Have the documents visited that a delivery tells of. It is answered before anybody is woken."""
    try:
        keys = context.pushes.keys(sync, payload)
    except PermanentError as error:
        raise _bad(error.cause) from error
    if not keys:
        return JSONResponse({"ignored": f"it tells of no document of the sync {sync}"})
    with context.connection() as connection, connection.transaction():
        if not _first_time(connection, name, proof, harmless=True):
            return JSONResponse({"duplicate": True})
        schedule = context.schedule(connection, sync)
        schedule.register()
        schedule.hint(sync, keys)
    wake = BackgroundTask(context.broker.wake, queue=SYNC_QUEUE)
    return JSONResponse(Pushed(sync=sync, documents=len(keys)).model_dump(), 202, background=wake)


def _first_time(connection: Connection[Any], name: str, proof: Proof, *, harmless: bool = False) -> bool:
    """Remember a delivery. False if its id came before, signed anew.

    Args:
        harmless: nothing comes of a replay, so one is False as well.

    Raises:
        ProblemError: 409, this very delivery came before.
    """
    # Hashed: what strangers call their deliveries may be longer than an index takes.
    by_id = "id:" + hashlib.sha256(proof.id.encode("utf-8", "replace")).hexdigest() if proof.id else None
    by_digest = "signed:" + proof.digest.hex() if proof.digest else None
    keys = sorted(key for key in (by_id, by_digest) if key)
    new = {row[0] for row in connection.execute(REMEMBER, (name, keys)).fetchall()}
    if by_digest and by_digest not in new:
        if harmless:
            return False
        raise ProblemError(409, "replayed", "this very delivery came before", "nothing: it was taken the first time")
    return by_id is None or by_id in new
