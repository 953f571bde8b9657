"""A month of a Notion workspace in simulated time: edits, renames, moves, deletions, lost access, outages.

The real connector and engine talk over HTTP to a fake of Notion that misbehaves as the real one does, and a real
Postgres holds what they bring. Every night is quiet; after it, index and workspace are compared page by page.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import psycopg
from psycopg import Connection

from pipelines.database import connect
from sql.migrate import migrate
from tests.fakes.notion import Fault, NotionServer, World
from tests.fakes.sync_house import SyncHouse
from worker.connectors.contract import Document, Gone, Known, Unchanged
from worker.connectors.notion import NotionConfig, open_notion
from worker.connectors.notion.connector import NotionConnector
from worker.connectors.notion.ids import page_uri, plain_id
from worker.embedded import start_services, stop_services
from worker.settings import Settings

MARK = re.compile(r"m\d+v\d+")
QUIET = range(2, 7)
FULL_HOURS = 4
MISHAPS: tuple[Fault, ...] = (
    Fault("rate_limited", retry_after=2, reason="workspace"),
    Fault("overloaded"),
    Fault("internal"),
    Fault("bad_gateway"),
    Fault("gateway_timeout"),
    Fault("conflict"),
    Fault("dropped"),
    Fault("cut_json"),
)


@dataclass
class Figures:
    """What came of it.

    Attributes:
        events: what happened in the workspace, by kind.
        runs: of the sync, by how they ended.
        requests: sent; `least`: that a client who knew all would have needed.
        lost, stale, wrong: pages missing or old after a quiet period; pages that left the index while they were there.
        checks: quiet periods after which all was compared.
        answers_that_failed: by status, those of pages that are not there left out.
        embedded: texts; `idle`: of them in runs before which index and workspace agreed.
    """

    events: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    by_endpoint: Counter[str] = field(default_factory=Counter)
    answers_that_failed: Counter[int] = field(default_factory=Counter)
    least: int = 0
    lost: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    checks: int = 0
    pages: int = 0
    embedded: int = 0
    idle: int = 0


class Month:
    """The workspace, the sync that follows it, and the people who work in it.

    Args:
        pages: in the beginning.
        share: of requests that go wrong by day.
    """

    def __init__(self, dsn: str, home: Path, *, pages: int, seed: int = 1, share: float = 0.01) -> None:
        self.random = Random(seed)
        self.figures = Figures()
        self.share = share
        self.world = World(lambda: self.house.now, seed=seed, index_lag=300)
        self.server = NotionServer(self.world)
        self.connection: Connection[Any] = connect(dsn)
        self.house: SyncHouse
        self._versions: Counter[str] = Counter()
        self._changed: set[str] = set()
        self._dsn = dsn
        self._home = home
        self._count = pages

    def __enter__(self) -> Month:
        self.server.start()
        config = NotionConfig(
            type="notion",
            every=3600,
            full_every=FULL_HOURS * 3600 - 60,
            base_url=self.server.base_url,
            requests_per_second=1000,
        )
        settings = Settings(database_url=self._dsn, home=self._home, fetch_allow=("127.0.0.1",))
        self.house = SyncHouse(settings, self.connection, config, self._open)
        self._fill()
        return self

    def __exit__(self, *_: object) -> None:
        self.house.close()
        self.connection.close()
        self.server.stop()

    def run(self, days: int, told: Callable[[str], None] = lambda line: None) -> Figures:
        """Live through some days; `told` hears of each."""
        for day in range(days):
            for hour in range(24):
                self._hour(day, hour)
            told(f"day {day + 1}: {sum(self.figures.events.values())} events")
        self.figures.requests = sum(self.server.counts.values())
        self.figures.by_endpoint = Counter(self.server.counts)
        for (_, status), count in self.server.answers.items():
            if status >= 400 and status != 404:
                self.figures.answers_that_failed[status] += count
        self.figures.pages = len(self.world.truth())
        self.figures.embedded = self.house.embedder.texts
        return self.figures

    # --- what people do ----------------------------------------------------------------------------------------

    def _fill(self) -> None:
        roots = [self.world.create_page(None, f"Area {n}", markdown=self._text(f"{n}")) for n in range(10)]
        _database, rows = self.world.create_database(roots[0], "Tickets", {"State": "select"})
        for number in range(10, self._count):
            kind = number % 4
            if kind == 0:
                parent = rows
            elif kind == 1 or number < 50:
                parent = self.random.choice(roots)
            else:
                parent = self.random.choice(self._living())
            page = self.world.create_page(parent, f"Page {number}", markdown=self._text(f"{number}"))
            if number % 97 == 0:
                self.world.unsearchable.add(page)
        self._rows = rows
        self._living_pages: list[str] | None = None

    def _text(self, number: str) -> str:
        self._versions[number] += 1
        mark = f"m{number}v{self._versions[number]}"
        return f"Statement {mark} of page {number}.\n\n## Details\n\nIt also says {mark} here, and more."

    def _living(self) -> list[str]:
        return sorted(self.world.truth())

    def _hour(self, day: int, hour: int) -> None:
        quiet = hour in QUIET
        self.server.faults.clear()
        if not quiet:
            self._live(day, hour)
        else:
            self.house.now += timedelta(seconds=3600 - self.house.now.minute * 60 - self.house.now.second)
        self._sync(quiet=quiet)
        if hour == QUIET[-1]:
            self._compare()

    def _live(self, day: int, hour: int) -> None:
        """Most of an hour: people work, and Notion is as it is."""
        start = self.house.now.replace(minute=0, second=0) + timedelta(hours=1)
        moments = sorted(self.random.uniform(0, 3590) for _ in range(self.random.randint(0, 8)))
        for moment in moments:
            self.house.now = max(self.house.now, start - timedelta(seconds=3600 - moment))
            self._event()
        self.house.now = max(self.house.now, start)
        self.server.faults.chance(self.share, MISHAPS, seed=self.random.getrandbits(32))
        later = self.house.now + timedelta(minutes=30)
        if day % 9 == 4 and hour in (10, 11, 12):
            self.server.faults.outage(self.house.now, later, "unavailable")
            self.figures.events["outage"] += 1
        if day % 9 == 7 and hour == 15:  # all access is lost for an hour
            self.server.faults.outage(self.house.now, later, "not_found")
            self.figures.events["all hidden"] += 1
        if day % 5 == 2 and hour == 18:
            self.server.faults.script("repeat_cursor", on="search")
            self.server.faults.script("incomplete", on="data_sources.query")
            self.figures.events["incomplete listing"] += 1

    def _event(self) -> None:
        living = self._living()
        page = self.random.choice(living)
        chance = self.random.random()
        number = MARK.search(" ".join(self.world.truth()[page].texts))
        name = number[0].split("v")[0][1:] if number else page[:6]
        if chance < 0.62:
            self.world.edit(page, markdown=self._text(name))
            kind = "edit"
        elif chance < 0.72:
            self.world.rename(page, f"Renamed {self.random.randint(0, 9999)}")
            kind = "rename"
        elif chance < 0.80:
            self.world.move(page, self._elsewhere(page, living))
            kind = "move"
        elif chance < 0.90:
            number_ = str(self._count)
            self._count += 1
            parent = self._rows if self.random.random() < 0.3 else page
            page = self.world.create_page(parent, f"Page {number_}", markdown=self._text(number_))
            kind = "create"
        elif chance < 0.94:
            page = self._leaf(living)
            self.world.trash(page)
            kind = "trash"
        elif chance < 0.97:
            page = self._leaf(living)
            self.world.unshare(page)
            kind = "unshare"
        else:
            kind = self._return()
        self.figures.events[kind] += 1
        self._changed.add(page)

    def _leaf(self, living: list[str]) -> str:
        """A page with nothing below it."""
        parents = {self.world.nodes[one].parent.id for one in living}
        return self.random.choice([one for one in living if one not in parents])

    def _elsewhere(self, page: str, living: list[str]) -> str:
        """Where a page may move to: to any that is not below it."""
        for _ in living:
            target = self.random.choice(living)
            if not self._is_below(target, page):
                return target
        return self._rows

    def _is_below(self, node: str, page: str) -> bool:
        here = self.world.nodes.get(node)
        while here is not None and here.id != page:
            here = self.world.above(here)
        return here is not None

    def _return(self) -> str:
        nodes = self.world.nodes.values()
        for node in nodes:
            if node.kind == "page" and node.trashed:
                self.world.restore(node.id)
                self._changed.add(node.id)
                return "restore"
        for node in nodes:
            if node.kind == "page" and node.shared is False:
                self.world.share(node.id)
                self._changed.add(node.id)
                return "share"
        return "nothing"

    # --- the sync ----------------------------------------------------------------------------------------------

    def _open(self, config: Any, surroundings: Any) -> Any:
        return Meddled(open_notion(config, surroundings, token=self.server.token), self._meddle)

    def _meddle(self) -> None:
        """Somebody works while the sync does."""
        if self.house.now.hour not in QUIET and self.random.random() < 0.02:
            self._event()

    def _sync(self, *, quiet: bool) -> None:
        before, embedded = set(self.house.index()), self.house.embedder.texts
        truth = {page_uri(plain_id(page) or "") for page in self.world.truth()}
        changed, self._changed = len(self._changed), set()
        in_step = quiet and not any(self._differences())
        full = self._full_is_due()
        if not self.house.work(later=0):
            self.figures.runs["waited"] += 1
            self._changed |= {""} if changed else set()
            return
        row = self.connection.execute("select error_code, counts ->> 'held' from syncs").fetchone()
        assert row is not None
        outcome = row[0] or ("held" if row[1] else "full" if full else "changes")
        self.figures.runs[outcome] += 1
        pages = -(-len(truth) // 100)
        self.figures.least += changed + (2 * pages if full else 1)
        still = {page_uri(plain_id(page) or "") for page in self.world.truth()}
        self.figures.wrong += sorted((before - set(self.house.index())) & truth & still)
        if in_step:
            self.figures.idle += self.house.embedder.texts - embedded

    def _full_is_due(self) -> bool:
        row = self.connection.execute("select full_at from syncs").fetchone()
        return row is None or row[0] is None or row[0] <= self.house.now

    def _compare(self) -> None:
        self.figures.checks += 1
        lost, stale = self._differences()
        self.figures.lost += lost
        self.figures.stale += stale

    def _differences(self) -> tuple[list[str], list[str]]:
        """Pages that are missing in the index; pages that it has though they are gone, or has in another wording."""
        titles = dict(
            self.connection.execute(
                "select s.uri, min(d.metadata ->> 'title') from documents d join sources s on s.id = d.source_id"
                " group by s.uri"
            ).fetchall()
        )
        found = self.house.index()
        truth = {page_uri(plain_id(page) or ""): said for page, said in self.world.truth().items()}
        stale = sorted(set(found) - set(truth))
        for uri in set(truth) & set(found):
            marks = set(MARK.findall(" ".join(truth[uri].texts)))
            if set(MARK.findall(found[uri])) != marks or titles[uri] != truth[uri].title:
                stale.append(uri)
        return sorted(set(truth) - set(found)), stale


class Meddled:
    """A connector while whose visits something happens."""

    def __init__(self, inner: Any, meddle: Callable[[], None]) -> None:
        self._inner: NotionConnector = inner
        self._meddle = meddle

    def visit(self, key: str, known: Known | None, folder: Path) -> Document | Unchanged | Gone:
        """As the connector does."""
        found = self._inner.visit(key, known, folder)
        self._meddle()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> Meddled:
        return self

    def __exit__(self, *_: object) -> None:
        self._inner.close()


def main(arguments: Sequence[str]) -> int:
    """Live through a month and print what came of it; 1 where a page was lost, stale or wrongly deleted."""
    parser = argparse.ArgumentParser(prog="bench month", description=__doc__)
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gm-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        place.chmod(0o711)
        settings = Settings(home=place / "home")
        services = start_services(settings)
        try:
            with psycopg.connect(services.database_url, autocommit=True) as admin:
                admin.execute("alter system set synchronous_commit = off")
                admin.execute("select pg_reload_conf()")
            migrate(services.database_url, dimensions=8)
            began = time.monotonic()
            with Month(services.database_url, place / "month", pages=chosen.pages, seed=chosen.seed) as month:
                found = month.run(chosen.days, lambda line: print(line, flush=True))
            print(f"took {time.monotonic() - began:.0f} s")
        finally:
            stop_services(settings)
    print(f"events: {dict(found.events)}")
    print(f"runs: {dict(found.runs)}")
    print(f"requests: {found.requests}, least possible {found.least}: {found.requests / found.least:.2f}")
    print(f"answers that failed: {dict(found.answers_that_failed)}")
    print(f"requests by endpoint: {dict(found.by_endpoint)}")
    print(f"texts embedded: {found.embedded}, in quiet runs {found.idle}; pages at the end {found.pages}")
    print(f"{found.checks} comparisons: lost {len(found.lost)}, stale {len(found.stale)}, wrong {len(found.wrong)}")
    for what in ("lost", "stale", "wrong"):
        for uri in getattr(found, what)[:5]:
            print(f"  {what}: {uri}")
    return 1 if found.lost or found.stale or found.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
