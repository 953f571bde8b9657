"""The ledger's promises, one by one, on a real Postgres."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from psycopg import Connection

from pipelines.errors import PermanentError, RetryableError, UnavailableError
from pipelines.types import Chunk, EmbeddedChunk
from worker.ledger import Claim, Ledger, Outcome

URI = "file:///drop/a.txt"


def outcome(digest: bytes = b"1" * 32) -> Outcome:
    return Outcome(digest, "recipe", "text/plain", "Title", None, 10, {"metadata": {"author": "Ada"}})


def chunks(*texts: str) -> list[EmbeddedChunk]:
    made = []
    for index, text in enumerate(texts):
        vector = np.zeros(8, dtype=np.float32)
        vector[len(text) % 8] = 1
        made.append(EmbeddedChunk(Chunk(index, text, None, (), None, 0, len(text), "english", 3), vector, "m"))
    return made


def claimed(ledger: Ledger) -> Claim:
    claim = ledger.claim()
    assert claim is not None
    return claim


def state(ledger: Ledger, uri: str = URI) -> tuple[Any, ...]:
    row = ledger.connection.execute("select state, attempts, error_code from sources where uri = %s", (uri,)).fetchone()
    assert row is not None
    return tuple(row)


def contents(ledger: Ledger) -> list[str]:
    return [r[0] for r in ledger.connection.execute("select content from documents order by chunk_index").fetchall()]


@pytest.fixture
def ledger(database: Connection[Any]) -> Ledger:
    return Ledger(database, max_attempts=3, backoff_seconds=100)


def expire(ledger: Ledger) -> None:
    ledger.connection.execute("update sources set lease_until = now() - interval '1 s' where state = 'leased'")


def make_due(ledger: Ledger) -> None:
    ledger.connection.execute("update sources set next_at = now() where state = 'pending'")


def test_an_event_is_worked_off_once(ledger: Ledger) -> None:
    assert ledger.record(URI, fingerprint="1").changed
    claim = claimed(ledger)
    assert (claim.uri, claim.version, claim.attempts) == (URI, 1, 1)
    assert ledger.claim() is None
    assert ledger.commit(claim, outcome(), chunks("one", "two")) is not None
    assert state(ledger) == ("done", 0, None)
    assert ledger.claim() is None
    metadata = ledger.connection.execute("select metadata from documents limit 1").fetchone()
    assert metadata is not None
    assert metadata[0] == {
        "uri": URI, "filename": "a.txt", "title": "Title", "author": "Ada", "source_id": claim.id
    }  # fmt: skip


def test_the_same_fingerprint_is_no_event(ledger: Ledger) -> None:
    first = ledger.record(URI, fingerprint="1")
    again = ledger.record(URI, fingerprint="1")
    assert (again.source_id, again.version, again.changed) == (first.source_id, 1, False)
    assert ledger.record(URI, fingerprint="2").version == 2
    assert ledger.record(URI, fingerprint="2", force=True).version == 3


def test_a_failed_document_is_not_tried_again_by_a_rescan(ledger: Ledger) -> None:
    ledger.record(URI, fingerprint="1")
    ledger.fail(claimed(ledger), PermanentError("encrypted", "it is encrypted", "decrypt it"))
    assert not ledger.record(URI, fingerprint="1").changed
    assert state(ledger) == ("failed", 1, "encrypted")
    assert ledger.record(URI, fingerprint="2").changed
    assert state(ledger) == ("pending", 0, None)


def test_an_expired_lease_is_taken_over_and_its_holder_fenced(ledger: Ledger) -> None:
    ledger.record(URI)
    first = claimed(ledger)
    expire(ledger)
    second = claimed(ledger)
    assert second.attempts == 2
    assert ledger.commit(first, outcome(), chunks("stale")) is None
    assert ledger.fail(first, PermanentError("x", "y")) is None
    assert not ledger.renew(first)
    assert not ledger.commit_unchanged(first)
    assert ledger.commit(second, outcome(), chunks("fresh")) is not None
    assert contents(ledger) == ["fresh"]


def test_a_renewed_lease_is_not_taken_over(ledger: Ledger) -> None:
    ledger.record(URI)
    claim = claimed(ledger)
    expire(ledger)
    assert ledger.renew(claim, pages_done=3, pages=9)
    assert ledger.claim() is None
    assert ledger.connection.execute("select pages_done, pages from sources").fetchone() == (3, 9)


def test_an_event_during_the_work_makes_the_row_due_again(ledger: Ledger) -> None:
    ledger.record(URI, fingerprint="1")
    claim = claimed(ledger)
    ledger.record(URI, fingerprint="2")
    assert ledger.claim() is None, "still under lease"
    assert ledger.commit(claim, outcome(), chunks("one")) is not None
    again = claimed(ledger)
    assert (again.version, again.attempts) == (2, 1)


def test_an_event_during_a_failing_attempt_gets_a_fresh_start(ledger: Ledger) -> None:
    ledger.record(URI, fingerprint="1")
    claim = claimed(ledger)
    ledger.record(URI, fingerprint="2")
    ledger.fail(claim, PermanentError("corrupt", "half written"))
    assert claimed(ledger).attempts == 1


def test_an_event_during_an_attempt_that_fails_is_told(ledger: Ledger) -> None:
    ledger.record(URI, fingerprint="1")
    claim = claimed(ledger)
    ledger.record(URI, fingerprint="2")
    assert ledger.fail(claim, PermanentError("corrupt", "half written")) == "pending"


def test_an_event_during_the_last_attempt_gets_a_fresh_start_if_the_worker_dies(ledger: Ledger) -> None:
    """What killed its workers has been replaced: nobody has tried the new content."""
    ledger.record(URI, fingerprint="1")
    for _ in range(3):
        claimed(ledger)
        expire(ledger)
    ledger.record(URI, fingerprint="2")
    claim = claimed(ledger)
    assert (claim.version, claim.attempts) == (2, 1)


def test_nobody_waits_for_one_who_is_about_to_commit(ledger: Ledger, another: Callable[[], Connection[Any]]) -> None:
    ledger.record(URI)
    for _ in range(3):
        claimed(ledger)
        expire(ledger)
    ledger.record("file:///drop/b.txt")
    ledger.connection.execute("set lock_timeout = '20s'")
    with (busy := another()).transaction():
        busy.execute("select from sources where uri = %s for update", (URI,))
        assert claimed(ledger).uri == "file:///drop/b.txt"
        assert state(ledger)[0] == "leased"
    assert ledger.claim() is None
    assert state(ledger) == ("dead", 3, "worker_died")


def test_what_is_deleted_is_not_renamed_to_itself(ledger: Ledger) -> None:
    ledger.record(URI)
    ledger.delete(URI)
    assert not ledger.rename(URI, URI)
    assert state(ledger)[0] == "deleted"


def test_retryable_errors_back_off_and_end_dead(ledger: Ledger) -> None:
    ledger.record(URI)
    for attempt in (1, 2, 3):
        claim = claimed(ledger)
        assert claim.attempts == attempt
        expected = "pending" if attempt < 3 else "dead"
        assert ledger.fail(claim, RetryableError("flaky", "did not work")) == expected
        assert ledger.claim() is None, "backs off"
        make_due(ledger)
    assert state(ledger) == ("dead", 3, "flaky")


def test_back_off_grows(ledger: Ledger) -> None:
    ledger.record(URI)
    waits = []
    for _ in range(3):
        claim = claimed(ledger)
        with ledger.connection.transaction():  # in which it is always the same time
            ledger.fail(claim, UnavailableError("away", "embedder is down"))
            row = ledger.connection.execute(
                "select extract(epoch from next_at - now())::float8 from sources"
            ).fetchone()
        assert row is not None
        waits.append(row[0])
        make_due(ledger)
    assert 50 <= waits[0] <= 100 <= waits[1] <= 200 <= waits[2] <= 400


def test_an_unavailable_dependency_uses_up_no_attempt(ledger: Ledger) -> None:
    ledger.record(URI)
    for _ in range(10):
        assert ledger.fail(claimed(ledger), UnavailableError("away", "embedder is down")) == "pending"
        make_due(ledger)
    assert state(ledger) == ("pending", 0, "away")


def test_retry_after_is_honoured(database: Connection[Any]) -> None:
    ledger = Ledger(database, backoff_seconds=0.001)
    ledger.record(URI)
    ledger.fail(claimed(ledger), UnavailableError("rate_limited", "429", retry_after=3600))
    row = database.execute("select extract(epoch from next_at - now())::float8 from sources").fetchone()
    assert row is not None
    assert 3590 < row[0] < 3601


def test_a_document_that_kills_its_workers_ends_dead(ledger: Ledger) -> None:
    ledger.record(URI)
    ledger.record("file:///drop/neighbour.txt")
    for _ in range(3):
        assert claimed(ledger).uri == URI
        expire(ledger)
        ledger.connection.execute("update sources set next_at = now() + '1 hour' where uri <> %s", (URI,))
    assert ledger.claim() is None
    assert state(ledger) == ("dead", 3, "worker_died")
    make_due(ledger)
    assert claimed(ledger).uri == "file:///drop/neighbour.txt"


def test_retry_gives_a_fresh_start(ledger: Ledger) -> None:
    ledger.record(URI)
    claim = claimed(ledger)
    ledger.fail(claim, PermanentError("ocr_unavailable", "no tesseract"))
    assert ledger.retry([claim.id + 1]) == []
    assert ledger.retry() == [claim.id]
    assert claimed(ledger).attempts == 1


def test_deletion_is_immediate_and_fences_the_worker(ledger: Ledger) -> None:
    ledger.record(URI)
    ledger.commit(claimed(ledger), outcome(), chunks("old"))
    ledger.record(URI, force=True)
    claim = claimed(ledger)
    assert ledger.delete(URI)
    assert contents(ledger) == []
    assert ledger.commit(claim, outcome(), chunks("resurrected")) is None
    assert contents(ledger) == []
    assert not ledger.delete(URI), "once is enough"
    assert ledger.known("file:///drop/") == {}
    assert ledger.record(URI, fingerprint="1").changed, "it may come back"


def test_rename_keeps_rows_and_vectors(ledger: Ledger) -> None:
    ledger.record(URI, fingerprint="1")
    ledger.commit(claimed(ledger), outcome(), chunks("one", "two"))
    before = ledger.connection.execute("select id, embedding::text from documents order by id").fetchall()
    assert ledger.rename(URI, "file:///drop/b%20c.txt", fingerprint="2")
    assert ledger.connection.execute("select id, embedding::text from documents order by id").fetchall() == before
    found = ledger.connection.execute("select metadata->>'uri', metadata->>'filename' from documents").fetchone()
    assert found == ("file:///drop/b%20c.txt", "b c.txt")
    assert ledger.known("file:///drop/") == {"file:///drop/b%20c.txt": "2"}
    assert ledger.commit_unchanged(claimed(ledger)), "its content is compared"
    assert not ledger.rename(URI, "file:///drop/c.txt")


def test_rename_over_another_document_replaces_it(ledger: Ledger) -> None:
    other = "file:///drop/b.txt"
    for uri, text in ((URI, "mine"), (other, "theirs")):
        ledger.record(uri)
        ledger.commit(claimed(ledger), outcome(), chunks(text))
    assert ledger.rename(URI, other)
    assert contents(ledger) == ["mine"]
    assert list(ledger.known("file:///drop/")) == [other]


def test_rename_during_the_work_fences_and_starts_again(ledger: Ledger) -> None:
    ledger.record(URI)
    claim = claimed(ledger)
    assert ledger.rename(URI, "file:///drop/b.txt")
    assert ledger.commit(claim, outcome(), chunks("one")) is None
    assert claimed(ledger).uri == "file:///drop/b.txt"


def test_known_reads_its_prefix_literally(ledger: Ledger) -> None:
    for uri in ("file:///a_b/1", "file:///axb/2", "file:///a%25/3"):
        ledger.record(uri, fingerprint="f")
    assert ledger.known("file:///a_b/") == {"file:///a_b/1": "f"}
    assert ledger.known("file:///a%25/") == {"file:///a%25/3": "f"}


def test_tenants_have_their_own_rows(database: Connection[Any], ledger: Ledger) -> None:
    other = Ledger(database, tenant="other")
    assert ledger.record(URI).source_id != other.record(URI).source_id
    assert ledger.delete(URI)
    assert list(other.known("file:")) == [URI]


def test_oldest_first_and_never_twice(ledger: Ledger, another: Callable[[], Connection[Any]]) -> None:
    uris = [f"file:///drop/{number:03}" for number in range(40)]
    for uri in uris:
        ledger.record(uri)
    taken: list[list[str]] = [[], [], []]

    def work(mine: list[str], connection: Connection[Any]) -> None:
        own = Ledger(connection)
        while (claim := own.claim()) is not None:
            mine.append(claim.uri)

    threads = [threading.Thread(target=work, args=(mine, another())) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(uri for mine in taken for uri in mine) == uris
    assert all(mine == sorted(mine) for mine in taken)


def test_swap_keeps_unchanged_chunks(ledger: Ledger) -> None:
    def rows() -> dict[str, int]:
        return dict(ledger.connection.execute("select content, id from documents order by chunk_index").fetchall())

    ledger.record(URI)
    ledger.commit(claimed(ledger), outcome(), chunks("a", "b", "c", "d"))
    before = rows()
    ledger.record(URI, force=True)
    swapped = ledger.commit(claimed(ledger), outcome(), chunks("new", "a", "c", "d2", "b"))
    assert swapped is not None
    assert (swapped.inserted, swapped.kept, swapped.deleted) == (2, 3, 1)
    after = rows()
    assert list(after) == ["new", "a", "c", "d2", "b"]
    assert {name: after[name] for name in "abc"} == {name: before[name] for name in "abc"}


def test_the_same_text_twice_in_one_document(ledger: Ledger) -> None:
    ledger.record(URI)
    ledger.commit(claimed(ledger), outcome(), chunks("same", "same", "other"))
    ledger.record(URI, force=True)
    swapped = ledger.commit(claimed(ledger), outcome(), chunks("same", "same", "same"))
    assert swapped is not None
    assert (swapped.inserted, swapped.kept, swapped.deleted) == (1, 2, 1)
    assert contents(ledger) == ["same"] * 3


def test_a_reader_never_sees_half_a_document(ledger: Ledger, another: Callable[[], Connection[Any]]) -> None:
    ledger.record(URI)
    ledger.commit(claimed(ledger), outcome(), chunks("v0 a", "v0 b", "shared"))
    seen: set[tuple[str, ...]] = set()
    stop = threading.Event()
    reader = another()

    def read() -> None:
        while not stop.is_set():
            rows = reader.execute("select content from documents order by chunk_index").fetchall()
            seen.add(tuple(row[0] for row in rows))

    thread = threading.Thread(target=read)
    thread.start()
    versions = [("v0 a", "v0 b", "shared")]
    deadline = time.monotonic() + 30
    while len(versions) < 40 or len(seen) < 2:  # or the reader stood still all the while
        assert time.monotonic() < deadline, seen
        texts = (f"v{len(versions)} a", f"v{len(versions)} b", "shared")
        versions.append(texts)
        ledger.record(URI, force=True)
        ledger.commit(claimed(ledger), outcome(), chunks(*texts))
    stop.set()
    thread.join(30)
    assert seen <= set(versions)
