"""PDF: text and rendering by pypdfium2, a second opinion by pypdf, OCR of single pages by rule."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from pipelines.errors import PermanentError
from pipelines.extract import ocr
from pipelines.extract.job import Job
from pipelines.extract.pdf_decide import Decision, decide, judge_text, word_count
from pipelines.extract.pdf_lines import Line, lines_to_blocks, page_lines
from pipelines.extract.pdf_second import SecondReader
from pipelines.extract.rules import ExtractRules
from pipelines.types import Block, Extracted, OcrPage, PageDecision, PageReport

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
    """What gathers while the pages of one file are read.

    Attributes:
        waiting: the pages that need OCR, with the reason; they have no entry in the other two yet.
    """

    job: Job
    second: SecondReader
    lines: dict[int, list[Line]] = field(default_factory=dict)
    reports: dict[int, PageReport] = field(default_factory=dict)
    waiting: dict[int, Decision] = field(default_factory=dict)
    languages: ocr.OcrLanguages | None = None

    def add(self, report: PageReport, lines: list[Line] | None = None) -> None:
        self.reports[report.number] = report
        self.lines[report.number] = lines or []


def extract_pdf(job: Job) -> Extracted:
    """Read every page, one at a time: memory does not grow with the number of pages.

    Pages that need OCR come last: only then is it known how many they are.

    Raises:
        PermanentError: `encrypted`, `corrupt`, `too_many_pages`, `ocr_unavailable`.
    """
    second = SecondReader(job.path)
    reading = _Reading(job, second)
    document = _open(job.path, second)
    if document is None:
        _read_with_second(reading)
    else:
        try:
            _read_pages(document, reading)
            missing = tuple(number for number in reading.waiting if number not in job.ocr)
            if missing:
                number = missing[0]
                need = _need(number, reading.waiting[number])
                reading.languages = ocr.choose_languages(job.rules.ocr_languages, need)
            inline = job.rules.inline_ocr_pages
            if inline is not None and len(missing) > inline:
                return Extracted(job.mime, None, (), awaiting=missing)
            for number, decision in reading.waiting.items():
                _read_by_ocr(document, number, decision, reading)
        finally:
            document.close()
    facts = second.metadata()
    title = facts.pop("title", None)
    reports = tuple(reading.reports[number] for number in sorted(reading.reports))
    blocks = lines_to_blocks([line for number in sorted(reading.lines) for line in reading.lines[number]])
    form = second.form_values()
    if form:
        blocks.append(Block("list", "\n".join(f"{name}: {value}" for name, value in form)))
    facts["page_count"] = len(reports)
    facts["ocr_pages"] = [report.number for report in reports if report.decision == "ocr"]
    facts["warnings"] = list(reading.languages.warnings) if reading.languages else []
    return Extracted(job.mime, title, tuple(blocks), reports, facts)


def recognise_pdf(job: Job, pages: Sequence[int]) -> Iterator[OcrPage]:
    """OCR some pages; raises as `extract_pdf`."""
    document = _open(job.path, SecondReader(job.path))
    languages = ocr.choose_languages(job.rules.ocr_languages, f"page {pages[0]} is a scan")
    if document is None:
        raise PermanentError("corrupt", "no page of the PDF can be drawn", "open it in a PDF program and save it again")
    try:
        _init_forms(document)
        for number in pages:
            job.progress(number, len(document))
            page = document[number - 1]
            try:
                yield ocr.read_page(number, _render(page, job.rules), languages, job.rules)
            finally:
                page.close()
    finally:
        document.close()


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


def _init_forms(document: pdfium.PdfDocument) -> None:
    if document.get_formtype() != pdfium_c.FORMTYPE_NONE:
        document.init_forms()


def _read_pages(document: pdfium.PdfDocument, reading: _Reading) -> None:
    pages = len(document)
    _check_count(pages, reading.job.rules)
    _init_forms(document)
    for number in range(1, pages + 1):
        reading.job.progress(number, pages)
        if number in reading.job.skip:
            reading.add(PageReport(number, "failed", reading.job.skip[number]))
            continue
        try:
            page = document[number - 1]
        except pdfium.PdfiumError:
            _use_second(reading, number, "page-unreadable")
            continue
        try:
            with _text_of(page, number) as here:
                _read_page(here, reading)
        finally:
            page.close()


@contextmanager
def _text_of(page: Any, number: int) -> Iterator[_Page]:
    textpage = page.get_textpage()
    try:
        yield _Page(number, page, textpage, textpage.get_text_range())
    finally:
        textpage.close()


def _read_page(here: _Page, reading: _Reading) -> None:
    number = here.number
    decision = decide(here.page, here.text)
    if decision.verdict == "text":
        other = _right_to_left(here.text, number, reading.second)
        lines = here.lines() if other is None else _bare_lines(other, number)
        reason = decision.reason if other is None else "right-to-left-second"
        reading.add(PageReport(number, "text", reason), lines)
    elif decision.verdict != "ocr":
        outcome: PageDecision = "blank" if decision.verdict == "blank" else "failed"
        reading.add(PageReport(number, outcome, decision.reason))
    elif not _is_garbage(decision) or not _read_by_second(here, decision, reading):
        reading.waiting[number] = decision


def _is_garbage(decision: Decision) -> bool:
    return decision.reason.startswith(("garbage", "cid"))


def _read_by_second(here: _Page, decision: Decision, reading: _Reading) -> bool:
    """Take pypdf's reading of a page that is garbage in pdfium's, if it is better."""
    other = reading.second.page_text(here.number)
    if not other or judge_text(other) is not None or word_count(other) <= word_count(here.text):
        return False
    reading.add(PageReport(here.number, "text", f"{decision.reason}-second"), _bare_lines(other, here.number))
    return True


def _read_by_ocr(document: pdfium.PdfDocument, number: int, decision: Decision, reading: _Reading) -> None:
    """OCR a page, unless that has been done, and keep whichever of its text layer and OCR has more words."""
    job = reading.job
    page = document[number - 1]
    try:
        with _text_of(page, number) as here:
            found = job.ocr.get(number)
            if found is None:
                assert reading.languages is not None
                job.progress(number, len(document))
                found = ocr.read_page(number, _render(page, job.rules), reading.languages, job.rules)
            layer = [] if _is_garbage(decision) else here.lines()
            facts = (found.confidence, found.rotation, found.languages)
            if found.problem:
                reading.add(PageReport(number, "failed", found.problem, *facts), layer)
            elif layer and word_count(found.text) <= word_count(here.text):
                reading.add(PageReport(number, "text", "layer-better-than-ocr", *facts), layer)
            else:
                lines = [Line(paragraph, number) for paragraph in found.paragraphs]
                reading.add(PageReport(number, "ocr", decision.reason, *facts), lines)
    finally:
        page.close()


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


def _read_with_second(reading: _Reading) -> None:
    pages = reading.second.pages or 0
    _check_count(pages, reading.job.rules)
    for number in range(1, pages + 1):
        reading.job.progress(number, pages)
        if number in reading.job.skip:
            reading.add(PageReport(number, "failed", reading.job.skip[number]))
        else:
            _use_second(reading, number, "second-reader")


def _use_second(reading: _Reading, number: int, reason: str) -> None:
    text = reading.second.page_text(number)
    if text is None:
        reading.add(PageReport(number, "failed", reason))
        return
    reading.add(PageReport(number, "text" if text.strip() else "blank", reason), _bare_lines(text, number))


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
