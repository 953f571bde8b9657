"""The one suite that every source has to pass: a real place and its real connector, engine, ingester and Postgres.

Each case ends with the whole index compared with what is there: `in_step`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
from psycopg import Connection

from pipelines.database import connect
from pipelines.errors import GristmillError, RetryableError
from tests.fakes.death import Killed, kill_at
from tests.fakes.worlds import WORLDS, World
from tests.fakes.worlds.ground import GUARD_MINIMUM, Ground, Servers
from tests.fakes.worlds.memory import PlaceWorld
from tests.fakes.worlds.world import CONFIRM
from worker.embedded import Services
from worker.ledger import Ledger
from worker.sync.schedule import Report
from worker.sync.syncer import Syncer

Test = TypeVar("Test", bound=Callable[..., None])

TABLES = ("sync_hints", "synced", "syncs", "documents", "sources", "embedding_cache")
DAY = 86_400.0
LOOKS = 2
"""Looks, `CONFIRM` apart, that are enough to believe that a document is gone."""

TEXTS = {
    "a": "The mill grinds barley for the bakers of the lower town.",
    "b": "The ferry crosses the river when the bell has rung twice.",
    "sub/c": "The smith keeps spare hinges for every gate in the wall.",
}


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(scope="module")
def shared_dsn(services: Services, migrated_template: str) -> Iterator[str]:
    """One database for the module: making one a test would take longer than the tests."""
    with psycopg.connect(services.database_url, autocommit=True) as admin:
        admin.execute(f"create database conformance template {migrated_template}".encode())
        yield services.database_url.replace("/gristmill?", "/conformance?")
        admin.execute("drop database conformance with (force)")


@pytest.fixture(scope="module")
def shared_connection(shared_dsn: str) -> Iterator[Connection[Any]]:
    connection = connect(shared_dsn)
    yield connection
    connection.close()


@pytest.fixture(params=list(WORLDS))
def world(
    request: pytest.FixtureRequest,
    shared_dsn: str,
    shared_connection: Connection[Any],
    servers: Servers,
    tmp_path: Path,
) -> Iterator[World]:
    make = WORLDS[request.param]
    if why := make.cannot.get(getattr(request.function, "needs", "")):
        pytest.skip(why)
    for table in TABLES:
        shared_connection.execute(f"delete from {table}".encode())
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        found = make(Ground(shared_dsn, shared_connection, tmp_path, servers, patch, stack))
        yield found
        assert not found.crawl.waiting
        found.house.close()


def needs(ability: str) -> Callable[[Test], Test]:
    """The case is not for worlds that say why they cannot do this."""

    def mark(test: Test) -> Test:
        test.needs = ability  # type: ignore[attr-defined]
        return test

    return mark


def fill(world: World) -> None:
    """Have a few documents there, and in the index."""
    for name, text in TEXTS.items():
        world.put(name, text)
    look(world)
    in_step(world)


def look(world: World, *, later: float | None = None, full: bool = False, confirmed: bool = False) -> Report:
    """A run that has to go well, when it sees whatever has changed."""
    return world.house.sync(later=world.interval if later is None else later, full=full, confirmed=confirmed)


def try_to_look(world: World, *, later: float = CONFIRM) -> list[str]:
    """A full run that may fail; what an operator reads of it: causes with their remedies, and notices."""
    report, error = world.house.try_sync(later=later, full=True)
    rows = world.house.connection.execute(
        "select error_cause, error_remedy from sources where error_code is not null"
    ).fetchall()
    ended = [(error.cause, error.remedy)] if error else []
    assert all(cause and remedy for cause, remedy in [*ended, *rows])
    return [f"{cause}: {remedy}" for cause, remedy in [*ended, *rows]] + list(report.notices)


def settle(world: World) -> None:
    """Runs until whatever is gone has been looked for often enough."""
    for _ in range(LOOKS + 1):
        look(world, later=CONFIRM, full=True)


def index(world: World) -> dict[str, str]:
    """The text of every document that can be found, in the order of its chunks, with single spaces."""
    rows = world.house.connection.execute(
        "select s.uri, string_agg(d.content, ' ' order by d.chunk_index) from documents d"
        " join sources s on s.id = d.source_id group by s.uri"
    ).fetchall()
    return {uri: " ".join(text.split()) for uri, text in rows}


def in_step(world: World) -> None:
    """The index says what the place says, all of it and nothing else, and the ledger has no complaints."""
    truth = world.truth()
    assert index(world) == truth
    rows = world.house.connection.execute(
        "select uri, state, error_code, error_cause from sources where state <> 'deleted' order by uri"
    ).fetchall()
    assert rows == [(uri, "done", None, None) for uri in sorted(truth)]


def versions(world: World) -> list[tuple[Any, ...]]:
    return world.house.connection.execute("select uri, version, state from sources order by uri").fetchall()


def dump(world: World) -> list[list[tuple[Any, ...]]]:
    return [
        sorted(world.house.connection.execute(f"select t::text from {table} t".encode()).fetchall()) for table in TABLES
    ]


# --- what comes, changes and goes ------------------------------------------------------------------------------


def test_what_is_there_and_what_comes_is_found(world: World) -> None:
    fill(world)
    world.put("sub/new.html", "A newcomer has opened a shop for candles.")
    look(world)
    in_step(world)
    assert world.uri("sub/new.html") in index(world)


def test_what_is_edited_is_replaced_and_its_other_chunks_stay(world: World) -> None:
    parts = [
        f"Paragraph {one} speaks of {one} matters only, and of no others, as all of {one} have agreed to do."
        for one in ("alpha", "beta", "gamma", "delta")
    ]
    world.put("a", "\n\n".join(parts))
    look(world)
    in_step(world)
    before = chunks(world, "a")
    assert len(before) >= 3
    world.put(
        "a", "\n\n".join([parts[0], "The second one was written anew by another hand, on another day.", *parts[2:]])
    )
    look(world)
    in_step(world)
    after = chunks(world, "a")
    kept = before.keys() & after.keys()
    assert len(kept) >= len(before) - 2 > 0
    assert {text: before[text] for text in kept} == {text: after[text] for text in kept}


def chunks(world: World, name: str) -> dict[str, int]:
    rows = world.house.connection.execute(
        "select d.content, d.id from documents d join sources s on s.id = d.source_id where s.uri = %s",
        (world.uri(name),),
    ).fetchall()
    return dict(rows)


def test_what_stays_the_same_costs_nothing(world: World) -> None:
    fill(world)
    before = versions(world), world.house.embedder.texts, world.downloads()
    for full in (False, True):
        look(world, later=1, full=full)
    assert (versions(world), world.house.embedder.texts, world.downloads()) == before
    look(world)
    assert (versions(world), world.house.embedder.texts) == before[:2]
    in_step(world)


def test_what_moves_is_one_document_all_the_time(world: World) -> None:
    fill(world)
    row = world.house.rows()[world.uri("a")]
    world.move("a", "moved")
    for _ in range(2):
        look(world, full=True)
        in_step(world)
    settle(world)
    in_step(world)
    assert not world.tells_moves or world.house.rows()[world.uri("moved")] == row


def test_what_is_deleted_leaves_once_that_is_certain_and_is_found_again_when_it_is_back(world: World) -> None:
    fill(world)
    uri = world.uri("a")
    world.drop("a")
    look(world, full=True)
    assert (uri in index(world)) is not world.sure
    look(world, later=CONFIRM, full=True)
    in_step(world)
    settle(world)
    in_step(world)
    embedded = world.house.embedder.texts
    world.put("a", TEXTS["a"])
    look(world, later=DAY, full=True)  # what is named but gone is asked for once a day
    in_step(world)
    assert world.house.embedder.texts == embedded


def test_what_is_back_soon_never_left(world: World) -> None:
    fill(world)
    world.drop("a")
    look(world, full=True)
    world.put("a", TEXTS["a"])
    look(world, full=True)
    in_step(world)


def test_what_is_deleted_by_hand_comes_back(world: World) -> None:
    fill(world)
    assert Ledger(world.house.connection).delete(world.uri("a"))
    look(world, full=True)
    in_step(world)


# --- what goes wrong -------------------------------------------------------------------------------------------


def test_nothing_is_deleted_while_the_place_is_away(world: World) -> None:
    fill(world)
    before = index(world)
    world.put("a", "The mill grinds rye as well since the summer.")
    with world.away():
        for number in range(LOOKS):
            said = try_to_look(world)
            assert index(world) == before
            assert said or number
    look(world, later=DAY, full=True)
    in_step(world)


@needs("gap")
def test_nothing_is_deleted_that_a_listing_could_not_tell_of(world: World) -> None:
    fill(world)
    world.put("d", "The well is deep, and its water is cold.")
    look(world)
    before = index(world)
    assert len(before) <= GUARD_MINIMUM  # so that it is not the guard that keeps them
    with world.gap("sub/c"):
        if world.lists_all:
            world.drop("sub/c")
        for number in range(LOOKS):
            said = try_to_look(world)
            assert index(world) == before
            assert said or number
    settle(world)
    in_step(world)


@needs("torn")
def test_a_listing_that_breaks_off_counts_as_far_as_it_went(world: World) -> None:
    for name in "abcde":
        world.put(name, f"What was written first of the letter {name}.")
    look(world)
    in_step(world)
    before = index(world)
    world.put("a", "The mill grinds rye as well since the summer.")
    world.put("aa", "What was written first of the letter d.")  # not a new name of it, for nobody saw that it is gone
    if world.lists_all:
        world.drop("e")
    with world.torn():
        for _ in range(LOOKS):
            assert try_to_look(world)
            found = index(world)
            found.pop(world.uri("aa"), "")
            assert found == before | {world.uri("a"): "The mill grinds rye as well since the summer."}
    settle(world)
    in_step(world)


def test_what_cannot_be_read_is_told_of_and_taken_once_it_can(world: World) -> None:
    fill(world)
    world.put("d", "The well is deep, and its water is cold.")
    with world.unreadable("d"):
        world.put("a", "The mill grinds rye as well since the summer.")
        look(world)
        uri = world.uri("d")
        code, cause, remedy = world.house.connection.execute(
            "select error_code, error_cause, error_remedy from sources where uri = %s and state = 'failed'", (uri,)
        ).fetchone() or ("", "", "")
        assert code and cause and remedy
        assert index(world) == {one: text for one, text in world.truth().items() if one != uri}
    look(world, later=2 * DAY, full=True)
    in_step(world)


def test_what_cannot_be_read_any_more_keeps_what_was_read(world: World) -> None:
    fill(world)
    before = index(world)
    with world.unreadable("a"):
        for _ in range(LOOKS):
            try_to_look(world)
            assert index(world) == before
    look(world, later=2 * DAY, full=True)
    in_step(world)


def test_many_deletions_wait_for_a_person(world: World) -> None:
    names = "abcdef"
    for part in (names[:3], names[3:]):  # a feed names only the last five
        for name in part:
            world.put(name, f"What was written of the letter {name}.")
        look(world)
    in_step(world)
    before = index(world)
    for name in names[:GUARD_MINIMUM]:
        world.drop(name)
    said: list[str] = []
    for _ in range(LOOKS):
        said += try_to_look(world)
        assert index(world) == before
    assert any(f"{GUARD_MINIMUM} of {len(names)}" in one for one in said)
    look(world, later=CONFIRM, full=True, confirmed=True)
    in_step(world)
    assert len(index(world)) == len(names) - GUARD_MINIMUM


# --- in the middle of a run ------------------------------------------------------------------------------------


def test_what_comes_during_a_run_is_not_lost(world: World) -> None:
    fill(world)
    world.crawl.once("listed", lambda: world.put("aa", "A newcomer has opened a shop for candles."))
    world.put("b", "The ferry is out of order until the ice has gone.")
    look(world, full=True)
    look(world, full=True)
    in_step(world)
    assert world.uri("aa") in index(world)


@pytest.mark.parametrize("moment", ["before_visit", "after_visit"])
def test_the_last_word_wins_by_the_next_run(world: World, moment: Any) -> None:
    fill(world)
    world.put("a", "The mill grinds rye.")
    world.crawl.once(moment, lambda: world.put("a", "The mill grinds neither rye nor barley since it burnt down."))
    look(world, later=1)  # both edits may have the same time
    while world.crawl.waiting:
        look(world)
    look(world)
    in_step(world)


def test_what_goes_during_a_run_is_gone_by_the_next_ones(world: World) -> None:
    fill(world)
    world.put("a", "The mill grinds rye.")
    world.crawl.once("before_visit", lambda: world.drop("a"))
    look(world)
    settle(world)
    in_step(world)


@needs("twice")
def test_two_runs_at_once_are_one(world: World) -> None:
    house = world.house
    other = Syncer(house.syncer._settings, house.syncer._syncs, clock=lambda: house.now, opener=house.syncer._opener)
    errors: list[GristmillError] = []

    def again() -> None:
        with pytest.raises(RetryableError) as refused:
            other.sync("place")
        errors.append(refused.value)

    for name, text in TEXTS.items():
        world.put(name, text)
    world.crawl.once("after_visit", again)
    look(world)
    other.close()
    assert [error.code for error in errors] == ["sync_running"]
    in_step(world)
    assert world.house.connection.execute("select count(*) from sources").fetchone() == (len(TEXTS),)


@pytest.mark.timeout(300)
def test_a_run_may_be_killed_between_any_two_writes(world: World) -> None:
    fill(world)
    places = ["a", "sub/c"]
    for number in range(100) if isinstance(world, PlaceWorld) else (0, 2, 5, 9, 100):
        world.put("b", f"The ferry has crossed the river {number} times.")
        world.move(places[0], f"moved{number}")
        world.drop(places[1])
        world.put(f"new{number}", f"The newcomer of house {number} has opened a shop.")
        places = [f"new{number}", f"moved{number}"]
        killed = die_in_a_run(world, number)
        settle(world)
        in_step(world)
        if not killed:
            assert number
            return
    pytest.fail("no run came to its end")


def die_in_a_run(world: World, number: int) -> bool:
    """A run that dies before its n-th write, long enough after the last one for its deletions to be no burst."""
    reached = kill_at(world.house.writer(), number)
    try:
        look(world, later=DAY + 1, full=True)
    except Killed:
        assert reached()
    world.house.recover()
    return reached()


@needs("preview")
def test_a_preview_names_what_a_run_would_do_and_does_nothing(world: World) -> None:
    world.put("a", TEXTS["a"])
    expected = [("new", world.uri("a"))]
    world.house.syncer._connected()
    assert list(world.house.syncer.preview("place", full=True)) == expected
    fill(world)
    look(world, full=True)
    world.put("a", "The mill grinds rye.")
    world.put("d", "The well is deep, and its water is cold.")
    gone = world.uri("b")
    world.drop("b")
    before = dump(world), world.truth(), world.downloads()
    found = {uri: action for action, uri in world.house.syncer.preview("place", full=True)}
    assert (dump(world), world.truth(), world.downloads()) == before
    assert found.pop(world.uri("d")) == "new"
    if "changed" in world.foresees:
        assert found.pop(world.uri("a")) == "changed"
    if "missing" in world.foresees:
        assert found.pop(gone) in ("missing", "changed")
    assert found == {}
