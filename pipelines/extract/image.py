"""Pictures of text: PNG, JPEG, TIFF with any number of pages, WebP, BMP, GIF."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError

from pipelines.errors import PermanentError
from pipelines.extract import ocr
from pipelines.extract.rules import ExtractRules, Progress
from pipelines.types import Block, Extracted, PageReport

MAX_PIXELS = 180_000_000
_PAGED = frozenset({"image/tiff"})


def extract_image(path: Path, mime: str, rules: ExtractRules, progress: Progress) -> Extracted:
    """OCR every page of the picture; animations count as their first frame.

    Raises:
        PermanentError: `corrupt`, `bomb` (more than `MAX_PIXELS`), `too_many_pages`, `ocr_unavailable`.
    """
    # Checked before a pixel is unpacked; ours is the stricter limit, and an error where Pillow's would be a
    # warning.
    Image.MAX_IMAGE_PIXELS = None
    try:
        with Image.open(path) as image:
            return _read(image, mime, rules, progress)
    except (UnidentifiedImageError, OSError, SyntaxError, EOFError, ValueError) as error:
        raise PermanentError(
            "corrupt",
            f"the image is damaged or cut short ({error})",
            "copy it again in full, or save it again",
        ) from error


def _read(image: Image.Image, mime: str, rules: ExtractRules, progress: Progress) -> Extracted:
    pages = int(getattr(image, "n_frames", 1)) if mime in _PAGED else 1
    if pages > rules.max_pages:
        raise PermanentError(
            "too_many_pages",
            f"the image has {pages:,} pages, more than the {rules.max_pages:,} allowed",
            "raise GRISTMILL_MAX_PAGES or split the file",
        )
    languages = ocr.choose_languages(rules.ocr_languages, "the file is an image")
    blocks: list[Block] = []
    reports: list[PageReport] = []
    for number in range(1, pages + 1):
        progress(number, pages)
        if pages > 1:
            image.seek(number - 1)
        _check_pixels(image)
        try:
            found = ocr.recognise(ImageOps.exif_transpose(image), languages, rules)
        except ocr.OcrTimeoutError:
            reports.append(PageReport(number, "failed", "ocr-timeout"))
            continue
        if not found.trusted:
            reports.append(PageReport(number, "failed", "ocr-unsure", found.confidence))
            continue
        blocks += [Block("paragraph", paragraph, page=number) for paragraph in found.paragraphs]
        decision = PageReport(number, "ocr", "image", found.confidence) if found.paragraphs else None
        reports.append(decision or PageReport(number, "blank", "no-words"))
    metadata = {"width": image.width, "height": image.height, "warnings": list(languages.warnings)}
    return Extracted(mime, None, tuple(blocks), tuple(reports), metadata)


def _check_pixels(image: Image.Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise PermanentError(
            "bomb",
            f"the image unpacks to {image.width:,} by {image.height:,} pixels, over {MAX_PIXELS // 10**6} M",
            "save it at a lower resolution; 300 dpi is plenty for OCR",
        )
