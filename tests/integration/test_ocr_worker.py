"""A scan on its way through both kinds of workers, with a reader that does as it is told in the place of Tesseract."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

import worker.lease
from pipelines.errors import PermanentError, RetryableError
from pipelines.types import Block, Extracted, OcrPage, PageReport
from tests.fakes.eight_dimensions import EightDimensions
from tests.fakes.web_server import Answer, Call, web_server
from tests.integration.test_ledger import make_due
from worker import ingest, ocr
from worker.content import open_spool
from worker.ingest import Ingester
from worker.ledger import Ledger
from worker.ocr import OcrWorker
from worker.settings import Settings
from worker.spool import KEEP_SECONDS

Fault = Callable[[int], None]


class Reader:
    """Reads documents that say `<pages> <words>`: every page is a scan of the words.

    Attributes:
        read: numbers of the pages that were read, in order.
        fault: called with the number of each page before it is read.
    """

    def __init__(self) -> None:
        self.read: list[int] = []
        self.fault: Fault = lambda number: None

    def extract(self, path: Path, *, rules: Any, progress: Any, ocr: dict[int, OcrPage], **_: Any) -> Extracted:
        count = int(path.read_text().split()[0])
        progress(count, count)
        missing = tuple(number for number in range(1, count + 1) if number not in ocr)
        if len(missing) > rules.inline_ocr_pages:
            return Extracted("application/pdf", None, (), awaiting=missing)
        pages = [ocr.get(number) or self.page(path, number) for number in range(1, count + 1)]
        return Extracted(
            "application/pdf",
            None,
            tuple(Block("paragraph", page.text, page=page.number) for page in pages if page.text),
            tuple(PageReport(p.number, "ocr", "no-text", problem=p.problem or "") for p in pages),
        )

    def recognise(
        self, path: Path, pages: Sequence[int], done: Callable[[OcrPage], None], *, progress: Any, **_: Any
    ) -> None:
        for number in list(pages):
            progress(number, 99)
            self.fault(number)
            self.read.append(number)
            done(self.page(path, number))

    def page(self, path: Path, number: int) -> OcrPage:
        return OcrPage(number, (f"Page {number} of {path.read_text()}.",), 90.0)


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    found = Reader()
    monkeypatch.setattr(ingest, "extract", found.extract)
    monkeypatch.setattr(ocr, "recognise", found.recognise)
    return found


@pytest.fixture
def ledger(database: Connection[Any]) -> Ledger:
    return Ledger(database)


class House:
    """Both kinds of workers over one database."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self.ledger = ledger
        self.parked: list[int] = []
        self.released = 0
        self.ingester = Ingester(settings, EightDimensions(), parked=self.parked.append)
        self.ocr = OcrWorker(settings, released=self._release)

    def _release(self) -> None:
        self.released += 1

    def one_range(self) -> None:
        """Read a single range."""
        assert self.ocr._work_one()

    def round(self) -> None:
        """Everything that is due, back-offs over."""
        make_due(self.ledger)
        self.ledger.connection.execute("update page_ranges set next_at = now()")
        self.ingester.work(seconds=60)
        self.ocr.work(seconds=60)

    def settle(self) -> str:
        """Go round until the document is in an end; that state."""
        for _ in range(20):
            state = self.row()[0]
            if state in ("done", "failed", "dead"):
                return str(state)
            self.round()
        pytest.fail(f"it does not settle: {self.row()}")

    def row(self) -> tuple[Any, ...]:
        found = self.ledger.connection.execute(
            "select state, error_code, pages_done, pages, (select count(*) from page_ranges) from sources"
        ).fetchone()
        assert found is not None
        return tuple(found)

    def pages(self) -> dict[int, str]:
        """What each page that is in the index says it is of."""
        rows = self.ledger.connection.execute("select content from documents").fetchall()
        return {int(page): words for (text,) in rows for page, words in re.findall(r"Page (\d+) of ([\w ]+)\.", text)}

    def failed(self) -> dict[int, str]:
        """The problem of each page that has one."""
        row = self.ledger.connection.execute("select report -> 'pages' from sources").fetchone()
        assert row is not None
        return {page["number"]: page["problem"] for page in row[0] if page["problem"]}


@pytest.fixture
def settings(tmp_path: Path, dsn: str) -> Settings:
    return Settings(
        database_url=dsn, home=tmp_path / "home", chunk_tokens=32, chunk_overlap_tokens=0, fetch_allow=("127.0.0.0/8",)
    )


@pytest.fixture
def house(settings: Settings, ledger: Ledger, reader: Reader) -> Iterator[House]:
    found = House(settings, ledger)
    yield found
    found.ingester.close()
    found.ocr.close()


@pytest.fixture
def scan(tmp_path: Path, ledger: Ledger, house: House) -> Path:
    """A scan of ten pages that is parked."""
    path = tmp_path / "scan.pdf"
    path.write_text("10 an old letter")
    ledger.record(path.as_uri())
    assert house.ingester.work(seconds=60) == 1
    assert house.row() == ("reading", None, 0, 10, 2)
    return path


def test_a_long_scan_is_read_by_others_and_indexed_as_a_whole(scan: Path, house: House, reader: Reader) -> None:
    assert house.parked == [2]
    assert house.ocr.work(seconds=60) == 2
    assert house.released == 1
    assert house.row() == ("pending", None, 10, 10, 2)
    assert house.ingester.work(seconds=60) == 1
    assert house.row() == ("done", None, 10, 10, 0)
    assert reader.read == list(range(1, 11))
    assert house.pages() == dict.fromkeys(range(1, 11), "10 an old letter")


def test_a_few_pages_are_read_at_once(tmp_path: Path, house: House, reader: Reader) -> None:
    path = tmp_path / "short.pdf"
    path.write_text("3 short")
    house.ledger.record(path.as_uri())
    house.ingester.work(seconds=60)
    assert house.row()[0] == "done"
    assert (house.parked, reader.read) == ([], [])


def test_a_page_that_kills_its_parser_costs_itself_alone(scan: Path, house: House, reader: Reader) -> None:
    def crash(number: int) -> None:
        if number == 3:
            raise PermanentError("parser_crashed", "the process crashed")

    reader.fault = crash
    assert house.settle() == "done"
    assert house.failed() == {3: "parser-crashed"}
    assert sorted(house.pages()) == [1, 2, 4, 5, 6, 7, 8, 9, 10]
    assert sorted(reader.read) == [1, 2, 4, 5, 6, 7, 8, 9, 10], "and none was read twice"


def test_what_an_earlier_page_left_behind_is_not_held_against_a_page(scan: Path, house: House, reader: Reader) -> None:
    tries: list[int] = []

    def run_out(number: int) -> None:
        tries.append(number)
        if number == 3 and tries[-2:] == [2, 3]:
            raise PermanentError("out_of_memory", "all memory is taken by the pages before")

    reader.fault = run_out
    assert house.settle() == "done"
    assert house.failed() == {}
    assert tries.count(3) == 2


def test_a_document_that_does_not_open_for_ocr_is_reported_in_full(
    scan: Path, house: House, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path, pages: Any, done: Any, **_: Any) -> None:
        raise PermanentError("corrupt", "it does not open")

    with monkeypatch.context() as patched:
        patched.setattr(ocr, "recognise", broken)
        house.one_range()
    assert house.settle() == "done"
    assert house.failed() == dict.fromkeys(range(1, 6), "corrupt")


def test_a_range_that_broke_off_does_the_rest(scan: Path, house: House, reader: Reader) -> None:
    reader.fault = lambda number: _raise(RetryableError("parser_killed", "killed")) if reader.read == [1, 2] else None
    house.one_range()
    assert reader.read == [1, 2]
    reader.fault = lambda number: None
    assert house.settle() == "done"
    assert sorted(reader.read) == list(range(1, 11))
    assert (len(reader.read), house.failed()) == (10, {})


def test_a_process_that_ends_badly_after_its_last_page_has_done_its_work(
    scan: Path, house: House, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recognise(*arguments: Any, **named: Any) -> None:
        reader.recognise(*arguments, **named)
        raise RetryableError("parser_killed", "killed")

    monkeypatch.setattr(ocr, "recognise", recognise)
    assert house.ocr.work(seconds=60) == 2
    assert house.row() == ("pending", None, 10, 10, 2)


def test_a_page_that_kills_its_worker_is_given_up(scan: Path, house: House, reader: Reader) -> None:
    class Death(BaseException):
        """What no handler sees: the process is gone."""

    def die(number: int) -> None:
        if number == 8:
            raise Death

    reader.fault = die
    deaths = 0
    while house.row()[0] == "reading":
        try:
            house.ocr.work(seconds=60)
        except Death:
            deaths += 1
            house.ledger.connection.execute("update page_ranges set lease_until = now() - interval '1 s'")
    assert deaths == 5
    assert house.settle() == "done"
    assert house.failed() == {8: "worker-died"}
    assert len(house.pages()) == 9


def test_a_machine_without_ocr_holds_nothing_against_the_pages(scan: Path, house: House, reader: Reader) -> None:
    reader.fault = lambda number: _raise(PermanentError("ocr_unavailable", "tesseract is not installed"))
    for _ in range(7):
        house.round()
    assert house.row()[:3] == ("reading", None, 0)
    reader.fault = lambda number: None
    assert house.settle() == "done"
    assert house.failed() == {}


def test_a_file_that_changes_midway_is_read_as_it_is_now(scan: Path, house: House, reader: Reader) -> None:
    house.one_range()
    scan.write_text("5 a new letter")
    house.one_range()
    assert house.row()[0] == "pending"
    assert house.settle() == "done"
    assert house.row()[3] == 5
    assert house.pages() == dict.fromkeys(range(1, 6), "5 a new letter")


def test_a_file_that_is_gone_ends_as_vanished(scan: Path, house: House, reader: Reader) -> None:
    scan.unlink()
    assert house.settle() == "failed"
    assert house.row()[1] == "vanished"
    assert (house.row()[4], reader.read) == (0, [])


def test_a_file_that_is_renamed_midway_is_not_read_again(scan: Path, house: House, reader: Reader) -> None:
    house.one_range()
    new = scan.with_name("new.pdf")
    scan.rename(new)
    house.ledger.rename(scan.as_uri(), new.as_uri())
    assert house.settle() == "done"
    assert sorted(reader.read) == list(range(1, 11))
    assert len(reader.read) == 10


def test_a_page_of_the_web_is_fetched_once(settings: Settings, house: House, reader: Reader) -> None:
    bodies = iter([b"10 as it was", b"10 as it is now"])
    with web_server(lambda call: _answer(call, next(bodies))) as server:
        house.ledger.record("web:1", kind="url", location=f"http://127.0.0.1:{server.port}/scan.pdf")
        house.ingester.work(seconds=60)
        spool = open_spool(settings)
        assert spool.sweep(house.ledger.connection, now=time.time() + 2 * KEEP_SECONDS) == 0, "it is needed"
        assert house.settle() == "done"
        assert len(server.calls) == 1
        assert house.pages() == dict.fromkeys(range(1, 11), "10 as it was")
        assert spool.sweep(house.ledger.connection, now=time.time() + 2 * KEEP_SECONDS) == 1
        house.ledger.record("web:1", kind="url", location=f"http://127.0.0.1:{server.port}/scan.pdf", force=True)
        assert house.settle() == "done"
        assert len(server.calls) == 2
        assert house.pages() == dict.fromkeys(range(1, 11), "10 as it is now")


def test_a_page_of_the_web_that_is_sent_again_midway_is_fetched_again(
    settings: Settings, house: House, reader: Reader
) -> None:
    with web_server(lambda call: _answer(call, b"10 the same")) as server:
        for _ in range(2):
            address = f"http://127.0.0.1:{server.port}/scan.pdf"
            house.ledger.record("web:1", kind="url", location=address, force=True)
            house.ingester.work(seconds=60)
            if not reader.read:
                house.one_range()
        assert len(server.calls) == 2
        assert house.settle() == "done"
        assert sorted(reader.read) == list(range(1, 11))
        assert len(reader.read) == 10, "the same bytes, so what was read holds"


def test_an_upload_is_read_from_the_spool(settings: Settings, house: House, reader: Reader) -> None:
    spooled = open_spool(settings).put(b"10 sent in", "scan.pdf")
    house.ledger.record("upload:1", kind="upload", location=spooled.name, filename="scan.pdf")
    house.ingester.work(seconds=60)
    other = open_spool(settings).put(b"4 sent in later", "scan.pdf")
    house.one_range()
    house.ledger.record("upload:1", kind="upload", location=other.name, filename="scan.pdf", fingerprint="2")
    assert house.settle() == "done"
    assert house.pages() == dict.fromkeys(range(1, 5), "4 sent in later")


def _raise(error: Exception) -> None:
    raise error


def _answer(call: Call, body: bytes) -> Answer:
    return Answer(body=body, headers={"Content-Type": "application/pdf"})


def test_a_range_that_a_stop_breaks_off_has_used_no_attempt(
    scan: Path, house: House, reader: Reader, shutdown: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = "select 1 from page_ranges where token is not null"

    def stop_at_the_third(number: int) -> None:
        if number == 3:
            shutdown(True)
            deadline = time.monotonic() + 30
            while house.ledger.connection.execute(held).fetchone():
                assert time.monotonic() < deadline, "a claim that is not given back"
                time.sleep(0.05)

    monkeypatch.setattr(worker.lease, "PATIENCE_SECONDS", 0.0)
    reader.fault = stop_at_the_third
    assert house.ocr.work(seconds=60) == 1
    row = "select attempts, error_code from page_ranges order by id limit 1"
    assert house.ledger.connection.execute(row).fetchone() == (0, "worker_stopped")
    shutdown(False)
    reader.fault = lambda number: None
    assert house.settle() == "done"
    assert (sorted(set(reader.read)), house.failed()) == (list(range(1, 11)), {})
    assert reader.read.count(1) == reader.read.count(2) == 1, "what was read is kept"
