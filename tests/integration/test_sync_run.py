"""Runs of a sync over a place in memory, into a real ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

from pipelines.errors import ConfigurationError, PermanentError, RetryableError, UnavailableError
from tests.fakes.place import Place, PlaceConnector
from tests.fakes.sync_house import SyncHouse
from worker.connectors.config import SyncConfig
from worker.connectors.contract import Incomplete
from worker.ledger import Ledger
from worker.settings import Settings
from worker.sync.syncer import Syncer

CONFIRM = 3600.0


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def house(dsn: str, database: Connection[Any], tmp_path: Path, place: Place) -> Iterator[SyncHouse]:
    settings = Settings(database_url=dsn, home=tmp_path / "home", delete_guard_minimum=4)
    config = SyncConfig(type="place", every=60, confirm_after=CONFIRM, metadata={"team": "docs"})
    found = SyncHouse(settings, database, config, lambda _config, surroundings: PlaceConnector(place, surroundings))
    yield found
    found.close()


def fill(place: Place, count: int) -> None:
    for number in range(count):
        place.put(f"{number}", f"Text number {number}.")


def test_what_is_there_is_found_and_what_is_the_same_costs_nothing(house: SyncHouse, place: Place) -> None:
    fill(place, 3)
    assert house.sync().counts["new"] == 3
    assert house.index() == {f"place:{n}": f"Text number {n}." for n in range(3)}
    place.visits.clear()
    embedded = house.embedder.texts
    report = house.sync()
    assert (report.counts["unchanged"], place.visits, house.embedder.texts) == (3, [], embedded)


def test_metadata_is_that_of_the_document_and_of_the_sync(house: SyncHouse, place: Place) -> None:
    place.put("a", "Text.")
    house.sync()
    (metadata,) = house.connection.execute("select metadata from documents").fetchone() or ({},)
    expected = {"team": "docs", "sync": "place", "title": "a", "uri": "place:a", "filename": "a.txt"}
    assert expected.items() <= metadata.items()


def test_another_version_is_fetched_and_its_text_replaces_the_old(house: SyncHouse, place: Place) -> None:
    fill(place, 2)
    house.sync()
    place.put("1", "Other text.", version="2")
    report = house.sync()
    assert (report.counts["changed"], place.visits[2:]) == (1, ["1"])
    assert house.index()["place:1"] == "Other text."


def test_another_version_of_the_same_bytes_is_not_indexed_again(house: SyncHouse, place: Place) -> None:
    place.put("a", "Text.")
    house.sync()
    (before,) = house.connection.execute("select version from sources").fetchone() or (0,)
    place.put("a", "Text.", version="2")
    report = house.sync()
    assert (report.counts["visited"], report.counts.get("indexed", 0)) == (1, 0)
    assert house.connection.execute("select version from sources").fetchone() == (before,)


def test_what_was_read_while_it_changed_is_read_again_by_the_next_run(house: SyncHouse, place: Place) -> None:
    place.put("a", "Half.", version=None)
    house.sync()
    place.put("a", "Whole.", version=None)
    house.sync()
    assert house.index() == {"place:a": "Whole."}


def test_a_document_without_versions_is_visited_when_it_is_due(house: SyncHouse, place: Place) -> None:
    place.again_in = 600.0
    place.put("a", "Text.", version=None)
    house.sync()
    house.sync(later=300)
    assert len(place.visits) == 1
    house.sync(later=400)
    assert len(place.visits) == 2


def test_what_is_gone_at_once_leaves_the_index_and_is_forgotten_once_confirmed(house: SyncHouse, place: Place) -> None:
    fill(place, 3)
    house.sync()
    place.drop("1")
    house.sync()
    assert set(house.index()) == {"place:0", "place:2"}
    assert memories(house) == {"0", "1", "2"}
    house.sync(later=CONFIRM)
    assert memories(house) == {"0", "2"}


def test_what_may_be_back_leaves_the_index_only_at_a_second_look_later(house: SyncHouse, place: Place) -> None:
    place.at_once = False
    fill(place, 3)
    house.sync()
    place.drop("1")
    for _ in range(3):
        house.sync()
        assert "place:1" in house.index()
    house.sync(later=CONFIRM)
    assert set(house.index()) == {"place:0", "place:2"}


def test_what_comes_back_is_found_again_without_being_embedded_again(house: SyncHouse, place: Place) -> None:
    fill(place, 3)
    house.sync()
    place.drop("1")
    house.sync()
    embedded = house.embedder.texts
    place.put("1", "Text number 1.")
    house.sync()
    assert house.index()["place:1"] == "Text number 1."
    assert house.embedder.texts == embedded


def test_what_was_missing_and_is_back_before_the_second_look_never_left(house: SyncHouse, place: Place) -> None:
    place.at_once = False
    fill(place, 3)
    house.sync()
    place.drop("1")
    house.sync()
    place.put("1", "Text number 1.")
    house.sync(later=CONFIRM)
    place.drop("1")
    house.sync(later=CONFIRM)
    assert "place:1" in house.index()


@pytest.mark.parametrize("absence", ["gone", "ask", "nothing"])
def test_what_a_listing_leaves_out_goes_as_its_connector_says(house: SyncHouse, place: Place, absence: Any) -> None:
    place.absence = absence
    fill(place, 3)
    house.sync()
    place.hidden = {"1"}
    house.sync()
    assert ("place:1" in house.index()) == (absence != "gone")


@pytest.mark.parametrize("absence", ["gone", "ask"])
def test_nothing_is_deleted_on_the_word_of_an_incomplete_listing(house: SyncHouse, place: Place, absence: Any) -> None:
    place.absence = absence
    fill(place, 3)
    house.sync()
    place.drop("1")
    place.gaps = [Incomplete("half of it was hidden")]
    report = house.sync()
    assert len(house.index()) == 3
    assert report.notices == ["half of it was hidden"]
    place.gaps = []
    house.sync(later=CONFIRM)
    assert len(house.index()) == 2


def test_what_a_gap_leaves_to_visits_is_asked_for(house: SyncHouse, place: Place) -> None:
    fill(place, 3)
    house.sync()
    place.drop("1")
    place.hidden = {"0"}
    place.gaps = [Incomplete("a part of it was hidden", asking=True)]
    house.sync()
    assert set(house.index()) == {"place:0", "place:2"}
    assert place.cursors[-1] == {"listings": 1}
    house.sync()
    assert place.cursors[-1] == {"listings": 1}, "it was not complete"


def test_a_gap_spares_only_what_lies_in_it(house: SyncHouse, place: Place) -> None:
    place.absence = "gone"
    for key in ("a/1", "a/2", "b/1", "b/2"):
        place.put(key, f"Text {key}.")
    house.sync()
    place.drop("a/1")
    place.drop("b/1")
    place.gaps = [Incomplete("a cannot be read", "place:a/")]
    house.sync()
    assert set(house.index()) == {"place:a/1", "place:a/2", "place:b/2"}


def test_a_listing_that_fails_midway_deletes_nothing_and_keeps_what_it_brought(house: SyncHouse, place: Place) -> None:
    fill(place, 3)
    house.sync()
    place.drop("0")
    place.put("1", "Other text.", version="2")

    def fault(key: str) -> None:
        if key == "2":
            raise RetryableError("torn", "the connection was cut", "wait")

    place.listing_fault = fault
    _report, error = house.try_sync()
    assert error is not None
    assert error.code == "torn"
    assert house.index() == {"place:0": "Text number 0.", "place:1": "Other text.", "place:2": "Text number 2."}


def test_what_comes_during_the_run_is_not_missed_by_its_listing(house: SyncHouse, place: Place) -> None:
    fill(place, 2)

    def arrive(key: str) -> None:
        if key == "1":
            place.put("0a", "Text of a newcomer.")
            # A push brings it in before the listing, which has passed its place, is through.
            house.syncer._schedule().hint("place", ["0a"])

    place.listing_fault = arrive
    house.sync()
    house.sync()
    assert "place:0a" in house.index()


def test_too_many_deletions_wait_for_a_person(house: SyncHouse, place: Place) -> None:
    fill(place, 6)
    house.sync()
    for number in range(4):
        place.drop(f"{number}")
    for _ in range(2):
        report = house.sync(later=CONFIRM)
        assert report.counts["held"] == 4
        assert "gristmill sync place --confirm-deletions" in report.notices[0]
        assert len(house.index()) == 6
    house.sync(confirmed=True)
    assert set(house.index()) == {"place:4", "place:5"}


def test_what_was_confirmed_is_not_held_against_what_goes_later(house: SyncHouse, place: Place) -> None:
    fill(place, 20)
    house.sync()
    for number in range(12):
        place.drop(f"{number}")
    assert house.sync().counts["held"] == 12
    house.sync(confirmed=True)
    place.drop("12")
    house.sync()
    assert len(house.index()) == 7


def test_a_listing_that_always_fails_keeps_no_document_from_its_visits(house: SyncHouse, place: Place) -> None:
    place.again_in = 600.0
    fill(place, 2)
    house.sync()

    def fault(key: str) -> None:
        raise RetryableError("torn", "the connection was cut", "wait")

    place.listing_fault = fault
    place.put("1", "Edited.", version="2")
    _report, error = house.try_sync(later=700)
    assert error is not None
    assert house.index()["place:1"] == "Edited."


def test_what_was_seen_to_be_gone_before_the_provider_went_away_is_gone(house: SyncHouse, place: Place) -> None:
    fill(place, 3)
    house.sync()
    place.drop("0")
    place.again_in = 0.0
    place.put("1", UnavailableError("away", "it is away"), version="2")
    house.syncer._schedule().hint("place", ["0", "1"])
    house.try_sync()
    assert set(house.index()) == {"place:1", "place:2"}


def test_a_sync_that_is_forgotten_takes_its_documents_along(house: SyncHouse, place: Place) -> None:
    fill(place, 3)
    place.files["1"] = {"file.txt": "A file."}
    house.sync()
    Ledger(house.connection).record("file:///else", fingerprint="1")
    without = Syncer(house.settings, {})  # once it is out of the settings
    assert without.forget("place") == 3
    without.close()
    assert house.index() == {}
    assert house.connection.execute("select count(*) from syncs").fetchone() == (0,)
    assert house.connection.execute("select count(*) from synced").fetchone() == (0,)
    assert house.states()["file:///else"][0] == "pending"
    with pytest.raises(ConfigurationError, match="no sync"):
        house.syncer.forget("place")


def test_a_slow_removal_of_everything_is_seen_as_one(house: SyncHouse, place: Place) -> None:
    fill(place, 16)
    house.sync()
    for start in (0, 4, 8):
        for number in range(start, start + 4):
            place.drop(f"{number}")
        house.sync()
    assert len(house.index()) == 8


def test_a_visit_that_fails_leaves_the_others_alone_and_is_seen(house: SyncHouse, place: Place) -> None:
    fill(place, 3)
    place.put("1", PermanentError("too_large", "it is too large", "split it"))
    report = house.sync()
    assert (report.counts["failed"], report.counts["new"]) == (1, 2)
    assert house.states()["place:1"] == ("failed", "too_large")
    assert len(house.index()) == 2
    place.put("1", "Small enough.", version="2")
    house.sync()
    assert house.states()["place:1"] == ("done", None)
    assert house.index()["place:1"] == "Small enough."


def test_a_failed_visit_is_made_again_in_its_own_time(house: SyncHouse, place: Place) -> None:
    place.put("a", RetryableError("slow", "it is slow", "wait"))
    house.sync()
    house.sync(later=1)
    assert place.visits == ["a"]
    place.put("a", "Text.")
    house.sync(later=120)
    assert house.index() == {"place:a": "Text."}


def test_a_document_that_cannot_be_had_any_more_keeps_its_chunks_until_it_can(house: SyncHouse, place: Place) -> None:
    place.put("a", "Text.")
    house.sync()
    place.put("a", RetryableError("slow", "it is slow", "wait"), version="2")
    house.sync()
    assert house.states()["place:a"] == ("done", "slow")
    place.put("a", PermanentError("denied", "it may not be read", "ask"), version="3")
    house.sync(later=120)
    assert house.states()["place:a"] == ("failed", "denied")
    assert house.index() == {"place:a": "Text."}
    place.put("a", "Text.", version="4")
    house.sync(later=120)
    assert house.states()["place:a"] == ("done", None)
    assert house.index() == {"place:a": "Text."}


@pytest.mark.parametrize("version", ["1", "2"])
def test_an_error_that_is_over_is_told_of_no_more(house: SyncHouse, place: Place, version: str) -> None:
    """Whether the next visit finds the document unchanged, or reads the same bytes again."""
    place.put("a", "Text.")
    house.sync()
    place.put("a", RetryableError("slow", "it is slow", "wait"), version="2")
    house.sync()
    assert house.states()["place:a"] == ("done", "slow")
    place.put("a", "Text.", version=version)
    house.sync(later=120)
    assert house.states()["place:a"] == ("done", None)


def test_a_fault_of_the_connector_itself_costs_one_document(house: SyncHouse, place: Place) -> None:
    fill(place, 2)
    place.put("1", KeyError("whoops"))
    assert house.sync().counts["failed"] == 1
    assert house.states()["place:1"] == ("failed", "internal_error")
    assert house.index() == {"place:0": "Text number 0."}


@pytest.mark.parametrize(
    "error", [UnavailableError("away", "it is away", retry_after=900), ConfigurationError("t", "t")]
)
def test_a_provider_that_is_away_ends_the_run_and_nothing_is_lost(
    house: SyncHouse, place: Place, error: Exception
) -> None:
    fill(place, 3)
    place.put("1", error)  # type: ignore[arg-type]
    _report, failure = house.try_sync()
    assert failure is not None
    assert place.visits == ["0", "1"]
    assert set(house.index()) == {"place:0"}
    place.put("1", "Text number 1.")
    house.sync()
    assert len(house.index()) == 3


def test_retry_after_is_obeyed(house: SyncHouse, place: Place) -> None:
    place.put("a", UnavailableError("away", "it is away", retry_after=900))
    assert house.work() == 1
    place.put("a", "Text.")
    assert house.work(later=890) == 0
    assert house.work(later=20) == 1
    assert house.index() == {"place:a": "Text."}


def test_a_document_that_was_never_there_is_told_of(house: SyncHouse, place: Place) -> None:
    """A dead address in a list is somebody's mistake; a push about a page that we may not see is not."""
    place.at_once = False
    place.put("a", "Text.")
    place.listing_fault = lambda key: place.texts.pop(key) and None
    house.sync()
    assert house.states() == {"place:a": ("failed", "gone")}
    place.listing_fault = lambda key: None
    house.sync()
    assert house.states()["place:a"][0] == "deleted"


def test_a_document_that_is_named_but_gone_is_not_taken_for_a_new_one(house: SyncHouse, place: Place) -> None:
    place.at_once = False
    place.put("a", "Text.")
    house.sync()
    place.listing_fault = lambda key: place.texts.pop(key) and None
    for number in range(5):
        place.put("a", "Text.", version=f"2.{number}")
        house.sync(later=CONFIRM)
    assert house.states() == {"place:a": ("deleted", None)}


def test_what_asks_to_be_left_out_is_no_failure_and_is_not_asked_for_each_time(house: SyncHouse, place: Place) -> None:
    place.unwanted = {"a"}
    place.put("a", "Text.")
    assert house.sync().counts["left out"] == 1
    assert house.states() == {"place:a": ("deleted", "left_out")}
    house.sync()
    assert place.visits == ["a"]
    place.unwanted = set()
    place.put("a", "Text.", version="2")
    house.sync()
    assert house.index() == {"place:a": "Text."}


def test_what_is_named_but_not_there_is_not_looked_for_at_each_run(house: SyncHouse, place: Place) -> None:
    place.at_once = False
    fill(place, 3)
    house.sync()
    place.unwanted = {"1"}
    place.put("1", "Hidden.", version="2")
    house.sync()
    house.sync()
    house.sync(later=CONFIRM)
    assert set(house.index()) == {"place:0", "place:2"}
    for _ in range(3):
        house.sync(later=CONFIRM)
    assert place.visits.count("1") == 4  # new, changed, confirmed, and once to see whether it stays so
    place.unwanted = set()
    place.put("1", "Shown.", version="3")
    house.sync()
    assert house.index()["place:1"] == "Shown."


def test_a_document_says_what_its_own_address_says(house: SyncHouse, place: Place) -> None:
    place.put("a", "Text of the alias.")
    place.put("b", "Text of its own.")
    place.put("c", "Text of another alias.")
    place.moved = {"a": "place:b", "c": "place:b"}
    for version in ("1", "2", "3"):
        for key in ("a", "b", "c"):
            place.put(key, f"{place.texts[key]}", version)
        house.sync()
        assert house.index() == {"place:b": "Text of its own."}
    place.put("a", "Edited alias.", "4")
    place.put("b", "Edited.", "4")
    house.sync()
    assert house.index() == {"place:b": "Edited."}


def test_a_document_deleted_by_hand_comes_back_since_the_place_has_it(house: SyncHouse, place: Place) -> None:
    place.put("a", "Text.")
    house.sync()
    assert Ledger(house.connection).delete("place:a")
    assert house.index() == {}
    house.sync()
    assert house.index() == {"place:a": "Text."}


def test_a_new_place_with_the_content_of_a_missing_one_is_a_rename(house: SyncHouse, place: Place) -> None:
    place.absence, place.content_addressed = "gone", True
    place.put("a", "Text of a.", "hash-a")
    place.put("b", "Text of b.", "hash-b")
    house.sync()
    before = house.rows()
    place.drop("b")
    place.put("c", "Text of b.", "hash-b")
    place.put("a2", "Text of a.", "hash-a")
    report = house.sync()
    assert (report.counts["moved"], report.counts["new"]) == (1, 1)
    assert house.rows()["place:c"] == before["place:b"]
    assert house.index() == {"place:a": "Text of a.", "place:a2": "Text of a.", "place:c": "Text of b."}


def test_a_document_that_moves_keeps_its_row(house: SyncHouse, place: Place) -> None:
    place.put("a", "Text.")
    house.sync()
    before = house.rows()
    place.moved["a"] = "place:z"
    place.put("a", "Text.", version="2")
    assert house.sync().counts["moved"] == 1
    assert house.rows() == {"place:z": before["place:a"]}
    assert house.index() == {"place:z": "Text."}


def test_a_document_keeps_its_row_where_its_new_place_was_met_first(house: SyncHouse, place: Place) -> None:
    place.put("b", "Text.")
    house.sync()
    before = house.rows()
    place.put("a", "Text, edited.")
    place.put("b", "Text, edited.", version="2")
    place.moved["b"] = "place:a"
    assert house.sync().counts["moved"] == 1
    assert house.rows() == {"place:a": before["place:b"]}
    assert house.index() == {"place:a": "Text, edited."}
    place.put("a", "Text, edited again.", version="3")
    house.sync()
    assert house.index() == {"place:a": "Text, edited again."}


def test_two_keys_that_turn_out_to_be_one_are_found_once_and_go_with_the_last(house: SyncHouse, place: Place) -> None:
    place.absence = "gone"
    for key in ("a", "b", "c"):
        place.put(key, "Text." if key != "c" else "Other.")
    house.sync()
    place.moved = {"b": "place:a"}
    place.put("b", "Text.", version="2")
    house.sync()
    assert set(house.index()) == {"place:a", "place:c"}
    place.drop("b")
    house.sync()
    assert set(house.index()) == {"place:a", "place:c"}
    place.drop("a")
    house.sync()
    assert set(house.index()) == {"place:c"}


def test_files_of_a_document_are_found_below_it_and_go_with_it(house: SyncHouse, place: Place) -> None:
    place.put("a", "Text.")
    place.put("z", "Other.")
    place.files["a"] = {"one.txt": "First file.", "two.txt": "Second file."}
    house.sync()
    assert house.index()["place:a#one.txt"] == "First file."
    assert house.index()["place:a#two.txt"] == "Second file."
    place.files["a"] = {"two.txt": "Second file, edited."}
    place.put("a", "Text.", version="2")
    house.sync()
    assert {uri: text for uri, text in house.index().items() if "#" in uri} == {
        "place:a#two.txt": "Second file, edited."
    }
    place.drop("a")
    house.sync()
    assert set(house.index()) == {"place:z"}


def test_changes_alone_are_listed_between_full_listings(
    dsn: str, database: Connection[Any], tmp_path: Path, place: Place
) -> None:
    place.incremental = True
    fill(place, 2)
    config = SyncConfig(type="place", every=60, full_every=1000)
    settings = Settings(database_url=dsn, home=tmp_path / "home")
    house = SyncHouse(settings, database, config, lambda _config, surroundings: PlaceConnector(place, surroundings))
    for _ in range(3):
        assert house.work(later=400) == 1
    assert house.work(later=400) == 1
    assert place.listings == [True, False, False, True]
    assert place.cursors == [{}, {"listings": 1}, {"listings": 2}, {"listings": 3}]
    house.close()


def test_the_cursor_stays_where_the_last_good_run_left_it(house: SyncHouse, place: Place) -> None:
    place.put("a", "Text.")
    house.sync()
    place.gaps = [Incomplete("cut")]
    house.sync()
    house.sync()
    assert place.cursors == [{}, {"listings": 1}, {"listings": 1}]


def test_a_push_has_documents_visited_before_the_schedule_does(house: SyncHouse, place: Place) -> None:
    fill(place, 3)
    house.work()
    listings = len(place.listings)
    place.put("1", "Pushed text.", version="2")
    house.syncer._schedule().hint("place", ["1", "unknown"])
    assert house.work(later=1) == 1
    assert len(place.listings) == listings
    assert house.index()["place:1"] == "Pushed text."
    assert house.work(later=1) == 0


def test_a_push_about_what_is_gone_counts_even_if_the_listing_fails(house: SyncHouse, place: Place) -> None:
    fill(place, 3)
    house.sync()
    place.drop("0")
    house.syncer._schedule().hint("place", ["0"])

    def fault(key: str) -> None:
        raise RetryableError("torn", "the connection was cut", "wait")

    place.listing_fault = fault
    house.try_sync()
    assert set(house.index()) == {"place:1", "place:2"}
    assert house.connection.execute("select count(*) from sync_hints").fetchone() == (0,)


def test_what_is_held_back_does_not_keep_others_from_their_visits(
    house: SyncHouse, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.sync.memory.PIECE", 3)
    place.absence = "nothing"
    fill(place, 6)
    place.put("z", RetryableError("slow", "it is slow", "wait"))
    house.sync()
    for number in range(6):
        place.drop(f"{number}")
    house.syncer._schedule().hint("place", [f"{number}" for number in range(6)])
    assert house.sync().counts["held"] == 6
    place.put("z", "Text.")
    place.hidden = {"z"}
    assert house.sync(later=120).counts["held"] == 6
    assert house.index()["place:z"] == "Text."


def test_two_runs_at_once_are_one(house: SyncHouse, place: Place, another: Callable[[], Connection[Any]]) -> None:
    place.put("a", "Text.")
    schedule = house.syncer._schedule()
    turn = schedule.take("place")
    assert turn is not None
    with pytest.raises(RetryableError, match="being run already"):
        house.syncer.sync("place")
    assert house.work() == 0


def test_a_run_that_lost_its_lease_writes_nothing_more(house: SyncHouse, place: Place) -> None:
    fill(place, 3)

    def steal(key: str) -> None:
        if key == "1":
            house.connection.execute("update syncs set token = gen_random_uuid()")

    place.listing_fault = steal
    _report, error = house.try_sync()
    assert error is not None
    assert error.code == "sync_taken_over"
    assert set(house.index()) == {"place:0"}


def test_a_preview_says_what_a_run_would_do_and_does_nothing(house: SyncHouse, place: Place) -> None:
    fill(place, 3)
    assert sorted(house.syncer.preview("place")) == [("new", f"place:{n}") for n in range(3)]
    assert (place.visits, house.index()) == ([], {})
    house.sync()
    place.drop("0")
    place.put("1", "Other.", version="2")
    place.put("3", "New.")
    found = sorted(house.syncer.preview("place"))
    assert found == [("changed", "place:1"), ("missing", "place:0"), ("new", "place:3")]
    assert len(house.index()) == 3


def memories(house: SyncHouse) -> set[str]:
    return {key for (key,) in house.connection.execute("select key from synced").fetchall()}


def test_a_run_that_is_asked_to_stop_is_begun_again_and_has_failed_in_nothing(
    house: SyncHouse, place: Place, shutdown: Callable[[bool], None]
) -> None:
    fill(place, 9)
    house.now += timedelta(minutes=1)

    def stop_at_the_fifth(key: str) -> None:
        if key == "4":
            shutdown(True)
            deadline = time.monotonic() + 60
            while house.connection.execute("select 1 from syncs where token is not null").fetchone():
                assert time.monotonic() < deadline, "a claim that is not given back"
                time.sleep(0.05)

    place.listing_fault = stop_at_the_fifth
    assert house.syncer.work(seconds=60) == 1
    row = "select token, holder, failures, error_code, ended_at, not_before from syncs"
    assert house.connection.execute(row).fetchall() == [(None, None, 0, None, None, None)]
    assert place.visits == ["0", "1", "2", "3"]
    assert house.syncer.work(seconds=60) == 0, "a process that is to end begins nothing"

    shutdown(False)
    place.listing_fault = lambda key: None
    assert house.syncer.work(seconds=60) == 1, "the next one does not have to wait"
    row = "select failures, error_code, counts->'listed' from syncs"
    assert house.connection.execute(row).fetchall() == [(0, None, 9)]
    assert len(house.states()) == 9
    assert sorted(place.visits) == [str(number) for number in range(9)], "what was fetched already is not fetched again"
