"""Request bodies: how large they may be, and how a model is read from JSON or a form."""

from __future__ import annotations

import json
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from worker.receivers.problems import ProblemError

MOST_BODY_BYTES = 32 * 2**20  # of everything that is read into memory
MOST_FORM_FIELDS = 100

M = TypeVar("M", bound=BaseModel)


def too_large(limit: int) -> ProblemError:
    """The error for a body of more than `limit` bytes."""
    return ProblemError(
        413,
        "too_large",
        f"the request has more than the {limit:,} bytes allowed",
        "send large documents to /ingest/file; GRISTMILL_MAX_BYTES is the limit there",
    )


def limited(scope: Scope, receive: Receive, limit: int) -> Receive:
    """`receive`, which raises a ProblemError as soon as it is known that the body is larger than `limit` bytes."""
    declared = dict(scope["headers"]).get(b"content-length", b"")
    taken = 0

    async def checked() -> Message:
        nonlocal taken
        if declared.isdigit() and len(declared) < 20 and int(declared) > limit:
            raise too_large(limit)
        message = await receive()
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            if taken > limit:
                raise too_large(limit)
        return message

    return checked


async def read_model(request: Request, model: type[M], *, default: M | None = None) -> M:
    """A model from a body of JSON or of a urlencoded form (in which `metadata` is JSON).

    Args:
        default: what a request without a body asks for; None: there has to be one.

    Raises:
        ProblemError: 400, the body is neither; 422, a field of the model stands in the query, where nobody looks.
        RequestValidationError: the model refuses it.
    """
    if misplaced := [name for name in request.query_params if name in model.model_fields]:
        raise ProblemError(
            422,
            "misplaced_field",
            f"{', '.join(sorted(misplaced))}: in the address, where it is not read",
            "put it into the body, beside the other fields",
        )
    body = await request.body()
    if default is not None and not body.strip():
        return default
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    value: Any
    if kind == "application/x-www-form-urlencoded":
        try:
            value = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FORM_FIELDS))
        except ValueError as error:
            raise ProblemError(400, "invalid_form", "the body is not a form in UTF-8", "send JSON") from error
        if "metadata" in value:
            value["metadata"] = json_field("metadata", value["metadata"])
    elif kind in ("", "application/json") or kind.endswith("+json"):
        value = read_json(body)
    else:
        raise ProblemError(
            415, "unsupported_media_type", "the body is neither JSON nor a urlencoded form", "send application/json"
        )
    return validated(model, value)


def read_json(text: bytes | str) -> Any:
    """The value of a JSON text.

    Raises:
        ProblemError: 400.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProblemError(400, "invalid_json", "the body is not valid JSON", "send one JSON object") from error


def json_field(name: str, text: str) -> Any:
    """The value of a form field that holds JSON; None if it is blank.

    Raises:
        ProblemError: 422, naming the field.
    """
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProblemError(422, "invalid_request", f"{name}: not valid JSON", 'e.g. {"department": "legal"}') from error


def validated(model: type[M], value: Any) -> M:
    """The model of a value.

    Raises:
        RequestValidationError: naming the fields that are wrong.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_input=False, include_url=False)) from error
