"""What every sync of `GRISTMILL_SYNCS` can be told, whatever it keeps in step; connectors add fields of their own."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Self
from zoneinfo import ZoneInfo

from celery.schedules import ParseException, crontab
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
LEAST_EVERY = 1.0
MOST_SECONDS = 10 * 365 * 86_400.0


def seconds_of(value: Any) -> Any:
    """`90`, `"90s"`, `"15m"`, `"6h"`, `"1d"` as seconds; anything else as it is, for pydantic to refuse."""
    if isinstance(value, str) and (found := _DURATION.fullmatch(value.strip())):
        return float(found[1]) * _UNITS[found[2]]
    return value


Duration = Annotated[float, BeforeValidator(seconds_of)]
"""Seconds, also written with a unit."""


def _schedule(cron: str) -> crontab:
    """Celery's own reading of five fields: minute, hour, day of the month, month, day of the week; all must match."""
    return crontab.from_string(" ".join(cron.split()))


class SyncConfig(BaseModel):
    """One sync.

    `every` counts from the start of a run to the start of the next; with `cron`, five fields in the time zone of
    `GRISTMILL_TIMEZONE`. With neither, it runs when it is asked to.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    type: str
    every: Duration | None = Field(
        None, ge=LEAST_EVERY, le=MOST_SECONDS, description="Time between runs: 90s, 15m, 6h, 1d"
    )
    cron: str | None = Field(None, description="Runs at these times: minute, hour, day, month, weekday")
    full_every: Duration = Field(
        86_400.0,
        ge=0,
        le=MOST_SECONDS,
        description="Time between listings of everything, where a run can ask for changes only",
    )
    confirm_after: Duration = Field(
        3600.0,
        ge=0,
        le=MOST_SECONDS,
        description="A document that is gone is looked for once more after this before it is given up",
    )
    language: str | None = Field(None, description="Text search configuration; unset: detected")
    metadata: dict[str, Any] = Field(default_factory=dict, description="Put on every chunk")

    @model_validator(mode="after")
    def _one_schedule(self) -> Self:
        if self.every is not None and self.cron is not None:
            raise ValueError("every and cron exclude each other")
        if self.cron is not None:
            try:
                _schedule(self.cron)
            except (ParseException, ValueError) as error:
                raise ValueError(f"cron is not five fields that make sense: {error}") from error
        return self

    @property
    def recipe(self) -> str:
        """Digest of everything but the times and the secrets: what decides which documents there are."""
        facts = self.model_dump(mode="json", exclude={"every", "cron", "full_every", "confirm_after"})
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]

    def next_run(self, after: datetime, timezone: str = "UTC") -> datetime | None:
        """When the next run is due if the last one began at `after`; None: only when asked to."""
        if self.every is not None:
            return after + timedelta(seconds=self.every)
        if self.cron is None:
            return None
        zone = ZoneInfo(timezone)
        local = after.astimezone(zone)
        begin, delta, _ = _schedule(self.cron).remaining_delta(local, tz=zone)
        found: datetime = begin + delta
        if found <= after:  # in the hour that comes twice it meant the first one
            found = found.replace(fold=1)
        return found.astimezone(UTC)
