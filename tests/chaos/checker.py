"""Whether the index holds what it must: during a run as an onlooker sees it, and in the end row by row."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psycopg
from psycopg import Connection
from redis import Redis
from redis.exceptions import RedisError

from pipelines.errors import GristmillError
from tests.chaos.schedule import Expected, Mark, marks, parts_of
from worker.database import open_database
from worker.embedded import valkey
from worker.settings import Settings

ROWS = "select d.source_id, s.uri, d.content from documents d left join sources s on s.id = d.source_id"

Row = tuple[int | None, str | None, str]
"""Source, its uri, and the content of one passage."""

# What the ledger commits is noted by the database itself, so that no worker can forget to.
AUDIT = """
create table chaos_commits (at timestamptz default clock_timestamp(), source_id bigint, version bigint, before bigint);
create function chaos_note() returns trigger language plpgsql as $$
begin
  insert into chaos_commits (source_id, version, before) values (new.id, new.done_version, old.done_version);
  return null;
end $$;
create trigger chaos_note after update of done_version on sources for each row execute function chaos_note();
"""


@dataclass
class Verdict:
    """What is wrong, by kind; each with what it is about. All empty is right."""

    flaws: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def __getitem__(self, kind: str) -> int:
        return len(self.flaws.get(kind, ()))

    def add(self, kind: str, about: str) -> None:
        """Note a flaw."""
        self.flaws[kind].append(about)

    def __bool__(self) -> bool:
        return any(self.flaws.values())

    def __str__(self) -> str:
        lines = [f"{kind}: {len(found)}: {'; '.join(found[:8])}" for kind, found in sorted(self.flaws.items()) if found]
        return "\n".join(lines) or "nothing is wrong"


def _all_rows(connection: Connection[Any]) -> list[Row]:
    return connection.execute(ROWS).fetchall()


def _by_source(rows: Iterable[Row]) -> dict[tuple[int | None, str | None], list[Mark]]:
    found: dict[tuple[int | None, str | None], list[Mark]] = defaultdict(list)
    for source, uri, content in rows:
        found[source, uri] += marks(content) or [Mark(-1, 0, 1, 1)]
    return found


def _look_at(what: str, found: list[Mark], verdict: Verdict) -> None:
    """Whether the passages of one source are one version of one document, each part once."""
    wholes = {(mark.document, mark.version, mark.parts) for mark in found}
    parts = Counter(found)
    if doubled := [mark for mark, count in parts.items() if count > 1]:
        verdict.add("duplicates", f"{what}: {doubled[0]} {parts[doubled[0]]} times")
    document, version, count = min(wholes)
    whole = {Mark(document, version, part, count) for part in range(1, count + 1)}
    if len(wholes) > 1 or set(found) != whole or count != parts_of(document, version):
        verdict.add("torn", f"{what}: {sorted(parts)}")


def compare(expected: Mapping[int, Expected], rows: Iterable[Row]) -> Verdict:
    """Every row of the index against what must be there."""
    verdict = Verdict()
    holders: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for (source, uri), found in _by_source(rows).items():
        _look_at(f"source {source} ({uri})", found, verdict)
        for document in {mark.document for mark in found}:
            holders[document].append((uri or "", max(m.version for m in found if m.document == document)))
    for document in sorted(expected.keys() | holders.keys()):
        want, held = expected.get(document), holders.get(document, [])
        if want is None:
            verdict.add("unknown", f"D{document}")
        elif want.version is None:
            if held:
                verdict.add("resurrected", f"D{document}: {held}")
        elif not held:
            verdict.add("lost", f"D{document} v{want.version} ({want.channel})")
        else:
            _compare_one(document, want, held, verdict)
    return verdict


def _compare_one(document: int, want: Expected, held: list[tuple[str, int]], verdict: Verdict) -> None:
    if len(held) > 1:
        verdict.add("duplicates", f"D{document} in {held}")
    assert want.version is not None
    if any(version < want.version for _, version in held):
        verdict.add("stale", f"D{document} ({want.channel}): {held} instead of v{want.version}")
    if any(version > want.version for _, version in held):
        verdict.add("unknown", f"D{document}: {held}, v{want.version} was the last")
    if not any(uri.endswith(want.place) for uri, _ in held):
        verdict.add("misplaced", f"D{document}: {held} instead of {want.place}")


def examine_ledger(connection: Connection[Any], verdict: Verdict) -> None:
    """What the ledger says of itself and what was noted of its commits."""
    for uri, state, code in connection.execute(
        "select uri, state, error_code from sources where state not in ('done', 'deleted') or error_code is not null"
    ):
        verdict.add("unsettled", f"{uri.rsplit('/', 1)[-1]} is {state} ({code})")
    for uri, chunks, count in connection.execute(
        "select uri, chunks, (select count(*) from documents where source_id = s.id) from sources s"
        " where chunks is distinct from (select count(*) from documents where source_id = s.id)"
        " and state in ('done', 'deleted')"
    ):
        verdict.add("miscounted", f"{uri}: {chunks} chunks in the ledger, {count} in the index")
    for source, version, count in connection.execute(
        "select source_id, version, count(*) from chaos_commits group by 1, 2 having count(*) > 1"
    ):
        verdict.add("double commits", f"source {source} v{version}: {count} times")
    for source, version, before in connection.execute(
        "select source_id, version, before from chaos_commits where version < before"
    ):
        verdict.add("version regressions", f"source {source}: from {before} to {version}")


class Onlooker:
    """A reader that looks at the whole index, again and again, all the time, and counts what the broker is sent.

    A document may never be seen torn, doubled or in two versions, never in an older version than before, and, once
    seen, never gone unless its deletion had begun. One whose deletion was answered may not be seen again.
    """

    def __init__(self, settings: Settings) -> None:
        self.verdict = Verdict()
        self.looks = 0
        self.longest_blind = 0.0
        self._settings = settings
        self._lock = threading.Lock()
        self._may_go: set[int] = set()
        self._removed: dict[int, tuple[float, int]] = {}
        self._seen: dict[int, int] = {}
        self._pushed: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="onlooker", daemon=True)

    def may_go(self, document: int) -> None:
        """Its deletion or renaming begins now."""
        with self._lock:
            self._may_go.add(document)

    def removed(self, document: int, version: int) -> None:
        """Its deletion was answered: up to this version, nothing of it may be seen from now on."""
        with self._lock:
            self._removed[document] = (time.monotonic(), version)

    @property
    def wake_ups(self) -> int:
        """Messages that were put in the broker's queues, over all its lives."""
        return sum(self._pushed.values())

    def count_wake_ups(self) -> None:
        """Read the broker's counter; to be called before it is killed as well."""
        with (
            suppress(RedisError, OSError),
            Redis(unix_socket_path=str(valkey.socket_path(self._settings.home)), socket_timeout=2) as client,
        ):
            run = client.info("server")["run_id"]
            stats: dict[str, Any] = client.info("commandstats")
            calls = int(stats.get("cmdstat_lpush", {}).get("calls", 0))
            with self._lock:
                self._pushed[run] = max(calls, self._pushed.get(run, 0))

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join(30)

    def judge(self, look: Callable[[], list[Row]]) -> None:
        """Look once, and judge what is seen by what was known before the look."""
        with self._lock:
            removed, asked, staying = dict(self._removed), time.monotonic(), set(self._seen) - self._may_go
        rows = look()
        versions: dict[int, int] = {}
        for (source, uri), found in _by_source(rows).items():
            _look_at(f"seen: source {source} ({uri})", found, self.verdict)
            for mark in found:
                versions[mark.document] = max(mark.version, versions.get(mark.document, 0))
        for document, version in versions.items():
            if version < self._seen.get(document, 0):
                self.verdict.add("version regressions", f"seen: D{document} v{self._seen[document]}, then v{version}")
            at, gone = removed.get(document, (asked, 0))
            if at < asked and version <= gone:
                self.verdict.add("resurrected", f"seen: D{document} v{version}, removed {asked - at:.2f} s before")
        with self._lock:  # whose deletion began while we asked may be gone
            vanished = staying - versions.keys() - self._may_go
        for document in vanished:
            self.verdict.add("vanished", f"seen: D{document} v{self._seen.pop(document)} is no longer there")
        self._seen.update(versions)

    def _run(self) -> None:
        connection: Connection[Any] | None = None
        last = time.monotonic()
        while not self._stop.wait(0.1):
            self.count_wake_ups()
            try:
                connection = connection or open_database(self._settings, application="chaos onlooker")
                self.judge(partial(_all_rows, connection))
            except (psycopg.OperationalError, GristmillError):
                connection = None  # it is down, as it is meant to be now and then
                continue
            self.looks += 1
            self.longest_blind = max(self.longest_blind, time.monotonic() - last)
            last = time.monotonic()
        if connection is not None:
            connection.close()


def wait_until(condition: Callable[[], bool], seconds: float, every: float = 0.25) -> bool:
    """Poll a condition; False if it did not come to hold in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True
