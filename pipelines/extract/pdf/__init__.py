"""PDF: text and rendering by pypdfium2, a second opinion by pypdf, OCR of single pages by rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from pipelines.errors import PermanentError
from pipelines.extract.job import Job
from pipelines.extract.pdf.blocks import Group, group_lines, groups_to_blocks
from pipelines.extract.pdf.decide import Decision, decide, odd_characters
from pipelines.extract.pdf.facts import embedded_files, pinned_files, read_facts
from pipelines.extract.pdf.furniture import Furniture, PageText, margins
from pipelines.extract.pdf.lines import Line, Ruler, TextLayer, page_lines, turned
from pipelines.extract.pdf.outline import Outline, mark_headings, read_outline
from pipelines.extract.pdf.repair import is_right_to_left, repair
from pipelines.extract.pdf.second import SecondReader
from pipelines.extract.pdf.tables import find_tables
from pipelines.extract.pdf.unseen import mark_unseen
from pipelines.extract.pdf.weigh import is_better_ocr, is_better_reading, reads_right_to_left_better
from pipelines.extract.rules import ExtractRules
from pipelines.hidden import merge
from pipelines.types import Block, Extracted, OcrPage, PageDecision, PageReport

if TYPE_CHECKING:
    from pipelines.extract.ocr.languages import OcrLanguages

_AT_ONCE = 64  # pages whose lines are held; of the others only the joined text is
_DOUBTS = frozenset({"poor-layer", "improbable-letters"})
"""Reasons for which OCR is worth a try, but not to be without the page."""


@dataclass(frozen=True, slots=True)
class _Page:
    """One page as pdfium opened it, its text and the odd characters of that."""

    number: int
    page: Any
    layer: TextLayer
    odd: str

    @property
    def text(self) -> str:
        return self.layer.text

    def read(self, outline: Outline) -> PageText:
        ruler = Ruler(self.layer, self.page.get_rotation())
        box = self.page.get_bbox()
        lines = page_lines(self.layer, self.number, ruler)
        lines = mark_unseen(lines, self.page, ruler, turned(box, ruler.rotation))
        lines = repair(lines, self.text, self.odd, ruler)
        if self.number in outline:
            lines = mark_headings(lines, outline[self.number])
        top, bottom = margins(box, ruler.rotation)
        return PageText(self.number, find_tables(lines, ruler), top, bottom)


@dataclass(slots=True)
class _Reading:
    """What gathers while the pages of one file are read.

    Attributes:
        groups: by page; a page has them once running headers and footers could be told from its text.
        waiting: the pages that need OCR, with the reason; they have no entry in the others yet.
        doubtful: pages that no OCR is there for, but which can do without.
    """

    job: Job
    second: SecondReader
    outline: Outline = field(default_factory=dict)
    groups: dict[int, list[Group]] = field(default_factory=dict)
    reports: dict[int, PageReport] = field(default_factory=dict)
    waiting: dict[int, Decision] = field(default_factory=dict)
    languages: OcrLanguages | None = None
    warnings: list[str] = field(default_factory=list)
    _furniture: Furniture = field(default_factory=Furniture)
    _held: list[PageText] = field(default_factory=list)

    def add(self, report: PageReport, page: PageText | None = None) -> None:
        """Take in a page, in the order of the document."""
        self.reports[report.number] = report
        if page is not None:
            self._held.append(page)
        if len(self._held) >= _AT_ONCE:
            self.settle()

    def add_late(self, report: PageReport, page: PageText | None) -> None:
        """Take in a page whose turn has passed: one that waited for OCR."""
        self.reports[report.number] = report
        if page is not None:
            self.groups[page.number] = list(group_lines(page.lines))

    def settle(self) -> None:
        """Make groups of the lines that are held."""
        cleaned = self._furniture.clean(self._held)
        for page, lines in zip(self._held, cleaned, strict=True):
            self.groups[page.number] = list(group_lines(lines))
        self._held = []

    def blocks(self) -> list[Block]:
        """Blocks of all pages."""
        return groups_to_blocks([group for number in sorted(self.groups) for group in self.groups[number]])


def extract_pdf(job: Job) -> Extracted:
    """Read every page, one at a time: besides the text, memory does not grow with the number of pages.

    Pages that need OCR come last: only then is it known how many they are. Permissions to copy are not asked
    for: reading a file that opens without a password, for its owner's own search, is no copying.

    Raises:
        PermanentError: `encrypted`, `corrupt`, `too_many_pages`, `ocr_unavailable`.
    """
    second = SecondReader(job.path)
    reading = _Reading(job, second)
    document = _open(job.path, second)
    has_form = True
    if document is None:
        _read_with_second(reading)
        facts = second.metadata()
        files = second.attachments()
        for name, content in files:
            job.attachments.add(name, content)
    else:
        try:
            has_form = document.get_formtype() != pdfium_c.FORMTYPE_NONE
            facts = read_facts(document)
            reading.outline = read_outline(document)
            for name, content in embedded_files(document):
                job.attachments.add(name, content)
            _read_pages(document, reading)
            missing = _missing(reading)
            inline = job.rules.inline_ocr_pages
            if inline is not None and len(missing) > inline:
                return Extracted(job.mime, None, (), awaiting=missing)
            for number, decision in reading.waiting.items():
                _read_by_ocr(document, number, decision, reading)
        finally:
            document.close()
    job.progress(0, len(reading.reports))
    title = facts.pop("title", None)
    reports = tuple(reading.reports[number] for number in sorted(reading.reports))
    blocks = reading.blocks()
    if has_form and (form := second.form_values()):
        blocks.append(Block("list", "\n".join(f"{name}: {value}" for name, value in form)))
    facts["page_count"] = len(reports)
    facts["ocr_pages"] = [report.number for report in reports if report.decision == "ocr" and not report.problem]
    facts["warnings"] = [*(reading.languages.warnings if reading.languages else ()), *reading.warnings]
    return Extracted(job.mime, title, tuple(blocks), reports, facts)


def _missing(reading: _Reading) -> tuple[int, ...]:
    """The pages that OCR must be run for; those that can do without are let go where there is no OCR.

    Raises:
        PermanentError: `ocr_unavailable`.
    """
    missing = [number for number in reading.waiting if number not in reading.job.ocr]
    if not missing:
        return ()
    # Imported here: OCR brings much along, and most documents need none.
    from pipelines.extract.ocr.languages import choose_languages

    urgent = [number for number in missing if reading.waiting[number].reason not in _DOUBTS]
    number = (urgent or missing)[0]
    try:
        reading.languages = choose_languages(reading.job.rules.ocr_languages, _need(number, reading.waiting[number]))
    except PermanentError as error:
        if urgent or error.code != "ocr_unavailable":
            raise
        reading.warnings.append(f"{error.cause}: its text layer was taken as it is")
        return ()
    return tuple(missing)


def recognise_pdf(job: Job, pages: Sequence[int]) -> Iterator[OcrPage]:
    """OCR some pages; raises as `extract_pdf`."""
    from pipelines.extract.ocr.languages import choose_languages
    from pipelines.extract.pdf.picture import read_page

    document = _open(job.path, SecondReader(job.path))
    languages = choose_languages(job.rules.ocr_languages, f"page {pages[0]} is a scan")
    if document is None:
        raise PermanentError("corrupt", "no page of the PDF can be drawn", "open it in a PDF program and save it again")
    try:
        _init_forms(document)
        for number in pages:
            job.progress(number, len(document))
            page = document[number - 1]
            try:
                yield read_page(number, page, languages, job.rules)
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
            for name, content in pinned_files(document, page):
                reading.job.attachments.add(name, content)
            with _text_of(page, number) as here:
                _read_page(here, reading)
        except pdfium.PdfiumError:
            _use_second(reading, number, "page-unreadable")
        finally:
            page.close()
    reading.settle()


@contextmanager
def _text_of(page: Any, number: int) -> Iterator[_Page]:
    layer = TextLayer(page)
    try:
        yield _Page(number, page, layer, odd_characters(layer.text))
    finally:
        layer.close()


def _read_page(here: _Page, reading: _Reading) -> None:
    number = here.number
    decision = decide(here.page, here.text, here.layer)
    if decision.verdict == "text":
        reason, page = decision.reason, here.read(reading.outline)
        if is_right_to_left(here.text, here.odd):
            other = reading.second.page_text(number)
            if other is not None and reads_right_to_left_better(other, [line.text for line in page.lines]):
                reason, page = "right-to-left-second", _bare_page(other, number, _hidden(page))
        reading.add(PageReport(number, "text", reason), page)
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
    if not other or not is_better_reading(other, here.text):
        return False
    hidden = _hidden(here.read(reading.outline))
    reading.add(PageReport(here.number, "text", f"{decision.reason}-second"), _bare_page(other, here.number, hidden))
    return True


def _read_by_ocr(document: pdfium.PdfDocument, number: int, decision: Decision, reading: _Reading) -> None:
    """OCR a page, unless that has been done, and keep whichever of its text layer and OCR has more words."""
    job = reading.job
    page = document[number - 1]
    try:
        with _text_of(page, number) as here:
            layer = None if _is_garbage(decision) else here.read(reading.outline)
            found = job.ocr.get(number)
            if found is None:
                if reading.languages is None:
                    reading.add_late(PageReport(number, "text", decision.reason), layer)
                    return
                from pipelines.extract.pdf.picture import read_page

                job.progress(number, len(document))
                found = read_page(number, page, reading.languages, job.rules)
                job.recognised(found)
            facts = (found.confidence, found.rotation, found.languages, found.warning)
            if found.problem:
                tried: PageDecision = "text" if decision.reason in _DOUBTS else "ocr"
                reading.add_late(PageReport(number, tried, decision.reason, *facts, found.problem), layer)
            elif layer and layer.lines and not is_better_ocr(found, here.text, decision.reason):
                reading.add_late(PageReport(number, "text", "layer-better-than-ocr", *facts), layer)
            else:
                lines = [Line(paragraph, number) for paragraph in found.paragraphs]
                reading.add_late(PageReport(number, "ocr", decision.reason, *facts), PageText(number, lines, 0.0, 0.0))
    finally:
        page.close()


def _need(number: int, decision: Decision) -> str:
    if decision.reason in {"no-text", "stamp-on-scan", "few-chars-much-ink"}:
        return f"page {number} is a scan"
    return f"the text layer of page {number} is garbage, so it needs OCR"


def _read_with_second(reading: _Reading) -> None:
    pages = reading.second.pages or 0
    _check_count(pages, reading.job.rules)
    for number in range(1, pages + 1):
        reading.job.progress(number, pages)
        if number in reading.job.skip:
            reading.add(PageReport(number, "failed", reading.job.skip[number]))
        else:
            _use_second(reading, number, "second-reader")
    reading.settle()


def _use_second(reading: _Reading, number: int, reason: str) -> None:
    text = reading.second.page_text(number)
    if text is None:
        reading.add(PageReport(number, "failed", reason))
        return
    reading.add(PageReport(number, "text" if text.strip() else "blank", reason), _bare_page(text, number))


def _hidden(page: PageText) -> tuple[str, ...]:
    """What nobody sees on a page: another program's reading of it does not tell where."""
    return merge(*(line.hidden for line in page.lines))


def _bare_page(text: str, number: int, hidden: tuple[str, ...] = ()) -> PageText:
    lines = [Line(line.strip(), number, hidden=hidden) for line in text.splitlines() if line.strip()]
    return PageText(number, lines, 0.0, 0.0)
