"""Which lines of a PDF page people do not see: without ink, transparent, white on white, tiny, off the page."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

import pypdfium2.raw as pdfium_c

from pipelines.extract.pdf.lines import ADDRESS, INT, Box, Line, Ruler, direct
from pipelines.hidden import INVISIBLE, OUTSIDE, TINY, TRANSPARENT, WHITE, merge

_WORD = re.compile(r"\S+")
_NO_INK = frozenset({pdfium_c.FPDF_TEXTRENDERMODE_INVISIBLE, pdfium_c.FPDF_TEXTRENDERMODE_CLIP})
_FAINT = 13  # of 255: five per cent
_NEAR_WHITE = 245
_WHOLE_PAGE = 0.5
_WORDS_LOOKED_AT = 100  # of one line
_LONGEST_PICTURE = 1_200  # pixels
_get_object = direct(pdfium_c.FPDFText_GetTextObject, ADDRESS, ADDRESS, INT)
_get_mode = direct(pdfium_c.FPDFTextObj_GetTextRenderMode, INT, ADDRESS)
_get_fill = direct(pdfium_c.FPDFPageObj_GetFillColor, INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS)


def mark_unseen(lines: Sequence[Line], page: Any, ruler: Ruler, box: Box) -> list[Line]:
    """The lines, those marked that hold text nobody sees.

    The text that an OCR program laid over a picture has no ink and hides nothing: what is invisible counts only where
    no picture is. White text is looked at on the drawn page, since most of it stands on a dark ground.

    Args:
        ruler: that measured the lines.
        box: left, bottom, right, top of the page, as `ruler` turns it.
    """
    look = _Look(page, ruler)
    found = list(lines)
    handle, parted, values = ruler.handle, ruler.parted, look.colour
    red, green, blue, opacity = look.addresses
    left, bottom, right, top = box
    # Most lines are drawn at once, in ink: this is written out for them.
    for index, line in enumerate(lines):
        start = line.start
        if start < 0:
            continue
        drawn = _get_object(handle, start)
        suspect = (
            start in parted
            or not drawn
            or _get_mode(drawn) in _NO_INK
            or not _get_fill(drawn, red, green, blue, opacity)
            or values[0] >= _NEAR_WHITE
            or values[3] < _FAINT
        )
        if suspect or line.size < 1 or line.left > right or line.right < left or not bottom <= line.bottom <= top:
            kinds = look.kinds(line, box)
            if kinds:
                found[index] = line._replace(hidden=kinds)
    return found


class _Look:
    """A page, with what is found out about it once it is asked for.

    Attributes:
        colour: where pdfium writes red, green, blue and opacity, 0 to 255.
    """

    def __init__(self, page: Any, ruler: Ruler) -> None:
        self._page = page
        self._ruler = ruler
        self.colour = (ctypes.c_uint * 4)()
        start = ctypes.addressof(self.colour)
        self.addresses = (start, start + 4, start + 8, start + 12)
        self._pictures: list[Box] | None = None
        self._drawn: tuple[bytes, int, int, int] | None = None

    def kinds(self, line: Line, box: Box) -> tuple[str, ...]:
        """What hides text of the line, on a page of a size."""
        if not any(map(str.isalnum, line.text)):
            return ()
        start = line.start
        found = self._pieces(line) if start in self._ruler.parted else self._piece(start, len(line.text))
        left, bottom, right, top = box
        beside = line.left > right or line.right < left or line.bottom > top or line.bottom + line.size < bottom
        if beside and line.right > line.left:
            found = merge(found, (OUTSIDE,))
        if 0 < line.size < 1 and self._height(start) < 1:
            found = merge(found, (TINY,))
        return found

    def _pieces(self, line: Line) -> tuple[str, ...]:
        """Of a line in more than one piece, by the first letter of each word."""
        found: tuple[str, ...] = ()
        handle, values, begin, before = self._ruler.handle, self.colour, line.start, None
        red, green, blue, opacity = self.addresses
        for word in islice(_WORD.finditer(line.text), _WORDS_LOOKED_AT):
            at = begin + word.start()
            drawn = _get_object(handle, at)
            if drawn == before or not drawn:
                continue
            before = drawn
            if (
                _get_mode(drawn) in _NO_INK
                or not _get_fill(drawn, red, green, blue, opacity)
                or values[0] >= _NEAR_WHITE
                or values[3] < _FAINT
            ):
                found = merge(found, self._piece(at, word.end() - word.start()))
        return found

    def _piece(self, index: int, length: int) -> tuple[str, ...]:
        """What hides text that is drawn at once, whose first character has the index."""
        drawn = _get_object(self._ruler.handle, index)
        if not drawn:
            return ()
        if _get_mode(drawn) in _NO_INK:
            return () if self._on_picture(index) else (INVISIBLE,)
        if not _get_fill(drawn, *self.addresses):
            return ()
        values = self.colour
        if values[3] < _FAINT:
            return (TRANSPARENT,)
        white = values[0] >= _NEAR_WHITE and values[1] >= _NEAR_WHITE and values[2] >= _NEAR_WHITE
        return (WHITE,) if white and self._on_white(index, length) else ()

    def _height(self, index: int) -> float:
        _, bottom, _, top = self._ruler.box(index)
        return top - bottom

    def _on_picture(self, index: int) -> bool:
        if self._pictures is None:
            width, height = self._page.get_size()
            self._pictures = []
            total = 0.0
            for image in self._page.get_objects(filter=[pdfium_c.FPDF_PAGEOBJ_IMAGE], max_depth=4):
                left, bottom, right, top = bounds = image.get_bounds()
                self._pictures.append(bounds)
                total += max(0.0, right - left) * max(0.0, top - bottom)
            if total >= _WHOLE_PAGE * width * height:
                # A scan, in strips or as a whole, whatever way its page is turned.
                self._pictures = [(-1e9, -1e9, 1e9, 1e9)]
        left, bottom, right, top = self._raw_box(index, 1)
        x, y = (left + right) / 2, (bottom + top) / 2
        return any(one[0] <= x <= one[2] and one[1] <= y <= one[3] for one in self._pictures)

    def _raw_box(self, index: int, length: int) -> Box:
        """Left, bottom, right, top of some characters, by the first and the last of them."""
        first, last = self._ruler.raw_box(index), self._ruler.raw_box(index + length - 1)
        return min(first[0], last[0]), min(first[1], last[1]), max(first[2], last[2]), max(first[3], last[3])

    def _on_white(self, index: int, length: int) -> bool:
        """Whether most of the drawn page is white where the characters are."""
        if self._drawn is None:
            width, height = self._page.get_size()
            scale = min(1.0, _LONGEST_PICTURE / (max(width, height) or 1.0))
            bitmap = self._page.render(scale=scale, grayscale=True, may_draw_forms=False)
            self._drawn = (bytes(bitmap.buffer), bitmap.width, bitmap.height, bitmap.stride)
            bitmap.close()
        pixels, width, height, stride = self._drawn
        left, bottom, right, top = self._raw_box(index, length)
        x, y = ctypes.c_int(), ctypes.c_int()
        corners = []
        for one in ((left, bottom), (right, top)):
            pdfium_c.FPDF_PageToDevice(self._page.raw, 0, 0, width, height, 0, *one, ctypes.byref(x), ctypes.byref(y))
            corners.append((x.value, y.value))
        (x0, x1), (y0, y1) = (sorted(axis) for axis in zip(*corners, strict=True))
        x0, y0, x1, y1 = max(x0, 0), max(y0, 0), min(x1 + 1, width), min(y1 + 1, height)
        area = b"".join(pixels[row * stride + x0 : row * stride + x1] for row in range(y0, y1))
        near = sum(area.count(shade) for shade in range(_NEAR_WHITE, 256))
        # Nothing of it on the page is as good as nothing seen of it.
        return near * 2 >= len(area)
