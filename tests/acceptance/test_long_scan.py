"""A scan of many pages: shared out, survived, followed page by page, and in nobody's way."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from fpdf import FPDF
from PIL import Image, ImageDraw, ImageFont

from pipelines.extract.ocr import installed_languages
from tests.acceptance.conftest import Installation, stopped, until
from worker.app import OCR_NICE

pytestmark = [
    pytest.mark.skipif(installed_languages() is None, reason="tesseract is not installed"),
    pytest.mark.timeout(600),
]

DPI = 100
WORDS = (
    "lighthouse", "marigold", "telescope", "carpenter", "waterfall", "orchestra",
    "cinnamon", "parliament", "butterfly", "locomotive", "strawberry", "thunderstorm",
)  # fmt: skip


def write_scan(path: Path) -> None:
    """A PDF of pictures of text: one word of WORDS a page, among others."""
    document = FPDF()
    font = ImageFont.load_default(size=26)
    for number, word in enumerate(WORDS, 1):
        picture = Image.new("L", (int(8.27 * DPI), int(11.69 * DPI)), 255)
        lines = [f"Sheet {number} of the inventory tells about the {word}."]
        lines += [f"Shelf {shelf} holds parts that nobody has counted yet." for shelf in ("one", "two", "three")]
        for at, line in enumerate(lines):
            ImageDraw.Draw(picture).text((60, 80 + 60 * at), line, font=font, fill=0)
        document.add_page()
        document.image(picture, x=0, y=0, w=document.w, h=document.h)
    document.output(str(path))


def test_a_long_scan_is_shared_out_and_survives_its_workers(
    install: Callable[..., Installation], free_port: Callable[[], int]
) -> None:
    port = free_port()
    service = install(
        lease_seconds=6,  # while the pages of the one that died wait for that, the scan cannot be through
        sweep_seconds=0.5,
        ocr_concurrency=2,
        ocr_dpi=DPI,
        ocr_languages="eng",
        chunk_tokens=48,
        chunk_overlap_tokens=0,
        http_port=port,
    )
    service.start()

    def ask(path: str) -> Any:
        return httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False, timeout=120).raise_for_status().json()

    write_scan(service.drop / "scan.pdf")
    until(lambda: service.states().get("scan.pdf") == "reading", "the scan to be parked")
    [(source_id,)] = service.rows("select id from sources where uri like '%%scan.pdf'")
    holder = until(
        lambda: service.rows("select holder from page_ranges where state = 'leased' and pages_done > 0"),
        "a page to be read",
    )[0][0]
    niceness = {process.nice() for process in service.children("-Q ocr")}
    assert niceness == {psutil.Process().nice() + OCR_NICE}, "OCR gives way to everybody else"
    os.kill(int(holder.rpartition(":")[2]), signal.SIGKILL)

    with stopped(lambda: service.children("-Q ocr")):
        (service.drop / "note.txt").write_text("The spare key hangs behind the boiler.")
        until(lambda: service.states().get("note.txt") == "done", "the note, which waits for no scan")
        found = ask(f"/sources/{source_id}")
        assert (found["state"], found["pages"]) == ("reading", 12)
        done = found["pages_done"]
        assert 0 < done < 12
        assert f"page {done} of 12" in service.run("sources", "--state", "reading").stdout
        status = service.answer("status")
        assert (status["sources"]["reading"], status["ocr"]) == (1, {"pages_done": done, "pages": 12})

    assert set(service.settled(2, seconds=240).values()) == {"done"}
    assert service.rows("select count(*) from page_ranges") == [(0,)]
    pages = ask(f"/sources/{source_id}/pages")["pages"]
    assert [(page["number"], page["decision"]) for page in pages] == [(number, "ocr") for number in range(1, 13)]
    assert service.answer("pages", str(service.drop / "scan.pdf"))["pages"] == pages
    for number, word in enumerate(WORDS, 1):
        hits = service.rows("select d.page from hybrid_search(%s, null, 5) h join documents d using (id)", word)
        assert hits == [(number,)], word
    assert service.stop() == 0
