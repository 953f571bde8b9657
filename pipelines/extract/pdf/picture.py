"""A page of a PDF as a picture for OCR."""

from __future__ import annotations

from typing import Any

import pypdfium2.raw as pdfium_c

from pipelines.extract import ocr
from pipelines.extract.ocr.picture import MAX_PIXELS, MAX_SIDE
from pipelines.extract.rules import ExtractRules
from pipelines.types import OcrPage

_LEAST_DPI = 150
_MOST_DPI = 300
_SCAN_COVER = 0.4


def read_page(number: int, page: Any, languages: ocr.OcrLanguages, rules: ExtractRules) -> OcrPage:
    """OCR a `pypdfium2.PdfPage`."""
    dpi = _resolution(page, rules)

    def larger(factor: float) -> Any:
        return _draw(page, dpi * factor) if _scale(page, dpi * factor) > 1.2 * _scale(page, dpi) else None

    return ocr.read_page(number, _draw(page, dpi), languages, rules, larger)


def _resolution(page: Any, rules: ExtractRules) -> float:
    """That of the scan on the page, so that its own pixels are read; `ocr_dpi` without one, or if it is too coarse."""
    scan = _scan_resolution(page)
    if scan is None or scan < min(_LEAST_DPI, rules.ocr_dpi) * 0.99:
        return rules.ocr_dpi
    return min(scan, max(_MOST_DPI, rules.ocr_dpi))


def _scan_resolution(page: Any) -> float | None:
    """Pixels an inch of the picture that covers most of the page, None where none covers much of it."""
    width, height = page.get_size()
    best, found = _SCAN_COVER * width * height, None
    for image in page.get_objects(filter=[pdfium_c.FPDF_PAGEOBJ_IMAGE], max_depth=4):
        left, bottom, right, top = image.get_bounds()
        area = (right - left) * (top - bottom)
        if area > best:
            wide, high = image.get_px_size()
            best, found = area, 72 * (wide * high / area) ** 0.5
    return found


def _scale(page: Any, dpi: float) -> float:
    width, height = page.get_size()
    area = width * height or 1.0
    return float(min(dpi / 72, (MAX_PIXELS / area) ** 0.5, MAX_SIDE / max(width, height, 1)))


def _draw(page: Any, dpi: float) -> Any:
    """The page as a grey picture at a resolution, or less where that would be too many pixels."""
    return page.render(scale=_scale(page, dpi), grayscale=True, may_draw_forms=True).to_pil()
