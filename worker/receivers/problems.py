"""Errors as RFC 9457 problem documents: what happened, what to do about it, and nothing secret."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import psycopg
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from pipelines.errors import ConfigurationError, GristmillError, RetryableError

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 5
MOST_ERRORS_SHOWN = 20

_STATUS_OF_CODE = {"too_large": 413, "kept_out": 409, "would_return": 409}


class FieldError(BaseModel):
    """One field of a request that is not as it must be."""

    field: str = Field(examples=["metadata.year"])
    message: str = Field(examples=["Input should be a finite number"])


class Problem(BaseModel):
    """An error, as RFC 9457 has it, with a stable `code` for programs and a `remedy` for people."""

    type: str = Field(examples=["urn:gristmill:problem:too_large"])
    title: str = Field(examples=["Too large"])
    status: int = Field(examples=[413])
    detail: str = Field(examples=["the document has more than the 209,715,200 bytes allowed"])
    code: str = Field(examples=["too_large"])
    remedy: str = Field(examples=["raise GRISTMILL_MAX_BYTES or split the document"])
    errors: list[FieldError] | None = Field(None, description="Of a 422: the fields concerned")


class ProblemError(HTTPException):
    """Raise it to answer a request with a problem document.

    Args:
        status: HTTP status.
        code: short, stable, snake_case name of the kind of failure.
        detail: what happened, in one plain sentence without a trailing period; nothing secret.
        remedy: what to do about it.
    """

    def __init__(
        self, status: int, code: str, detail: str, remedy: str = "", *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, detail, dict(headers) if headers else None)
        self.code = code
        self.remedy = remedy


def problem(
    status: int,
    code: str,
    detail: str,
    remedy: str = "",
    *,
    headers: Mapping[str, str] | None = None,
    errors: Sequence[FieldError] | None = None,
) -> JSONResponse:
    """The answer for an error."""
    body = Problem(
        type=f"urn:gristmill:problem:{code}",
        title=code.replace("_", " ").capitalize(),
        status=status,
        detail=detail,
        code=code,
        remedy=remedy,
        errors=list(errors) if errors else None,
    )
    return JSONResponse(body.model_dump(exclude_none=True), status, headers, media_type=MEDIA_TYPE)


def problem_of(error: Exception) -> JSONResponse:
    """The answer for any exception; one that nobody foresaw is logged under an id, which is all that is told of it."""
    match error:
        case ProblemError():
            return problem(error.status_code, error.code, error.detail, error.remedy, headers=error.headers)
        case HTTPException():
            code = HTTPStatus(error.status_code).name.lower()
            return problem(error.status_code, code, str(error.detail), headers=error.headers)
        case RequestValidationError():
            return _invalid(error)
        case RetryableError():
            wait = RETRY_AFTER_SECONDS if error.retry_after is None else max(1, round(error.retry_after))
            log.warning("unavailable: %s", error)
            return problem(503, error.code, error.cause, error.remedy, headers={"Retry-After": str(wait)})
        case ConfigurationError():
            log.error("set up wrongly: %s", error)
            return problem(503, error.code, error.cause, error.remedy)
        case GristmillError():
            return problem(_STATUS_OF_CODE.get(error.code, 422), error.code, error.cause, error.remedy)
        case psycopg.OperationalError():
            log.warning("the database does not answer: %s: %s", type(error).__name__, _first_line(error))
            return problem(
                503,
                "database_unavailable",
                "the database does not answer",
                "send the request again in a moment",
                headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
            )
        case psycopg.DataError():
            return problem(422, "invalid_value", "the database cannot hold a value of this request", "correct it")
        case _:
            number = uuid4().hex[:12]
            log.error("unexpected error %s", number, exc_info=error)
            return problem(
                500,
                "unexpected",
                f"something went wrong that nobody foresaw; the log has it as {number}",
                "look it up in the log of the service and report it",
            )


def install(app: FastAPI) -> None:
    """Have all errors of an application answered with problem documents."""

    async def answer(_request: Request, error: Exception) -> Response:
        return problem_of(error)

    async def gone(_request: Request, _error: Exception) -> Response:
        return problem(400, "client_gone", "the request ended before its body did", "send it again")

    for kind in (HTTPException, RequestValidationError, GristmillError, psycopg.Error):
        app.add_exception_handler(kind, answer)
    app.add_exception_handler(ClientDisconnect, gone)


def _invalid(error: RequestValidationError) -> JSONResponse:
    found = error.errors()
    if found and found[0]["type"] == "json_invalid":
        return problem(400, "invalid_json", "the body is not valid JSON", "send one JSON object")
    shown = [FieldError(field=_field(one["loc"]), message=_printable(one["msg"])) for one in found[:MOST_ERRORS_SHOWN]]
    first = shown[0] if shown else FieldError(field="body", message="not valid")
    return problem(
        422,
        "invalid_request",
        f"{first.field}: {first.message}",
        "correct the fields named; /docs describes every one",
        errors=shown,
    )


def _field(place: Sequence[Any]) -> str:
    parts = place[1:] if len(place) > 1 and place[0] in ("body", "query", "path", "header") else place
    return _printable(".".join(str(part) for part in parts))[:200]


def _printable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
