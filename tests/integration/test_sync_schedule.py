"""Which sync is due and who runs it, on a real Postgres; and the beat that announces it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

from pipelines.errors import RetryableError, UnavailableError
from tests.fakes.place import Place, PlaceConnector
from worker.app import create_app
from worker.broker import SYNC_QUEUE, Broker
from worker.connectors.config import SyncConfig
from worker.embedded import Services
from worker.settings import Settings
from worker.sync.beat import SyncScheduler
from worker.sync.schedule import Report, Schedule
from worker.sync.syncer import Syncer

HOURLY = SyncConfig(type="place", every=3600)
NIGHTLY = SyncConfig(type="place", cron="0 3 * * *")
ASKED = SyncConfig(type="place")
NOTHING = Report({}, [])


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def on(self, **time: float) -> None:
        self.now += timedelta(**time)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def schedule(database: Connection[Any], clock: Clock) -> Callable[..., Schedule]:
    def make(connection: Connection[Any] | None = None, **syncs: SyncConfig) -> Schedule:
        found = Schedule(connection or database, syncs, lease_seconds=30, clock=clock)
        found.register()
        return found

    return make


def run(schedule: Schedule, *, listed: bool = True, full_in: float | None = None) -> str:
    turn = schedule.claim()
    assert turn is not None
    assert schedule.finish(turn, NOTHING, listed=listed, full_in=full_in, cursor=None)
    return turn.name


def test_a_new_sync_with_an_interval_is_due_at_once_and_then_after_it(
    schedule: Callable[..., Schedule], clock: Clock
) -> None:
    syncs = schedule(hourly=HOURLY, nightly=NIGHTLY, asked=ASKED)
    assert syncs.due() == 1
    assert run(syncs) == "hourly"
    assert (syncs.claim(), syncs.due()) == (None, 0)
    assert syncs.seconds_until_due() == 3600
    clock.on(seconds=3599)
    assert syncs.due() == 0
    clock.on(seconds=1)
    assert run(syncs) == "hourly"
    clock.now = datetime(2026, 11, 2, 3, tzinfo=UTC)
    assert {run(syncs), run(syncs)} == {"hourly", "nightly"}
    assert syncs.due() == 0


def test_a_start_anew_neither_runs_nor_postpones_what_is_planned(
    schedule: Callable[..., Schedule], clock: Clock
) -> None:
    run(schedule(hourly=HOURLY))
    clock.on(minutes=50)
    assert schedule(hourly=HOURLY).seconds_until_due() == 600


def test_a_shorter_interval_counts_from_now_and_none_unplans(schedule: Callable[..., Schedule], clock: Clock) -> None:
    run(schedule(hourly=HOURLY))
    assert schedule(hourly=SyncConfig(type="place", every=60)).seconds_until_due() == 60
    assert schedule(hourly=ASKED).seconds_until_due() is None


def test_what_is_asked_for_runs_once_whatever_the_schedule_says(schedule: Callable[..., Schedule]) -> None:
    syncs = schedule(asked=ASKED)
    assert syncs.due() == 0
    assert syncs.ask("asked")
    assert run(syncs) == "asked"
    assert syncs.due() == 0
    assert not syncs.ask("unknown")


def test_asked_for_while_it_runs_it_runs_again(schedule: Callable[..., Schedule], clock: Clock) -> None:
    syncs = schedule(asked=ASKED)
    syncs.ask("asked")
    turn = syncs.claim()
    assert turn is not None
    clock.on(seconds=1)
    syncs.ask("asked")
    assert syncs.finish(turn, NOTHING, listed=True, full_in=None, cursor=None)
    assert syncs.due() == 1


def test_a_push_does_not_move_the_schedule(schedule: Callable[..., Schedule], clock: Clock) -> None:
    syncs = schedule(hourly=HOURLY)
    run(syncs)
    clock.on(minutes=30)
    syncs.hint("hourly", ["a"])
    turn = syncs.claim()
    assert turn is not None
    assert not turn.listing
    assert syncs.finish(turn, NOTHING, listed=False, full_in=None, cursor=None)
    assert syncs.seconds_until_due() == 1800


def test_everything_is_listed_at_first_and_when_its_time_has_come(
    schedule: Callable[..., Schedule], clock: Clock
) -> None:
    syncs = schedule(hourly=HOURLY)
    found = []
    for _ in range(4):
        turn = syncs.claim()
        assert turn is not None
        found.append(turn.full)
        assert syncs.finish(turn, NOTHING, listed=True, full_in=7200 if turn.full else None, cursor=None)
        clock.on(hours=1)
    assert found == [True, False, True, False]
    assert syncs.ask("hourly", full=True)
    turn = syncs.claim()
    assert turn is not None
    assert turn.full


def test_a_run_that_takes_longer_than_its_interval_is_due_when_it_ends(
    schedule: Callable[..., Schedule], clock: Clock
) -> None:
    syncs = schedule(hourly=HOURLY)
    turn = syncs.claim()
    assert turn is not None
    clock.on(hours=5)
    assert syncs.finish(turn, NOTHING, listed=True, full_in=None, cursor=None)
    assert syncs.seconds_until_due() == 0


def test_runs_that_fail_wait_longer_each_time(schedule: Callable[..., Schedule], clock: Clock) -> None:
    syncs = schedule(hourly=HOURLY)
    waits = []
    for _ in range(4):
        turn = syncs.claim()
        assert turn is not None
        assert syncs.fail(turn, NOTHING, RetryableError("torn", "it was cut", "wait"))
        assert syncs.due() == 0
        wait = syncs.seconds_until_due()
        assert wait is not None
        waits.append(wait)
        clock.on(seconds=wait)
    for number, wait in enumerate(waits):
        assert 15 * 2**number <= wait <= 30 * 2**number


def test_a_provider_says_how_long_to_wait(schedule: Callable[..., Schedule], clock: Clock) -> None:
    syncs = schedule(hourly=HOURLY)
    turn = syncs.claim()
    assert turn is not None
    syncs.fail(turn, NOTHING, UnavailableError("away", "it asks to wait", retry_after=4000))
    assert syncs.seconds_until_due() == 4000
    assert syncs.ask("hourly")
    assert syncs.due() == 1


def test_one_of_two_claims_gets_it(schedule: Callable[..., Schedule], another: Callable[[], Connection[Any]]) -> None:
    first, second = schedule(hourly=HOURLY), schedule(another(), hourly=HOURLY)
    assert first.claim() is not None
    assert (second.claim(), second.take("hourly")) == (None, None)


def test_a_run_that_died_is_taken_over_and_fenced(
    schedule: Callable[..., Schedule], another: Callable[[], Connection[Any]], database: Connection[Any]
) -> None:
    syncs = schedule(hourly=HOURLY)
    dead = syncs.claim()
    assert dead is not None
    database.execute("update syncs set lease_until = now() - interval '1 s'")
    assert syncs.claim() is None, "it waits a little, since the sync itself may have killed it"
    database.execute("update syncs set lease_until = now() - interval '11 s'")
    assert syncs.claim() is not None
    assert not syncs.renew(another(), dead)
    assert not syncs.finish(dead, NOTHING, listed=True, full_in=None, cursor=None)
    assert not syncs.fail(dead, NOTHING, RetryableError("x", "x"))


def test_syncs_of_other_settings_are_left_alone(schedule: Callable[..., Schedule]) -> None:
    schedule(hourly=HOURLY)
    assert schedule(other=ASKED).claim() is None


def test_another_type_under_the_same_name_starts_anew(
    schedule: Callable[..., Schedule], database: Connection[Any]
) -> None:
    syncs = schedule(hourly=HOURLY)
    turn = syncs.claim()
    assert turn is not None
    syncs.finish(turn, NOTHING, listed=True, full_in=9999, cursor={"since": "yesterday"})
    schedule(hourly=SyncConfig(type="other", every=3600))
    assert database.execute("select kind, cursor, full_at from syncs").fetchone() == ("other", {}, None)


def test_two_beats_and_two_workers_run_it_once(
    dsn: str, services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place()
    place.put("a", "Text.")
    syncs = {"hourly": HOURLY}
    settings = Settings(database_url=dsn, broker_url=services.broker_url, home=tmp_path / "home")
    monkeypatch.setattr("worker.sync.beat.load_syncs", lambda _settings: syncs)
    app = create_app(settings, services)
    broker = Broker(app)
    with app.connection_or_acquire() as connection:
        connection.default_channel.queue_purge(SYNC_QUEUE) if broker.waiting(SYNC_QUEUE) else None
    beats = [SyncScheduler(app, settings=settings, lazy=True) for _ in range(2)]
    workers = [
        Syncer(settings, syncs, opener=lambda _config, surroundings: PlaceConnector(place, surroundings))
        for _ in range(2)
    ]
    try:
        for _ in range(3):
            for beat in beats:
                assert 0 < beat.tick() <= settings.sweep_seconds
        assert broker.waiting(SYNC_QUEUE) == 1, "what waits is not announced again"
        assert sorted(worker.work(seconds=10) for worker in workers) == [0, 1]
        assert place.listings == [True]
        for beat in beats:
            beat.tick()
        assert broker.waiting(SYNC_QUEUE) == 1
    finally:
        for worker in workers:
            worker.close()
        for beat in beats:
            beat.close()


def test_a_beat_outlives_its_database(services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(database_url="postgresql://127.0.0.1:1/none", broker_url=services.broker_url, home=tmp_path)
    monkeypatch.setattr("worker.sync.beat.load_syncs", lambda _settings: {"hourly": HOURLY})
    beat = SyncScheduler(create_app(settings, services), settings=settings, lazy=True)
    assert beat.tick() == settings.sweep_seconds
    beat.close()
