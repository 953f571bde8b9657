"""OCR of one picture of a page: one run of Tesseract, and further looks only where its result is doubtful."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pipelines.extract.ocr import picture as ocr_picture
from pipelines.extract.ocr.languages import (
    OcrLanguages,
    advice,
    choose_languages,
    fits,
    installed_languages,
    other_languages,
)
from pipelines.extract.ocr.tesseract import OcrFailedError, OcrTimeoutError, Orientation, Reading, Sheet
from pipelines.extract.rules import ExtractRules
from pipelines.extract.wrapped import join_lines
from pipelines.types import OcrPage

if TYPE_CHECKING:
    from PIL import Image

__all__ = [
    "OcrFailedError",
    "OcrLanguages",
    "OcrTimeoutError",
    "Recognised",
    "choose_languages",
    "installed_languages",
    "join_lines",
    "read_page",
    "recognise",
]

MIN_CONFIDENCE = 40.0
LOW_CONFIDENCE = 65.0
GOOD_CONFIDENCE = 80.0
VERY_GOOD_CONFIDENCE = 90.0
_MIN_CLEAR_SHARE = 0.35
_BLANK_INK = 0.0004
_FEW_LETTERS = 20
_LOW_TYPE = 16
_LARGE_SIDE = 1_800
_FOREIGN_CONFIDENCE = 50.0
_MIN_SCRIPT_SURENESS = 0.5
_SURE_ORIENTATION = 8.0
_AGAIN_SECONDS, _AGAIN_FACTOR = 10.0, 4.0
_MOST_LOOKS = 4

_PAGE, _SCATTERED = 3, 11
# Sauvola's: each spot against its surroundings, for shadows and stains.
_LOCAL_THRESHOLD = ("-c", "thresholding_method=2")

Larger = Callable[[float], "Image.Image | None"]
"""Draws the page larger by a factor, where that shows more than stretching its picture; None where it cannot."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """A page picture's paragraphs in reading order.

    Attributes:
        confidence: mean confidence of its words, 0 to 100; None without any.
        clear_share: share of the letters that stand in words of confidence 60 or more.
        rotation: degrees, clockwise, by which it was turned: 0, 90, 180, 270.
        languages: Tesseract codes it was read with.
        warning: what its reader should know, else empty.
    """

    paragraphs: tuple[str, ...]
    confidence: float | None
    clear_share: float = 1.0
    rotation: int = 0
    languages: str = ""
    warning: str = ""

    @property
    def trusted(self) -> bool:
        """False where the words are guesses: handwriting, a picture of no text, a script nobody asked for."""
        if self.confidence is None:
            return True
        return self.confidence >= MIN_CONFIDENCE and self.clear_share >= _MIN_CLEAR_SHARE

    @property
    def text(self) -> str:
        """All paragraphs, a line each."""
        return "\n".join(self.paragraphs)


def read_page(
    number: int,
    image: Image.Image,
    languages: OcrLanguages,
    rules: ExtractRules,
    larger: Larger | None = None,
) -> OcrPage:
    """OCR one page; what goes wrong with it is noted in its `problem`."""
    try:
        # Without the last argument where there is none: what stands in for `recognise` need not know it.
        found = recognise(image, languages, rules, *([larger] if larger else []))
    except OcrTimeoutError:
        return OcrPage(number, languages=languages.code, problem="ocr-timeout")
    except OcrFailedError as error:
        return OcrPage(number, languages=languages.code, problem="ocr-failed", warning=f"tesseract: {error}")
    facts = (found.confidence, found.rotation, found.languages or languages.code)
    if not found.trusted:
        return OcrPage(number, (), *facts, problem="ocr-unsure", warning=found.warning)
    return OcrPage(number, found.paragraphs, *facts, warning=found.warning)


def recognise(
    image: Image.Image, languages: OcrLanguages, rules: ExtractRules, larger: Larger | None = None
) -> Recognised:
    """Read a page picture of any mode, size, rotation, and up to 15 degrees of skew.

    Raises:
        OcrTimeoutError: the first look took longer than `ocr_page_seconds`; further ones have what it left.
        OcrFailedError: Tesseract ended with an error at the first look.
    """
    desk = _Desk(languages, time.monotonic() + rules.ocr_page_seconds, larger)
    look = desk.read(ocr_picture.prepare(image))
    reading = look.reading
    kept = reading.without_guesses(_MIN_CLEAR_SHARE, _FEW_LETTERS)
    found = Recognised(
        tuple(_paragraphs(kept)),
        reading.confidence,
        round(reading.clear_share, 2),
        (look.rotation + reading.angle) % 360,
        look.languages,
        desk.warning if (reading.confidence or 0.0) < _FOREIGN_CONFIDENCE else "",
    )
    if found.warning or not found.trusted or found.confidence is None:
        return found
    if found.confidence < LOW_CONFIDENCE:
        return replace(found, warning="low-confidence")
    return replace(found, warning="partly-unread") if len(kept.paragraphs) < len(reading.paragraphs) else found


@dataclass(frozen=True, slots=True)
class _Look:
    """One way to look at the page, and what was read in it."""

    picture: Image.Image
    rotation: int
    languages: str
    reading: Reading

    @property
    def good(self) -> bool:
        small = self.reading.height < _LOW_TYPE or self.reading.clear_letters < _FEW_LETTERS
        return (self.reading.confidence or 0.0) >= (VERY_GOOD_CONFIDENCE if small else GOOD_CONFIDENCE)

    def betters(self, other: _Look) -> bool:
        """Whether this one is to be kept instead: less junk alone, or more words alone, is not better."""
        mine, its = self.reading, other.reading
        return mine.score > its.score and mine.clear_letters >= max(1, its.clear_letters)


class _Desk:
    """One page that is looked at again and again until it is read well, or looks or time have run out.

    Attributes:
        warning: what the reader of the text should know.
    """

    def __init__(self, languages: OcrLanguages, deadline: float, larger: Larger | None) -> None:
        self.warning = ""
        self._languages = languages
        self._deadline = deadline
        self._larger = larger
        self._most = _MOST_LOOKS
        self._lie = ocr_picture.Lean(0.0, False)
        self._grainy = False
        self._seen: Orientation | None = None

    def read(self, picture: Image.Image) -> _Look:
        """The best of all looks."""
        self._grainy = ocr_picture.grainy(picture)
        picture = ocr_picture.smooth(picture) if self._grainy else picture
        self._lie = ocr_picture.lean(picture)
        picture = ocr_picture.straighten(picture, self._lie.skew)
        if self._lie.sideways:
            with Sheet(picture) as sheet:
                self._seen = self._orientation(sheet)
        rotation = self._seen.rotate if self._seen else 0
        upright = ocr_picture.trim(ocr_picture.turn(picture, rotation))
        options = _LOCAL_THRESHOLD if ocr_picture.uneven(upright) else ()
        began = time.monotonic()
        first = self._look(upright, rotation, self._languages.code, _PAGE, *options)
        if first.good or (not first.reading.words and ocr_picture.ink(upright) < _BLANK_INK):
            return first
        now = time.monotonic()
        self._deadline = min(self._deadline, now + max(_AGAIN_SECONDS, _AGAIN_FACTOR * (now - began)))
        return self._again(first)

    def _again(self, best: _Look) -> _Look:
        """Look in other ways, each from the best so far."""
        ways = [
            self._by_orientation,
            self._by_turns,
            self._enlarged,
            self._with_others,
            self._by_parts,
            self._scattered,
        ]
        ways.insert(3 if best.reading.words else 0, self._smoothed)
        looks = 0
        for way in ways:
            try:
                for look in way(best):
                    looks += 1
                    best = look if look.betters(best) else best
                    if best.good or looks >= self._most:
                        return best
            except (OcrTimeoutError, OcrFailedError):
                # The page has been read once: that stands.
                return best
        return best

    def _by_orientation(self, best: _Look) -> Iterator[_Look]:
        """Turned, and in other languages, as orientation and script detection says."""
        if not best.reading.words:
            return
        rotate = 0
        if self._seen is None:
            with Sheet(best.picture) as sheet:
                self._seen = self._orientation(sheet)
            if self._seen is None:
                return
            rotate = self._seen.rotate
        picture, rotation = ocr_picture.turn(best.picture, rotate), best.rotation + rotate
        script, code = self._seen.script, best.languages
        if self._seen.script_sureness >= _MIN_SCRIPT_SURENESS and not fits(script, code):
            others = other_languages(script, code)
            if others:
                yield self._look(picture, rotation, others)
            elif (best.reading.confidence or 0.0) < _FOREIGN_CONFIDENCE:
                self.warning = advice(script)
                self._most = 2
        # Text that lies wrong is never read with as much confidence as that.
        if rotate and (best.reading.confidence or 0.0) < LOW_CONFIDENCE:
            yield self._look(picture, rotation, code)

    def _by_turns(self, best: _Look) -> Iterator[_Look]:
        """Turned by guess, where little could be read and the orientation was not sure."""
        if not best.reading.words or (best.reading.confidence or 0.0) >= LOW_CONFIDENCE:
            return
        if self._seen is not None and self._seen.sureness >= _SURE_ORIENTATION:
            return
        # Sideways it is for certain: if one way up was wrong, the other is right.
        for degrees in (90, 270) if self._lie.sideways and not best.rotation else (180,):
            yield self._look(ocr_picture.turn(best.picture, degrees), best.rotation + degrees, best.languages)

    def _enlarged(self, best: _Look) -> Iterator[_Look]:
        """Larger, where the type is low or the picture small."""
        low = 0 < best.reading.height < 1.25 * _LOW_TYPE
        if not low and max(best.picture.size) >= _LARGE_SIDE:
            return
        drawn = self._larger(2.0) if self._larger else None
        if drawn is None:
            picture = ocr_picture.enlarge(best.picture, 2.0)
        else:
            straight = ocr_picture.straighten(ocr_picture.prepare(drawn), self._lie.skew)
            picture = ocr_picture.trim(ocr_picture.turn(straight, best.rotation % 360))
        if picture is not None:
            yield self._look(picture, best.rotation, best.languages)

    def _smoothed(self, best: _Look) -> Iterator[_Look]:
        """Without specks and grain."""
        if not self._grainy:
            yield self._look(ocr_picture.smooth(best.picture), best.rotation, best.languages)

    def _with_others(self, best: _Look) -> Iterator[_Look]:
        """In other installed languages of the same script too, where what was read is hardly words."""
        if best.languages != self._languages.code or not 0 < (best.reading.confidence or 0.0) < LOW_CONFIDENCE:
            return
        if self._seen and (others := other_languages(self._seen.script, best.languages)):
            yield self._look(best.picture, best.rotation, others)

    def _by_parts(self, best: _Look) -> Iterator[_Look]:
        """With a threshold of its own for each spot."""
        yield self._look(best.picture, best.rotation, best.languages, _PAGE, *_LOCAL_THRESHOLD)

    def _scattered(self, best: _Look) -> Iterator[_Look]:
        """As words strewn over a picture, where hardly any were found."""
        if best.reading.clear_letters < 2 * _FEW_LETTERS:
            look = self._look(best.picture, best.rotation, best.languages, _SCATTERED)
            # Shapes and grain give many guesses, a few of them sure by chance.
            if look.reading.score > 0:
                yield replace(look, reading=look.reading.sure_words())

    def _look(self, picture: Image.Image, rotation: int, languages: str, mode: int = _PAGE, *options: str) -> _Look:
        with Sheet(picture) as sheet:
            return _Look(picture, rotation % 360, languages, sheet.read(languages, mode, self._left(), *options))

    def _orientation(self, sheet: Sheet) -> Orientation | None:
        return sheet.orientation(min(self._left(), _AGAIN_SECONDS)) if self._languages.orientation else None

    def _left(self) -> float:
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise OcrTimeoutError
        return seconds


def _paragraphs(reading: Reading) -> Iterator[str]:
    for paragraph in reading.paragraphs:
        yield join_lines([" ".join(word.text for word in line) for line in paragraph])
