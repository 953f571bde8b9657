"""What an extraction may cost and how it does OCR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[int, int], None]
"""Called with (page begun, pages in all), both 1-based, while a document with pages is read."""


@dataclass(frozen=True, slots=True)
class ExtractRules:
    """Limits and OCR settings of one extraction.

    Attributes:
        ocr_languages: Tesseract language codes with `+` between, e.g. `eng+fra`.
        ocr_dpi: resolution at which pages are rendered for OCR.
        ocr_page_seconds: longest OCR of one page; the page is then reported as failed.
        max_bytes: largest file taken.
        max_pages: most pages of one document.
        seconds: wall-clock limit of one document.
        memory_mb: limit of the address space of the parsing process, in MiB.
    """

    ocr_languages: str = "eng+fra"
    ocr_dpi: int = 200
    ocr_page_seconds: float = 60
    max_bytes: int = 200 * 2**20
    max_pages: int = 5000
    seconds: float = 900
    memory_mb: int = 2048


def no_progress(page: int, pages: int) -> None:
    """The progress callback of a caller that does not want to know."""
