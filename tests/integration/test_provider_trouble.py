"""An embedding endpoint that asks to wait, fails, lies or costs too much, and what that does to the queue."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg import Connection

from pipelines.embed import open_embedder
from pipelines.embed.openai_api import LONGEST_WAIT
from pipelines.errors import PausedError, UnavailableError
from pipelines.search import Options, search
from pipelines.types import Vector
from tests.fakes.eight_dimensions import EightDimensions
from tests.fakes.openai_server import Fault, OpenAIServer, embed
from tests.integration.test_ledger import expire, make_due
from worker.budget import Budget, count, used_today
from worker.database import embedder_spec, open_ledger
from worker.ingest import Ingester
from worker.pauses import Pauses
from worker.process import wait_for
from worker.settings import Settings

BAD = "embedder_bad_answer"
FOR_NOBODY: dict[Fault, str] = {
    "too_few": BAD,
    "none": BAD,
    "misnumbered": BAD,
    "unnumbered": BAD,
    "uneven_dimensions": BAD,
    "empty": BAD,
    "not_numbers": BAD,
    "bad_base64": BAD,
    "odd_base64": BAD,
    "wrong_dimensions": "embedding_dimensions",
    "short_base64": "embedding_dimensions",
    "nan": "embedding_not_finite",
    "zero": "embedding_not_finite",
    "other_model": "embedder_other_model",
}
"""Answers with status 200 of which no vector may be kept, and the code of what is said of them."""

OF_ONE_TEXT: dict[Fault, str] = {fault: code for fault, code in FOR_NOBODY.items() if fault != "misnumbered"} | {
    "uneven_dimensions": "embedding_dimensions",
    "error": "embedder_failed",
    "cut_json": "embedder_broken_answer",
    "forbidden": "embedder_forbidden",
}
"""Trouble that one text may bring, and the code of what is said when it is asked for by itself."""


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(dimensions=8) as running:
        yield running


class Mill:
    """Documents, and workers that are told when to work."""

    def __init__(self, settings: Settings, connection: Connection[Any], folder: Path) -> None:
        self.settings = settings
        self.connection = connection
        self.ledger = open_ledger(settings, connection)
        self.pauses = Pauses(connection, settings)
        self.embedder: Any = open_embedder(embedder_spec(settings))
        self._folder = folder
        self._workers: list[Ingester] = []
        self._kept: dict[str, Ingester] = {}
        connection.execute("insert into index_models (model, dimensions) values (%s, 8)", (self.embedder.model,))

    def add(self, *texts: str) -> None:
        for text in texts:
            path = self._folder / f"{len(list(self._folder.iterdir())):04}.txt"
            path.write_text(text + "\n")
            self.ledger.record(path.as_uri())

    def worker(self, **changes: Any) -> Ingester:
        settings = self.settings.model_copy(update=changes)
        self._workers.append(Ingester(settings, open_embedder(embedder_spec(settings))))
        return self._workers[-1]

    def work(self, **changes: Any) -> int:
        """Let a worker with these settings work, the same as before; how many documents it took."""
        key = repr(sorted(changes.items())) + repr(self.settings.embed_tokens_per_day)
        if key not in self._kept:
            self._kept[key] = self.worker(**changes)
        return self._kept[key].work(seconds=60)

    def pause(self) -> tuple[Any, ...] | None:
        """`what, code, strikes` of the pause that stands."""
        found = self.connection.execute("select what, code, strikes from pauses").fetchall()
        assert len(found) < 2
        return found[0] if found else None

    def wait_out(self) -> None:
        self.connection.execute("update pauses set until = now()")

    def pause_ends(self) -> datetime:
        row = self.connection.execute("select until from pauses").fetchone()
        assert row is not None
        found: datetime = row[0]
        return found

    def now(self) -> datetime:
        """The time by the clock that pauses go by."""
        row = self.connection.execute("select clock_timestamp()").fetchone()
        assert row is not None
        found: datetime = row[0]
        return found

    def states(self) -> list[tuple[Any, ...]]:
        """`state, attempts, error_code`, oldest first."""
        return self.connection.execute("select state, attempts, error_code from sources order by id").fetchall()

    def order(self) -> list[int]:
        return [
            row[0]
            for row in self.connection.execute(
                "select id - min(id) over () from sources where state = 'done' order by searchable_at"
            )
        ]

    def check(self, documents: int) -> None:
        """So many documents are searchable, each with the vector of its own text and no other."""
        rows = self.connection.execute("select concat_ws(E'\\n', context, content), embedding from documents")
        found = rows.fetchall()
        assert len(found) == documents
        for text, vector in found:
            np.testing.assert_allclose(vector.to_numpy(), embed(text, 8), atol=1e-6, err_msg=text)

    def close(self) -> None:
        for worker in self._workers:
            worker.close()


@pytest.fixture
def mill(tmp_path: Path, dsn: str, database: Connection[Any], server: OpenAIServer) -> Iterator[Mill]:
    drop = tmp_path / "drop"
    drop.mkdir()
    settings = Settings(
        database_url=dsn,
        home=tmp_path / "home",
        openai_base_url=server.base_url,
        openai_model="m",
        openai_api_key="k",
        # No pause ends while a test looks whether it is kept to: those that are to be over are ended (`wait_out`).
        backoff_seconds=100,
        backoff_cap_seconds=10_000,
    )
    found = Mill(settings, database, drop)
    yield found
    found.close()


def long_text(word: str = "pump") -> str:
    """Six paragraphs, which are as many chunks where `CUT` are the settings."""
    return "\n\n".join(
        " ".join(f"Sentence {line} of paragraph {number} tells of {word} {number}." for line in range(4))
        for number in range(6)
    )


CUT = {"chunk_tokens": 64, "chunk_overlap_tokens": 0}


# --- everybody waits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "code", "requests"),
    [
        ("rate_limit", "rate_limited", 1),
        ("quota", "quota_exhausted", 1),
        ("overloaded", "embedder_overloaded", 1),
        ("unauthorised", "embedder_unauthorised", 1),
        # What may be due to the text is followed by a probe.
        ("forbidden", "embedder_forbidden", 2),
        ("error", "embedder_failed", 2),
        ("truncated", "embedder_broken_answer", 2),
        ("cut_json", "embedder_broken_answer", 2),
        ("html", "embedder_broken_answer", 2),
    ],
)
def test_a_storm_is_met_once_and_not_by_every_document(
    mill: Mill, server: OpenAIServer, fault: Any, code: str, requests: int
) -> None:
    mill.add(*(f"Pump {number} leaks." for number in range(6)))
    due = mill.connection.execute("select id, next_at from sources order by id").fetchall()
    server.misbehave(fault, times=1000)
    for strikes in (1, 2, 3, 4, 5):  # more than a document may be postponed without suspicion
        assert mill.work() == 1
        assert mill.work(max_attempts=4) == 0, "nor does another worker try"
        assert mill.pause() == ("embedding", code, strikes)
        assert mill.ledger.due() == 0, "and the sweep wakes nobody"
        mill.wait_out()
    assert len(server.requests) <= 5 * requests
    assert [state[:2] for state in mill.states()] == [("pending", 0)] * 6
    assert mill.connection.execute("select id, next_at from sources order by id").fetchall() == due
    server.behave()
    assert mill.work() == 6
    assert mill.pause() is None
    assert mill.states() == [("done", 0, None)] * 6
    assert mill.order() == list(range(6))
    mill.check(6)


def test_an_endpoint_that_is_down_or_silent_is_waited_for(mill: Mill, server: OpenAIServer) -> None:
    mill.add("One pump.", "Two pumps.")
    server.stop()
    assert mill.work() == 1
    assert mill.pause() == ("embedding", "embedder_unreachable", 1)
    server.start()
    server.misbehave("slow", times=2)
    mill.wait_out()
    assert mill.work(embed_timeout_seconds=0.1) == 1
    assert wait_for(lambda: len(server.requests) == 2, 60), "it gave up before the server had even looked"
    assert mill.pause() == ("embedding", "embedder_timeout", 2)
    mill.wait_out()
    assert mill.work() == 2
    mill.check(2)


def test_a_thousand_documents_in_a_storm_of_some_seconds(mill: Mill, server: OpenAIServer) -> None:
    mill.connection.execute(
        "insert into sources (uri) select 'file:///nowhere/' || n from generate_series(1, 997) n; "
        "update sources set next_at = now() + interval '1 s' * 0.001"
    )
    mill.add("First.", "Second.", "Third.")
    mill.connection.execute("update sources set next_at = next_at - interval '1 hour' where uri like '%/drop/%'")
    server.misbehave("rate_limit", times=10_000, retry_after="1")
    stop = threading.Event()
    done = [0, 0, 0]

    def drain(number: int) -> None:
        worker = mill.worker()
        while not stop.wait(0.05):
            done[number] += worker.work(seconds=1)

    def strikes() -> int:
        pause = mill.pause()
        return pause[2] if pause else 0

    threads = [threading.Thread(target=drain, args=(number,)) for number in range(3)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    went_on = wait_for(lambda: strikes() >= 3, 60)
    stop.set()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - began
    assert went_on, "somebody looks every second whether it is over"
    assert len(server.requests) == sum(done)
    assert len(server.requests) <= 3 + seconds, "each worker once at first, then one of them a second"
    touched = mill.connection.execute("select count(*) from sources where delays > 0 or attempts > 0").fetchone()
    assert touched is not None
    assert touched[0] <= 3
    server.behave()
    mill.wait_out()
    worker = mill.worker()
    assert all(worker._work_one() for _ in range(3))
    assert mill.order() == [0, 1, 2]
    mill.check(3)


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [("7", 7, 7), ("0", 1, 1), ("-5", 1, 1), ("99999999", LONGEST_WAIT, LONGEST_WAIT), (None, 50, 100)],
)
def test_retry_after_is_kept_to_within_reason(
    mill: Mill, server: OpenAIServer, header: str | None, least: float, most: float
) -> None:
    mill.add("One pump.")
    server.misbehave("rate_limit", retry_after=header)
    mill.work()
    row = mill.connection.execute("select extract(epoch from until - since)::float8 from pauses").fetchone()
    assert row is not None
    assert least <= row[0] <= most


def test_pauses_grow_where_nobody_says_how_long(mill: Mill, server: OpenAIServer) -> None:
    mill.add("One pump.")
    server.misbehave("overloaded", times=4)
    for n in range(4):
        before = mill.now()
        mill.work()
        after = mill.now()
        longest = timedelta(seconds=100 * 2**n)
        assert mill.pause_ends() - before >= longest / 2
        assert mill.pause_ends() - after <= longest
        mill.wait_out()


# --- scouts ---------------------------------------------------------------------------------------------------


def test_one_claim_at_a_time_finds_out(mill: Mill, server: OpenAIServer) -> None:
    mill.add("One.", "Two.", "Three.")
    server.misbehave("rate_limit", retry_after="60")
    mill.work()
    assert mill.ledger.claim() is None
    mill.wait_out()
    scout = mill.ledger.claim()
    assert scout is not None
    assert scout.scout == 1
    assert mill.ledger.claim() is None, "as long as it is under way"
    mill.wait_out()  # the scout was killed
    assert mill.ledger.claim() is not None
    assert mill.work() == 0


def test_of_two_claims_at_the_same_moment_one_goes(
    mill: Mill, server: OpenAIServer, another: Callable[[], Connection[Any]]
) -> None:
    mill.add("One.", "Two.")
    server.misbehave("rate_limit")
    mill.work()
    mill.wait_out()
    first, second = another(), another()
    claims: list[Any] = []
    thread = threading.Thread(target=lambda: claims.append(open_ledger(mill.settings, second).claim()))
    with first.transaction():
        assert open_ledger(mill.settings, first).claim() is not None
        thread.start()
        blocked = "select from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
        assert wait_for(lambda: mill.connection.execute(blocked, (second.info.backend_pid,)).fetchone() is not None, 30)
    thread.join()
    assert claims == [None]


def test_a_scout_that_found_nothing_out_sends_the_next(mill: Mill, server: OpenAIServer) -> None:
    mill.add("One.")
    server.misbehave("rate_limit")
    mill.work()
    mill.connection.execute("update sources set next_at = now() + interval '1 hour'")
    mill.wait_out()
    assert mill.ledger.claim() is None
    assert mill.pause_ends() <= mill.now(), "nothing was due, so nobody set out"
    mill.add(" ")
    mill.add("Two.")
    assert mill.work() == 2
    assert [state[0] for state in mill.states()] == ["pending", "failed", "done"]
    assert mill.pause() is None


# --- the key --------------------------------------------------------------------------------------------------


def test_a_key_that_is_revoked_and_put_back(mill: Mill, server: OpenAIServer) -> None:
    mill.add("One pump.", "Two pumps.")
    server.require_key = "another"
    assert mill.work() == 1
    (pause,) = mill.pauses.standing()
    assert pause["code"] == "embedder_unauthorised"
    assert "make the key valid again" in pause["remedy"]
    assert "GRISTMILL_OPENAI_API_KEY and restart gristmill up" in pause["remedy"]
    assert [state[:2] for state in mill.states()] == [("pending", 0)] * 2
    server.require_key = "k"
    mill.wait_out()
    assert mill.work() == 2
    mill.check(2)


def test_a_new_start_does_not_wait(mill: Mill, server: OpenAIServer) -> None:
    mill.add("One pump.")
    server.misbehave("unauthorised")
    mill.work()
    mill.connection.execute("update pauses set until = now() + interval '9 min'")
    mill.pauses.try_now()
    assert mill.work() == 1
    mill.check(1)


# --- answers of no use ----------------------------------------------------------------------------------------


def test_an_endpoint_that_answers_nonsense_is_waited_for(mill: Mill, server: OpenAIServer) -> None:
    mill.connection.execute("update index_models set served = 'm'")
    for earlier, fault in enumerate(FOR_NOBODY):
        mill.add(long_text(fault), f"Two pumps leak: {fault}.")
        server.misbehave(fault, times=2)
        assert mill.work(**CUT) == 1
        assert mill.pause() == ("embedding", FOR_NOBODY[fault], 1), fault
        assert mill.states()[-2:] == [("pending", 0, FOR_NOBODY[fault]), ("pending", 0, None)]
        mill.check(7 * earlier)
        assert mill.connection.execute("select count(*) from embedding_cache").fetchone() == (7 * earlier,), fault
        mill.wait_out()
        assert mill.work(**CUT) == 2
    mill.check(7 * len(FOR_NOBODY))


def test_nonsense_about_one_text_is_that_documents_own(mill: Mill, server: OpenAIServer) -> None:
    mill.connection.execute("update index_models set served = 'm'")
    for fault, code in OF_ONE_TEXT.items():
        server.curses = {"Xyzzy": fault}
        mill.add(f"Before {fault}.", long_text(f"Xyzzy, {fault}"), f"Behind {fault}.")
        assert mill.work(**CUT, max_attempts=2) == 3
        assert mill.pause() is None, fault
        first, cursed, last = mill.states()[-3:]
        assert (first, last) == (("done", 0, None), ("done", 0, None)), fault
        assert cursed == ("pending", 1, code)
        make_due(mill.ledger)
        mill.work(**CUT, max_attempts=2)
        assert mill.states()[-2] == ("dead", 2, code), fault
        assert mill.pause() is None, fault
    mill.check(2 * len(OF_ONE_TEXT))


def test_a_text_that_is_refused_fails_its_document_alone(mill: Mill, server: OpenAIServer) -> None:
    server.curses["Xyzzy"] = "refused"
    mill.add("Before.", "Xyzzy is refused.", "Behind.")
    assert mill.work() == 3
    assert [state[::2] for state in mill.states()] == [("done", None), ("failed", "embedder_refused"), ("done", None)]
    assert mill.pause() is None


def test_vectors_in_another_order_are_put_in_theirs(mill: Mill, server: OpenAIServer) -> None:
    mill.add(long_text())
    server.misbehave("shuffled")
    mill.work(**CUT)
    assert len(server.requests) == 1
    assert len(server.requests[0]["input"]) == 6
    mill.check(6)


def test_a_request_over_a_whole_minutes_tokens_is_halved(mill: Mill, server: OpenAIServer) -> None:
    mill.add(long_text())
    server.misbehave("request_too_large")
    mill.work(**CUT)
    assert mill.states() == [("done", 0, None)]
    assert len(server.requests) == 3


def test_a_large_document_that_gets_on_uses_up_no_attempt(mill: Mill, server: OpenAIServer) -> None:
    mill.add(long_text())
    batch = CUT | {"embed_batch_texts": 1, "max_attempts": 2}
    server.curses["pump 5"] = "error"
    mill.work(**batch)
    assert mill.states() == [("pending", 0, "embedder_failed")]
    make_due(mill.ledger)
    mill.work(**batch)
    assert mill.states() == [("pending", 1, "embedder_failed")], "from here it does not get on"


def test_what_passes_by_itself_is_no_attempt(mill: Mill, server: OpenAIServer) -> None:
    mill.add("One pump.", long_text())
    for fault in ("error", "nan"):
        server.misbehave(fault)  # type: ignore[arg-type]
        assert mill.worker(**CUT)._work_one()
    assert mill.states() == [("done", 0, None)] * 2
    assert len(server.requests) == 3 + 4, "the text, the probe, the text; and for six a half each"
    mill.check(7)


class Slow(EightDimensions):
    """A server that embeds two texts in the time there is."""

    def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        if len(texts) > 2 and "harmless" not in texts[0]:
            raise UnavailableError("embedder_timeout", "the endpoint did not answer")
        return super().embed_documents(texts)


def test_a_server_that_is_slow_gets_smaller_batches(mill: Mill) -> None:
    mill.add(long_text())
    mill.connection.execute("delete from index_models")
    worker = Ingester(mill.settings.model_copy(update=CUT), Slow())
    worker.work(seconds=60)
    worker.close()
    assert mill.states() == [("done", 0, None)]


class Fragile(EightDimensions):
    """A server that a certain text brings down: it is not back when the next texts come."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False

    def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        was_down, self.down = self.down, any("Xyzzy" in text for text in texts)
        if was_down:
            raise UnavailableError("embedder_unreachable", "the endpoint cannot be reached")
        if self.down:
            raise UnavailableError("embedder_broken_answer", "the endpoint broke off")
        return super().embed_documents(texts)


def test_a_document_that_brings_the_endpoint_down_keeps_nobody_for_ever(mill: Mill) -> None:
    mill.add("Xyzzy.", "One.", "Two.")
    mill.connection.execute("delete from index_models")
    worker = Ingester(mill.settings.model_copy(update={"max_attempts": 2}), Fragile())
    for _ in range(8):
        worker.work(seconds=60)
        mill.wait_out()
        make_due(mill.ledger)
    worker.close()
    assert [state[::2] for state in mill.states()] == [
        ("dead", "embedder_broken_answer"), ("done", None), ("done", None)
    ]  # fmt: skip


# --- the model's name -----------------------------------------------------------------------------------------


def test_another_model_after_a_restart_is_found_out(mill: Mill, server: OpenAIServer) -> None:
    mill.add("One pump.")
    mill.work()
    assert mill.connection.execute("select served from index_models").fetchone() == ("m",)
    mill.add("Two pumps.")
    server.misbehave("other_model", times=2)
    mill.worker().work(seconds=60)
    assert mill.pause() == ("embedding", "embedder_other_model", 1)
    mill.check(1)
    (pause,) = mill.pauses.standing()
    assert "answers as other" in pause["cause"]
    mill.connection.execute("update index_models set served = null")
    server.misbehave("other_model")
    mill.wait_out()
    assert mill.work() == 1, "unless somebody says that it is the same"
    mill.check(2)


# --- the budget -----------------------------------------------------------------------------------------------

TEXT = "Pump {} leaks at the seal."


@pytest.fixture
def one_day() -> None:
    """A budget is of a UTC day, which is not to end in the middle of a test."""
    now = datetime.now(UTC)
    left = timedelta(days=1) - timedelta(hours=now.hour, minutes=now.minute, seconds=now.second)
    if left < timedelta(seconds=45):
        time.sleep(left.total_seconds())


@pytest.fixture
def limited(mill: Mill, one_day: None) -> Callable[[float], int]:
    """Give every worker a budget of so many of the documents of TEXT; the tokens of one."""

    def limit(documents: float) -> int:
        mill.add(TEXT.format(0))
        mill.work(embed_tokens_per_day=10**6)
        tokens = used_today(mill.connection)
        mill.connection.execute("delete from embedding_usage")
        mill.settings = mill.settings.model_copy(update={"embed_tokens_per_day": int(documents * tokens)})
        return tokens

    return limit


def next_day(mill: Mill) -> None:
    mill.connection.execute("update embedding_usage set day = day - 1")
    mill.connection.execute("update pauses set until = until - interval '1 day'")


def test_a_day_has_so_many_tokens_and_the_next_day_as_many(mill: Mill, limited: Callable[[float], int]) -> None:
    tokens = limited(2.5)
    mill.add(*(TEXT.format(number) for number in range(1, 6)))
    assert mill.work() == 3
    assert mill.work() == 0
    assert mill.ledger.due() == 0
    assert mill.states()[3:] == [("pending", 0, "budget"), ("pending", 0, None), ("pending", 0, None)]
    assert used_today(mill.connection) == 2 * tokens
    (pause,) = mill.pauses.standing()
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    assert (pause["what"], pause["code"], pause["until"]) == ("budget", "budget", tomorrow)
    assert "00:00 UTC" in pause["remedy"]
    hits = search(mill.connection, "Which pump leaks?", mill.embedder, Options(k=3))
    assert len(hits) == 3, "questions are answered all the same"
    assert used_today(mill.connection) == 2 * tokens
    next_day(mill)
    assert mill.work() == 3
    assert mill.pauses.standing()[0]["what"] == "budget"
    next_day(mill)
    assert mill.work() == 1
    assert mill.order() == list(range(6))
    mill.check(6)


def test_a_document_over_a_whole_days_budget_is_refused(mill: Mill, limited: Callable[[float], int]) -> None:
    limited(2.5)
    mill.add(" ".join(TEXT.format(number) for number in range(20)), TEXT.format(1))
    assert mill.work() == 2
    assert mill.states()[1:] == [("failed", 1, "over_budget"), ("done", 0, None)]
    row = mill.connection.execute("select error_remedy from sources where state = 'failed'").fetchone()
    assert row is not None
    assert "GRISTMILL_EMBED_TOKENS_PER_DAY" in row[0]


def test_nothing_is_counted_twice(mill: Mill, server: OpenAIServer, limited: Callable[[float], int]) -> None:
    tokens = limited(10)
    mill.add(TEXT.format(1))
    for fault in ("rate_limit", "overloaded", "unauthorised"):
        server.misbehave(fault)  # type: ignore[arg-type]
        mill.work()
        mill.wait_out()
    server.misbehave("error", times=2)
    mill.work()
    mill.wait_out()
    server.behave()
    server.stop()
    mill.work()
    server.start()
    assert used_today(mill.connection) == 0
    mill.wait_out()
    mill.work()
    assert used_today(mill.connection) == tokens
    mill.add(TEXT.format(1))
    mill.work()
    assert mill.states()[-1] == ("done", 0, None)
    assert used_today(mill.connection) == tokens, "the same text comes from the cache"


def test_what_may_have_been_paid_is_counted(
    mill: Mill, server: OpenAIServer, limited: Callable[[float], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Death(BaseException):
        """What no handler sees: the process is gone."""

    tokens = limited(10)
    mill.add(TEXT.format(1))
    worker = mill.worker()

    def die(texts: Sequence[str]) -> list[Vector]:
        raise Death

    with monkeypatch.context() as patched:
        patched.setattr(worker._embedder, "embed_documents", die)
        with pytest.raises(Death):
            worker.work(seconds=60)
    assert used_today(mill.connection) == tokens
    expire(mill.ledger)
    server.misbehave("slow", times=2)
    asked = len(server.requests)
    mill.work(embed_timeout_seconds=0.1)
    assert wait_for(lambda: len(server.requests) == asked + 2, 60), "it gave up before the server had even looked"
    assert used_today(mill.connection) == 2 * tokens
    mill.wait_out()
    mill.work()
    assert used_today(mill.connection) == 3 * tokens
    mill.check(2)


def test_workers_together_never_go_over(dsn: str, database: Connection[Any], one_day: None) -> None:
    texts = [TEXT.format(1)]
    limit = 25 * count(texts) + 1
    taken = []

    def take() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            for _ in range(10):
                try:
                    taken.append(Budget(connection, limit).take(texts))
                except PausedError:
                    return

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 25
    assert used_today(database) == 25 * count(texts)


def test_without_a_limit_nothing_is_counted(mill: Mill) -> None:
    mill.add(TEXT.format(1))
    mill.work()
    assert mill.connection.execute("select count(*) from embedding_usage").fetchone() == (0,)
