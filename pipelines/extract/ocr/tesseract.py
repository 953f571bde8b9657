"""One run of Tesseract over one picture, by way of pytesseract."""

from __future__ import annotations

import functools
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from xml.etree import ElementTree

from pipelines.extract.isolation.lifeline import group_dies_with_parent

if TYPE_CHECKING:
    from PIL import Image

_XHTML = "{http://www.w3.org/1999/xhtml}"
_ANGLE = re.compile(r"textangle (\d+)")
_SURE = re.compile(r"x_wconf (\d+)")
_BOX = re.compile(r"bbox (-?\d+) (-?\d+) (-?\d+) (-?\d+)")
_CLEAR = 60.0


class OcrTimeoutError(Exception):
    """One page took longer than it may."""


class OcrFailedError(Exception):
    """Tesseract ended with an error, or was ended, over one picture; the message is its own."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word, Tesseract's confidence in it (0 to 100), and the height of its box in pixels."""

    text: str
    confidence: float
    height: int

    @property
    def letters(self) -> int:
        """Number of letters and digits."""
        return sum(char.isalnum() for char in self.text)


@dataclass(frozen=True, slots=True)
class Reading:
    """What one run found: paragraphs of lines of words, in reading order.

    Attributes:
        angle: degrees, clockwise, by which most lines had to be turned to be upright.
    """

    paragraphs: tuple[tuple[tuple[Word, ...], ...], ...]
    angle: int = 0

    @property
    def words(self) -> list[Word]:
        """All words in reading order."""
        return [word for paragraph in self.paragraphs for line in paragraph for word in line]

    @property
    def confidence(self) -> float | None:
        """Mean confidence of the words; None without any."""
        words = self.words
        return round(sum(word.confidence for word in words) / len(words), 1) if words else None

    @property
    def score(self) -> float:
        """Letters in clear words, each the more the surer; unclear words count against it."""
        return sum(word.letters * (word.confidence - _CLEAR) / (100 - _CLEAR) for word in self.words)

    @property
    def clear_letters(self) -> int:
        """Letters and digits in words whose confidence is 60 or more."""
        return sum(word.letters for word in self.words if word.confidence >= _CLEAR)

    @property
    def clear_share(self) -> float:
        """`clear_letters` as a share of all letters and digits, 0 to 1; 0 without any."""
        letters = sum(word.letters for word in self.words)
        return self.clear_letters / letters if letters else 0.0

    def without_guesses(self, least_share: float, letters: int) -> Reading:
        """The same without paragraphs of many letters, few of them clear: another script, handwriting, a drawing."""
        parts = [Reading((paragraph,)) for paragraph in self.paragraphs]
        kept = [
            part
            for part in parts
            if part.clear_share >= least_share or sum(word.letters for word in part.words) < letters
        ]
        return Reading(tuple(part.paragraphs[0] for part in kept), self.angle)

    def sure_words(self) -> Reading:
        """The same without words that shapes are taken for: unclear ones, and those of one or two letters."""
        kept = tuple(
            tuple(
                words
                for line in paragraph
                if (words := tuple(word for word in line if word.confidence >= _CLEAR and word.letters > 2))
            )
            for paragraph in self.paragraphs
        )
        return Reading(tuple(filter(None, kept)), self.angle)

    @property
    def height(self) -> float:
        """Median height of the words in pixels, 0 without any."""
        heights = sorted(word.height for word in self.words if word.letters > 1)
        return float(heights[len(heights) // 2]) if heights else 0.0


@dataclass(frozen=True, slots=True)
class Orientation:
    """What orientation and script detection says of a picture.

    Attributes:
        rotate: degrees, clockwise, to turn the picture by.
        sureness: of `rotate`; above 2 it is seldom wrong, though 0.5 may be right.
        script: as Tesseract names it: `Latin`, `Han`.
        script_sureness: of `script`, on a scale of its own.
    """

    rotate: int
    sureness: float
    script: str
    script_sureness: float


class Sheet:
    """A picture saved once for any number of runs, as a context."""

    def __init__(self, picture: Image.Image) -> None:
        """Save a grey picture; PGM, since neither side has to pack it."""
        self._folder = tempfile.TemporaryDirectory(prefix="gristmill-ocr-", ignore_cleanup_errors=True)
        self._path = str(Path(self._folder.name) / "page.pgm")
        picture.save(self._path, "PPM")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def read(self, languages: str, mode: int, seconds: float, *options: str) -> Reading:
        """Read it.

        Args:
            languages: codes with `+` between.
            mode: page segmentation mode: 3 pages, 6 one block, 11 scattered text.
            options: further ones of the command line.

        Raises:
            OcrTimeoutError, OcrFailedError.
        """
        config = " ".join([f"--psm {mode}", *options])
        run = _pytesseract().image_to_pdf_or_hocr
        return _parse(_run(run, self._path, lang=languages, config=config, extension="hocr", timeout=seconds))

    def orientation(self, seconds: float) -> Orientation | None:
        """How it lies and what script it is in; None where that cannot be told, as of a page of few letters.

        Raises:
            OcrTimeoutError: it took too long.
        """
        module = _pytesseract()
        try:
            found = _run(module.run_and_get_output, self._path, "osd", "osd", "--psm 0", timeout=seconds)
            fields = module.pytesseract.osd_to_dict(found)
            return Orientation(
                int(fields["rotate"]),
                float(fields["orientation_conf"]),
                str(fields["script"]),
                float(fields["script_conf"]),
            )
        # It fails on pages of few letters, and writes no number where it has divided by nought.
        except (OcrFailedError, KeyError):
            return None


def languages() -> frozenset[str] | None:
    """Codes of the languages there is data for (`osd` among them); None where Tesseract is not installed."""
    module = _pytesseract()
    try:
        return frozenset(module.get_languages())
    except (module.TesseractNotFoundError, FileNotFoundError, PermissionError):
        return None


def _run(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    module = _pytesseract()
    with group_dies_with_parent():
        try:
            return function(*arguments, **options)
        except module.TesseractError as error:
            raise OcrFailedError(" ".join(str(error.message).split())[-200:] or f"status {error.status}") from error
        except RuntimeError as error:
            if "timeout" in str(error).lower():
                raise OcrTimeoutError from error
            raise


def _parse(hocr: bytes) -> Reading:
    try:
        root = ElementTree.fromstring(hocr)
    except ElementTree.ParseError as error:
        raise OcrFailedError(f"its output is no XML ({error})") from error
    paragraphs = tuple(
        lines
        for paragraph in root.iter(f"{_XHTML}p")
        if (lines := tuple(filter(None, (tuple(_words(line)) for line in paragraph.iterfind(f"{_XHTML}span")))))
    )
    # hOCR counts the angle of the text counter-clockwise, and leaves it out where it is nought.
    angles = [
        int(match[1]) if (match := _ANGLE.search(line.get("title", ""))) else 0
        for line in root.iterfind(f".//{_XHTML}p/{_XHTML}span")
    ]
    return Reading(paragraphs, max(set(angles), key=angles.count) if angles else 0)


def _words(line: ElementTree.Element) -> Iterator[Word]:
    for element in line.iterfind(f"{_XHTML}span"):
        title = element.get("title", "")
        sure, box = _SURE.search(title), _BOX.search(title)
        text = "".join(element.itertext()).strip()
        if sure and box and text:
            yield Word(text, float(sure[1]), int(box[4]) - int(box[2]))


@functools.cache
def _pytesseract() -> Any:
    """The module, imported when it is needed and without pandas: that takes longer than a page of text."""
    with _without("pandas"):
        import pytesseract
    return pytesseract


@contextmanager
def _without(name: str) -> Iterator[None]:
    """While this lasts a module that is not imported yet seems not to be installed."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
