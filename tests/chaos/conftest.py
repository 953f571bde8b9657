"""An installation whose processes die at chosen points, and what must be in its index at the end."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.conftest import Installation, is_dead, until
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.ports import reserved_port
from worker.crash import MARKERS, POINTS, CrashPoint
from worker.embedded import stop_services
from worker.process import wait_for

LEASE_SECONDS = 4
"""How long the next worker leaves alone what a dead one had, and the test has time to look at it."""
SECONDS = 120.0
"""Longest wait for anything; several times what it takes beside other tests."""

Parts = Mapping[int, int]
"""A document: the version of each of its numbered paragraphs, in order. Each paragraph is a chunk."""

FIRST: Parts = dict.fromkeys(range(5), 1)
SECOND: Parts = {0: 1, 1: 2, 2: 1, 4: 2, 5: 2}
"""An edit: of the first version's chunks two stay, three go, and three are new."""

WORDS = ("pump", "valve", "motor", "seal", "gauge", "inlet", "housing", "bearing", "filter", "tank", "hose", "relay")


def codes(name: str, parts: Parts) -> list[str]:
    """The word that is in one paragraph of one version of one document alone, for each of its paragraphs."""
    return [f"{name}p{number}v{version}" for number, version in parts.items()]


def text(name: str, parts: Parts) -> str:
    """The document: paragraphs too long for two to share a chunk."""
    return "\n\n".join(f"Paragraph {code} says that {' '.join(WORDS * 11)}." for code in codes(name, parts))


@dataclass(frozen=True, slots=True)
class Row:
    """A document as ledger and index have it."""

    state: str
    version: int
    current: bool
    attempts: int
    chunks: int
    indexes: list[int]
    contents: list[str]
    settled_at: float | None
    error: str | None


class CrashHouse(Installation):
    """One process of each kind, so that it is known who dies; every point is there and none is armed."""

    def __init__(self, place: Path, provider: OpenAIServer, port: int) -> None:
        self.synced = place / "synced"
        self.synced.mkdir()
        notes = {"type": "folder", "path": str(self.synced), "every": "1s", "confirm_after": "0s"}
        super().__init__(
            place,
            crash_at=json.dumps(POINTS),
            syncs=json.dumps({"notes": notes}),
            ingest_concurrency=1,
            ocr_concurrency=1,
            lease_seconds=LEASE_SECONDS,
            sweep_seconds=0.3,
            http_port=port,
            **provider.settings,
        )
        self.provider = provider
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{self.settings.http_port}", timeout=SECONDS, trust_env=False
        )
        self.expected: dict[str, list[str]] = {}
        self._reported: set[str] = set()

    def start(self) -> None:
        """Start it, with all points disarmed."""
        super().start()
        (self.home / MARKERS).mkdir(exist_ok=True)
        for point in POINTS:
            (self.home / MARKERS / point).touch()
        until(self.serves, "the HTTP service", seconds=SECONDS)

    def serves(self) -> bool:
        """Whether the HTTP service answers."""
        try:
            return self.client.get("/healthz").is_success
        except httpx.TransportError:
            return False

    # --- documents ---------------------------------------------------------------------------------------------

    def write(self, name: str, parts: Parts = FIRST, *, folder: Path | None = None) -> str:
        """Write a file; its uri."""
        file = (folder or self.drop) / f"{name}.md"
        file.write_text(text(name, parts))
        self.expected[file.as_uri()] = codes(name, parts)
        return file.as_uri()

    def remove(self, uri: str) -> None:
        """Delete a file."""
        Path(uri.removeprefix("file://")).unlink()
        del self.expected[uri]

    def send(self, name: str, parts: Parts = FIRST, *, key: str | None = None) -> httpx.Response:
        """Send a document over HTTP; its uri is `sent:<name>`."""
        self.expected[f"sent:{name}"] = codes(name, parts)
        return self.client.post(
            "/ingest/text",
            json={"content": text(name, parts), "uri": f"sent:{name}"},
            headers={"Idempotency-Key": key} if key else {},
        )

    def withdraw(self, name: str) -> None:
        """Delete a document that was sent."""
        assert self.client.delete("/sources", params={"uri": f"sent:{name}"}).is_success
        del self.expected[f"sent:{name}"]

    # --- deaths ------------------------------------------------------------------------------------------------

    def pids(self, kind: str, count: int = 1) -> set[int]:
        """Pids of the processes whose command line holds a text, once there are so many."""
        until(lambda: len(self.children(kind)) == count, f"{count} processes of {kind}", seconds=SECONDS)
        return {process.pid for process in self.children(kind)}

    def arm(self, point: CrashPoint) -> None:
        """Have the next process that comes to a point die there."""
        (self.home / MARKERS / point).unlink()

    def died(self, point: CrashPoint, among: set[int]) -> float:
        """Wait for a process, one of these, to have died at a point; when it did, in seconds since 1970."""
        marker = self.home / MARKERS / point
        pid = int(until(lambda: marker.exists() and marker.read_text(), f"a death at {point}", seconds=SECONDS))
        assert pid in among
        until(lambda: is_dead(pid), f"{pid} to be dead")
        return marker.stat().st_mtime

    # --- the end -----------------------------------------------------------------------------------------------

    def row(self, uri: str) -> Row:
        """What there is of a document."""
        return self.index()[uri]

    def index(self) -> dict[str, Row]:
        """All that is in the ledger or the index, in one look; what was deleted only if chunks of it are left."""
        found = self.rows(
            "select s.uri, s.state, s.version, s.done_version = s.version, s.attempts, s.chunks,"
            " coalesce(array_agg(d.chunk_index order by d.chunk_index, d.id) filter (where d.id is not null), '{}'),"
            " coalesce(array_agg(d.content order by d.chunk_index, d.id) filter (where d.id is not null), '{}'),"
            " extract(epoch from s.searchable_at)::float8, s.error_cause"
            " from sources s left join documents d on d.source_id = s.id"
            " group by s.id having s.state <> 'deleted' or count(d.id) > 0"
        )
        return {uri: Row(*rest) for uri, *rest in found}

    def told(self, row: Row) -> list[str]:
        """The codes of a document's paragraphs, as its chunks have them; other text shows as itself."""
        return [content.split()[1] if content.startswith("Paragraph ") else content for content in row.contents]

    def comes_right(self) -> None:
        """Wait until every document that must be there is there, once, whole and current, and nothing else is.

        What is wrong is said once: later tests look at everything else.
        """
        wait_for(lambda: not self._wrong(), SECONDS)
        wrong = self._wrong()
        self._reported |= wrong.keys()
        assert wrong == {}
        embedded = Counter(text for request in self.provider.requests for text in _inputs(request))
        twice = {text.split()[1] for text, times in embedded.items() if times > 1} - self._reported
        self._reported |= twice
        assert twice == set(), "paid for again"

    def _wrong(self) -> dict[str, Any]:
        found = self.index()
        return {
            uri: found.get(uri, "missing") if uri in self.expected else ("not to be there", found[uri])
            for uri in (found.keys() | self.expected.keys()) - self._reported
            if uri not in self.expected or uri not in found or not self._right(found[uri], self.expected[uri])
        }

    def _right(self, row: Row, expected: Sequence[str]) -> bool:
        whole = row.chunks == len(row.contents) and row.indexes == list(range(row.chunks))
        settled = row.state == "done" and row.current and row.attempts == 0
        return settled and whole and self.told(row) == list(expected)


def _inputs(request: Mapping[str, Any]) -> Sequence[str]:
    given = request["input"]
    return [given] if isinstance(given, str) else given


@pytest.fixture(scope="module")
def house() -> Iterator[CrashHouse]:
    """One installation for all tests of a file."""
    with (
        pytest.MonkeyPatch.context() as patch,
        OpenAIServer() as provider,
        reserved_port() as port,
        tempfile.TemporaryDirectory(prefix="gm-", ignore_cleanup_errors=True) as name,
    ):
        for variable in [one for one in os.environ if one.startswith(("GRISTMILL_", "OPENAI_", "NOTION_", "AWS_"))]:
            patch.delenv(variable)
        Path(name).chmod(0o711)  # as root, Postgres runs as another user and has to get through
        made = CrashHouse(Path(name), provider, port)
        try:
            made.start()
            yield made
        finally:
            made.client.close()
            if made.process is not None and made.process.poll() is None:
                made.stop()
            stop_services(made.settings)
