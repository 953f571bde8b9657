"""Pictures of text: PNG, JPEG, TIFF with any number of pages, WebP, BMP, GIF."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from pipelines.errors import PermanentError
from pipelines.extract import ocr
from pipelines.extract.job import Job
from pipelines.extract.ocr.picture import MAX_PIXELS as OCR_PIXELS
from pipelines.types import Block, Extracted, OcrPage, PageDecision, PageReport

MAX_PIXELS = 180_000_000
_PAGED = frozenset({"image/tiff"})
_DAMAGE = (UnidentifiedImageError, OSError, SyntaxError, EOFError, ValueError, OverflowError, struct.error)


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
        read = dict(job.ocr)
        for page in recognise_image(job, missing):
            job.recognised(page)
            read[page.number] = page
    blocks: list[Block] = []
    reports: list[PageReport] = []
    for number in range(1, pages + 1):
        if number in job.skip:
            reports.append(PageReport(number, "failed", job.skip[number]))
            continue
        page = read[number]
        blocks += [Block("paragraph", paragraph, page=number) for paragraph in page.paragraphs]
        decision: PageDecision
        decision, reason = ("ocr", "image") if page.paragraphs or page.problem else ("blank", "no-words")
        facts_of_ocr = (page.confidence, page.rotation, page.languages, page.warning, page.problem or "")
        reports.append(PageReport(number, decision, reason, *facts_of_ocr))
    return Extracted(job.mime, None, tuple(blocks), tuple(reports), facts)


def recognise_image(job: Job, pages: Sequence[int]) -> Iterator[OcrPage]:
    """OCR some pages of the picture; raises as `extract_image`.

    A damaged page is noted in its `problem`, unless it is the only one.
    """
    with _opened(job) as image:
        count = _count(image, job)
        languages = ocr.choose_languages(job.rules.ocr_languages, "the file is an image")
        for number in pages:
            job.progress(number, count)
            try:
                picture = _frame(image, number)
            except _DAMAGE as error:
                if count == 1:
                    raise _corrupt(error) from error
                yield OcrPage(number, problem="page-damaged", warning=" ".join(str(error).split())[:200])
                continue
            yield ocr.read_page(number, picture, languages, job.rules)


@contextmanager
def _opened(job: Job) -> Iterator[Image.Image]:
    # Checked before a pixel is unpacked; ours is the stricter limit, and an error where Pillow's would be a
    # warning.
    Image.MAX_IMAGE_PIXELS = None
    try:
        image = Image.open(job.path)
    except _DAMAGE as error:
        raise _corrupt(error) from error
    with image:
        yield image


def _frame(image: Image.Image, number: int) -> Image.Image:
    """A page, unpacked, the right way up as its camera says; a very large JPEG smaller than it is.

    Raises:
        PermanentError: `bomb`, before a pixel is unpacked.
    """
    if image.tell() != number - 1:
        image.seek(number - 1)
    if image.format in {"JPEG", "MPO"}:
        shrink = math.ceil((image.width * image.height / OCR_PIXELS) ** 0.5)
        image.draft("L", (math.ceil(image.width / shrink), math.ceil(image.height / shrink)))
    _check_pixels(image)
    image.load()
    # A copy only where it is turned: a large picture does not fit in the memory allowed twice.
    return ImageOps.exif_transpose(image) if image.getexif().get(ExifTags.Base.Orientation, 1) != 1 else image


def _corrupt(error: Exception) -> PermanentError:
    return PermanentError(
        "corrupt",
        f"the image is damaged or cut short ({error})",
        "copy it again in full, or save it again",
    )


def _count(image: Image.Image, job: Job) -> int:
    try:
        pages = int(getattr(image, "n_frames", 1)) if job.mime in _PAGED else 1
    except _DAMAGE as error:
        raise _corrupt(error) from error
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
