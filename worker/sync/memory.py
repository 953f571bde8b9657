"""What a sync remembers of each document that it keeps in step: the rows of `synced`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from worker.connectors.contract import Known

PIECE = 1000

_SELECT = """
select m.key, s.uri, m.source_id, s.state as source_state, s.kind <> 'synced' or s.location is not null as fetched,
  m.version, m.state, m.check_at, m.first_seen, m.failures, m.refused, m.missing_since, m.removed_at
from synced m join sources s on s.id = m.source_id
where m.sync_id = %(sync)s
"""

_VISITED = """
insert into synced as m (sync_id, key, source_id, version, state, check_at, visited_at, first_seen)
values (%(sync)s, %(key)s, %(source)s, %(version)s, %(state)s, %(check_at)s, %(now)s, %(now)s)
on conflict (sync_id, key) do update set
  source_id = excluded.source_id, version = excluded.version, state = excluded.state, check_at = excluded.check_at,
  visited_at = excluded.visited_at, failures = 0, refused = null, misses = 0, missing_since = null, removed_at = null
"""

_FAILED = """
insert into synced as m (sync_id, key, source_id, check_at, visited_at, first_seen, failures, refused)
values (%(sync)s, %(key)s, %(source)s, %(check_at)s, %(now)s, %(now)s, 1, %(version)s)
on conflict (sync_id, key) do update set
  failures = m.failures + 1, refused = excluded.refused, check_at = excluded.check_at, visited_at = excluded.visited_at,
  version = case when not %(lost)s then m.version end, state = case when %(lost)s then '{}' else m.state end
"""

_MISSED = """
update synced set misses = misses + 1, missing_since = coalesce(missing_since, %(now)s), visited_at = %(now)s,
  failures = 0, refused = %(version)s, check_at = %(check_at)s,
  removed_at = case when %(removed)s then %(now)s else removed_at end
where sync_id = %(sync)s and key = %(key)s
"""


@dataclass(frozen=True, slots=True)
class Memory:
    """A row, with what the ledger says of the document.

    Attributes:
        source_state: of its row in `sources`.
        fetched: it has been had at least once.
        check_at: when it is to be visited next whatever a listing says; None: when its version changes.
        removed_at: when it left the index because it was gone; None where it is in the index.
    """

    key: str
    uri: str
    source_id: int
    source_state: str
    fetched: bool
    version: str | None
    state: Mapping[str, Any]
    check_at: datetime | None
    first_seen: datetime
    failures: int
    refused: str | None
    missing_since: datetime | None
    removed_at: datetime | None

    @property
    def lost(self) -> bool:
        """The index does not have it any more though nobody found it gone: somebody deleted it there."""
        return self.source_state == "deleted" and self.removed_at is None

    def wants_visit(self, version: str | None, now: datetime) -> bool:
        """Whether a listing that gives this version is a reason for a visit."""
        if self.lost or (self.check_at is not None and self.check_at <= now):
            return True
        if self.failures or self.missing_since is not None:
            return version != self.refused
        return version is not None and version != self.version

    def known(self) -> Known:
        """The part that a connector is handed."""
        return Known(self.key, self.uri, self.version, self.state, self.missing_since is not None)


class Memories:
    """The rows of one sync on one connection.

    Args:
        living: names of the syncs that there are; what others left behind keeps no document in the index.
    """

    def __init__(self, connection: Connection[Any], sync: int, living: Collection[str] = ()) -> None:
        self._connection = connection
        self._sync = sync
        self._living = list(living)

    def get(self, key: str) -> Memory | None:
        """That of one document."""
        return next(iter(self._select("and m.key = %(key)s", key=key)), None)

    def with_version(self, version: str) -> list[Memory]:
        """Those of a version."""
        return self._select("and m.version = %(version)s limit 10", version=version)

    def all(self) -> Iterator[Memory]:
        """All, read in pieces, in the order of their keys; others may be written meanwhile."""
        after = ""
        while piece := self._select("and m.key > %(after)s order by m.key limit %(piece)s", after=after, piece=PIECE):
            yield from piece
            after = piece[-1].key

    def due(self, now: datetime, began: datetime) -> Iterator[Memory]:
        """Those whose time for a visit has come and that this run has not visited, the longest due first.

        Read in pieces; others may be written meanwhile.
        """
        where = "and m.check_at <= %(now)s and m.visited_at < %(began)s and (m.check_at, m.key) > (%(at)s, %(after)s)"
        at, after = datetime.min.replace(tzinfo=UTC), ""
        while piece := self._select(
            where + " order by m.check_at, m.key limit %(piece)s",
            now=now,
            began=began,
            at=at,
            after=after,
            piece=PIECE,
        ):
            yield from piece
            last = piece[-1]
            assert last.check_at is not None
            at, after = last.check_at, last.key

    def size(self, removed_since: datetime) -> tuple[int, int]:
        """How many are in the index, and how many have left it since then."""
        row = self._connection.execute(
            # What asked to be left out has never been there.
            "select count(*) filter (where m.removed_at is null), count(*) filter (where m.removed_at > %s"
            " and (s.kind <> 'synced' or s.location is not null))"
            " from synced m join sources s on s.id = m.source_id where m.sync_id = %s",
            (removed_since, self._sync),
        ).fetchone()
        assert row is not None
        return int(row[0]), int(row[1])

    def shared(self, memory: Memory) -> bool:
        """Whether another key, of any sync that there is, still stands for the same document."""
        return (
            self._connection.execute(
                "select from synced m join syncs s on s.id = m.sync_id where m.source_id = %s and m.removed_at is null"
                " and (m.sync_id, m.key) <> (%s, %s) and (s.id = %s or s.name = any(%s)) limit 1",
                (memory.source_id, self._sync, memory.key, self._sync, self._living),
            ).fetchone()
            is not None
        )

    def others(self, uri: str, key: str) -> list[tuple[str, datetime]]:
        """Other keys of this sync that stand for the document of this uri, each with the time it was first seen."""
        return self._connection.execute(
            "select m.key, m.first_seen from synced m join sources s on s.id = m.source_id"
            " where m.sync_id = %s and m.key <> %s and m.removed_at is null and s.uri = %s and s.state <> 'deleted'",
            (self._sync, key, uri),
        ).fetchall()

    def visited(
        self,
        key: str,
        source: int,
        *,
        version: str | None,
        state: Mapping[str, Any],
        check_at: datetime | None,
        now: datetime,
    ) -> None:
        """A visit went well."""
        values = {"sync": self._sync, "key": key, "source": source, "version": version, "state": Jsonb(dict(state))}
        self._connection.execute(_VISITED, {**values, "check_at": check_at, "now": now})

    def failed(
        self, key: str, source: int, *, version: str | None, check_at: datetime, now: datetime, lost: bool = False
    ) -> None:
        """A visit for this version failed; the next one is due at `check_at`, and reads it whole where it was lost."""
        values = {"sync": self._sync, "key": key, "source": source, "version": version, "lost": lost}
        self._connection.execute(_FAILED, {**values, "check_at": check_at, "now": now})

    def missed(self, key: str, *, version: str | None, check_at: datetime, removed: bool, now: datetime) -> None:
        """A look for this version did not find it; with `removed` it leaves the index now."""
        values = {"sync": self._sync, "key": key, "version": version, "removed": removed}
        self._connection.execute(_MISSED, {**values, "check_at": check_at, "now": now})

    def ask_again(self, keys: Sequence[str], now: datetime) -> None:
        """Have these visited by the next run."""
        self._connection.execute(
            "update synced set check_at = %s where sync_id = %s and key = any(%s)", (now, self._sync, list(keys))
        )

    def rename(self, old: str, new: str) -> None:
        """The document goes by another key now; what was remembered under that one is forgotten."""
        self.forget(new)
        self._connection.execute("update synced set key = %s where sync_id = %s and key = %s", (new, self._sync, old))

    def entrust(self, key: str, source: int) -> None:
        """Another row of the ledger is the document of this key now."""
        self._connection.execute(
            "update synced set source_id = %s where sync_id = %s and key = %s", (source, self._sync, key)
        )

    def forget(self, key: str) -> None:
        """Remember nothing of it any more."""
        self._connection.execute("delete from synced where sync_id = %s and key = %s", (self._sync, key))

    def _select(self, where: str, **values: Any) -> list[Memory]:
        with self._connection.cursor(row_factory=class_row(Memory)) as cursor:
            return cursor.execute((_SELECT + where).encode(), {"sync": self._sync, **values}).fetchall()
