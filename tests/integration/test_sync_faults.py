"""What providers, people and other processes do to a sync, and what must not come of it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

from pipelines.errors import GristmillError, PermanentError, RetryableError, UnavailableError
from tests.fakes.place import Place, PlaceConnector
from tests.fakes.sync_house import SyncHouse
from worker.connectors.config import SyncConfig
from worker.connectors.contract import Document, Item, Known, Surroundings, Visit
from worker.ledger import Ledger
from worker.settings import Settings
from worker.sync.syncer import Syncer, open_schedule

CONFIRM = 3600.0

Change = Callable[[Document], Document]


class OddConnector(PlaceConnector):
    """A place whose documents are changed on their way, and which lists more than it has."""

    change: Change = staticmethod(lambda found: found)
    more: tuple[Item, ...] = ()
    asked: list[Known | None]

    def __init__(self, place: Place, surroundings: Surroundings) -> None:
        super().__init__(place, surroundings)
        self.asked = []

    def listing(self, *, full: bool) -> Iterator[Any]:
        yield from self.more
        yield from super().listing(full=full)

    def visit(self, key: str, known: Known | None, folder: Path) -> Visit:
        self.asked.append(known)
        found = super().visit(key, known, folder)
        return self.change(found) if isinstance(found, Document) else found


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def odd(place: Place) -> OddConnector:
    return OddConnector(place, Surroundings(Settings()))


@pytest.fixture
def settings(dsn: str, tmp_path: Path) -> Settings:
    return Settings(database_url=dsn, home=tmp_path / "home", delete_guard_minimum=4)


@pytest.fixture
def house(settings: Settings, database: Connection[Any], odd: OddConnector, place: Place) -> Iterator[SyncHouse]:
    def opened(_config: SyncConfig, surroundings: Surroundings) -> OddConnector:
        odd.absence, odd.incremental = place.absence, place.incremental
        return odd

    found = SyncHouse(settings, database, SyncConfig(type="place", every=60, confirm_after=CONFIRM), opened)
    yield found
    found.close()


def fill(place: Place, count: int) -> None:
    for number in range(count):
        place.put(f"{number}", f"Text number {number}.")


def facts(house: SyncHouse, uri: str) -> dict[str, Any]:
    row = house.connection.execute(
        "select d.metadata from documents d join sources s on s.id = d.source_id where s.uri = %s", (uri,)
    ).fetchone()
    assert row is not None
    metadata: dict[str, Any] = row[0]
    return metadata


# --- text that Postgres does not take -----------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["\0", "\ud83d", "\udc80"])
def test_a_document_with_odd_characters_is_taken_and_stops_nobody(
    house: SyncHouse, place: Place, odd: OddConnector, bad: str
) -> None:
    odd.change = lambda found: replace(
        found,
        filename=f"a{bad}b.txt",
        metadata={"title": f"T{bad}", "deep": [{f"k{bad}": f"v{bad}"}], "share": math.nan},
        version=f"1{bad}",
        state={"text": f"{bad}"},
        unread=[f"a file {bad}"],
    )
    fill(place, 2)
    report = house.sync()
    assert report.counts["new"] == 2
    assert house.index() == {f"place:{n}": f"Text number {n}." for n in range(2)}
    assert facts(house, "place:0")["title"] == "T\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("key", ["a\0b", "\ud83d", "", "k" * 3000])
def test_a_key_that_cannot_be_kept_is_told_of_and_stops_nobody(
    house: SyncHouse, place: Place, odd: OddConnector, key: str
) -> None:
    fill(place, 2)
    odd.more = (Item(key, f"place:{key}", "1"),)
    report = house.sync()
    assert (report.counts["new"], report.counts["failed"], len(report.notices)) == (2, 1, 1)
    odd.more = (Item("long", "place:" + "u" * 3000, "1"),)
    place.moved["0"] = "place:" + "u" * 3000
    place.put("0", "Text.", version="2")
    report = house.sync()
    assert report.counts["failed"] == 2
    assert "place:1" in house.index()


def test_a_very_long_version_is_compared_all_the_same(house: SyncHouse, place: Place, odd: OddConnector) -> None:
    chance = random.Random(1)
    noise = "".join(chr(chance.randrange(0x4E00, 0x9FFF)) for _ in range(6000))
    place.put("a", "Text.", version=noise)
    house.sync()
    house.sync()
    assert place.visits == ["a"]
    place.put("a", "Text.", version=noise + "2")
    house.sync()
    assert place.visits == ["a", "a"]


@pytest.mark.parametrize("kind", [PermanentError, UnavailableError])
def test_an_error_with_odd_characters_is_told_of(house: SyncHouse, place: Place, kind: type[GristmillError]) -> None:
    fill(place, 2)
    place.put("0", kind("odd", "it says \0 and \ud83d", "look \0"))
    report, error = house.try_sync()
    if kind is PermanentError:
        assert (error, house.states()["place:0"]) == (None, ("failed", "odd"))
        assert "place:1" in house.index()
    else:
        assert error is not None
        assert house.connection.execute("select error_code, token from syncs").fetchone() == ("odd", None)
    assert report.counts["visited"] > 0


@pytest.mark.parametrize("seconds", [1e15, math.inf, math.nan, -5.0])
def test_a_wait_beyond_all_measure_is_cut(house: SyncHouse, place: Place, seconds: float) -> None:
    fill(place, 2)
    place.put("0", RetryableError("busy", "busy", "wait", retry_after=seconds))
    house.sync()
    assert "place:1" in house.index()
    place.put("0", UnavailableError("away", "away", "wait", retry_after=seconds), version="2")
    _, error = house.try_sync(later=30 * 86_400)
    assert error is not None
    row = house.connection.execute("select not_before - ended_at from syncs").fetchone()
    assert row is not None
    assert timedelta(0) <= row[0] <= timedelta(days=30)


# --- time ---------------------------------------------------------------------------------------------------------


def test_the_hour_that_comes_twice_lets_no_schedule_lie_in_the_past() -> None:
    config = SyncConfig(type="place", cron="*/15 * * * *")
    at = datetime(2026, 10, 24, 22, 5, tzinfo=UTC)
    for _ in range(24):
        following = config.next_run(at, "Europe/Berlin")
        assert following is not None
        assert timedelta(0) < following - at <= timedelta(hours=1, minutes=15)
        at = following
    assert config.next_run(datetime(2026, 10, 25, 1, 15, tzinfo=UTC), "Europe/Berlin") == datetime(
        2026, 10, 25, 1, 30, tzinfo=UTC
    )


@pytest.mark.parametrize("value", [math.inf, math.nan, 1e15])
@pytest.mark.parametrize("name", ["every", "full_every", "confirm_after"])
def test_durations_beyond_all_measure_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        SyncConfig.model_validate({"type": "place", name: value})


# --- turns --------------------------------------------------------------------------------------------------------


def test_a_push_does_not_starve_behind_a_sync_that_is_always_due(settings: Settings, database: Connection[Any]) -> None:
    syncs = {"busy": SyncConfig(type="place", every=1), "quiet": SyncConfig(type="place")}
    now = datetime.now(UTC)
    schedule = open_schedule(settings, database, syncs, clock=lambda: now)
    schedule.register()
    schedule.hint("quiet", ["a"])
    database.execute("update syncs set next_at = %s where name = 'busy'", (now + timedelta(seconds=1),))
    now += timedelta(seconds=10)
    turn = schedule.claim()
    assert turn is not None
    assert (turn.name, turn.listing) == ("quiet", False)


def test_all_of_it_asked_for_during_a_full_run_is_listed_by_the_next(house: SyncHouse, place: Place) -> None:
    place.incremental = True
    fill(place, 1)
    schedule = house.syncer._schedule()

    def ask(_key: str) -> None:
        if len(place.listings) == 1:
            house.now += timedelta(seconds=1)
            schedule.ask("place", full=True)

    place.listing_fault = ask
    house.sync()
    house.work(later=1)
    assert place.listings == [True, True]


# --- whose document it is ---------------------------------------------------------------------------------------


def test_a_sync_that_was_renamed_still_deletes(
    house: SyncHouse, settings: Settings, place: Place, odd: OddConnector
) -> None:
    fill(place, 3)
    house.sync()
    renamed = Syncer(
        settings,
        {"other": SyncConfig(type="place", confirm_after=CONFIRM)},
        clock=lambda: house.now,
        opener=lambda _config, _surroundings: odd,
    )
    try:
        house.now += timedelta(seconds=60)
        renamed.sync("other")
        house.ingest()
        place.drop("1")
        house.now += timedelta(seconds=60)
        renamed.sync("other")
    finally:
        renamed.close()
    assert set(house.index()) == {"place:0", "place:2"}


def test_what_was_deleted_by_hand_is_read_whole_even_after_a_visit_that_failed(
    house: SyncHouse, place: Place, odd: OddConnector
) -> None:
    place.put("a", "Text.")
    house.sync()
    Ledger(house.connection).delete("place:a")
    place.put("a", RetryableError("busy", "busy", "wait"))
    house.sync()
    place.put("a", "Text.", version="2")
    house.sync(later=86_400)
    last = odd.asked[-1]
    assert last is not None
    assert (dict(last.state), last.version) == ({}, None)
    assert house.index() == {"place:a": "Text."}


@pytest.mark.parametrize("absence", ["nothing", "ask", "gone"])
def test_what_never_could_be_had_and_is_gone_counts_as_failed_no_more(
    house: SyncHouse, place: Place, absence: Any
) -> None:
    place.absence = absence
    place.put("a", RetryableError("busy", "busy", "wait"))
    house.sync()
    place.drop("a")
    house.sync(later=2 * CONFIRM)
    assert house.states()["place:a"][0] == "deleted"
    house.sync(later=2 * CONFIRM)
    assert house.connection.execute("select count(*) from synced").fetchone() == (0,)


def test_what_is_renamed_goes_by_its_new_file_name(house: SyncHouse, place: Place, odd: OddConnector) -> None:
    place.content_addressed = True
    odd.change = lambda found: replace(found, filename=found.uri.rpartition(":")[2], metadata={})
    place.moved = {"a": "place:old.txt", "b": "place:new.txt"}
    place.put("a", "Text.", version="etag")
    house.sync()
    place.drop("a")
    place.put("b", "Text.", version="etag")
    report = house.sync()
    assert report.counts["moved"] == 1
    found = facts(house, "place:new.txt")
    assert (found["filename"], found["title"]) == ("new.txt", "new.txt")
    assert house.connection.execute("select filename from sources").fetchone() == ("new.txt",)


# --- files of a document ------------------------------------------------------------------------------------------


def test_a_file_whose_bytes_are_the_same_follows_its_page(house: SyncHouse, place: Place, odd: OddConnector) -> None:
    place.put("a", "Page.")
    place.files["a"] = {"f.txt": "File."}
    house.sync()
    embedded = house.embedder.texts
    odd.change = lambda found: replace(
        found,
        metadata={"title": "New title", "path": "Elsewhere"},
        enclosures=[replace(one, path=None) for one in found.enclosures],
    )
    place.put("a", "Page.", version="2")
    house.sync()
    found = facts(house, "place:a#f.txt")
    assert (found["parent_title"], found["path"]) == ("New title", "Elsewhere")
    assert house.index()["place:a#f.txt"] == "File."
    assert house.embedder.texts <= embedded + 2


def test_a_file_deleted_by_hand_comes_back_with_its_page(house: SyncHouse, place: Place, odd: OddConnector) -> None:
    place.put("a", "Page.")
    place.files["a"] = {"f.txt": "File."}
    odd.change = lambda found: replace(
        found,
        enclosures=[
            replace(one, path=None if (known := odd.asked[-1]) and known.state else one.path)
            for one in found.enclosures
        ],
    )
    house.sync()
    Ledger(house.connection).delete("place:a#f.txt")
    place.put("a", "Page, changed.", version="2")
    house.sync()
    house.sync()
    assert house.index()["place:a#f.txt"] == "File."
    visits = len(place.visits)
    house.sync()
    assert len(place.visits) == visits


# --- the guard ----------------------------------------------------------------------------------------------------


def test_a_removal_in_small_steps_is_seen_as_one(house: SyncHouse, place: Place) -> None:
    fill(place, 20)
    house.sync()
    for number in range(18):
        place.drop(f"{number}")
        if number % 3 == 2:
            house.sync()
    assert len(house.index()) >= 10


def test_what_was_never_in_the_index_is_not_counted_as_removed(house: SyncHouse, place: Place) -> None:
    fill(place, 12)
    place.unwanted = {f"{number}" for number in range(8)}
    house.sync()
    place.drop("11")
    report = house.sync()
    assert (report.counts["removed"], report.counts.get("held")) == (1, None)


# --- failed ones, tried again -------------------------------------------------------------------------------------


def test_trying_again_what_could_not_be_fetched_has_it_visited(house: SyncHouse, place: Place) -> None:
    place.put("a", PermanentError("forbidden", "it may not be read", "share it"))
    house.sync()
    assert house.states() == {"place:a": ("failed", "forbidden")}
    Ledger(house.connection).retry()
    house.ingest()
    assert house.states()["place:a"][0] == "failed"
    place.put("a", "Text.")
    house.sync()
    assert house.index() == {"place:a": "Text."}


# --- another place under the same name ----------------------------------------------------------------------------


def test_documents_follow_the_place_where_settings_have_moved_it(
    house: SyncHouse, place: Place, odd: OddConnector
) -> None:
    place.content_addressed = True
    place.put("a.txt", "Text.", version="etag")
    house.sync()
    before = house.rows()["place:a.txt"]
    place.moved["a.txt"] = "place:elsewhere/a.txt"
    house.sync()
    assert house.rows() == {"place:elsewhere/a.txt": before}
    assert house.index() == {"place:elsewhere/a.txt": "Text."}
    visits = len(place.visits)
    house.sync()
    assert len(place.visits) == visits


# --- looks that change nothing ------------------------------------------------------------------------------------


def test_a_preview_outlives_names_that_cannot_be_kept(house: SyncHouse, place: Place, odd: OddConnector) -> None:
    fill(place, 1)
    odd.more = (Item("a\0b", "place:x", "1"),)
    assert [action for action, _ in house.syncer.preview("place")] == ["incomplete", "new"]


@pytest.mark.parametrize(
    "statement", ['select \'{"a": "\\u0000"}\'::jsonb', "do $$ begin raise sqlstate '40P01'; end $$"]
)
def test_what_the_database_does_not_take_costs_one_document(
    house: SyncHouse, place: Place, odd: OddConnector, statement: Any
) -> None:
    fill(place, 2)

    def change(found: Document) -> Document:
        if found.uri == "place:0":
            house.writer().execute(statement)
        return found

    odd.change = change
    report = house.sync()
    assert (report.counts["failed"], set(house.index())) == (1, {"place:1"})


def test_other_settings_have_everything_listed_again(
    house: SyncHouse, place: Place, settings: Settings, odd: OddConnector
) -> None:
    place.incremental = True
    fill(place, 1)
    house.sync()
    house.sync()
    assert place.listings == [True, False]
    syncs = {"place": SyncConfig(type="place", every=7, metadata={"team": "other"})}
    changed = Syncer(
        settings, syncs, clock=lambda: house.now, opener=lambda _config, _around: PlaceConnector(place, _around)
    )
    try:
        for _ in range(2):
            house.now += timedelta(seconds=60)
            assert changed.sync("place")[1] is None
    finally:
        changed.close()
    assert place.listings == [True, False, True, False]
    assert [dict(cursor) for cursor in place.cursors][1:] == [{}, {"listings": 3}]


def test_a_run_asked_for_by_a_clock_that_is_behind_takes_place(house: SyncHouse, place: Place) -> None:
    fill(place, 1)
    late = open_schedule(
        house.syncer._settings, house.connection, house.syncer._syncs, clock=lambda: house.now - timedelta(seconds=30)
    )
    place.listing_fault = lambda _key: late.ask("place") if len(place.listings) == 1 else None
    house.sync()
    assert house.work(later=1) == 1


def test_what_a_person_has_to_confirm_is_told_before_all_else(
    house: SyncHouse, place: Place, odd: OddConnector
) -> None:
    fill(place, 6)
    house.sync()
    odd.more = tuple(Item(f"\0{number}", "place:x", "1") for number in range(50))
    for number in range(5):
        place.drop(f"{number}")
    report = house.sync()
    assert (report.counts["held"], len(report.notices)) == (5, 20)
    assert "--confirm-deletions" in report.notices[0]


def test_a_document_of_two_syncs_goes_with_the_last_of_them(
    house: SyncHouse, settings: Settings, place: Place, odd: OddConnector
) -> None:
    there = Place({"a": "Text."}, {"a": "1"})
    place.put("a", "Text.")
    syncs = {name: SyncConfig(type="place", confirm_after=CONFIRM) for name in ("place", "other")}
    both = Syncer(
        settings,
        syncs,
        clock=lambda: house.now,
        opener=lambda config, around: PlaceConnector(place if config is syncs["place"] else there, around),
    )

    def run(name: str) -> None:
        house.now += timedelta(seconds=60)
        assert both.sync(name)[1] is None
        house.ingest()

    try:
        run("place")
        run("other")
        place.drop("a")
        run("place")
        assert house.index() == {"place:a": "Text."}
        there.drop("a")
        run("other")
        assert house.index() == {}
    finally:
        both.close()
