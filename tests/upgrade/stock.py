"""An index with data of every kind, made by the code that is on the path, which may be that of another version.

Run as `python tests/upgrade/stock.py DSN PLACE`. What it calls must exist in every version that a snapshot is made of.
"""

from __future__ import annotations

import hashlib
import sys
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from fpdf import FPDF
from PIL import Image, ImageDraw, ImageFont
from psycopg import Connection
from psycopg.types.json import Jsonb

from pipelines.database import connect
from pipelines.errors import RetryableError
from pipelines.types import OcrPage
from sql.migrate import migrate
from tests.fakes.eight_dimensions import EightDimensions
from tests.fakes.place import Place, PlaceConnector
from tests.fakes.sync_house import SyncHouse
from worker.connectors.config import SyncConfig
from worker.erase import Eraser, finish
from worker.ingest import Ingester
from worker.ledger import Ledger
from worker.page_ranges import PageRanges
from worker.receivers.auth import create_key
from worker.settings import Settings

NOTES = """# Field notes

Pump E-4012 was repaired on Monday; spare part SKU 8842-B came from the second store.

## Who to call

Telephone +33 1 23 45 67 89, or see chapter 4 of the manual.
"""
FRENCH = """# Règlement

Les dispositions de l'article L. 121-3 sont applicables dans les départements ; le préfet les fait connaître.
"""
PAGE = """<html><head><title>Opening hours</title></head><body><h1>Opening hours</h1>
<p>The counter is open from nine to five, and closed while the stock is counted.</p>
<table><tr><th>Day</th><th>Hours</th></tr><tr><td>Friday</td><td>9 to 3</td></tr></table></body></html>"""
QUESTIONS = (
    "E-4012",
    "who repaired the pump?",
    "article L. 121-3",
    "opening hours friday",
    "spare part from the store",
)


def settings_of(dsn: str, place: Path) -> Settings:
    """The settings that the stock is made with, and that it can be worked on with."""
    return Settings(
        database_url=dsn, home=place / "home", chunk_tokens=64, chunk_overlap_tokens=0, ocr_inline_pages=0,
        lease_seconds=5, backoff_seconds=0.01, backoff_cap_seconds=0.02, fetch_allow=("127.0.0.1",),
    )  # fmt: skip


def _mail() -> bytes:
    message = EmailMessage()
    message["Subject"] = "Quarterly figures"
    message["From"] = "accounts@example.org"
    message.set_content("The figures of the third quarter are attached, as a table and as a letter.")
    message.add_attachment("part;price\nSKU 8842-B;12\nSKU 9001-A;40\n", subtype="csv", filename="prices.csv")
    letter = EmailMessage()
    letter["Subject"] = "Forwarded: delivery"
    letter.set_content("Delivery of order 2024-118 is delayed until the canal is open again.")
    message.add_attachment(letter)
    return message.as_bytes()


def _pdf(*paragraphs: str) -> bytes:
    document = FPDF()
    document.set_font("helvetica", size=12)
    for text in paragraphs:
        document.add_page()
        document.multi_cell(0, 8, text)
    return bytes(document.output())


def _scan(pages: int) -> bytes:
    document = FPDF()
    for number in range(pages):
        document.add_page()
        picture = Image.new("1", (827, 1169), 1)
        for line in range(8):
            words = f"Sheet {number + 1} tells about the marigold, line {line}."
            ImageDraw.Draw(picture).text((60, 80 + 60 * line), words, font=ImageFont.load_default(size=26), fill=0)
        document.image(picture, x=0, y=0, w=document.w, h=document.h)
    return bytes(document.output())


def fill(dsn: str, place: Path) -> None:
    """Make the schema of this version in a database, and fill it.

    Args:
        dsn: an empty database.
        place: an empty folder; documents go below `drop`, and the home of the service is `home`.
    """
    migrate(dsn, dimensions=8)
    (place / "drop").mkdir()
    with connect(dsn) as connection:
        Stock(connection, settings_of(dsn, place), place / "drop").fill()


class Stock:
    """An index that is being filled."""

    def __init__(self, connection: Connection[Any], settings: Settings, drop: Path) -> None:
        self.connection = connection
        self.settings = settings
        self.drop = drop
        self.ledger = Ledger(
            connection, max_attempts=2, lease_seconds=5, backoff_seconds=0.01, backoff_cap_seconds=0.02
        )

    def fill(self) -> None:
        """Everything, in an order in which nothing works off what is to stay due."""
        self._execute("insert into index_models (model, dimensions) values ('eight', 8)")
        self._sync()
        self._documents()
        self._erased()
        self._strangers()
        self._dead()
        self._scan()
        self._put("changed.md", b"# Changed\n\nThis was the first wording, about lighthouses.\n")
        self._work()
        self._put("changed.md", b"# Changed\n\nThis is the second wording, about orchestras.\n")
        self._put("new.md", b"# New\n\nNobody has read this yet, it tells of butterflies.\n")
        self._requests()
        self._execute("select refresh_statistics()")
        self._leased()
        self._execute("insert into pauses (what, until, code, cause, remedy) values"
                      " ('budget', now() - interval '1 s', 'budget', 'used up', 'wait')")  # fmt: skip
        self._execute("insert into embedding_usage values ('2026-11-30', 12345)")

    def _execute(self, query: str, *values: Any) -> None:
        self.connection.execute(query.encode(), values)

    def _uri(self, name: str) -> str:
        return (self.drop / name).as_uri()

    def _put(self, name: str, content: bytes) -> None:
        path = self.drop / name
        path.write_bytes(content)
        self.ledger.record(
            self._uri(name), fingerprint=hashlib.sha256(content).hexdigest(), metadata={"team": "stores"}
        )

    def _work(self) -> None:
        ingester = Ingester(self.settings, EightDimensions())
        while ingester.work(seconds=60):
            pass
        ingester.close()

    def _sync(self) -> None:
        place = Place(files={"handbook": {"rates.csv": "mile;rate\n1;0.30\n"}})
        place.put("handbook", "The handbook says how travel is paid: by the mile.")
        place.put("diary", "The diary of the harbour: two ships and a storm.", "7")
        config = SyncConfig(type="place", every=60, metadata={"team": "harbour"})
        house = SyncHouse(self.settings, self.connection, config, lambda _, around: PlaceConnector(place, around))
        house.sync()
        house.close()
        self._execute("insert into sync_hints (sync_id, key) select id, 'diary' from syncs")

    def _documents(self) -> None:
        self._put("notes.md", NOTES.encode())
        self._put("reglement.txt", FRENCH.encode())
        self._put("hours.html", PAGE.encode())
        self._put("figures.eml", _mail())
        self._put("manual.pdf", _pdf("Chapter 4: replacing the seal of a pump.", "Chapter 5: oil for the gears."))
        self._put("empty.txt", b"")
        self._put("gone.md", b"# Gone\n\nThis was deleted.\n")
        self._put("erased.md", b"# Erased\n\nThis was erased for good.\n")
        self._work()
        self.ledger.delete(self._uri("gone.md"))

    def _erased(self) -> None:
        eraser = Eraser(self.settings, self.connection, tenant="default", who="os:snapshot")
        (self.drop / "erased.md").unlink()
        eraser.erase([self._uri("erased.md")])
        self.ledger.record("doc:secret", kind="text", location="0" * 64)
        eraser.erase(["doc:secret"], keep_out=True)
        finish(self.connection)

    def _strangers(self) -> None:
        for number in range(3):
            self._execute(
                "insert into documents (content, metadata, embedding) values (%s, %s, %s::vector)",
                f"Row {number} of a workflow that knows only the table.",
                Jsonb({"loc": {"lines": {"from": number}}, "source": "blob"}),
                str([float(place == number) for place in range(8)]),
            )
        self._execute("insert into documents (content) values ('A row without a vector, about waterfalls.')")

    def _dead(self) -> None:
        self.ledger.record(self._uri("dead.md"))
        for _ in range(2):
            self._execute("update sources set next_at = now() where state = 'pending'")
            claim = self.ledger.claim()
            assert claim is not None
            self.ledger.fail(claim, RetryableError("worker_died", "the worker died", "look into the log"))

    def _scan(self) -> None:
        self._put("scan.pdf", _scan(3))
        self._work()
        ranges = PageRanges(self.connection, lease_seconds=5)
        claim = ranges.claim()
        assert claim is not None
        for number in claim.left:
            ranges.save(claim, OcrPage(number, (f"Sheet {number} tells about the marigold.",), 91.0, languages="eng"))

    def _requests(self) -> None:
        create_key(self.connection, "producer", ["ingest", "search"])
        for delivered in (None, "now()"):
            self._execute(
                "insert into callbacks (source_id, version, url, delivered_at, next_at) select id, version,"
                f" 'http://127.0.0.1:1/{delivered}', {delivered or 'null'}, now() + interval '1 day'"
                " from sources where uri like '%%notes.md'"
            )
        self._execute(
            "insert into idempotency_keys values ('producer /ingest/text', 'one', sha256('one'), 202, '{}'),"
            " ('producer /ingest/text', 'two', sha256('two'), null, null)"
        )
        self._execute("insert into webhook_deliveries values ('crm', 'event 1'), ('crm', 'event 2')")

    def _leased(self) -> None:
        """The oldest due document, and the second range of the scan, are with workers that will never come back."""
        self._execute("update sources set next_at = now() where state = 'pending'")
        claim = self.ledger.claim()
        assert claim is not None
        assert PageRanges(self.connection, lease_seconds=5).claim() is not None


if __name__ == "__main__":
    fill(sys.argv[1], Path(sys.argv[2]))
