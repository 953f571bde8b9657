"""Text in the pictures of a document: a scan pasted into Word, a screenshot on a slide.

A picture is read where it is large enough to hold words, within bounds of number and time for each document,
and its text is kept only where OCR is sure of it.
"""

from __future__ import annotations

import hashlib
import io
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from PIL import Image, ImageOps, UnidentifiedImageError

from pipelines.errors import PermanentError
from pipelines.extract import ocr
from pipelines.extract.rules import ExtractRules
from pipelines.types import Block

MIN_WIDTH, MIN_HEIGHT = 200, 60
MAX_PIXELS = 40_000_000
MAX_PICTURES = 20
MAX_SECONDS = 90.0
MIN_CONFIDENCE = 65.0
_WORD = re.compile(r"[^\W\d_]{3,}|\d{2,}")
_MIN_WORDS = 2
LEAD = "Text in a picture: "


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture file out of a document, and the page or slide it stands on."""

    content: bytes
    page: int | None = None


@dataclass(slots=True)
class PictureReader:
    """Reads the pictures of one document.

    Attributes:
        warnings: what was not read, and why.
        unavailable: the error that OCR would have raised, where pictures were passed over for want of it.
    """

    rules: ExtractRules
    warnings: list[str] = field(default_factory=list)
    unavailable: PermanentError | None = None

    def read(self, pictures: Iterable[Picture]) -> Iterator[Block]:
        """One paragraph for each picture with text, each picture once."""
        large = [(picture, image) for picture in _once(pictures) if (image := _opened(picture.content))]
        if not large:
            return
        try:
            languages = ocr.choose_languages(self.rules.ocr_languages, "the document holds pictures of text")
        except PermanentError as error:
            self.unavailable = error
            self.warnings.append(f"{len(large)} pictures in the document were not read: {error.cause}")
            return
        end = time.monotonic() + MAX_SECONDS
        for number, (picture, image) in enumerate(large, 1):
            if number > MAX_PICTURES or time.monotonic() > end:
                left = len(large) - number + 1
                self.warnings.append(f"{left} of {len(large)} pictures in the document were not read")
                return
            try:
                page = ocr.read_page(number, ImageOps.exif_transpose(image), languages, self.rules)
            except (OSError, SyntaxError, EOFError, ValueError) as error:
                self.warnings.append(f"a picture in the document is damaged: {error}")
                continue
            text = "\n".join(page.paragraphs)
            if (page.confidence or 0) >= MIN_CONFIDENCE and len(_WORD.findall(text)) >= _MIN_WORDS:
                yield Block("paragraph", LEAD + text, page=picture.page)


def _once(pictures: Iterable[Picture]) -> Iterator[Picture]:
    seen = set()
    for picture in pictures:
        digest = hashlib.sha256(picture.content).digest()
        if digest not in seen:
            seen.add(digest)
            yield picture


def _opened(content: bytes) -> Image.Image | None:
    """The picture where it is one, and neither too small for words nor too large to be unpacked."""
    try:
        image = Image.open(io.BytesIO(content))
    except (UnidentifiedImageError, OSError, SyntaxError, EOFError, ValueError, Image.DecompressionBombError):
        return None
    if image.width < MIN_WIDTH or image.height < MIN_HEIGHT or image.width * image.height > MAX_PIXELS:
        return None
    return image
