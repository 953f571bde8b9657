"""`GET /status`: how far the workers are behind."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from worker.backlog import Backlog, measure_backlog
from worker.pauses import Pauses
from worker.receivers.auth import Caller, require
from worker.receivers.context import Shared

router = APIRouter(tags=["status"])


class Queue(BaseModel):
    """What waits for its turn, as of about a second ago."""

    due: int = Field(description="Documents that could be taken now, if there were more workers", examples=[0])
    more: bool = Field(description="There are more than these; they were not counted")
    oldest_due_seconds: float | None = Field(
        description="For how long the first in line has been due; null where nothing is", examples=[1.5]
    )

    @classmethod
    def of(cls, backlog: Backlog) -> Self:
        """The backlog as it is answered."""
        return cls.model_validate(backlog.as_json())


class Pause(BaseModel):
    """Why no worker takes a document at the moment."""

    what: str = Field(description="embedding or budget", examples=["embedding"])
    since: datetime
    until: datetime = Field(description="When somebody tries again")
    code: str
    cause: str
    remedy: str


class Status(BaseModel):
    """How far the workers are behind."""

    queue: Queue
    max_due: int | None = Field(description="With so many due, /ingest and /webhooks answer 503; null: with no number")
    paused: list[Pause]


@router.get("/status", summary="How far are the workers behind?")
def read_status(context: Shared, caller: Annotated[Caller, Depends(require("ingest"))]) -> Status:
    """How many documents are due, for how long the oldest has been, and whether something holds all of them up.

    A key that is bound to a tenant counts that tenant's alone, and is not told why all are held up.
    """
    backlog = None if caller.bound else context.gauge.backlog()
    with context.connection() as connection:
        queue = Queue.of(backlog or measure_backlog(connection, tenant=caller.tenant))
        paused = Pauses(connection, context.settings).standing()
    if caller.bound:
        paused = [pause | {"cause": "documents wait", "remedy": "ask the operator if it lasts"} for pause in paused]
    return Status(
        queue=queue, max_due=context.settings.max_due, paused=[Pause.model_validate(pause) for pause in paused]
    )
