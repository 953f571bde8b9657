"""Which sync is due, who runs it, and how it ended: the rows of `syncs`.

Level-triggered like the ledger: a row is due when its time has come or somebody asked, whatever messages were lost or
doubled. A claim gives a token and a lease; a run whose token is gone writes nothing more.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from pipelines.errors import GristmillError, RetryableError
from worker.backoff import asked_wait, backoff
from worker.connectors.config import SyncConfig
from worker.connectors.contract import utc_now
from worker.sync.storable import storable_error

FIRST_BACKOFF_SECONDS = 30.0
LONGEST_BACKOFF_SECONDS = 3600.0

# A sync whose runs die without a word waits longer each time, like one whose runs fail.
DUE = """
s.tenant = %(tenant)s and s.name = any(%(names)s)
and (s.token is null or s.lease_until + least(s.failures, 60) * interval '10 s' < now())
and (s.not_before is null or s.not_before <= %(now)s)
and (s.next_at <= %(now)s or s.asked_at is not null or exists (select from sync_hints h where h.sync_id = s.id))
"""

REGISTER = """
insert into syncs as s (tenant, name, kind, next_at) values (%(tenant)s, %(name)s, %(kind)s, %(next_at)s)
on conflict (tenant, name) do update set
  kind = excluded.kind,
  cursor = case when s.kind = excluded.kind then s.cursor else '{}' end,
  full_at = case when s.kind = excluded.kind then s.full_at end,
  next_at = case when excluded.next_at is null then null
                 else least(coalesce(s.next_at, excluded.next_at), %(latest)s) end
where s.kind <> excluded.kind or s.next_at is distinct from
  case when excluded.next_at is null then null else least(coalesce(s.next_at, excluded.next_at), %(latest)s) end
"""

CLAIM = f"""
update syncs set
  token = gen_random_uuid(), lease_until = now() + make_interval(secs => %(lease)s), holder = %(holder)s,
  failures = failures + 1, begun_at = %(now)s
where id = (
  select s.id from syncs s where {DUE}
  order by least(s.asked_at, s.next_at, (select min(h.received_at) from sync_hints h where h.sync_id = s.id)), s.id
  limit 1
  for update skip locked
)
returning id, name, kind, token, begun_at, cursor, recipe, failures, confirmed_at,
  coalesce(next_at <= %(now)s, false) or asked_at is not null as listing,
  full_at is null or full_at <= %(now)s as full
"""

TAKE = """
update syncs set
  token = gen_random_uuid(), lease_until = now() + make_interval(secs => %(lease)s), holder = %(holder)s,
  failures = failures + 1, begun_at = %(now)s
where tenant = %(tenant)s and name = %(name)s and (token is null or lease_until < now())
returning id, name, kind, token, begun_at, cursor, recipe, failures, confirmed_at,
  true as listing, full_at is null or full_at <= %(now)s as full
"""

FINISH = """
update syncs set
  token = null, lease_until = null, holder = null, not_before = null, failures = 0,
  cursor = coalesce(%(cursor)s, cursor), recipe = coalesce(%(recipe)s, recipe),
  full_at = case when full_at is null and asked_at > %(begun_at)s then null else coalesce(%(full_at)s, full_at) end,
  next_at = case when %(listed)s then %(next_at)s else next_at end,
  asked_at = case when %(listed)s and asked_at <= %(begun_at)s then null else asked_at end,
  confirmed_at = case when %(confirmed)s then %(now)s else confirmed_at end,
  ended_at = %(now)s, succeeded_at = %(now)s, counts = %(counts)s, notices = %(notices)s,
  error_code = null, error_cause = null, error_remedy = null
where id = %(id)s and token = %(token)s
"""

FAIL = """
update syncs set
  token = null, lease_until = null, holder = null, not_before = %(not_before)s,
  ended_at = %(now)s, counts = %(counts)s, notices = %(notices)s,
  error_code = %(code)s, error_cause = %(cause)s, error_remedy = %(remedy)s
where id = %(id)s and token = %(token)s
"""

GIVE_UP = """
update syncs set token = null, lease_until = null, holder = null, failures = failures - 1
where id = %(id)s and token = %(token)s
"""


@dataclass(frozen=True, slots=True)
class Turn:
    """A sync under our lease.

    Attributes:
        listing: the schedule or somebody has it due; otherwise only documents that a push named are visited.
        full: everything is to be listed.
        recipe: of the settings that everything was last listed with.
        confirmed_at: when a person last had all deleted that was gone.
    """

    id: int
    name: str
    kind: str
    token: UUID
    begun_at: datetime
    cursor: Mapping[str, Any]
    failures: int
    listing: bool
    full: bool
    recipe: str | None = None
    confirmed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """How a run went: numbers by name, and what the operator should know."""

    counts: Mapping[str, int]
    notices: Sequence[str]


class Schedule:
    """The syncs of the settings as one connection sees them.

    Args:
        clock: the time by which schedules are judged; leases go by the database's.
    """

    def __init__(
        self,
        connection: Connection[Any],
        syncs: Mapping[str, SyncConfig],
        *,
        tenant: str = "default",
        timezone: str = "UTC",
        lease_seconds: float = 30.0,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._connection = connection
        self._syncs = syncs
        self._tenant = tenant
        self._timezone = timezone
        self._lease = lease_seconds
        self._clock = clock

    def register(self) -> None:
        """Have a row for every sync; one that is new is due at once if it has `every`, at its time if it has `cron`."""
        now = self._clock()
        for name, config in self._syncs.items():
            latest = config.next_run(now, self._timezone)
            values = {
                "tenant": self._tenant,
                "name": name,
                "kind": config.type,
                "next_at": now if config.every is not None else latest,
                "latest": latest,
            }
            self._connection.execute(REGISTER, values)

    def due(self) -> int:
        """How many syncs could be claimed now."""
        row = self._connection.execute(f"select count(*) from syncs s where {DUE}".encode(), self._which()).fetchone()
        return int(row[0]) if row else 0

    def seconds_until_due(self) -> float | None:
        """Seconds until the next one is due by its schedule; None where none has one."""
        now = self._clock()
        row = self._connection.execute(
            "select min(greatest(next_at, not_before)) from syncs"
            " where tenant = %(tenant)s and name = any(%(names)s) and token is null",
            self._which(),
        ).fetchone()
        return max(0.0, (row[0] - now).total_seconds()) if row and row[0] is not None else None

    def claim(self) -> Turn | None:
        """Take the sync that is due for longest; None where none is."""
        values = {**self._which(), "lease": self._lease, "holder": _holder()}
        with self._connection.cursor(row_factory=class_row(Turn)) as cursor:
            return self._anew(cursor.execute(CLAIM.encode(), values).fetchone())

    def take(self, name: str) -> Turn | None:
        """Take a sync now, due or not; None while another runs it."""
        values = {
            "tenant": self._tenant,
            "name": name,
            "now": self._clock(),
            "lease": self._lease,
            "holder": _holder(),
        }
        with self._connection.cursor(row_factory=class_row(Turn)) as cursor:
            return self._anew(cursor.execute(TAKE, values).fetchone())

    def exists(self, name: str) -> bool:
        """Whether there is a row for a sync, in the settings or not."""
        found = self._connection.execute(
            "select from syncs where tenant = %s and name = %s", (self._tenant, name)
        ).fetchone()
        return found is not None

    def forget(self, turn: Turn) -> None:
        """Remove a sync's row with all that is remembered of its documents."""
        self._connection.execute("delete from syncs where id = %s and token = %s", (turn.id, turn.token))

    def ask(self, name: str, *, full: bool = False) -> bool:
        """Have a sync run soon, waiting time after a failure included; False if there is no such sync."""
        return (
            self._connection.execute(
                # Later than a run that is under way, whatever clock that one goes by.
                "update syncs set asked_at = greatest(%s, begun_at + interval '1 microsecond'), not_before = null,"
                " full_at = case when %s then null else full_at end where tenant = %s and name = %s",
                (self._clock(), full, self._tenant, name),
            ).rowcount
            == 1
        )

    def hint(self, name: str, keys: Sequence[str]) -> None:
        """Have these documents of a sync visited soon."""
        self._connection.cursor().executemany(
            "insert into sync_hints as h (sync_id, key) select id, %s from syncs where tenant = %s and name = %s"
            " on conflict (sync_id, key) do update set received_at = excluded.received_at",
            [(key, self._tenant, name) for key in sorted(keys)],
        )

    def hinted(self, name: str, keys: Sequence[str]) -> bool:
        """Whether one of these documents still waits for the visit that a push asked for."""
        row = self._connection.execute(
            "select exists (select from sync_hints h join syncs s on s.id = h.sync_id"
            " where s.tenant = %s and s.name = %s and h.key = any(%s))",
            (self._tenant, name, list(keys)),
        ).fetchone()
        return row is not None and bool(row[0])

    def finish(
        self,
        turn: Turn,
        report: Report,
        *,
        listed: bool,
        full_in: float | None,
        cursor: Mapping[str, Any] | None,
        confirmed: bool = False,
    ) -> bool:
        """Note that a run went well, and when the next one is due. False if it was fenced.

        Args:
            listed: it got through the listing, not only through what a push named.
            full_in: seconds from its start until everything is to be listed again; None leaves what was.
            cursor: the connector's; None leaves what was.
            confirmed: a person had it delete all that was gone.
        """
        config = self._syncs[turn.name]
        now = self._clock()
        next_at = config.next_run(turn.begun_at, self._timezone)
        if next_at is not None and next_at < now:  # it took longer than its interval
            next_at = now if config.every is not None else config.next_run(now, self._timezone)
        values = {
            **self._ending(turn, report, now),
            "begun_at": turn.begun_at,
            "confirmed": confirmed,
            "listed": listed,
            "next_at": next_at,
            "cursor": Jsonb(dict(cursor)) if cursor is not None else None,
            "recipe": config.recipe if full_in is not None else None,
            "full_at": turn.begun_at + timedelta(seconds=full_in) if full_in is not None else None,
        }
        return self._connection.execute(FINISH, values).rowcount == 1

    def fail(self, turn: Turn, report: Report, error: GristmillError) -> bool:
        """Note that a run could not go on, and when the next one may start. False if it was fenced."""
        now = self._clock()
        delay = backoff(turn.failures - 1, FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS)
        if isinstance(error, RetryableError) and error.retry_after is not None:
            delay = asked_wait(error.retry_after)
        code, cause, remedy = storable_error(error)
        values = {
            **self._ending(turn, report, now),
            "not_before": now + timedelta(seconds=delay),
            "code": code,
            "cause": cause,
            "remedy": remedy,
        }
        return self._connection.execute(FAIL, values).rowcount == 1

    def give_up(self, turn: Turn) -> bool:
        """End a turn that has failed in nothing; it is due as before. False if it was fenced."""
        return self._connection.execute(GIVE_UP, {"id": turn.id, "token": turn.token}).rowcount == 1

    def renew(self, connection: Connection[Any], turn: Turn) -> bool:
        """Extend the lease, on a connection of the caller's; False when the claim no longer stands."""
        renewed = connection.execute(
            "update syncs set lease_until = now() + make_interval(secs => %s) where id = %s and token = %s",
            (self._lease, turn.id, turn.token),
        )
        return renewed.rowcount == 1

    def _anew(self, turn: Turn | None) -> Turn | None:
        """Where the settings are others, what has changed since is no longer all that may be new."""
        config = self._syncs.get(turn.name) if turn is not None else None
        if turn is None or config is None or turn.recipe == config.recipe:
            return turn
        return replace(turn, full=True, cursor={})

    def _which(self) -> dict[str, Any]:
        return {"tenant": self._tenant, "names": list(self._syncs), "now": self._clock()}

    @staticmethod
    def _ending(turn: Turn, report: Report, now: datetime) -> dict[str, Any]:
        return {
            "id": turn.id,
            "token": turn.token,
            "now": now,
            "counts": Jsonb(dict(report.counts)),
            "notices": Jsonb(list(report.notices)),
        }


def _holder() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
