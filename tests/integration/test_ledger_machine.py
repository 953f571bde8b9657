"""The ledger against a model: any events, workers, deaths and delays, in any order, on a real Postgres.

The model is written from what is promised in docs/architecture.md, not from the statements. After every step each row
is what the model says, and so are the chunks: what a fenced worker did has left no trace, whatever it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from psycopg import Connection
from psycopg.rows import namedtuple_row

from pipelines.errors import GristmillError, PermanentError, RetryableError, UnavailableError
from pipelines.types import Chunk, EmbeddedChunk, OcrPage
from worker.backoff import MOST_SECONDS
from worker.children import Child, child_uri
from worker.ledger import Claim, Ledger, Outcome
from worker.page_ranges import PageRanges, Parked

EXAMPLES, STEPS_EACH = 60, 16
WORKERS = 3
LEASE = 997.0
"""Seconds that no sum of the steps of the clock comes near."""
ATTEMPTS = 2
BACKOFF, CAP = 100.0, 300.0
WEEK = 7 * 86_400.0
RECIPE = "1 eng 200"

TENANTS = st.sampled_from(["default", "default", "default", "other"])
NAMES = st.sampled_from("aab")
FEW = st.integers(0, 7)
"""Which of those there are, from the newest on."""
RETRY_AFTER = st.sampled_from([None, None, -5.0, 0.0, 3600.0, 30 * 86_400.0])
INSIDE = st.sampled_from([[], [], [("x", "1")], [("x", "1")], [("x", "2")], [("x", "1"), ("y", "1")]])
"""Names and contents of attachments."""
TEXTS = st.lists(st.sampled_from(["", "", "same", "more"]), max_size=3)
"""Chunks; an empty one has what no other work has."""
MEANWHILE = st.sampled_from(
    ["", "", "", "event", "event", "touched", "deleted", "renamed", "renewed", "late", "late", "taken"]
)
"""What happens between a claim and its end."""
ENDS = st.sampled_from(
    [
        "commit",
        "commit",
        "same",
        "permanent",
        "retryable",
        "retryable",
        "unavailable",
        "unavailable",
        "park",
        "park",
        "death",
    ]
)
LATER = st.sampled_from([7.0, 160.0, 450.0, 1100.0, 1100.0, 4000.0, WEEK + 500])


@dataclass
class Row:
    """What the model knows of a document. Times are the database's; `next_at` lies between two of them."""

    id: int
    tenant: str
    uri: str
    kind: str
    next_at: tuple[datetime, datetime]
    location: str | None = None
    version: int = 1
    done: int = 0
    state: str = "pending"
    attempts: int = 0
    delays: int = 0
    lease_until: tuple[datetime, datetime] | None = None
    token: UUID | None = None
    leased: int = 0
    error: str | None = None
    fingerprint: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    parent: int | None = None
    depth: int = 0
    inherited: Any = None
    chunks: list[str] = field(default_factory=list)
    noted: dict[str, Any] | None = None
    pages: dict[int, bool | None] = field(default_factory=dict)
    """Pages in ranges: read well, read badly, not read."""
    ranges: dict[int, int] = field(default_factory=dict)
    """In which range a page was last."""

    def due(self, now: datetime) -> bool:
        """May be claimed at this moment, were its attempts not used up."""
        if self.state == "leased":
            assert self.lease_until
            return self.lease_until[0] < now
        return self.state == "pending" and self.next_at[0] <= now

    def spent(self) -> bool:
        """Its workers died too often over what it holds now."""
        return self.state == "leased" and self.attempts >= ATTEMPTS and self.version == self.leased

    def give_up(self) -> None:
        self.token = self.lease_until = None

    def fresh(self, now: tuple[datetime, datetime], state: str = "pending") -> None:
        self.state, self.attempts, self.delays, self.next_at = state, 0, 0, now


class Held(NamedTuple):
    """A claim, and what the model thought of its row when it was made."""

    worker: int
    claim: Claim


def chunk(index: int, text: str) -> EmbeddedChunk:
    vector = np.zeros(8, dtype=np.float32)
    vector[len(text) % 8] = 1
    return EmbeddedChunk(Chunk(index, text, None, (), None, 0, len(text), "english", 3), vector, "m")


def between(now: tuple[datetime, datetime], low: float, high: float) -> tuple[datetime, datetime]:
    return now[0] + timedelta(seconds=low), now[1] + timedelta(seconds=high)


class Upheaval(RuleBasedStateMachine):
    """Producers, workers and the clock."""

    connections: list[Connection[Any]]

    def __init__(self) -> None:
        super().__init__()
        self.control = self.connections[0]
        for table in ("page_ranges", "documents", "sources"):
            self.control.execute(f"delete from {table}".encode())
        self.rows: dict[int, Row] = {}
        self.held: list[Held] = []
        self.highest: dict[int, tuple[int, int]] = {}
        self.ledgers = [self.ledger(one) for one in self.connections[1:]]
        self.work = 0

    @staticmethod
    def ledger(connection: Connection[Any], tenant: str = "default") -> Ledger:
        return Ledger(
            connection,
            tenant=tenant,
            lease_seconds=LEASE,
            max_attempts=ATTEMPTS,
            backoff_seconds=BACKOFF,
            backoff_cap_seconds=CAP,
        )

    def producer(self, tenant: str) -> Ledger:
        return self.ledger(self.control, tenant)

    def ranges(self, worker: int) -> PageRanges:
        return PageRanges(self.connections[1 + worker], lease_seconds=LEASE, max_attempts=ATTEMPTS)

    def clock(self) -> datetime:
        (now,) = self.control.execute("select clock_timestamp()").fetchone() or (None,)
        assert isinstance(now, datetime)
        return now

    def find(self, tenant: str, uri: str) -> Row | None:
        return next((row for row in self.rows.values() if (row.tenant, row.uri) == (tenant, uri)), None)

    def standing(self, claim: Claim) -> Row | None:
        """The row of a claim that still stands."""
        row = self.rows.get(claim.id)
        return row if row and row.token == claim.token else None

    def pick(self, number: int) -> Held:
        return self.held[-1 - number % len(self.held)]

    def below(self, row: Row) -> list[Row]:
        """All that was found inside it and is still there."""
        children = [one for one in self.rows.values() if one.parent == row.id and one.state != "deleted"]
        return [*children, *(deeper for child in children for deeper in self.below(child))]

    # --- producers ---------------------------------------------------------------------------------------------

    @rule(
        tenant=TENANTS,
        name=NAMES,
        fingerprint=st.sampled_from([None, "1", "1", "2"]),
        metadata=st.sampled_from([None, {"note": 1}, {"note": 2}]),
        synced=st.sampled_from([False, False, False, True]),
        force=st.booleans(),
    )
    def record(
        self,
        tenant: str,
        name: str,
        fingerprint: str | None,
        metadata: dict[str, Any] | None,
        synced: bool,
        force: bool,
    ) -> None:
        uri = f"place:{name}" if synced else f"file:///drop/{name}"
        where: dict[str, Any] = {"kind": "synced", "location": "bytes"} if synced else {"kind": "file"}
        before = self.clock()
        told = self.producer(tenant).record(uri, fingerprint=fingerprint, metadata=metadata, force=force, **where)
        now = before, self.clock()
        row = self.find(tenant, uri)
        if row is None:
            row = Row(told.source_id, tenant, uri, where["kind"], now, fingerprint=fingerprint)
            row.location, row.metadata = where.get("location"), metadata or {}
            self.rows[row.id] = row
            changed = True
        else:
            changed = self.happened(row, now, fingerprint=fingerprint, force=force)
            if changed:
                row.kind, row.location = where["kind"], where.get("location")
                row.metadata = row.metadata if metadata is None else metadata
        assert (told.source_id, told.version, told.changed) == (row.id, row.version, changed)

    def happened(
        self, row: Row, now: tuple[datetime, datetime], *, fingerprint: str | None, force: bool = False
    ) -> bool:
        """An event about a document that has a row."""
        if not force and row.state != "deleted" and row.fingerprint == fingerprint:
            return False
        row.version += 1
        row.delays, row.next_at, row.error = 0, now, None
        if row.state != "leased":
            row.fresh(now)
        row.fingerprint = fingerprint or row.fingerprint
        return True

    @rule(tenant=TENANTS, name=NAMES, how=st.sampled_from(["settled", "failed", "deleted"]))
    def refuse(self, tenant: str, name: str, how: str) -> None:
        """A sync could not have it."""
        uri, state = f"place:{name}", "deleted" if how == "deleted" else "failed"
        before = self.clock()
        error = PermanentError("denied", "it may not be read", "ask")
        found = self.producer(tenant).refuse(uri, error, kind="synced", settled=how == "settled", state=state)
        row = self.find(tenant, uri)
        if row is None:
            row = self.rows[found] = Row(found, tenant, uri, "synced", (before, self.clock()), state=state)
        elif row.state == "deleted" or (how == "settled" and row.state == "done"):
            row.state = state
        row.error = "denied"
        assert found == row.id

    @precondition(lambda self: self.rows)
    @rule(which=FEW)
    def well(self, which: int) -> None:
        row = self.any_row(which)
        self.producer(row.tenant).well(row.id)
        if row.state == "done":
            row.error = None

    def any_row(self, which: int) -> Row:
        return list(self.rows.values())[-1 - which % len(self.rows)]

    @precondition(lambda self: self.rows)
    @rule(which=FEW)
    def delete(self, which: int) -> None:
        self.deleted(self.any_row(which))

    def deleted(self, row: Row) -> None:
        assert self.producer(row.tenant).delete(row.uri) == (row.state != "deleted")
        if row.state != "deleted":
            self.gone(row)

    def gone(self, row: Row) -> None:
        for one in [row, *self.below(row)]:
            one.version += 1
            one.done, one.state, one.attempts, one.delays = one.version, "deleted", 0, 0
            one.error = one.fingerprint = None
            one.chunks, one.noted = [], None
            one.pages = {}
            one.give_up()

    @rule(tenant=TENANTS, old=NAMES, new=NAMES, fingerprint=st.sampled_from([None, "1", "3"]))
    def rename(self, tenant: str, old: str, new: str, fingerprint: str | None) -> None:
        source, target = f"file:///drop/{old}", f"file:///drop/{new}"
        before = self.clock()
        done = self.producer(tenant).rename(source, target, fingerprint=fingerprint)
        now = before, self.clock()
        row, there = self.find(tenant, source), self.find(tenant, target)
        assert done == (row is not None and row.state != "deleted")
        if row is None or not done:
            return
        if there and there is not row:
            self.forget(there)
        row.version += 1
        row.fresh(now)
        row.give_up()
        row.fingerprint = fingerprint or row.fingerprint
        family = [row, *self.below(row)]
        for one in self.rows.values():
            if one.state == "deleted" and one.parent in {relative.id for relative in family}:
                one.parent = None  # who comes to be where it was may have one like it
        for one in family:
            moved = target + one.uri.removeprefix(source)
            in_the_way = self.find(tenant, moved)
            if in_the_way and in_the_way is not one and in_the_way not in family:
                assert in_the_way.state == "deleted"
                self.forget(in_the_way)
            one.uri = moved
            if one.parent:
                one.metadata = one.metadata | {"parent_uri": self.rows[one.parent].uri}
                if one.state == "leased":  # its worker knows it by another name
                    one.fresh(now)
                    one.give_up()
            if one.noted:
                one.noted = one.noted | {"uri": moved, "parent_uri": one.metadata.get("parent_uri")}

    def forget(self, row: Row) -> None:
        """The row itself goes, and those of all that was ever inside."""
        for one in [one for one in self.rows.values() if one.parent == row.id]:
            self.forget(one)
        del self.rows[row.id]

    @rule(tenant=TENANTS, which=st.none() | FEW, beside=st.sampled_from([None, "default", "other"]))
    def retry(self, tenant: str, which: int | None, beside: str | None) -> None:
        """Those that failed, beside two more: one cannot be read, one could not be had, and both may be another's."""
        if beside:
            self.record(beside, "a", None, None, False, True)
            self.check()
            self.attempt(0, "", "permanent", [""], [], None)
            self.check()
            self.refuse(beside, "a", "settled")
            self.check()
        ids = None if which is None or not self.rows else [self.any_row(which).id]
        before = self.clock()
        again = self.producer(tenant).retry(ids)
        now = before, self.clock()
        lost = [row for row in self.rows.values() if row.tenant == tenant and row.state in ("failed", "dead")]
        wanted = [row for row in lost if ids is None or row.id in ids]
        for row in wanted:
            if row.kind == "synced" and row.location is None:
                continue  # only a visit brings its bytes
            row.version += 1
            row.fresh(now)
            row.pages = {number: read for number, read in row.pages.items() if not self.in_bad_range(row, number)}
        assert sorted(again) == sorted(row.id for row in wanted)

    @staticmethod
    def in_bad_range(row: Row, number: int) -> bool:
        """A range with a page that failed is read again as a whole."""
        return any(read is False for other, read in row.pages.items() if row.ranges[other] == row.ranges[number])

    # --- workers -----------------------------------------------------------------------------------------------

    @rule(worker=st.integers(0, WORKERS - 1), locked=st.sampled_from([None, None, 0, 1]))
    def claim(self, worker: int, locked: int | None) -> None:
        """Claim and say no more, as one who died."""
        self.claimed(worker, locked)

    @rule(
        several=st.lists(
            st.tuples(st.integers(0, WORKERS - 1), MEANWHILE, ENDS, TEXTS, INSIDE, RETRY_AFTER), min_size=4, max_size=9
        )
    )
    def attempts(self, several: list[tuple[Any, ...]]) -> None:
        for one in several:
            self.attempt(*one)
            self.check()
        self.claimed(0)  # what must wait is not due

    def attempt(
        self,
        worker: int,
        meanwhile: str,
        end: str,
        texts: list[str],
        inside: list[tuple[str, str]],
        after: float | None,
    ) -> None:
        """Wait for something to be due, or make it so, claim it, and see it through while something happens."""
        now = self.clock()
        if not any(row.state in ("pending", "leased") for row in self.rows.values()):
            self.record("default", "a", None, None, not texts, True)
            self.check()
        if not any(row.due(now) for row in self.rows.values()):
            waits = [row.next_at[0] for row in self.rows.values() if row.state == "pending"]
            self.time_passes((min(waits) - now).total_seconds() + 60 if waits else 1100.0)
        row = self.claimed(worker)
        if row is None:
            return
        held = self.held[-1]
        self.check()
        root = row.uri.removeprefix("file:///drop/")[:1]
        if meanwhile in ("event", "touched") and row.depth == 0:
            synced = row.uri.startswith("place:")
            self.record(row.tenant, row.uri[-1], None, None, synced, meanwhile == "event")
        elif meanwhile == "deleted":
            self.deleted(row if len(texts) > 1 else self.find(row.tenant, f"file:///drop/{root}") or row)
        elif meanwhile == "renamed" and row.uri.startswith("file:"):
            self.rename(row.tenant, root, "ab"[len(texts) % 2], None)
        elif meanwhile == "renewed":
            self.renewed(held, (3, 9))
        elif meanwhile in ("late", "taken"):
            self.time_passes(1100.0)
            if meanwhile == "taken":
                self.claimed((worker + 1) % WORKERS)
        self.check()
        self.end(held, end, texts, inside, after)

    @precondition(lambda self: self.held)
    @rule(which=FEW, end=ENDS, texts=TEXTS, inside=INSIDE, after=RETRY_AFTER)
    def come_back(
        self, which: int, end: str, texts: list[str], inside: list[tuple[str, str]], after: float | None
    ) -> None:
        """One who was thought dead goes on with what it was about."""
        self.end(self.pick(which), end, texts, inside, after)

    def end(self, held: Held, end: str, texts: list[str], inside: list[tuple[str, str]], after: float | None) -> None:
        if end == "commit":
            self.commit(held, texts, inside)
        elif end == "same":
            self.commit_unchanged(held)
        elif end == "park":
            self.park(held)
        elif end == "death":
            self.held.remove(held)
            self.time_passes(1100.0)
        else:
            kinds = {"permanent": PermanentError, "retryable": RetryableError, "unavailable": UnavailableError}
            self.fail(held, kinds[end], after)

    def claimed(self, worker: int, locked: int | None = None) -> Row | None:
        """Claim; while some transaction holds one of the rows that are due, if `locked` says so."""
        before = self.clock()
        order = sorted((row for row in self.rows.values() if row.due(before)), key=lambda row: (row.next_at, row.id))
        away = order[locked].id if locked is not None and locked < len(order) else None
        if away is not None:
            self.control.execute("begin")
            self.control.execute("select from sources where id = %s for update", (away,))
        try:
            claim = self.ledgers[worker].claim()
        finally:
            if away is not None:
                self.control.execute("rollback")
        now = before, self.clock()
        free = [row for row in order if row.id != away]
        for row in free:
            if row.spent():
                row.state, row.error = "dead", "worker_died"
                row.give_up()
        row = next((row for row in free if row.state != "dead"), None)
        assert (claim and claim.id) == (row and row.id)
        if claim is None or row is None:
            return None
        row.attempts = 1 if row.state == "leased" and row.version != row.leased else row.attempts + 1
        row.state, row.leased, row.token = "leased", row.version, claim.token
        row.lease_until = between(now, LEASE, LEASE)
        told = (claim.tenant, claim.uri, claim.kind, claim.version, claim.attempts, claim.delays, claim.done_version)
        assert told == (row.tenant, row.uri, row.kind, row.version, row.attempts, row.delays, row.done)
        assert (claim.metadata, claim.location) == (row.metadata, row.location)
        assert claim.token not in {held.claim.token for held in self.held}
        self.held.append(Held(worker, claim))
        return row

    @precondition(lambda self: self.held)
    @rule(which=FEW, pages=st.sampled_from([None, (3, 9)]))
    def renew(self, which: int, pages: tuple[int, int] | None) -> None:
        self.renewed(self.pick(which), pages)

    def renewed(self, held: Held, pages: tuple[int, int] | None) -> None:
        worker, claim = held
        begun, total = pages or (None, None)
        before = self.clock()
        renewed = self.ledgers[worker].renew(claim, pages_done=begun, pages=total)
        row = self.standing(claim)
        assert renewed == (row is not None)
        if row:
            row.lease_until = between((before, self.clock()), LEASE, LEASE)

    def commit(self, held: Held, texts: list[str], inside: list[tuple[str, str]]) -> None:
        worker, claim = held
        self.work += 1
        texts = [text or f"work {self.work}" for text in texts]
        children = []
        for name, content in inside if claim.depth < 2 else []:
            digest = hashlib.sha256(content.encode()).hexdigest()
            children.append(Child(child_uri(claim.uri, name), name, digest, digest))
        outcome = Outcome(b"1" * 32, "recipe", "text/plain", "Title", None, 10, {})
        before = self.clock()
        made = [chunk(index, text) for index, text in enumerate(texts)]
        swapped = self.ledgers[worker].commit(claim, outcome, made, children)
        now = before, self.clock()
        row = self.standing(claim)
        assert (swapped is not None) == (row is not None)
        if row is None:
            return
        self.finished(row, now)
        row.chunks = texts
        row.noted = claim.metadata | {"uri": row.uri}
        for one in [one for one in self.rows.values() if one.parent == row.id and one.state != "deleted"]:
            if one.uri not in {child.uri for child in children}:
                self.gone(one)
        for child in children:
            self.found_inside(row, child, claim.metadata, now)

    def found_inside(self, row: Row, child: Child, metadata: dict[str, Any], now: tuple[datetime, datetime]) -> None:
        """A document of its own: due if it is new, its bytes are others, or it inherits other facts."""
        inherited = metadata | {"parent_uri": row.uri, "parent_title": "Title"}
        one = self.find(row.tenant, child.uri)
        if one is None:
            found = self.control.execute(
                "select id from sources where tenant = %s and uri = %s", (row.tenant, child.uri)
            ).fetchone()
            assert found
            one = self.rows[found[0]] = Row(found[0], row.tenant, child.uri, "attachment", now)
            one.fingerprint = child.digest
        elif one.state != "deleted" and (one.fingerprint, one.inherited) == (child.digest, inherited):
            return
        else:
            self.happened(one, now, fingerprint=child.digest, force=True)
        one.inherited = one.metadata = inherited
        one.parent, one.depth, one.location = row.id, row.depth + 1, child.location

    def finished(self, row: Row, now: tuple[datetime, datetime]) -> None:
        row.done = row.leased
        row.fresh(now, "done" if row.version == row.leased else "pending")
        row.error = None
        row.pages = {}
        row.give_up()

    def commit_unchanged(self, held: Held) -> None:
        worker, claim = held
        before = self.clock()
        done = self.ledgers[worker].commit_unchanged(claim)
        row = self.standing(claim)
        assert done == (row is not None)
        if row:
            self.finished(row, (before, self.clock()))

    def fail(self, held: Held, kind: type[GristmillError], after: float | None) -> None:
        worker, claim = held
        wait = {"retry_after": after} if issubclass(kind, RetryableError) else {}
        code = kind.__name__.removesuffix("Error").lower()
        before = self.clock()
        state = self.ledgers[worker].fail(claim, kind(code, "it did not work", "wait", **wait))
        now = before, self.clock()
        row = self.standing(claim)
        if row is None:
            assert state is None
            return
        row.give_up()
        row.error = code
        if row.version != row.leased:
            row.fresh(now)
        else:
            counts = kind is not UnavailableError
            row.state = "pending"
            if kind is PermanentError:
                row.state, row.next_at, row.pages = "failed", now, {}
            elif counts and row.attempts >= ATTEMPTS:
                row.state, row.next_at = "dead", now
            elif wait.get("retry_after") is not None:
                asked = min(max(wait["retry_after"] or 0.0, 0.0), MOST_SECONDS)
                row.next_at = between(now, asked, asked + BACKOFF)
            else:
                longest = min(CAP, BACKOFF * 2**row.delays)
                row.next_at = between(now, longest / 2, longest)
            row.delays += 1
            row.attempts -= not counts
        assert state == row.state

    def park(self, held: Held) -> None:
        """Three pages need OCR; those that are read already do not."""
        worker, claim = held
        ranges = self.ranges(worker)
        row = self.standing(claim)
        read = {number: result for number, result in row.pages.items() if result is not None} if row else {}
        if row:
            found = ranges.results(claim.id, b"1" * 32, RECIPE)
            assert {number: page.problem is None for number, page in found.items()} == read
        awaiting = [number for number in (1, 2, 3) if number not in read]
        if not awaiting or (read and len(read) != 3 and not (row and row.pages)):
            return
        before = self.clock()
        waiting = ranges.park(claim, Parked(claim.version, b"1" * 32, RECIPE, None, "scan.pdf"), awaiting, 3)
        now = before, self.clock()
        assert (waiting is None) == (row is None)
        if row:
            added = [number for number in awaiting if number not in row.pages]
            self.work += 2
            row.ranges |= {number: self.work + (at >= len(added) // 2) for at, number in enumerate(added)}
            row.pages = dict.fromkeys(awaiting) | read
            row.state = "reading" if row.version == row.leased else "pending"
            row.attempts, row.next_at, row.error = 0, now, None
            row.give_up()

    @precondition(lambda self: any(None in row.pages.values() for row in self.rows.values()))
    @rule(worker=st.integers(0, WORKERS - 1), pages=st.integers(1, 2), well=st.booleans(), ranges=st.integers(1, 2))
    def read(self, worker: int, pages: int, well: bool, ranges: int) -> None:
        for _ in range(ranges):
            self.read_pages(worker, pages, well)
            self.check()

    @rule(pages=st.integers(1, 2), well=st.booleans())
    def a_scan_dies(self, pages: int, well: bool) -> None:
        """Some of its pages were read, and an event came; then it fails for good, and is tried again by hand."""
        self.record("default", "b", None, None, False, True)
        self.check()
        self.attempt(0, "", "park", [""], [], None)
        self.check()
        self.read(1, pages, well, 1)
        self.record("default", "b", None, None, False, True)
        for _ in range(ATTEMPTS):
            self.check()
            self.attempt(0, "", "retryable", [""], [], None)
        self.check()
        self.retry("default", None, None)

    def read_pages(self, worker: int, pages: int, well: bool) -> None:
        """An OCR worker reads so many pages of a range, and is not heard of again if that was not all."""
        ranges = self.ranges(worker)
        before = self.clock()
        claim = ranges.claim()
        if claim is None:
            return
        row = self.rows[claim.source_id]
        assert [number for number in claim.left if row.pages.get(number, True) is not None] == []
        assert claim.uri == row.uri
        for number in claim.left[:pages]:
            saved = ranges.save(claim, OcrPage(number, ("text",), problem=None if well else "no-text"))
            row.pages[number] = well
            if row.state == "reading" and None not in row.pages.values():
                row.state, row.next_at = "pending", (before, self.clock())
                assert saved == "released"
            else:
                assert saved in ("kept", "finished")

    @rule(seconds=LATER)
    def time_passes(self, seconds: float) -> None:
        self.control.execute(
            "update sources set next_at = next_at - %(later)s, lease_until = lease_until - %(later)s",
            {"later": timedelta(seconds=seconds)},
        )
        self.control.execute("update page_ranges set lease_until = lease_until - %s", (timedelta(seconds=seconds),))
        for row in self.rows.values():
            row.next_at = between(row.next_at, -seconds, -seconds)
            row.lease_until = row.lease_until and between(row.lease_until, -seconds, -seconds)

        self.keep_clear()

    def keep_clear(self) -> None:
        """Nothing falls due in the next seconds: a slow machine must not make a difference."""
        now = self.clock()
        for row in self.rows.values():
            falls_due = row.lease_until if row.state == "leased" else row.next_at
            assert falls_due
            if falls_due[1] > now and falls_due[0] < now + timedelta(seconds=20):
                self.time_passes(50.0)
                return

    # --- what holds at any time --------------------------------------------------------------------------------

    def rows_are_what_the_model_says(self) -> None:
        with self.control.cursor(row_factory=namedtuple_row) as cursor:
            found = cursor.execute("select * from sources").fetchall()
        assert {one.id for one in found} == set(self.rows)
        for one in found:
            row = self.rows[one.id]
            assert (one.tenant, one.uri, one.kind, one.state) == (row.tenant, row.uri, row.kind, row.state)
            assert (one.version, one.done_version, one.attempts) == (row.version, row.done, row.attempts), one.uri
            assert (one.delays, one.token, one.error_code) == (row.delays, row.token, row.error), one.uri
            assert (one.metadata, one.parent_id, one.depth) == (row.metadata, row.parent, row.depth), one.uri
            if row.depth == 0:
                assert (one.fingerprint, one.location) == (row.fingerprint, row.location), one.uri
            assert (one.chunks or 0) == len(row.chunks)
            if row.state == "pending":
                assert row.next_at[0] <= one.next_at <= row.next_at[1]
            row.next_at = one.next_at, one.next_at
            assert (one.lease_until is None) == (row.lease_until is None)
            if row.lease_until:
                assert row.lease_until[0] <= one.lease_until <= row.lease_until[1]
                row.lease_until = one.lease_until, one.lease_until
            assert one.done_version <= one.version
            assert (one.error_cause is None) == (one.error_remedy is None) == (one.error_code is None)
            assert self.highest.get(one.id, (0, 0)) <= (one.version, one.done_version), "never goes back"
            assert self.highest.get(one.id, (0, 0))[1] <= one.done_version
            assert row.state != "done" or one.done_version == one.version
            self.highest[one.id] = one.version, one.done_version

    def chunks_are_those_of_what_was_committed(self) -> None:
        found = self.control.execute(
            "select source_id, array_agg(content order by chunk_index), array_agg(metadata), array_agg(tenant)"
            " from documents group by source_id"
        ).fetchall()
        chunks = {source: texts for source, texts, _, _ in found}
        assert chunks == {row.id: row.chunks for row in self.rows.values() if row.chunks}
        for source, _, notes, tenants in found:
            row = self.rows[source]
            assert set(tenants) == {row.tenant}
            for note in notes:
                assert row.noted is not None
                assert {key: note.get(key) for key in row.noted} == row.noted

    def pages_are_those_that_wait_or_are_kept(self) -> None:
        found = self.control.execute("select source_id, pages from page_ranges").fetchall()
        pages = sorted((source, number) for source, numbers in found for number in numbers)
        assert pages == sorted((row.id, number) for row in self.rows.values() for number in row.pages)

    def as_many_are_due_as_can_be_claimed(self) -> None:
        before = self.clock()
        due = self.ledgers[0].due()
        assert due == sum(row.due(before) for row in self.rows.values())
        assert self.ledgers[0].known("file:///drop/") == {
            row.uri: row.fingerprint
            for row in self.rows.values()
            if row.tenant == "default" and row.state != "deleted" and row.depth == 0 and row.uri.startswith("file:")
        }

    def teardown(self) -> None:
        """In the end everything can be claimed and done, and nothing is left in between."""
        self.held.clear()
        self.time_passes(WEEK + 1000)
        while self.rows_left():
            for worker in range(WORKERS):
                if self.claimed(worker) is not None:
                    self.commit(self.held[-1], [""], [])
            self.read_pages(0, 2, True)
            self.check()
            self.time_passes(1100)
        self.check()

    def rows_left(self) -> bool:
        return any(row.state in ("pending", "leased", "reading") for row in self.rows.values())

    @invariant()
    def check(self) -> None:
        self.rows_are_what_the_model_says()
        self.keep_clear()
        self.chunks_are_those_of_what_was_committed()
        self.pages_are_those_that_wait_or_are_kept()
        self.as_many_are_due_as_can_be_claimed()


@pytest.fixture
def connections(another: Callable[[], Connection[Any]]) -> Iterator[list[Connection[Any]]]:
    """One for producers and the clock, and one for each worker, which never waits for another."""
    opened = [another() for _ in range(1 + WORKERS)]
    for one in opened:
        one.execute("set lock_timeout = '20s'")
    yield opened


@pytest.mark.timeout(300)
def test_whatever_happens_the_ledger_keeps_its_promises(connections: list[Connection[Any]]) -> None:
    class Case(Upheaval):
        pass

    Case.connections = connections
    run_state_machine_as_test(
        Case,
        settings=hypothesis_settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS_EACH, database=None, report_multiple_bugs=False
        ),
    )
