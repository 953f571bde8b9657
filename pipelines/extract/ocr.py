"""OCR of one picture of a page with Tesseract."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelines.errors import PermanentError
from pipelines.extract.lifeline import group_dies_with_parent
from pipelines.extract.rules import ExtractRules
from pipelines.types import OcrPage

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS = 40_000_000
MAX_SIDE = 32_000
MIN_CONFIDENCE = 40.0
_SMALL_SIDE = 1_000
_CODES_TO_PACKAGES = {"eng": "tesseract-ocr"}


@dataclass(frozen=True, slots=True)
class Recognised:
    """A page picture's paragraphs in reading order, and the mean confidence of its words (0 to 100)."""

    paragraphs: tuple[str, ...]
    confidence: float | None

    @property
    def trusted(self) -> bool:
        """False where the words are guesses: handwriting, a picture of no text, a script nobody asked for."""
        return self.confidence is None or self.confidence >= MIN_CONFIDENCE

    @property
    def text(self) -> str:
        """All paragraphs, a line each."""
        return "\n".join(self.paragraphs)


class OcrTimeoutError(Exception):
    """One page took longer than it may."""


@dataclass(frozen=True, slots=True)
class OcrLanguages:
    """Which of the wanted languages are installed; `warnings` names those that are not."""

    code: str
    orientation: bool
    warnings: tuple[str, ...] = ()


def choose_languages(wanted: str, what: str) -> OcrLanguages:
    """The wanted languages as far as their data is installed.

    Args:
        wanted: codes with `+` between.
        what: what needs OCR, for the error: `page 3 is a scan`.

    Raises:
        PermanentError: `ocr_unavailable` where Tesseract, or data for every wanted language, is missing.
    """
    codes = [code for code in wanted.split("+") if code]
    packages = " ".join(dict.fromkeys(["tesseract-ocr", *(_package(code) for code in codes)]))
    remedy = f"install tesseract-ocr (Debian: apt-get install {packages}), then `gristmill retry`"
    installed = installed_languages()
    if installed is None:
        raise PermanentError("ocr_unavailable", f"{what} and tesseract is not installed", remedy)
    usable = [code for code in codes if code in installed]
    missing = [code for code in codes if code not in installed]
    if not usable:
        raise PermanentError(
            "ocr_unavailable",
            f"{what} and tesseract has no data for {', '.join(codes) or 'any language'}",
            remedy,
        )
    warnings = tuple(
        f"OCR without language {code}: its data is not installed (Debian: apt-get install {_package(code)})"
        for code in missing
    )
    return OcrLanguages("+".join(usable), "osd" in installed, warnings)


@functools.cache
def installed_languages() -> frozenset[str] | None:
    """Codes of the languages Tesseract has data for (`osd` among them); None where it is not installed."""
    import pytesseract

    try:
        return frozenset(pytesseract.get_languages())
    except (pytesseract.TesseractNotFoundError, FileNotFoundError, PermissionError):
        return None


def _package(code: str) -> str:
    return _CODES_TO_PACKAGES.get(code, f"tesseract-ocr-{code.lower().replace('_', '-')}")


def recognise(image: Image.Image, languages: OcrLanguages, rules: ExtractRules) -> Recognised:
    """Read a page picture; it is scaled to a size Tesseract can take first.

    Raises:
        OcrTimeoutError: it took longer than `ocr_page_seconds`.
    """
    # Imported here: it brings pandas along, and most documents need no OCR.
    import pytesseract

    # 1: find the orientation, then the layout; 3: layout only.
    mode = "--psm 1" if languages.orientation else "--psm 3"
    with group_dies_with_parent():
        try:
            data = pytesseract.image_to_data(
                fit(image),
                lang=languages.code,
                config=mode,
                timeout=rules.ocr_page_seconds,
                output_type=pytesseract.Output.DICT,
            )
        except RuntimeError as error:
            if "timeout" in str(error).lower():
                raise OcrTimeoutError from error
            raise
    return _assemble(data)


def read_page(number: int, image: Image.Image, languages: OcrLanguages, rules: ExtractRules) -> OcrPage:
    """OCR one page; what goes wrong with it is noted in its `problem`."""
    try:
        found = recognise(image, languages, rules)
    except OcrTimeoutError:
        return OcrPage(number, languages=languages.code, problem="ocr-timeout")
    problem = None if found.trusted else "ocr-unsure"
    paragraphs = () if problem else found.paragraphs
    return OcrPage(number, paragraphs, found.confidence, languages=languages.code, problem=problem)


def fit(image: Image.Image) -> Image.Image:
    """A grey or RGB picture within `MAX_PIXELS` and `MAX_SIDE`; small ones doubled, transparency on white."""
    from PIL import Image

    if image.mode in {"RGBA", "LA", "PA"} or "transparency" in image.info:
        image = image.convert("RGBA")
        paper = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(paper, image)
    image = image.convert("RGB" if image.mode in {"RGB", "RGBA", "P", "CMYK", "YCbCr", "LAB", "HSV"} else "L")
    width, height = image.size
    scale = min(1.0, (MAX_PIXELS / (width * height)) ** 0.5, MAX_SIDE / max(width, height))
    if scale == 1.0 and max(width, height) < _SMALL_SIDE:
        scale = 2.0
    if scale == 1.0:
        return image
    size = (max(1, int(width * scale)), max(1, int(height * scale)))
    return image.resize(size, Image.Resampling.LANCZOS)


def _assemble(data: dict[str, list[Any]]) -> Recognised:
    paragraphs = tuple(_paragraphs(data))
    sure = [
        float(confidence)
        for confidence, word in zip(data["conf"], data["text"], strict=True)
        if str(word).strip() and float(confidence) >= 0
    ]
    return Recognised(paragraphs, round(sum(sure) / len(sure), 1) if sure else None)


def _paragraphs(data: dict[str, list[Any]]) -> Iterator[str]:
    lines: dict[tuple[int, int], dict[int, list[str]]] = {}
    for block, paragraph, line, word in zip(
        data["block_num"], data["par_num"], data["line_num"], data["text"], strict=True
    ):
        if str(word).strip():
            lines.setdefault((block, paragraph), {}).setdefault(line, []).append(str(word))
    for found in lines.values():
        yield join_lines([" ".join(words) for words in found.values()])


def join_lines(lines: Sequence[str]) -> str:
    """The lines of one paragraph as running text; a word cut by a hyphen at a line end is made whole."""
    text = ""
    for line in map(str.strip, lines):
        if text.endswith(("-", "\u2010")) and text[-2:-1].isalpha() and line[:1].islower():
            text = text[:-1] + line
        else:
            text = f"{text} {line}" if text else line
    return text
