"""How syncs are, for people and programs: what the command line and the HTTP service tell of the rows of `syncs`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row

# A sync that somebody asked for, or that a push told of, is due from then on, unless it is told to wait.
OVERVIEW = """
select s.name, s.kind as type, s.token is not null and s.lease_until > now() as running,
  (select count(*) from synced m where m.sync_id = s.id and m.removed_at is null) as documents,
  s.begun_at, s.ended_at, s.succeeded_at,
  greatest(
    least(s.next_at, s.asked_at, (select min(received_at) from sync_hints h where h.sync_id = s.id)), s.not_before
  ) as next_at,
  s.counts, s.notices, s.error_code as code, s.error_cause as cause, s.error_remedy as remedy
from syncs s where s.tenant = %s and s.name = any(%s) order by s.name
"""


@dataclass(frozen=True, slots=True)
class SyncState:
    """A sync as it is now.

    Attributes:
        type: of its connector.
        documents: that it keeps in step, those that could not be fetched included.
        begun_at: when its last run began.
        ended_at: when a run last ended, well or not.
        succeeded_at: when one last went well.
        next_at: when the next one is due; None: when asked to.
        counts: of the last run that ended.
        notices: of the same, for the operator.
        code: of the error that ended it; None where it went well.
    """

    name: str
    type: str
    running: bool
    documents: int
    begun_at: datetime | None
    ended_at: datetime | None
    succeeded_at: datetime | None
    next_at: datetime | None
    counts: Mapping[str, int]
    notices: Sequence[str]
    code: str | None
    cause: str | None
    remedy: str | None

    def ran_since(self, before: SyncState) -> bool:
        """Whether a run that began after `before` has ended. Both times of a run are of one machine's clock."""
        ended = self.begun_at is not None and self.ended_at is not None and self.ended_at >= self.begun_at
        return ended and not self.running and self.begun_at != before.begun_at


def overview(connection: Connection[Any], tenant: str, names: Collection[str]) -> list[SyncState]:
    """The syncs of these names, by name. One that was never registered (`Schedule.register`) is left out."""
    with connection.cursor(row_factory=class_row(SyncState)) as cursor:
        return cursor.execute(OVERVIEW, (tenant, list(names))).fetchall()
