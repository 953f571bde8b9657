"""`/healthz`: the process answers. `/readyz`: so does everything that it needs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal

from celery.exceptions import CeleryError
from fastapi import APIRouter
from kombu.exceptions import KombuError
from kombu.exceptions import OperationalError as BrokerError
from psycopg import OperationalError
from pydantic import BaseModel, Field
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import JSONResponse

from worker.receivers.context import Context

router = APIRouter(tags=["health"])

PING_SECONDS = 2.0
FRESH_SECONDS = 2.0
"""An answer of /readyz holds so long: anybody may ask, and every look costs a message."""


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Check(BaseModel):
    """One thing that was looked at."""

    ok: bool
    detail: str = Field(examples=["answers"])
    ms: int = Field(description="How long it took to answer")


class Ready(BaseModel):
    """Whether everything works, and what does not."""

    status: Literal["ready", "not ready"]
    checks: dict[str, Check]


class Readiness:
    """Looks at everything, at most every two seconds, one caller at a time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._last: tuple[float, Ready] | None = None

    def ready(self) -> Ready:
        """What was found, at most two seconds ago."""
        with self._lock:
            if self._last is None or time.monotonic() - self._last[0] > FRESH_SECONDS:
                self._last = (time.monotonic(), self._look())
            return self._last[1]

    def _look(self) -> Ready:
        checks = {"database": _timed(self._database), "broker": _timed(self._broker)}
        if checks["broker"].ok:
            checks["worker"] = _timed(self._worker)
        else:
            checks["worker"] = Check(ok=False, detail="cannot be asked without the broker", ms=0)
        return Ready(status="ready" if all(check.ok for check in checks.values()) else "not ready", checks=checks)

    def _database(self) -> str:
        try:
            with self._context.connection(timeout=PING_SECONDS) as connection:
                connection.execute("select from sources limit 1")
        except OperationalError:
            return "does not answer"
        return ""

    def _broker(self) -> str:
        return "does not answer; documents wait in the ledger" if self._context.broker.waiting() is None else ""

    def _worker(self) -> str:
        try:
            # Not by a task: its answer would need the result backend, whose consumer gives up for good one day.
            answers = self._context.celery.control.ping(timeout=PING_SECONDS, limit=1)
        except (CeleryError, KombuError, BrokerError, RedisError, OSError) as error:
            return f"cannot be asked: {type(error).__name__}"
        return "" if answers else f"none answered in {PING_SECONDS:.0f} seconds"


def _timed(look: Callable[[], str]) -> Check:
    began = time.monotonic()
    trouble = look()
    return Check(ok=not trouble, detail=trouble or "answers", ms=round((time.monotonic() - began) * 1000))


@router.get("/healthz", summary="Does the process answer?")
async def healthz() -> Alive:
    """Looks at nothing else: restart the service if this fails. Needs no key."""
    return Alive()


@router.get(
    "/readyz",
    summary="Does everything work?",
    response_model=Ready,
    responses={503: {"model": Ready, "description": "Not yet"}},
)
def readyz(request: Request) -> JSONResponse:
    """Database, broker, and a worker that answers a question. Needs no key."""
    found = request.app.state.readiness.ready()
    return JSONResponse(found.model_dump(), 200 if found.status == "ready" else 503)
