"""Which pages of a PDF need OCR: rules over text layer, pictures and ink of a page, never the whole file."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import pypdfium2.raw as pdfium_c

from pipelines.extract.pdf.lines import TextLayer

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
_LATIN = re.compile(r"[A-Za-z]+")
_VOWELS = frozenset("aeiouyAEIOUY")
_OTHER_SCRIPT = re.compile(r"[\u0370-\u1fff\u2c00-\ufffd\U00010000-\U0010ffff]")
# U+0002 and U+FFFE mark hyphens in pdfium's text; U+F000 to U+F0FF are bullets of symbol fonts.
_NEVER_BAD = re.compile(r"[\s\x02\ufffe\uf000-\uf0ff]+")
_RARE = re.compile(
    r"[^\s!-~\xa1-\u024f\u0370-\u0373\u0386-\u0389\u038e-\u03a1\u03a3-\u052f\u2010-\u2027\u2030-\u205e\u20ac\x02\ufffe]+"
)


def _kind(char: str) -> str:
    if char.isalpha():
        return ("e" if char in _VOWELS else "a") if char.islower() else "E" if char in _VOWELS else "A"
    return "0" if char.isdigit() else " " if char.isspace() else "."


# Each ASCII character as the kind it is of: lower and upper consonants and vowels, digits, spaces, others. What a
# page consists of is then counted in C.
_KNOWN = (b"a", b"e", b"A", b"E", b"0")
_KINDS = "".join(map(_kind, map(chr, range(128)))).encode() + b"." * 128
_CASES = _KINDS.translate(bytes.maketrans(b"aeAE0.", b"aaAA  "))
_SOUND_ASCII = bytes(code for code in range(128) if chr(code).isprintable() or chr(code) in "\t\n\r\x0b\x0c\x02")
# What bad OCR puts into words, and formulas do not.
_POOR = re.compile(r"[^\W_][«»^£*§¥©®°¬¦;]+[^\W_]|[^\W\d_]&[a-z]|[a-z]{2}[A-Z]{2}")


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with a page, and the name of the rule that said so."""

    verdict: Verdict
    reason: str


def decide(page: Any, text: str, layer: TextLayer | None = None) -> Decision:
    """Judge one page.

    Args:
        page: a `pypdfium2.PdfPage`.
        text: its text layer.
        layer: where `text` is from; with it, the pictures of a page with much text need not be looked at.
    """
    judged, chars = _judge(text)
    if judged is not None:
        return _if_drawable(page, Decision("ocr", judged))
    if chars >= STAMP_CHARS and layer is not None:
        if not _is_invisible(layer.raw, len(text)):
            return Decision("text", "text-layer")
        if is_poor_layer(text):
            return _if_drawable(page, Decision("ocr", "poor-layer"))
        return Decision("text", "ocr-layer")
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
    """Why a text layer cannot be trusted, else None.

    `cid`, `garbage`, `garbage-symbols`, `garbage-words`: it says nothing. `improbable-letters`: it may be in
    another code than it says (each letter stands for another), or hold no words of a language.
    """
    return _judge(text)[0]


def _judge(text: str) -> tuple[str | None, int]:
    """What `judge_text` says, and the number of characters that are no white space."""
    plain = text.encode("ascii", "replace")
    kinds = plain.translate(_KINDS)
    chars = len(kinds) - kinds.count(b" ")
    if chars < STAMP_CHARS and not text.isascii():
        # White space of other kinds was counted, too.
        chars = len("".join(text.split()))
    return _verdict(text, plain, kinds, chars), chars


def _verdict(text: str, plain: bytes, kinds: bytes, chars: int) -> str | None:
    if chars >= MIN_CHARS and "(cid:" in text and len(_CID.findall(text)) * 6 > chars * 0.2:
        return "cid"
    odd = odd_characters(text)
    bad = _bad_count(odd) / chars if odd and chars else 0.0
    if bad >= 0.25 or (chars >= 100 and bad >= 0.02):
        return "garbage"
    if chars >= 40 and 2 * sum(map(kinds.count, _KNOWN)) < chars and alphanumeric_share(text) < 0.35:
        return "garbage-symbols"
    # Words of one case are sound unless scripts are mixed in them.
    if plain.translate(_CASES).count(b"aA") >= 8 or (odd and _OTHER_SCRIPT.search(odd)):
        words = _WORD.findall(text)
        if len(words) >= 20 and sum(map(_is_broken, words)) > 0.4 * len(words):
            return "garbage-words"
    return "improbable-letters" if chars >= 80 and _has_few_vowels(text, kinds, chars) else None


def odd_characters(text: str) -> str:
    """The characters of a text that ASCII has not, or should not have."""
    return text.encode("utf-8", "surrogatepass").translate(None, _SOUND_ASCII).decode("utf-8", "surrogatepass")


def _bad_count(odd: str) -> int:
    """Number of characters that no text holds: private use, replacement, controls, unassigned, surrogates."""
    rare = _NEVER_BAD.sub("", "".join(_RARE.findall(odd)))
    return sum(char == "\ufffd" or unicodedata.category(char) in {"Cc", "Cn", "Co", "Cs"} for char in rare)


def _has_few_vowels(text: str, kinds: bytes, chars: int) -> bool:
    vowels = kinds.count(b"e") + kinds.count(b"E")
    if vowels >= 0.2 * chars:
        return False
    capitals = kinds.count(b"A") + kinds.count(b"E")
    letters = capitals + kinds.count(b"a") + kinds.count(b"e")
    # Of letters that stand for others 15 to 20 % look like vowels, and they are capitals where the shift is the
    # usual one; of any European language 33 % and more are vowels.
    most = 0.22 if capitals > 0.5 * letters else 0.12
    plain = letters >= 80 and letters >= 0.5 * chars and vowels < most * letters
    return plain and letters >= 3 * len(_LATIN.findall(text))


def alphanumeric_share(text: str) -> float:
    """Share of letters, digits and marks of any script, leader rules (`.....`) left out."""
    text = "".join(_LEADER.sub("", text).split())
    good = sum(char.isalnum() or unicodedata.category(char)[0] == "M" for char in text)
    return good / len(text) if text else 0.0


def word_count(text: str) -> int:
    """Number of words that look like words: two letters or more, one script, no capital inside."""
    return sum(not _is_broken(word) for word in _WORD.findall(text))


def plausible_count(text: str) -> int:
    """Number of words of three letters or more that could be spoken."""
    words = (word for word in _WORD.findall(text) if len(word) >= 3 and not _is_broken(word))
    return sum(not word.isascii() or sum(char in _VOWELS for char in word) >= 0.2 * len(word) for word in words)


def poor_share(text: str) -> float:
    """Share of words with a sign inside that only bad OCR puts there."""
    return len(_POOR.findall(text)) / (text.count(" ") + 1)


def is_poor_layer(text: str) -> bool:
    """Whether the text layer of an OCR program is so bad that another may read the page better."""
    return len(_POOR.findall(text)) >= 4 and poor_share(text) >= 0.02


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
    # Counted in bytes: Pillow takes longer to import than most pages to read.
    bitmap = page.render(scale=scale, grayscale=True, may_draw_forms=True)
    width, stride = bitmap.width, bitmap.stride
    pixels = bytes(bitmap.buffer)
    if stride != width:
        pixels = b"".join(pixels[row * stride : row * stride + width] for row in range(bitmap.height))
    bitmap.close()
    background = max(set(pixels), key=pixels.count, default=255)
    near = bytes(range(max(0, background - 48), min(255, background + 48) + 1))
    return len(pixels.translate(None, near)) / (len(pixels) or 1)


def _is_invisible(handle: Any, length: int) -> bool:
    """Whether text is drawn invisibly, as OCR programs do, by three samples of it."""
    hidden = 0
    for share in (0.2, 0.5, 0.8):
        drawn = pdfium_c.FPDFText_GetTextObject(handle, int(length * share))
        if drawn and pdfium_c.FPDFTextObj_GetTextRenderMode(drawn) == pdfium_c.FPDF_TEXTRENDERMODE_INVISIBLE:
            hidden += 1
    return hidden >= 2


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
