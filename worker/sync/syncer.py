"""Runs the syncs that are due: claims one under a lease, opens its connector, and notes how the run ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import psycopg
from psycopg import Connection

from pipelines.errors import ConfigurationError, GristmillError, RetryableError, UnavailableError
from worker.connectors.config import SyncConfig
from worker.connectors.contract import Connector, Surroundings, utc_now
from worker.connectors.registry import open_connector
from worker.content import open_spool
from worker.database import open_ledger
from worker.drain import Drain, to_record
from worker.lease import FencedError, Pages, kept_lease
from worker.settings import Settings
from worker.sync.memory import Memories
from worker.sync.preview import preview
from worker.sync.run import Run
from worker.sync.schedule import Report, Schedule, Turn
from worker.sync.storable import said
from worker.sync.take import Taker

log = logging.getLogger(__name__)

GAP_SECONDS = 3600.0
"""Longest wait for the next full listing after one that was not complete."""


def open_schedule(
    settings: Settings,
    connection: Connection[Any],
    syncs: Mapping[str, SyncConfig],
    *,
    clock: Callable[[], datetime] = utc_now,
) -> Schedule:
    """The syncs on this connection, with the settings' tenant, time zone and lease."""
    return Schedule(
        connection,
        syncs,
        tenant=settings.tenant,
        timezone=settings.timezone,
        lease_seconds=settings.lease_seconds,
        clock=clock,
    )


class Syncer(Drain):
    """Claims due syncs and runs them.

    Args:
        syncs: those of the settings, by name.
        news: called when documents are due for indexing.
        clock: the time by which syncs and visits are due; leases go by the database's.
        opener: opens the connector of a sync.
        wait: sleeps for so many seconds, for connectors; by default for real, and no longer than the lease holds.
    """

    application = "gristmill sync"

    def __init__(
        self,
        settings: Settings,
        syncs: Mapping[str, SyncConfig],
        *,
        news: Callable[[], object] = lambda: None,
        clock: Callable[[], datetime] = utc_now,
        opener: Callable[[SyncConfig, Surroundings], Connector] = open_connector,
        wait: Callable[[float], None] | None = None,
    ) -> None:
        super().__init__(settings)
        self._opener = opener
        self._wait = wait
        self._syncs = syncs
        self._news = news
        self._clock = clock

    def sync(self, name: str, *, full: bool = False, confirmed: bool = False) -> tuple[Report, GristmillError | None]:
        """Run one sync now, due or not.

        Args:
            full: list everything, even where changes alone could be listed.
            confirmed: delete what is missing, however much it is.

        Returns:
            What was done, and the error that ended it, if one did.

        Raises:
            RetryableError: `sync_running`: another process runs it.
        """
        schedule = self._schedule()
        turn = schedule.take(name)
        if turn is None:
            raise RetryableError("sync_running", f"{name} is being run already", "wait until it is through")
        return self._run(turn, full=full, confirmed=confirmed)

    def forget(self, name: str) -> int:
        """Take a sync's documents out of the index, and forget it. Returns how many documents there were.

        The sync need not be in the settings any more; if it is, its next run begins anew. Documents that another sync
        has as well, or that somebody sent, stay.

        Raises:
            ConfigurationError: `unknown_sync`: there is none of this name.
            RetryableError: `sync_running`: another process runs it.
        """
        connection = self._connected()
        schedule = self._schedule()
        if not schedule.exists(name):
            raise ConfigurationError("unknown_sync", f"there is no sync {name}", "see: gristmill sync")
        turn = schedule.take(name)
        if turn is None:
            raise RetryableError("sync_running", f"{name} is being run", "wait until it is through")
        memories = Memories(connection, turn.id, self._syncs)
        taker = Taker(
            connection,
            open_ledger(self._settings, connection),
            open_spool(self._settings),
            memories,
            turn,
            SyncConfig.model_validate({"type": turn.kind}),
        )
        removed = 0
        for memory in memories.all():
            removed += memory.removed_at is None
            taker.missed(memory, version=None, remove=True, again_in=0, now=self._clock())
        schedule.forget(turn)
        return removed

    def preview(self, name: str, *, full: bool = False) -> Iterator[tuple[str, str]]:
        """What a run would do, without doing it: pairs of an action and a uri or reason, as they are found.

        Nothing is fetched: `visit` says that only a visit will tell. Actions: new, changed, visit, missing, incomplete.

        Args:
            full: list everything, even where changes alone could be listed.
        """
        connection = self._connected()
        row = connection.execute(
            "select id, cursor, full_at is null or full_at <= %s or recipe is distinct from %s from syncs"
            " where tenant = %s and name = %s",
            (self._clock(), self._syncs[name].recipe, self._settings.tenant, name),
        ).fetchone()
        assert row is not None
        memories = Memories(connection, row[0])
        surroundings = Surroundings(
            settings=self._settings,
            clock=self._clock,
            wait=self._wait or time.sleep,
            cursor=row[1],
            known=lambda: (memory.known() for memory in memories.all()),
        )
        with self._opener(self._syncs[name], surroundings) as connector:
            yield from preview(connector, memories, full=full or row[2] or not connector.incremental, now=self._clock())

    def _work_one(self) -> bool:
        turn = self._schedule().claim()
        if turn is None:
            return False
        self._run(turn)
        return True

    def _check(self, connection: Connection[Any]) -> None:
        open_schedule(self._settings, connection, self._syncs, clock=self._clock).register()

    def _schedule(self) -> Schedule:
        return open_schedule(self._settings, self._connected(), self._syncs, clock=self._clock)

    def _run(self, turn: Turn, *, full: bool = False, confirmed: bool = False) -> tuple[Report, GristmillError | None]:
        began = time.monotonic()
        connection = self._connected()
        schedule = self._schedule()
        config = self._syncs[turn.name]
        memories = Memories(connection, turn.id, self._syncs)
        report = Report({}, [])
        failure: GristmillError | None = None

        def renew(connection: Connection[Any], _pages: Pages | None) -> bool:
            return schedule.renew(connection, turn)

        def give_back(connection: Connection[Any]) -> None:
            open_schedule(self._settings, connection, self._syncs, clock=self._clock).give_up(turn)

        try:
            # A run can take hours, and the next one begins where this one was: no use in waiting for it.
            with kept_lease(self._settings, f"sync {turn.name}", renew, give_back, patience=0.0) as lease:
                surroundings = Surroundings(
                    settings=self._settings,
                    clock=self._clock,
                    wait=self._wait or lease.wait,
                    cursor=turn.cursor,
                    known=lambda: (memory.known() for memory in memories.all()),
                )
                with self._opener(config, surroundings) as connector:
                    ledger = open_ledger(self._settings, connection)
                    taker = Taker(connection, ledger, open_spool(self._settings), memories, turn, config)
                    run = Run(
                        self._settings,
                        turn,
                        config,
                        connector,
                        memories,
                        taker,
                        lease,
                        clock=self._clock,
                        news=self._news,
                        confirmed=confirmed,
                    )
                    full = full or turn.full or not connector.incremental
                    try:
                        self._hints(turn, run)
                        torn = run.list(full=full) if turn.listing else None
                        run.revisit()
                        run.settle()
                        if torn is not None:
                            raise torn
                    except (UnavailableError, ConfigurationError):
                        run.settle(broken_off=True)  # what was seen to be gone before may be secret by now
                        raise
                    finally:
                        report = run.report()
                    cursor = connector.cursor() if turn.listing and run.complete else None
                    full_in = None
                    if turn.listing and full:
                        full_in = config.full_every if run.complete else min(config.full_every, GAP_SECONDS)
                    finished = schedule.finish(
                        turn, report, listed=turn.listing, full_in=full_in, cursor=cursor, confirmed=confirmed
                    )
                    if not finished:
                        raise FencedError
        except FencedError:
            failure = RetryableError("sync_taken_over", "another process has taken this sync over", "wait for it")
            log.info("dropped, no longer ours: sync %s", turn.name)
        except psycopg.OperationalError:
            raise
        except Exception as error:
            recorded = failure = to_record(error)
            foreseen = isinstance(error, GristmillError)
            log.log(
                logging.WARNING if foreseen else logging.ERROR,
                "sync %s could not go on: %s",
                turn.name,
                said(str(failure)),
                exc_info=None if foreseen else error,
            )
            schedule.fail(turn, report, recorded)
        if report.counts.get("indexed"):
            self._news()
        numbers = ", ".join(f"{count} {name}" for name, count in report.counts.items() if count and name != "full")
        log.info("sync %s: %s in %.1f s", turn.name, numbers or "nothing", time.monotonic() - began)
        return report, failure

    def _hints(self, turn: Turn, run: Run) -> None:
        """Visit what pushes named; a hint that comes meanwhile stays for the next run."""
        connection = self._connected()
        hints = connection.execute(
            "select key, received_at from sync_hints where sync_id = %s order by received_at, key limit 1000",
            (turn.id,),
        ).fetchall()
        run.look([key for key, _ in hints])
        connection.cursor().executemany(
            "delete from sync_hints where sync_id = %s and key = %s and received_at = %s",
            [(turn.id, key, received) for key, received in sorted(hints)],  # pushes lock them in the same order
        )
