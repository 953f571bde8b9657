"""Whatever happens at a place and to the runs of its sync, in any order: once it is quiet, the index is in step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import count
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from psycopg import Connection

from pipelines.errors import ConfigurationError, PermanentError, RetryableError, UnavailableError
from tests.fakes.death import Killed, kill_at
from tests.fakes.place import Place, PlaceConnector
from tests.fakes.sync_house import SyncHouse
from worker.connectors.config import SyncConfig
from worker.connectors.contract import Incomplete
from worker.ledger import Ledger
from worker.settings import Settings

TABLES = ("sync_hints", "synced", "syncs", "documents", "sources", "embedding_cache")
Changes = Sequence[tuple[Any, ...]]

CONFIRM = 3600.0
DAY = 86_400.0
QUIET_RUNS = 5
EXAMPLES, STEPS_EACH = 16, 20

NAMES = "abcdefgh"
UNVERSIONED = "df"
"""The place with ids does not tell versions of these."""

KEYS = st.sampled_from(NAMES)
TEXTS = st.sampled_from([f"Text number {number}." for number in range(3)])
"""Few, so that documents come to have the same content."""

ERRORS = st.sampled_from(
    [
        PermanentError("denied", "it may not be read", "ask"),
        RetryableError("slow", "it is slow", "wait"),
        UnavailableError("away", "it is away", "wait"),
        ConfigurationError("token", "the token is not valid", "set another"),
        KeyError("whoops"),
    ]
)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, TEXTS),
        st.tuples(st.just("drop"), KEYS),
        st.tuples(st.just("move"), KEYS, KEYS),
        st.tuples(st.just("hide"), KEYS, st.booleans()),
        st.tuples(st.just("fault"), KEYS, st.none() | ERRORS),
        st.tuples(st.just("delete_by_hand"), KEYS),
        st.tuples(st.just("push"), KEYS),
        st.tuples(st.just("plan"), KEYS, st.none() | TEXTS),
    ),
    min_size=1,
    max_size=6,
)
"""What happens between two runs: methods of the machine, with their arguments."""

STEPS = st.sampled_from([1.0, 60.0, 700.0, CONFIRM, DAY, -30.0, -700.0])


class Upheaval(RuleBasedStateMachine):
    """A place where anything may happen, and a sync that has to keep up.

    `steady` are documents in the index that were at the place ever since, and that listings have not left out where a
    listing is the last word.
    """

    house: SyncHouse
    place: Place
    make: Callable[[Place], SyncHouse]
    by_content: bool

    def __init__(self) -> None:
        super().__init__()
        self.place = Place(
            absence="gone" if self.by_content else "ask", content_addressed=self.by_content, at_once=self.by_content
        )
        self.house = self.make(self.place)
        self.texts: dict[str, str] = {}
        self.steady: set[str] = set()
        self.meanwhile: list[Callable[[], None]] = []
        self._versions = count()
        self.place.listing_fault = self._listing
        self._torn = ""

    @initialize(texts=st.lists(TEXTS, min_size=3, max_size=6))
    def fill(self, texts: list[str]) -> None:
        for key, text in zip(NAMES, texts, strict=False):
            self.put(key, text)
        self._run(1.0, [])

    def put(self, key: str, text: str) -> None:
        self.texts[key] = text
        version = sha256(text.encode()).hexdigest() if self.by_content else str(next(self._versions))
        self.place.put(key, text, version=version if key not in UNVERSIONED or self.by_content else None)

    def drop(self, key: str) -> None:
        if key in self.texts:
            del self.texts[key]
            self.place.drop(key)
            self.place.moved.pop(key, None)
            self.steady.discard(key)

    def move(self, key: str, to: str) -> None:
        if key not in self.texts or to in self.texts:
            return
        self.steady.discard(key)
        if self.by_content:
            text = self.texts[key]
            self.drop(key)
            self.put(to, text)
        else:
            self.place.moved[key] = f"place:{key}/{next(self._versions)}"
            self.put(key, self.texts[key])

    def hide(self, key: str, hidden: bool) -> None:
        if hidden:
            self.place.hidden.add(key)
            if self.by_content:
                self.steady.discard(key)
        else:
            self.place.hidden.discard(key)

    def fault(self, key: str, error: Exception | None) -> None:
        if key in self.texts:
            self.place.texts[key] = error or self.texts[key]

    def delete_by_hand(self, key: str) -> None:
        Ledger(self.house.connection).delete(self._uri(key))
        self.steady.discard(key)

    def push(self, key: str) -> None:
        self.house.writer()
        self.house.syncer._schedule().hint("place", [key])

    def plan(self, key: str, text: str | None) -> None:
        """Something happens in the middle of the next listing."""
        self.meanwhile.append(lambda: self.put(key, text) if text else self.drop(key))

    @rule(changes=CHANGES, later=STEPS, full=st.booleans(), confirmed=st.booleans())
    def run(self, changes: Changes, later: float, full: bool, confirmed: bool) -> None:
        self._run(later, changes, full=full, confirmed=confirmed)

    @rule(changes=CHANGES, later=STEPS, key=st.sampled_from(NAMES[2:]))
    def run_torn(self, changes: Changes, later: float, key: str) -> None:
        """The listing breaks off at this document."""
        self._torn = key
        self._run(later, changes, full=True)
        self._torn = ""

    @rule(changes=CHANGES, later=STEPS, prefix=st.sampled_from(["", *(f"place:{name}" for name in NAMES)]))
    def run_with_gap(self, changes: Changes, later: float, prefix: str) -> None:
        """The listing leaves out whatever lies there, and says so."""
        self._change(changes)
        hidden = set(self.place.hidden)
        self.place.hidden |= {key for key in self.texts if self._uri(key).startswith(prefix)}
        self.place.gaps = [Incomplete("it cannot be listed", prefix)]
        self._run(later, [], full=True)
        self.place.hidden = hidden
        self.place.gaps = []

    @rule(changes=CHANGES, later=STEPS, writes=st.integers(0, 12))
    def run_and_die(self, changes: Changes, later: float, writes: int) -> None:
        self._change(changes)
        kill_at(self.house.writer(), writes)
        with suppress(Killed):
            self._run(later, [])
        self.house.recover()

    @invariant()
    def nothing_is_found_twice(self) -> None:
        (doubled,) = self.house.connection.execute(
            "select count(*) from (select from synced group by sync_id, source_id having count(*) > 1) d"
        ).fetchone() or (0,)
        assert doubled == 0

    def teardown(self) -> None:
        try:
            self._calm()
        finally:
            self.house.close()

    def _change(self, changes: Changes) -> None:
        for name, *arguments in changes:
            getattr(self, name)(*arguments)

    def _run(self, later: float, changes: Changes, **how: bool) -> None:
        """Changes and a run, after which no steady document may be lost."""
        self._change(changes)
        try:
            self.house.try_sync(later=later, **how)
        finally:
            self.house.ingest()
            index = self.house.index()
            assert {key for key in self.steady if self._uri(key) not in index} == set()
            seen = {key for key in self.texts if self._uri(key) in index}
            self.steady |= seen - self.place.hidden if self.by_content else seen

    def _calm(self) -> None:
        """Faults are over, and nothing happens any more."""
        self.place.hidden.clear()
        self.meanwhile.clear()
        for key, text in self.texts.items():
            self.place.texts[key] = text
        for _ in range(QUIET_RUNS):
            self.house.sync(later=2 * DAY, full=True, confirmed=True)
        truth = {self._uri(key): text for key, text in self.texts.items()}
        assert self.house.index() == truth
        live = {uri: one for uri, one in self.house.states().items() if one[0] != "deleted"}
        assert live == dict.fromkeys(truth, ("done", None))
        remembered = {key for (key,) in self.house.connection.execute("select key from synced").fetchall()}
        assert remembered == set(self.texts)
        embedded = self.house.embedder.texts
        self.house.sync(full=True)
        assert self.house.embedder.texts == embedded

    def _listing(self, key: str) -> None:
        planned, self.meanwhile = self.meanwhile, []
        for do in planned:
            do()
        if self._torn and key >= self._torn:
            raise RetryableError("torn", "the connection was cut", "wait")

    def _uri(self, key: str) -> str:
        return self.place.moved.get(key, f"place:{key}")


@pytest.fixture
def make(dsn: str, database: Connection[Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    settings = Settings(database_url=dsn, home=tmp_path_factory.mktemp("home"), delete_guard_minimum=3)
    config = SyncConfig(type="place", every=60, confirm_after=CONFIRM)

    def made(place: Place) -> SyncHouse:
        for table in TABLES:
            database.execute(f"delete from {table}".encode())
        return SyncHouse(settings, database, config, lambda _, surroundings: PlaceConnector(place, surroundings))

    yield made


@pytest.mark.timeout(400)  # hundreds of runs of a sync
@pytest.mark.parametrize("content", [False, True], ids=["pages with ids", "files by content"])
def test_the_index_is_in_step_once_it_is_quiet(make: Callable[[Place], SyncHouse], content: bool) -> None:
    class Case(Upheaval):
        by_content = content

    Case.make = staticmethod(make)  # type: ignore[assignment]
    run_state_machine_as_test(
        Case, settings=hypothesis_settings(max_examples=EXAMPLES, stateful_step_count=STEPS_EACH, database=None)
    )
