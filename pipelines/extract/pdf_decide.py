"""Which pages of a PDF need OCR: rules over text layer, pictures and ink of a page, never the whole file."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import pypdfium2.raw as pdfium_c

Verdict = Literal["text", "ocr", "blank", "too-large"]

MIN_CHARS = 24
STAMP_CHARS = 200
MAX_IMAGE_PIXELS = 300_000_000
_BIG_IMAGE = 0.55
_INK_DPI = 24
_BLANK_INK = 0.0004
_CID = re.compile(r"\(cid:\d+\)")
_LEADER = re.compile(r"([^\w\s])(?:\s*\1){3,}")
_WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with a page, and the name of the rule that said so."""

    verdict: Verdict
    reason: str


def decide(page: Any, text: str) -> Decision:
    """Judge one page.

    Args:
        page: a `pypdfium2.PdfPage`.
        text: its text layer.
    """
    chars = sum(not char.isspace() for char in text)
    judged = judge_text(text)
    if judged is not None:
        return _if_drawable(page, Decision("ocr", judged))
    largest, _ = image_cover(page)
    if chars >= MIN_CHARS:
        if largest < _BIG_IMAGE:
            return Decision("text", "text-layer")
        if _visible_share(page) < 0.5:
            return Decision("text", "ocr-layer")
        if chars < STAMP_CHARS:
            return _if_drawable(page, Decision("ocr", "stamp-on-scan"))
        return Decision("text", "text-layer")
    if image_pixels(page) > MAX_IMAGE_PIXELS:
        return Decision("text", "few-chars") if chars else Decision("too-large", "image-too-large")
    ink = ink_share(page)
    if ink < _BLANK_INK:
        return Decision("text", "few-chars") if chars else Decision("blank", "no-ink")
    if chars == 0:
        return Decision("ocr", "no-text")
    if largest > 0.2 or ink > 0.0025 * chars:
        return Decision("ocr", "few-chars-much-ink")
    return Decision("text", "few-chars")


def judge_text(text: str) -> str | None:
    """Why a text layer cannot be trusted: `cid`, `garbage`, `garbage-symbols`, `garbage-words`; else None."""
    chars = sum(not char.isspace() for char in text)
    if chars >= MIN_CHARS and len(_CID.findall(text)) * 6 > chars * 0.2:
        return "cid"
    bad = bad_share(text)
    if bad >= 0.25 or (chars >= 100 and bad >= 0.02):
        return "garbage"
    if chars >= 40 and alphanumeric_share(text) < 0.35:
        return "garbage-symbols"
    words = _WORD.findall(text)
    if len(words) >= 20 and sum(map(_is_broken, words)) > 0.4 * len(words):
        return "garbage-words"
    return None


def bad_share(text: str) -> float:
    """Share of characters that no text holds: private use, replacement, controls, unassigned, surrogates."""
    # U+0002 and U+FFFE mark hyphens in pdfium's text; U+F000 to U+F0FF are bullets of symbol fonts.
    chars = [
        char for char in text if not char.isspace() and char not in "\x02\ufffe" and not "\uf000" <= char <= "\uf0ff"
    ]
    bad = sum(char == "\ufffd" or unicodedata.category(char) in {"Cc", "Cn", "Co", "Cs"} for char in chars)
    return bad / len(chars) if chars else 0.0


def alphanumeric_share(text: str) -> float:
    """Share of letters, digits and marks of any script, leader rules (`.....`) left out."""
    chars = [char for char in _LEADER.sub("", text) if not char.isspace()]
    good = sum(char.isalnum() or unicodedata.category(char)[0] == "M" for char in chars)
    return good / len(chars) if chars else 0.0


def word_count(text: str) -> int:
    """Number of words that look like words: two letters or more, one script, no capital inside."""
    return sum(not _is_broken(word) for word in _WORD.findall(text))


def _is_broken(word: str) -> bool:
    if word.isupper() or word.islower() or word.istitle():
        return word.isascii() is False and len({unicodedata.name(char, "?").split()[0] for char in word}) > 2
    return sum(a.islower() and b.isupper() for a, b in pairwise(word)) > 1 or word.swapcase().istitle()


def image_cover(page: Any) -> tuple[float, float]:
    """Share of the page that its largest picture covers, and all of them together, 0 to 1."""
    width, height = page.get_size()
    if page.get_rotation() in {90, 270}:
        width, height = height, width
    area = width * height or 1.0
    largest = total = 0.0
    for image in page.get_objects(filter=[pdfium_c.FPDF_PAGEOBJ_IMAGE], max_depth=4):
        left, bottom, right, top = image.get_bounds()
        wide = max(0.0, min(right, width) - max(left, 0.0))
        high = max(0.0, min(top, height) - max(bottom, 0.0))
        largest = max(largest, wide * high / area)
        total += wide * high / area
    return largest, min(total, 1.0)


def image_pixels(page: Any) -> int:
    """Pixels of the largest picture on the page, as it would have to be unpacked."""
    largest = 0
    for image in page.get_objects(filter=[pdfium_c.FPDF_PAGEOBJ_IMAGE], max_depth=4):
        width, height = image.get_px_size()
        largest = max(largest, width * height)
    return largest


def ink_share(page: Any) -> float:
    """Share of pixels that differ from the page's background, at 24 dpi."""
    longest = max(page.get_size()) or 1.0
    scale = min(_INK_DPI / 72, 1000 / longest)
    histogram = page.render(scale=scale, grayscale=True, may_draw_forms=True).to_pil().histogram()
    background = max(range(len(histogram)), key=histogram.__getitem__)
    return float(sum(n for grey, n in enumerate(histogram) if abs(grey - background) > 48) / (sum(histogram) or 1))


def _visible_share(page: Any) -> float:
    total = visible = 0
    for text in page.get_objects(filter=[pdfium_c.FPDF_PAGEOBJ_TEXT], max_depth=4):
        total += 1
        visible += pdfium_c.FPDFTextObj_GetTextRenderMode(text.raw) != pdfium_c.FPDF_TEXTRENDERMODE_INVISIBLE
        if total >= 400:
            break
    return visible / total if total else 1.0


def _if_drawable(page: Any, decision: Decision) -> Decision:
    if image_pixels(page) > MAX_IMAGE_PIXELS:
        return Decision("text", "image-too-large")
    return decision
