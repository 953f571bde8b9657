"""PDF: text and rendering by pypdfium2, a second opinion by pypdf, OCR of single pages by rule."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from pipelines.errors import PermanentError
from pipelines.extract import ocr
from pipelines.extract.pdf_decide import Decision, decide, judge_text, word_count
from pipelines.extract.pdf_lines import Line, lines_to_blocks, page_lines
from pipelines.extract.pdf_second import SecondReader
from pipelines.extract.rules import ExtractRules, Progress
from pipelines.types import Block, Extracted, PageDecision, PageReport

_RTL_SHARE = 0.2
_ARTICLE = re.compile(r"(?<!\w)ال\w{2,}")


@dataclass(frozen=True, slots=True)
class _Page:
    """One page as pdfium opened it."""

    number: int
    page: Any
    textpage: Any
    text: str

    def lines(self) -> list[Line]:
        return page_lines(self.page, self.textpage, self.text, self.number)


@dataclass(slots=True)
class _Reading:
    """What gathers while the pages of one file are read."""

    second: SecondReader
    rules: ExtractRules
    lines: list[Line] = field(default_factory=list)
    reports: list[PageReport] = field(default_factory=list)
    languages: ocr.OcrLanguages | None = None


def extract_pdf(path: Path, mime: str, rules: ExtractRules, progress: Progress) -> Extracted:
    """Read every page, one at a time: memory does not grow with the number of pages.

    Raises:
        PermanentError: `encrypted`, `corrupt`, `too_many_pages`, `ocr_unavailable`.
    """
    second = SecondReader(path)
    reading = _Reading(second, rules)
    document = _open(path, second)
    if document is None:
        _read_with_second(reading, progress)
    else:
        try:
            _read_pages(document, reading, progress)
        finally:
            document.close()
    facts = second.metadata()
    title = facts.pop("title", None)
    blocks = lines_to_blocks(reading.lines)
    form = second.form_values()
    if form:
        blocks.append(Block("list", "\n".join(f"{name}: {value}" for name, value in form)))
    facts["page_count"] = len(reading.reports)
    facts["ocr_pages"] = [report.number for report in reading.reports if report.decision == "ocr"]
    facts["warnings"] = list(reading.languages.warnings) if reading.languages else []
    return Extracted(mime, title, tuple(blocks), tuple(reading.reports), facts)


def _open(path: Path, second: SecondReader) -> pdfium.PdfDocument | None:
    """The file as pdfium opens it, None where only pypdf can."""
    try:
        document = pdfium.PdfDocument(path)
        if len(document) > 0:
            return document
        document.close()
    except pdfium.PdfiumError as error:
        if getattr(error, "err_code", None) in {pdfium_c.FPDF_ERR_PASSWORD, pdfium_c.FPDF_ERR_SECURITY}:
            raise PermanentError(
                "encrypted",
                "the PDF is protected by a password",
                "save it without a password, then drop it again",
            ) from error
    if second.pages:
        return None
    if second.problem == "encrypted":
        raise PermanentError(
            "encrypted",
            "the PDF is protected by a password",
            "save it without a password, then drop it again",
        )
    raise PermanentError(
        "corrupt",
        "the PDF is damaged or cut short: no page can be read",
        "copy it again in full, or open it in a PDF program and save it again",
    )


def _check_count(pages: int, rules: ExtractRules) -> None:
    if pages > rules.max_pages:
        raise PermanentError(
            "too_many_pages",
            f"the document has {pages:,} pages, more than the {rules.max_pages:,} allowed",
            "raise GRISTMILL_MAX_PAGES or split the file",
        )


def _read_pages(document: pdfium.PdfDocument, reading: _Reading, progress: Progress) -> None:
    pages = len(document)
    _check_count(pages, reading.rules)
    if document.get_formtype() != pdfium_c.FORMTYPE_NONE:
        document.init_forms()
    for number in range(1, pages + 1):
        progress(number, pages)
        try:
            page = document[number - 1]
        except pdfium.PdfiumError:
            _use_second(reading, number, "page-unreadable")
            continue
        try:
            _read_page(page, number, reading)
        finally:
            page.close()


def _read_page(page: Any, number: int, reading: _Reading) -> None:
    textpage = page.get_textpage()
    try:
        here = _Page(number, page, textpage, textpage.get_text_range())
        decision = decide(page, here.text)
        if decision.verdict == "ocr":
            _read_by_ocr(here, decision, reading)
        elif decision.verdict == "text":
            other = _right_to_left(here.text, number, reading.second)
            reading.lines += here.lines() if other is None else _bare_lines(other, number)
            reason = decision.reason if other is None else "right-to-left-second"
            reading.reports.append(PageReport(number, "text", reason))
        else:
            outcome: PageDecision = "blank" if decision.verdict == "blank" else "failed"
            reading.reports.append(PageReport(number, outcome, decision.reason))
    finally:
        textpage.close()


def _read_by_ocr(here: _Page, decision: Decision, reading: _Reading) -> None:
    """OCR a page and keep whichever of its text layer and OCR has more words."""
    number = here.number
    garbage = decision.reason.startswith(("garbage", "cid"))
    if garbage:
        other = reading.second.page_text(number)
        if other and judge_text(other) is None and word_count(other) > word_count(here.text):
            reading.lines += _bare_lines(other, number)
            reading.reports.append(PageReport(number, "text", f"{decision.reason}-second"))
            return
    if reading.languages is None:
        reading.languages = ocr.choose_languages(reading.rules.ocr_languages, _need(number, decision))
    layer = [] if garbage else here.lines()
    try:
        found = ocr.recognise(_render(here.page, reading.rules), reading.languages, reading.rules)
    except ocr.OcrTimeoutError:
        reading.lines += layer
        reading.reports.append(PageReport(number, "failed", "ocr-timeout"))
        return
    if not found.trusted:
        reading.lines += layer
        reading.reports.append(PageReport(number, "failed", "ocr-unsure", found.confidence))
        return
    if layer and word_count(found.text) <= word_count(here.text):
        reading.lines += layer
        reading.reports.append(PageReport(number, "text", "layer-better-than-ocr", found.confidence))
        return
    reading.lines += [Line(paragraph, number) for paragraph in found.paragraphs]
    reading.reports.append(PageReport(number, "ocr", decision.reason, found.confidence))


def _need(number: int, decision: Decision) -> str:
    if decision.reason in {"no-text", "stamp-on-scan", "few-chars-much-ink"}:
        return f"page {number} is a scan"
    return f"the text layer of page {number} is garbage, so it needs OCR"


def _render(page: Any, rules: ExtractRules) -> Any:
    """The page as a grey picture at the wanted resolution, or less where that would be too many pixels."""
    width, height = page.get_size()
    scale = rules.ocr_dpi / 72
    area = width * height * scale * scale
    if area > ocr.MAX_PIXELS:
        scale *= (ocr.MAX_PIXELS / area) ** 0.5
    scale = min(scale, ocr.MAX_SIDE / max(width, height, 1))
    return page.render(scale=scale, grayscale=True, may_draw_forms=True).to_pil()


def _read_with_second(reading: _Reading, progress: Progress) -> None:
    pages = reading.second.pages or 0
    _check_count(pages, reading.rules)
    for number in range(1, pages + 1):
        progress(number, pages)
        _use_second(reading, number, "second-reader")


def _use_second(reading: _Reading, number: int, reason: str) -> None:
    text = reading.second.page_text(number)
    if text is None:
        reading.reports.append(PageReport(number, "failed", reason))
        return
    reading.lines += _bare_lines(text, number)
    reading.reports.append(PageReport(number, "text" if text.strip() else "blank", reason))


def _bare_lines(text: str, number: int) -> list[Line]:
    return [Line(line.strip(), number) for line in text.splitlines() if line.strip()]


def _right_to_left(text: str, number: int, second: SecondReader) -> str | None:
    """pypdf's reading of a right-to-left page, where it holds more words that begin with the Arabic article.

    pdfium writes the ligature lam-alef in the wrong order in some files, pypdf reverses lines in others:
    neither always wins.
    """
    letters = [char for char in text if char.isalpha()]
    rtl = sum(unicodedata.bidirectional(char) in {"R", "AL"} for char in letters)
    if not letters or rtl < _RTL_SHARE * len(letters):
        return None
    other = second.page_text(number)
    if other is None or judge_text(other) is not None:
        return None
    ours, theirs = (len(_ARTICLE.findall(unicodedata.normalize("NFKC", side))) for side in (text, other))
    return other if theirs > ours else None
