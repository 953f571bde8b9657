"""Builds the binary documents of the demo's sample set from their text in `demo/source`.

The results are committed, so nobody has to run this to see the demo; run it after a change to a source text:

    .venv/bin/python demo/make_drop.py

Dates, file ids and noise are fixed, so with the same library versions the same text gives the same bytes.
"""

from __future__ import annotations

import csv
import io
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import docx
import numpy as np
import pypandoc
import pypdfium2
import xlsxwriter
from fpdf import FPDF
from PIL import Image, ImageFilter

SOURCE = Path(__file__).parent / "source"
DROP = Path(__file__).parent / "drop"
DATE = datetime(2026, 3, 16, 9, 0, tzinfo=UTC)
ZIP_DATE = (2026, 3, 16, 9, 0, 0)
SCAN_DPI = 200
SCAN_SEED = 2407
SCAN_TILT_DEGREES = (0.6, -0.4)


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One block of a source text; `level` is 0 for running text, else that of the heading."""

    level: int
    text: str


def paragraphs(text: str) -> Iterator[Paragraph]:
    """Yield the blocks of a source text: ATX headings and paragraphs, parted by blank lines, lines joined."""
    for block in text.strip().split("\n\n"):
        joined = " ".join(line.strip() for line in block.splitlines())
        marks = len(joined) - len(joined.lstrip("#"))
        yield Paragraph(marks, joined[marks:].strip())


def text_pdf(text: str, *, language: str, size: float = 10.5, font: str = "Helvetica") -> bytes:
    """Return a PDF (A4, with a text layer) of a source text; the first heading is its title."""
    pdf = FPDF(format="A4")
    pdf.set_creation_date(DATE)
    pdf.set_lang(language)
    pdf.set_author("Halden Pumps")
    pdf.set_margin(22)
    pdf.set_auto_page_break(True, margin=22)
    pdf.add_page()
    for number, paragraph in enumerate(paragraphs(text)):
        if number == 0:
            pdf.set_title(paragraph.text)
        pdf.set_font(
            font,
            "B" if paragraph.level else "",
            size + max(0, 4 - paragraph.level) * 2 * bool(paragraph.level),
        )
        if paragraph.level:
            if pdf.will_page_break(32):
                pdf.add_page()
            pdf.ln(2)
        pdf.multi_cell(
            0,
            size * 0.52 + (1.5 if paragraph.level == 1 else 0),
            paragraph.text,
            align="L",
            new_x="LMARGIN",
            new_y="NEXT",
        )
        pdf.ln(2)
    return bytes(pdf.output())


def scan(page: Image.Image, tilt: float, random: np.random.Generator) -> Image.Image:
    """Make a clean page look as if it had lain on a scanner: tilted, a little soft, grey paper, speckles."""
    sheet = page.rotate(tilt, resample=Image.Resampling.BICUBIC, fillcolor=255).filter(ImageFilter.GaussianBlur(0.6))
    grey = np.asarray(sheet, dtype=np.float32) * 0.86 + 22
    grain = random.normal(0, 1, (grey.shape[0] // 4 + 1, grey.shape[1] // 4 + 1)).astype(np.float32) * 5
    coarse = np.kron(grain, np.ones((4, 4), np.float32))[: grey.shape[0], : grey.shape[1]]
    speckled = np.where(random.random(grey.shape) < 0.0001, 90, grey + coarse)
    return Image.fromarray(np.clip(speckled, 0, 255).astype(np.uint8))


def scanned_pdf(text: str, *, language: str) -> bytes:
    """Return a PDF of page images only, greyscale at 200 dpi, as an office scanner makes it."""
    random = np.random.default_rng(SCAN_SEED)
    printed = pypdfium2.PdfDocument(text_pdf(text, language=language, size=12, font="Times"))
    pdf = FPDF(format="A4")
    pdf.set_creation_date(DATE)
    for number in range(len(printed)):
        page = printed[number].render(scale=SCAN_DPI / 72, grayscale=True).to_pil()
        tilted = scan(page, SCAN_TILT_DEGREES[number % len(SCAN_TILT_DEGREES)], random)
        jpeg = io.BytesIO()
        tilted.save(jpeg, "JPEG", quality=32, dpi=(SCAN_DPI, SCAN_DPI))
        pdf.add_page()
        pdf.image(jpeg, x=0, y=0, w=210, h=297)
    printed.close()
    return bytes(pdf.output())


def workbook(table: str, *, title: str) -> bytes:
    """Return an .xlsx with one sheet that holds a CSV table, prices as numbers."""
    out = io.BytesIO()
    book = xlsxwriter.Workbook(out, {"in_memory": True})
    book.set_properties({"title": title, "author": "Halden Pumps", "created": DATE.replace(tzinfo=None)})
    sheet = book.add_worksheet("Spare parts")
    bold, money = book.add_format({"bold": True}), book.add_format({"num_format": "0.00"})
    for row, cells in enumerate(csv.reader(io.StringIO(table))):
        for column, cell in enumerate(cells):
            if row and column == 3:
                sheet.write_number(row, column, float(cell), money)
            else:
                sheet.write_string(row, column, cell, bold if row == 0 else None)
    sheet.freeze_panes(1, 0)
    sheet.set_column(1, 1, 44)
    book.close()
    return out.getvalue()


def word(text: str) -> bytes:
    """Return a .docx with real heading styles."""
    document = docx.Document()
    properties = document.core_properties
    properties.author, properties.created, properties.modified = "Halden Pumps", DATE, DATE
    for number, paragraph in enumerate(paragraphs(text)):
        if number == 0:
            properties.title = paragraph.text
        if paragraph.level:
            document.add_heading(paragraph.text, level=paragraph.level)
        else:
            document.add_paragraph(paragraph.text)
    out = io.BytesIO()
    document.save(out)
    return fixed_zip(out.getvalue())


def open_document(text: str, target: Path) -> bytes:
    """Return an .odt made by pandoc, which writes no binary format to a pipe: it goes to `target` first."""
    os.environ["SOURCE_DATE_EPOCH"] = str(int(DATE.timestamp()))
    pypandoc.convert_text(text, "odt", format="markdown-auto_identifiers", outputfile=str(target))
    return fixed_zip(target.read_bytes())


def fixed_zip(data: bytes) -> bytes:
    """Write a zip container again with fixed dates, keeping the order and each entry's compression."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.infolist():
            fresh = zipfile.ZipInfo(entry.filename, ZIP_DATE)
            fresh.compress_type = entry.compress_type
            new.writestr(fresh, old.read(entry))
    return out.getvalue()


def build() -> dict[str, bytes]:
    """Return every built document by file name."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in SOURCE.iterdir()}
    return {
        "error-codes.pdf": text_pdf(texts["error-codes.md"], language="en"),
        "bulletin-24-07-scan.pdf": scanned_pdf(texts["bulletin.md"], language="fr"),
        "price-list.xlsx": workbook(texts["prices.csv"], title="Spare parts, price list 2026"),
        "handbook.docx": word(texts["handbook.md"]),
        "contrat-entretien.odt": open_document(texts["contrat.md"], DROP / "contrat-entretien.odt"),
        "notes-visite.txt": texts["notes-visite.txt"].encode("cp1252"),
    }


def main() -> None:
    """Build the documents and write them into `demo/drop`."""
    DROP.mkdir(exist_ok=True)
    for name, data in build().items():
        (DROP / name).write_bytes(data)
        print(f"{len(data):>9,}  {name}")


if __name__ == "__main__":
    main()
