"""Ranges of pages that OCR workers share out: the promises of the rows, on a real Postgres."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from psycopg import Connection

from pipelines.errors import PermanentError, RetryableError, UnavailableError
from pipelines.types import OcrPage
from tests.integration.test_ledger import chunks, claimed, expire, make_due, outcome
from worker.ledger import Ledger
from worker.page_ranges import OcrRecipe, PageRanges, Parked, RangeClaim, cut
from worker.process import wait_for

URI = "file:///drop/scan.pdf"
HASH = b"1" * 32
RECIPE = "1 eng 200"


@pytest.fixture
def ledger(database: Connection[Any]) -> Ledger:
    return Ledger(database, max_attempts=3, backoff_seconds=100)


@pytest.fixture
def ranges(database: Connection[Any]) -> PageRanges:
    return PageRanges(database, max_attempts=3, backoff_seconds=100)


def park(ledger: Ledger, pages: int = 10, *, uri: str = URI, digest: bytes = HASH, recipe: str = RECIPE) -> int:
    """Record a document, if it is new, claim it and park all its pages that have not been read; its id."""
    ledger.record(uri)
    claim = claimed(ledger)
    assert claim.uri == uri
    ranges = PageRanges(ledger.connection)
    there = ranges.results(claim.id, digest, recipe)
    awaiting = [number for number in range(1, pages + 1) if number not in there]
    parked = Parked(claim.version, digest, recipe, claim.location, "scan.pdf")
    assert ranges.park(claim, parked, awaiting, pages) is not None
    return claim.id


def take(ranges: PageRanges) -> RangeClaim:
    claim = ranges.claim()
    assert claim is not None
    return claim


def read(number: int) -> OcrPage:
    return OcrPage(number, (f"text of page {number}",), 90.0, languages="eng")


def finish(ranges: PageRanges) -> list[str]:
    """Read all that is due; what was said of each page."""
    said = []
    while claim := ranges.claim():
        said += [ranges.save(claim, read(number)) for number in claim.left]
    return said


def source(ranges: PageRanges) -> tuple[Any, ...]:
    row = ranges.connection.execute("select state, pages_done, pages, attempts from sources").fetchone()
    assert row is not None
    return tuple(row)


def rows(ranges: PageRanges) -> list[tuple[Any, ...]]:
    return ranges.connection.execute("select pages, pages_done, state from page_ranges order by ordinal").fetchall()


def expire_ranges(ranges: PageRanges) -> None:
    ranges.connection.execute("update page_ranges set lease_until = now() - interval '1 s' where state = 'leased'")


def make_ranges_due(ranges: PageRanges) -> None:
    ranges.connection.execute("update page_ranges set next_at = now()")


@pytest.mark.parametrize(
    ("pages", "sizes"),
    [(1, [1]), (2, [1, 1]), (4, [2, 2]), (10, [5, 5]), (11, [3, 4, 4]), (12, [4, 4, 4]), (400, [5] * 80), (0, [])],
)
def test_ranges_are_small_and_even(pages: int, sizes: list[int]) -> None:
    found = cut(range(1, pages + 1))
    assert [len(part) for part in found] == sizes
    assert [number for part in found for number in part] == list(range(1, pages + 1))


def test_a_recipe_is_read_back_from_its_row() -> None:
    recipe = OcrRecipe("eng+chi_sim", 300)
    assert OcrRecipe.parse(str(recipe)) == recipe
    assert len({str(recipe), str(OcrRecipe("eng", 300)), str(OcrRecipe("eng+chi_sim", 200))}) == 3


def test_a_parked_document_waits_for_its_pages_and_is_due_again(ledger: Ledger, ranges: PageRanges) -> None:
    park(ledger, 10)
    assert source(ranges) == ("reading", 0, 10, 0)
    assert ledger.claim() is None
    assert finish(ranges) == ["kept"] * 4 + ["finished"] + ["kept"] * 4 + ["released"]
    assert source(ranges) == ("pending", 10, 10, 0)
    claim = claimed(ledger)
    assert claim.attempts == 1
    assert ranges.results(claim.id, HASH, RECIPE) == {number: read(number) for number in range(1, 11)}
    assert ranges.results(claim.id, b"2" * 32, RECIPE) == {}
    assert ranges.results(claim.id, HASH, "1 fra 200") == {}
    assert ledger.commit(claim, outcome(), chunks("one")) is not None
    assert rows(ranges) == []


def test_progress_is_that_of_all_workers_and_counts_pages_with_text(ledger: Ledger, ranges: PageRanges) -> None:
    ledger.record(URI)
    claim = claimed(ledger)
    ranges.park(claim, Parked(1, HASH, RECIPE, None, "scan.pdf"), list(range(11, 21)), 30)
    assert source(ranges)[1:3] == (20, 30)
    first, second = take(ranges), take(ranges)
    ranges.save(first, read(11))
    ranges.save(second, read(16))
    ranges.save(second, read(17))
    assert source(ranges)[:3] == ("reading", 23, 30)


def test_a_claim_that_is_gone_parks_nothing(ledger: Ledger, ranges: PageRanges) -> None:
    ledger.record(URI)
    first = claimed(ledger)
    expire(ledger)
    claimed(ledger)
    assert ranges.park(first, Parked(1, HASH, RECIPE, None, "scan.pdf"), [1, 2], 2) is None
    assert (source(ranges)[0], rows(ranges)) == ("leased", [])


def test_documents_take_turns(ledger: Ledger, ranges: PageRanges) -> None:
    park(ledger, 30, uri="file:///long.pdf")
    first = take(ranges)
    park(ledger, 15, uri="file:///short.pdf")
    order = [(first.uri, first.left[0])]
    while claim := ranges.claim():
        order.append((claim.uri, claim.left[0]))
    assert [f"{uri[8]}{page}" for uri, page in order] == ["l1", "s1", "l6", "s6", "l11", "s11", "l16", "l21", "l26"]


def test_a_worker_that_lost_its_lease_is_fenced_and_its_pages_stay(ledger: Ledger, ranges: PageRanges) -> None:
    park(ledger)
    first = take(ranges)
    assert [ranges.save(first, read(1)), ranges.save(first, read(2))] == ["kept", "kept"]
    expire_ranges(ranges)
    assert ranges.renew(first)
    assert take(ranges).left[0] == 6, "renewed"
    ranges.connection.execute("update page_ranges set lease_until = now() - interval '1 s' where ordinal = 0")
    second = take(ranges)
    assert (second.id, second.left, second.attempts) == (first.id, [3, 4, 5], 2)
    assert not ranges.renew(first)
    assert ranges.save(first, read(3)) == "fenced"
    assert ranges.fail(first, PermanentError("x", "y"), 3) == "fenced"
    assert ranges.give_back(first) == "fenced"
    assert rows(ranges)[0] == ([1, 2, 3, 4, 5], 2, "leased")
    assert ranges.save(second, read(3)) == "kept"


def test_a_page_is_saved_once_and_only_where_it_belongs(ledger: Ledger, ranges: PageRanges) -> None:
    park(ledger)
    claim = take(ranges)
    assert [ranges.save(claim, read(number)) for number in (1, 1, 6)] == ["kept", "fenced", "fenced"]
    assert rows(ranges)[0][1] == 1


def test_of_two_that_finish_at_once_one_releases_the_document(
    ledger: Ledger, ranges: PageRanges, another: Callable[[], Connection[Any]]
) -> None:
    park(ledger, 2)
    other = PageRanges(another())
    first, second = take(ranges), take(other)
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(other.save(second, read(2))))
    watcher = another()
    pid = other.connection.info.backend_pid

    def blocked() -> bool:
        query = "select from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
        return watcher.execute(query, (pid,)).fetchone() is not None

    with ranges.connection.transaction():
        assert ranges.save(first, read(1)) == "finished"
        thread.start()
        assert wait_for(blocked, 60), "the other one waits for this transaction"
    thread.join(60)
    assert said == ["released"]
    assert source(ranges)[:3] == ("pending", 2, 2)


def test_many_workers_share_many_documents(
    ledger: Ledger, ranges: PageRanges, another: Callable[[], Connection[Any]]
) -> None:
    ids = [park(ledger, 23, uri=f"file:///{number}.pdf") for number in range(6)]
    said: list[str] = []

    def work(connection: Connection[Any]) -> None:
        said.extend(finish(PageRanges(connection)))

    threads = [threading.Thread(target=work, args=(another(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(said), said.count("released"), said.count("finished")) == (6 * 23, 6, 6 * 4)
    assert all(sorted(ranges.results(id, HASH, RECIPE)) == list(range(1, 24)) for id in ids)
    states = ranges.connection.execute("select distinct state, pages_done, pages from sources").fetchall()
    assert states == [("pending", 23, 23)]


def test_an_unavailable_dependency_uses_up_no_attempt(ledger: Ledger, ranges: PageRanges) -> None:
    park(ledger, 1)
    for _ in range(5):
        claim = take(ranges)
        assert claim.attempts == 1
        assert ranges.fail(claim, UnavailableError("away", "it is away"), 1) == "kept"
        assert ranges.claim() is None, "backs off"
        make_ranges_due(ranges)
    assert ranges.connection.execute("select delays, error_code from page_ranges").fetchone() == (5, "away")


def test_a_page_that_fails_too_often_is_left_out_and_the_others_are_read(ledger: Ledger, ranges: PageRanges) -> None:
    park(ledger, 2)
    for attempt in (1, 2, 3):
        claim = take(ranges)
        assert (claim.left, claim.attempts) == ([1], attempt)
        said = ranges.fail(claim, RetryableError("parser_killed", "it was killed"), 1)
        make_ranges_due(ranges)
        ranges.connection.execute("update page_ranges set next_at = 'infinity' where ordinal = 1")
    assert said == "finished"
    make_ranges_due(ranges)
    assert finish(ranges) == ["released"]
    found = ranges.results(claim.source_id, HASH, RECIPE)
    assert found == {1: OcrPage(1, problem="parser-killed"), 2: read(2)}


def test_attempts_are_counted_for_a_page(ledger: Ledger, ranges: PageRanges) -> None:
    park(ledger, 10)
    ranges.connection.execute("delete from page_ranges where ordinal = 1")
    for number in range(1, 5):
        claim = take(ranges)
        assert claim.attempts <= 2, "every page but the last was read in its first attempt"
        ranges.save(claim, read(number))
        expire_ranges(ranges)
    assert take(ranges).left == [5]


def test_an_event_while_pages_are_read_keeps_them(ledger: Ledger, ranges: PageRanges) -> None:
    park(ledger)
    claim = take(ranges)
    ranges.save(claim, read(1))
    ledger.record(URI, force=True)
    assert source(ranges)[0] == "pending"
    assert ranges.save(claim, read(2)) == "kept", "whoever reads them goes on"
    park(ledger)
    assert rows(ranges) == [([1, 2, 3, 4, 5], 2, "leased"), ([6, 7, 8, 9, 10], 0, "pending")]
    assert source(ranges)[:3] == ("reading", 2, 10)
    assert ranges.parked(claim.source_id) == Parked(2, HASH, RECIPE, None, "scan.pdf")
    assert [ranges.save(claim, read(number)) for number in (3, 4, 5)] == ["kept", "kept", "finished"]
    assert finish(ranges)[-1] == "released"


def test_an_event_before_the_document_is_parked_makes_it_due_at_once(ledger: Ledger, ranges: PageRanges) -> None:
    ledger.record(URI)
    claim = claimed(ledger)
    ledger.record(URI, force=True)
    assert ranges.park(claim, Parked(1, HASH, RECIPE, None, "scan.pdf"), [1, 2], 2) == 2
    again = claimed(ledger)
    assert (again.version, again.attempts) == (2, 1)


def test_pages_finished_while_the_document_is_claimed_do_not_leave_it_waiting(
    ledger: Ledger, ranges: PageRanges
) -> None:
    park(ledger, 2)
    ledger.record(URI, force=True)
    claim = claimed(ledger)
    assert finish(ranges) == ["finished", "finished"]
    assert ranges.park(claim, Parked(2, HASH, RECIPE, None, "scan.pdf"), [1, 2], 2) == 0
    assert source(ranges)[:3] == ("pending", 2, 2)


@pytest.mark.parametrize(("digest", "recipe"), [(b"2" * 32, RECIPE), (HASH, "1 fra 200")])
def test_other_bytes_or_settings_make_the_ranges_void(
    ledger: Ledger, ranges: PageRanges, digest: bytes, recipe: str
) -> None:
    park(ledger)
    claim = take(ranges)
    ledger.record(URI, force=True)
    park(ledger, 2, digest=digest, recipe=recipe)
    assert rows(ranges) == [([1], 0, "pending"), ([2], 0, "pending")]
    assert ranges.save(claim, read(1)) == "fenced"


def test_deleting_a_document_fences_its_readers(ledger: Ledger, ranges: PageRanges) -> None:
    park(ledger)
    claim = take(ranges)
    assert ledger.delete(URI)
    assert rows(ranges) == []
    assert ranges.save(claim, read(1)) == "fenced"
    assert ranges.fail(claim, RetryableError("x", "y"), 1) == "fenced"
    assert source(ranges)[0] == "deleted"


def test_a_rename_keeps_the_ranges(ledger: Ledger, ranges: PageRanges) -> None:
    park(ledger)
    claim = take(ranges)
    assert ledger.rename(URI, "file:///drop/new.pdf")
    assert source(ranges)[0] == "pending"
    assert ranges.save(claim, read(1)) == "kept"
    assert take(ranges).uri == "file:///drop/new.pdf"


def test_ranges_go_with_a_document_that_failed_for_good_or_is_as_it_was(ledger: Ledger, ranges: PageRanges) -> None:
    park(ledger, 2)
    finish(ranges)
    ledger.fail(claimed(ledger), PermanentError("no_text", "nothing on it"))
    assert rows(ranges) == []
    ledger.retry()
    park(ledger, 2)
    ledger.record(URI, force=True)
    assert ledger.commit_unchanged(claimed(ledger))
    assert rows(ranges) == []


def test_what_was_read_outlives_a_dead_document_but_what_failed_is_tried_again(
    ledger: Ledger, ranges: PageRanges
) -> None:
    park(ledger, 2)
    claim = take(ranges)
    ranges.save(claim, OcrPage(1, problem="worker-died"))
    finish(ranges)
    for _ in range(3):
        ledger.fail(claimed(ledger), RetryableError("flaky", "the embedder answers rubbish"))
        make_due(ledger)
    assert (source(ranges)[0], len(rows(ranges))) == ("dead", 2)
    ledger.retry()
    assert rows(ranges) == [([2], 1, "done")]


def test_other_bytes_at_the_place_send_the_document_back(ledger: Ledger, ranges: PageRanges) -> None:
    park(ledger)
    claim, other = take(ranges), take(ranges)
    assert ranges.give_back(claim) == "released"
    assert rows(ranges) == []
    assert ranges.save(other, read(6)) == "fenced"
    assert source(ranges)[0] == "pending"
    waits = []
    for _ in range(3):
        query = "select extract(epoch from next_at - updated_at)::float8 from sources"  # by when it was given back
        row = ranges.connection.execute(query).fetchone()
        assert row is not None
        waits.append(row[0])
        make_due(ledger)
        park(ledger)
        ranges.give_back(take(ranges))
    assert 50 <= waits[0] <= 100 <= waits[1] <= 200 <= waits[2] <= 400, "machines that disagree do not spin"


def test_bytes_that_nobody_can_reach_send_the_document_back_in_the_end(ledger: Ledger, ranges: PageRanges) -> None:
    park(ledger, 1)
    said = []
    for _ in range(3):
        said.append(ranges.fail(take(ranges), RetryableError("vanished", "it is gone"), None))
        make_ranges_due(ranges)
    assert said == ["kept", "kept", "released"]
    assert (source(ranges)[0], rows(ranges)) == ("pending", [])


def test_expired_and_pending_ranges_are_due(ledger: Ledger, ranges: PageRanges) -> None:
    park(ledger, 15)
    take(ranges)
    ranges.connection.execute("update page_ranges set next_at = now() + interval '1 hour' where ordinal = 1")
    assert ranges.due() == 1
    expire_ranges(ranges)
    assert (ranges.due(), ranges.due(1)) == (2, 1)


def test_nothing_stays_in_reading_without_pages_to_read(ledger: Ledger, ranges: PageRanges) -> None:
    park(ledger, uri="file:///a.pdf")
    assert ranges.release() == 0
    ranges.connection.execute("delete from page_ranges")
    assert ranges.release() == 1
    assert claimed(ledger).uri == "file:///a.pdf"
