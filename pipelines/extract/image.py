"""Pictures of text: PNG, JPEG, TIFF with any number of pages, WebP, BMP, GIF."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from PIL import Image, ImageOps, UnidentifiedImageError

from pipelines.errors import PermanentError
from pipelines.extract import ocr
from pipelines.extract.job import Job
from pipelines.types import Block, Extracted, OcrPage, PageDecision, PageReport

MAX_PIXELS = 180_000_000
_PAGED = frozenset({"image/tiff"})


def extract_image(job: Job) -> Extracted:
    """OCR every page of the picture; animations count as their first frame.

    Raises:
        PermanentError: `corrupt`, `bomb` (more than `MAX_PIXELS`), `too_many_pages`, `ocr_unavailable`.
    """
    with _opened(job) as image:
        pages = _count(image, job)
        languages = ocr.choose_languages(job.rules.ocr_languages, "the file is an image")
        facts = {"width": image.width, "height": image.height, "warnings": list(languages.warnings)}
        missing = [number for number in range(1, pages + 1) if number not in job.ocr and number not in job.skip]
        inline = job.rules.inline_ocr_pages
        if inline is not None and len(missing) > inline:
            return Extracted(job.mime, None, (), awaiting=tuple(missing))
        read = dict(job.ocr) | {page.number: page for page in recognise_image(job, missing)}
    blocks: list[Block] = []
    reports: list[PageReport] = []
    for number in range(1, pages + 1):
        if number in job.skip:
            reports.append(PageReport(number, "failed", job.skip[number]))
            continue
        page = read[number]
        blocks += [Block("paragraph", paragraph, page=number) for paragraph in page.paragraphs]
        decision: PageDecision
        if page.problem:
            decision, reason = "failed", page.problem
        else:
            decision, reason = ("ocr", "image") if page.paragraphs else ("blank", "no-words")
        reports.append(PageReport(number, decision, reason, page.confidence, page.rotation, page.languages))
    return Extracted(job.mime, None, tuple(blocks), tuple(reports), facts)


def recognise_image(job: Job, pages: Sequence[int]) -> Iterator[OcrPage]:
    """OCR some pages of the picture; raises as `extract_image`."""
    with _opened(job) as image:
        count = _count(image, job)
        languages = ocr.choose_languages(job.rules.ocr_languages, "the file is an image")
        for number in pages:
            job.progress(number, count)
            if count > 1:
                image.seek(number - 1)
            _check_pixels(image)
            yield ocr.read_page(number, ImageOps.exif_transpose(image), languages, job.rules)


@contextmanager
def _opened(job: Job) -> Iterator[Image.Image]:
    # Checked before a pixel is unpacked; ours is the stricter limit, and an error where Pillow's would be a
    # warning.
    Image.MAX_IMAGE_PIXELS = None
    try:
        with Image.open(job.path) as image:
            yield image
    except (UnidentifiedImageError, OSError, SyntaxError, EOFError, ValueError) as error:
        raise PermanentError(
            "corrupt",
            f"the image is damaged or cut short ({error})",
            "copy it again in full, or save it again",
        ) from error


def _count(image: Image.Image, job: Job) -> int:
    pages = int(getattr(image, "n_frames", 1)) if job.mime in _PAGED else 1
    if pages > job.rules.max_pages:
        raise PermanentError(
            "too_many_pages",
            f"the image has {pages:,} pages, more than the {job.rules.max_pages:,} allowed",
            "raise GRISTMILL_MAX_PAGES or split the file",
        )
    return pages


def _check_pixels(image: Image.Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise PermanentError(
            "bomb",
            f"the image unpacks to {image.width:,} by {image.height:,} pixels, over {MAX_PIXELS // 10**6} M",
            "save it at a lower resolution; 300 dpi is plenty for OCR",
        )
