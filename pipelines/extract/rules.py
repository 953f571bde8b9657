"""What an extraction may cost and how it does OCR."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExtractRules:
    """Limits and OCR settings of one extraction.

    Attributes:
        ocr_languages: Tesseract language codes with `+` between, e.g. `eng+fra`.
        ocr_dpi: resolution at which pages are rendered for OCR.
        ocr_page_seconds: longest OCR of one page; the page is then reported as failed.
        inline_ocr_pages: most pages that are OCRed at once; where more need it they are named in
            `Extracted.awaiting` instead. None: any number.
        max_bytes: largest file taken.
        max_pages: most pages of one document.
        page_seconds: longest that one page may take, unless OCR may take longer; it is then reported as failed.
        seconds: wall-clock limit of one document.
        memory_mb: limit of the address space of the parsing process, in MiB.
    """

    ocr_languages: str = "eng+fra"
    ocr_dpi: int = 200
    ocr_page_seconds: float = 60
    inline_ocr_pages: int | None = None
    max_bytes: int = 200 * 2**20
    max_pages: int = 5000
    page_seconds: float = 120
    seconds: float = 900
    memory_mb: int = 2048

    @property
    def longest_page_seconds(self) -> float:
        """`page_seconds`, but no less than OCR of a page needs together with its drawing."""
        return max(self.page_seconds, 2 * self.ocr_page_seconds)
