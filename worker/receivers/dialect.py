"""What the dialects of others share: errors in their clients' own form, and bodies that Postgres can take."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import psycopg
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from pipelines.errors import ConfigurationError, GristmillError, PermanentError, RetryableError
from worker.receivers.problems import RETRY_AFTER_SECONDS, ProblemError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request is not answered, in no dialect yet; see `failure_of`."""

    status: int
    code: str
    message: str
    details: str | None = None
    hint: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class DialectError(PermanentError):
    """A request that a dialect does not answer.

    Args:
        status: of HTTP.
        code: of the dialect, e.g. `PGRST202`.
        message: what is wrong, in the dialect's own words where it has them.
        hint: what to do about it.
        details: more about what is wrong.
        param: the part of the request that is.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        hint: str = "",
        *,
        details: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(code, message, hint)
        self.failure = Failure(status, code, message, details, hint or None, param)


def failure_of(error: Exception) -> Failure | None:
    """What to tell the client of an error; None for one that nobody foresaw, which is not told."""
    if isinstance(error, DialectError):
        return error.failure
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        return Failure(400, "invalid_request", f"{name}: {first['msg']}", param=name)
    if isinstance(error, HTTPException):
        code = error.code if isinstance(error, ProblemError) else f"http_{error.status_code}"
        hint = error.remedy if isinstance(error, ProblemError) else ""
        return Failure(error.status_code, code, str(error.detail), hint=hint or None, headers=error.headers or {})
    if isinstance(error, GristmillError):
        return _of_gristmill(error)
    if isinstance(error, psycopg.Error):
        return _of_postgres(error)
    return None


def _of_gristmill(error: GristmillError) -> Failure:
    status, headers = 400, {}
    if isinstance(error, RetryableError):
        log.warning("unavailable: %s", error)
        status, headers = 503, {"Retry-After": str(max(1, round(error.retry_after or RETRY_AFTER_SECONDS)))}
    elif isinstance(error, ConfigurationError):
        log.error("set up wrongly: %s", error)
        status = 503
    return Failure(status, error.code, error.cause, hint=error.remedy or None, headers=headers)


# As PostgREST answers them; every other fault of the data or the statement is a 400.
_STATUS = {"23505": 409, "23503": 409, "42501": 403, "42P01": 404, "42883": 404}


OTHER_MODEL = "make vectors with the index's own model, POST /v1/embeddings, or leave the vector out"


def _of_postgres(error: psycopg.Error) -> Failure | None:
    state = error.sqlstate
    too_much = state is not None and state.startswith("54")  # a text, a vector or a nesting beyond Postgres' limits
    if isinstance(error, psycopg.OperationalError) and not too_much:
        log.warning("the database does not answer: %s", type(error).__name__)
        return Failure(
            503,
            "database_unavailable",
            "the database does not answer",
            hint="send the request again in a moment",
            headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
        )
    if too_much or isinstance(error, psycopg.DataError | psycopg.IntegrityError | psycopg.ProgrammingError):
        diag = error.diag
        message = diag.message_primary or str(error).splitlines()[0]
        return Failure(
            _STATUS.get(state or "", 400),
            state or "22000",
            message,
            diag.message_detail,
            diag.message_hint or (OTHER_MODEL if " dimensions" in message else None),
        )
    return None


class Render(Protocol):
    """Makes a failure the answer that a dialect's clients understand."""

    def __call__(self, failure: Failure) -> Response:
        """The answer."""


def route_class(render: Render) -> type[APIRoute]:
    """Routes whose errors, from authentication to the database, are answered by `render`."""

    class DialectRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handle_in_dialect(request: Request) -> Response:
                try:
                    return await handle(request)
                except Exception as error:
                    failure = failure_of(error)
                    if failure is None:
                        raise
                    return render(failure)

            return handle_in_dialect

    return DialectRoute


async def body_of(request: Request) -> bytes:
    """The body; a dependency, so that an endpoint that runs in a thread can have it."""
    return await request.body()


def parsed(body: bytes, code: str) -> Any:
    """A body as JSON, its texts as Postgres can keep them (see `storable`).

    Args:
        code: of the error, in the dialect.

    Raises:
        DialectError: it is not JSON.
    """
    try:
        return storable(json.loads(body, parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:  # ValueError: syntax, not UTF-8, a number of thousands of digits
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).split(" (")[0]
        raise DialectError(400, code, f"the body is not valid JSON: {reason}") from error


def storable(value: Any) -> Any:
    """The same JSON value without the characters that Postgres cannot keep: NUL and halves of surrogate pairs."""
    if isinstance(value, str):
        return value.replace("\0", "").encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return value if value and isinstance(value[0], float | int) else [storable(item) for item in value]
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")
