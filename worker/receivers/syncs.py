"""`/syncs`: how far the places are that documents come from by themselves, and having them looked at now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Depends, Path, Query
from psycopg import Connection
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from worker.broker import SYNC_QUEUE
from worker.receivers.auth import Caller, require
from worker.receivers.body import read_model
from worker.receivers.context import Context, Shared
from worker.receivers.fields import MOST_WAIT_SECONDS, Text
from worker.receivers.intake import FIRST_POLL_SECONDS, LONGEST_POLL_SECONDS
from worker.receivers.problems import ProblemError
from worker.sync.overview import SyncState, overview
from worker.sync.push import known_keys

MOST_ITEMS = 1_000

router = APIRouter(tags=["syncs"])

Keeper = Annotated[Caller, Depends(require("ingest"))]
SyncName = Annotated[str, Path(description="One of GRISTMILL_SYNCS", examples=["notion"])]
RunWait = Annotated[
    float,
    Query(
        ge=0,
        le=MOST_WAIT_SECONDS,
        allow_inf_nan=False,
        description="Seconds to wait for that run to end before answering",
        examples=[60],
    ),
]
ItemText = Annotated[Text, Field(min_length=1, max_length=2048)]

NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"description": "There is no such sync"}}


class Sync(BaseModel):
    """A sync of the settings and how its last run went."""

    model_config = ConfigDict(from_attributes=True)

    name: str = Field(examples=["notion"])
    type: str = Field(description="notion, pages, sitemap, feed, bucket or folder", examples=["notion"])
    running: bool
    documents: int = Field(description="How many it keeps in step", examples=[1204])
    begun_at: datetime | None = Field(description="When its last run began")
    ended_at: datetime | None = Field(description="When a run last ended, well or not")
    succeeded_at: datetime | None = Field(description="When a run last went well")
    next_at: datetime | None = Field(description="When the next run is due; null: when it is asked for")
    counts: dict[str, int] = Field(
        description="Of the last run that ended: documents listed, visited, new, changed, unchanged, moved, removed,"
        " failed; held: not deleted, for they are too many to be true",
        examples=[{"listed": 1204, "new": 1, "changed": 3}],
    )
    notices: list[str] = Field(description="Of the same run: what the operator should know")
    code: str | None = Field(description="Of the error that ended it: a stable name; null: it went well")
    cause: str | None = Field(description="Of that error: why, in plain words")
    remedy: str | None = Field(description="Of that error: what to do about it")


class Syncs(BaseModel):
    """All syncs, by name."""

    syncs: list[Sync]


class AskedRun(BaseModel):
    """What is to be done; all of it may be left out."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"full": True}, {"items": ["https://www.notion.so/Plan-8d2b1f0c9e7a4b5c8d2b1f0c9e7a4b5c"]}]
        },
    )

    full: bool = Field(default=False, description="List everything, not only what has changed")
    items: list[ItemText | dict[str, Any]] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_ITEMS,
        description="Visit these documents alone: ids or addresses as the provider has them, uris as they are here, or"
        " the provider's events",
    )

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Self:
        if self.full and self.items:
            raise ValueError("full and items exclude each other")
        return self


BODY: dict[str, Any] = {
    "requestBody": {
        "required": False,
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{AskedRun.__name__}"}}},
    }
}


@router.get("/syncs", summary="List syncs")
def list_syncs(context: Shared, caller: Keeper) -> Syncs:
    """All of GRISTMILL_SYNCS: when they ran, what came of it, and what is in the way. Only GRISTMILL_TENANT has any."""
    if caller.tenant != context.settings.tenant:
        return Syncs(syncs=[])
    with context.connection() as connection:
        context.schedule(connection).register()
        found = overview(connection, context.settings.tenant, context.syncs)
    return Syncs(syncs=[Sync.model_validate(one) for one in found])


@router.get("/syncs/{name}", summary="How a sync is", responses=NOT_FOUND)
def read_sync(context: Shared, caller: Keeper, name: SyncName) -> Sync:
    """The same of one."""
    _check(context, caller, name)
    with context.connection() as connection:
        context.schedule(connection, name).register()
        return Sync.model_validate(_state(context, connection, name))


@router.post(
    "/syncs/{name}",
    status_code=202,
    summary="Have a sync run now",
    response_model=Sync,
    openapi_extra=BODY,
    responses=NOT_FOUND
    | {
        200: {"model": Sync, "description": "With `wait`: that run has ended; `code` is null if it went well"},
        202: {"model": Sync, "description": "Noted; the run begins soon, or goes on when the time to wait was up"},
    },
)
async def run_sync(request: Request, context: Shared, caller: Keeper, name: SyncName, wait: RunWait = 0.0) -> Response:
    """One that is under way does not count: another follows it. With `items` those are visited and nothing is listed.

    A run begins even if the last one failed a moment ago; `items` wait until the next one may begin (`next_at`).
    """
    _check(context, caller, name)
    until = time.monotonic() + wait
    asked = await read_model(request, AskedRun, default=AskedRun())
    before, keys = await run_in_threadpool(_ask, context, name, asked)
    if not wait:
        return _answer(before, 202)
    pause = FIRST_POLL_SECONDS
    while True:
        found, ended = await run_in_threadpool(_look, context, before, keys)
        left = until - time.monotonic()
        if ended or left <= 0 or await request.is_disconnected():
            return _answer(found, 200 if ended else 202)
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 1.5, LONGEST_POLL_SECONDS)


def _check(context: Context, caller: Caller, name: str) -> None:
    """Syncs, with all that they bring, are of the tenant of the settings: to others there are none."""
    if name not in context.syncs or caller.tenant != context.settings.tenant:
        raise ProblemError(404, "unknown_sync", "there is no such sync", "GET /syncs lists those of GRISTMILL_SYNCS")


def _answer(state: SyncState, status: int) -> Response:
    return JSONResponse(Sync.model_validate(state).model_dump(mode="json"), status)


def _state(context: Context, connection: Connection[Any], name: str) -> SyncState:
    (found,) = overview(connection, context.settings.tenant, [name])
    return found


def _ask(context: Context, name: str, asked: AskedRun) -> tuple[SyncState, list[str]]:
    """Note what is wanted and wake a worker; how the sync was at that moment, and the keys of the items."""
    with context.connection() as connection, connection.transaction():
        schedule = context.schedule(connection, name)
        schedule.register()
        keys = _keys(context, connection, name, asked.items or ())
        if keys:
            schedule.hint(name, keys)
        else:
            schedule.ask(name, full=asked.full)
        # Where a run was asked for, the row is locked: none can begin between asking and this look.
        state = _state(context, connection, name)
    context.broker.wake(queue=SYNC_QUEUE)
    return state, keys


def _keys(context: Context, connection: Connection[Any], name: str, items: Sequence[str | dict[str, Any]]) -> list[str]:
    told = {index: context.pushes.keys(name, item) for index, item in enumerate(items)}
    texts = [item for index, item in enumerate(items) if isinstance(item, str) and not told[index]]
    known = known_keys(connection, context.settings.tenant, name, texts) if texts else {}
    for index, item in enumerate(items):
        if not told[index] and isinstance(item, str) and item in known:
            told[index] = [known[item]]
        if not told[index]:
            raise ProblemError(
                422,
                "unknown_item",
                f"items.{index}: it is no document that {name} knows or can find by that",
                "give the provider's id or address of it; what is new is found by a run without items",
            )
    return list(dict.fromkeys(key for keys in told.values() for key in keys))


def _look(context: Context, before: SyncState, keys: list[str]) -> tuple[SyncState, bool]:
    """How the sync is now, and whether what was asked for is through."""
    with context.connection() as connection:
        # The hints first: once they are gone, the state that is read after it is that of the run that saw to them.
        waiting = context.schedule(connection, before.name).hinted(before.name, keys) if keys else False
        found = _state(context, connection, before.name)
    ran = found.ran_since(before)
    if keys:
        return found, not found.running and (not waiting or (ran and found.code is not None))
    return found, ran
