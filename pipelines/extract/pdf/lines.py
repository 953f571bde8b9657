"""The lines of a PDF page's text layer, with their place, size and weight."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import pypdfium2.raw as pdfium_c
from pypdfium2 import PdfiumError

_BOLD = 600
_WIDE_GAP = 1.5  # font sizes; words of justified text stand closer


def direct(function: Any, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A pdfium function without pypdfium2's checks of its arguments, which take as long as the call itself."""
    return ctypes.PYFUNCTYPE(result, *arguments)(ctypes.cast(function, ctypes.c_void_p).value or 0)


INT, ADDRESS = ctypes.c_int, ctypes.c_void_p
_count_rects = direct(pdfium_c.FPDFText_CountRects, INT, ADDRESS, INT, INT)
_get_rect = direct(pdfium_c.FPDFText_GetRect, INT, ADDRESS, INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS)
_get_origin = direct(pdfium_c.FPDFText_GetCharOrigin, INT, ADDRESS, INT, ADDRESS, ADDRESS)
_get_matrix = direct(pdfium_c.FPDFText_GetMatrix, INT, ADDRESS, INT, ADDRESS)
_get_size = direct(pdfium_c.FPDFText_GetFontSize, ctypes.c_double, ADDRESS, INT)
_get_weight = direct(pdfium_c.FPDFText_GetFontWeight, INT, ADDRESS, INT)
_get_box = direct(pdfium_c.FPDFText_GetCharBox, INT, ADDRESS, INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS)
Box = tuple[float, float, float, float]  # left, bottom, right, top


class Line(NamedTuple):
    """One line of a page's text layer, in points as the reader sees the page (origin bottom left).

    Where pdfium joined a word cut by a hyphen, it is two or more lines of the page.

    Attributes:
        left: of all of it.
        right: of its last line on the page.
        bottom, last_bottom: base line of its first and its last line on the page.
        size: font size; 0 where unknown.
        bold: whether all of it is.
        columns: how many pieces wide gaps part it into.
        upright: whether it runs as the reader reads, not up or down the margin.
        start: index of its first character in the page's text; -1 where unknown.
        level: heading level that the document's outline gives it, else 0; -1: it is none.
        table: it is a whole table, as Markdown.
        crowded: pieces of it stand on each other.
        hidden: kinds of text in it that people do not see.
    """

    text: str
    page: int
    left: float = 0.0
    right: float = 0.0
    bottom: float = 0.0
    last_bottom: float = 0.0
    size: float = 0.0
    bold: bool = False
    columns: int = 1
    upright: bool = True
    start: int = -1
    level: int = 0
    table: bool = False
    crowded: bool = False
    hidden: tuple[str, ...] = ()


def median(values: Iterable[float]) -> float:
    """The upper median; `statistics` takes long to import.

    Raises:
        IndexError: there is no value.
    """
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


class TextLayer:
    """The text layer of a page, open until it is closed; pypdfium2's own takes as long to set up as to read.

    Attributes:
        raw: pdfium's handle.
        text: all of it; its line breaks are `\\r\\n`.
    """

    def __init__(self, page: Any) -> None:
        self.raw = pdfium_c.FPDFText_LoadPage(page.raw)
        if not self.raw:
            raise PdfiumError("the text of the page cannot be loaded")
        count = pdfium_c.FPDFText_CountChars(self.raw)
        self.text = ""
        if count > 0:
            # pdfium leaves out characters it has no text for, puts in others, and does not ask how long the buffer
            # is. Where the last one is left out, nothing says how many there will be.
            last = pdfium_c.FPDFText_GetTextIndexFromCharIndex(self.raw, count - 1)
            buffer = (ctypes.c_ushort * (2 + (max(count, last + 1) if last >= 0 else 4 * count)))()
            length = pdfium_c.FPDFText_GetText(self.raw, 0, count, buffer) - 1
            self.text = bytes(memoryview(buffer)[: max(0, length)]).decode("utf-16-le", "ignore")

    def close(self) -> None:
        """Release it; once."""
        pdfium_c.FPDFText_ClosePage(self.raw)


def page_lines(layer: TextLayer, number: int, ruler: Ruler) -> list[Line]:
    """The lines of a page with their geometry.

    Args:
        number: 1-based page number.
        ruler: measures its characters.
    """
    text = layer.text
    lines = []
    position = 0
    # pdfium counts in UTF-16.
    narrow = text.isascii() or len(text.encode("utf-16-le", "surrogatepass")) == 2 * len(text)
    same = narrow and pdfium_c.FPDFText_CountChars(layer.raw) == len(text)
    simple = same and not ruler.rotation
    handle, values, matrix = ruler.handle, ruler.values, ruler.matrix
    first, second, third, fourth, into = ruler.addresses
    for raw in text.split("\r\n"):
        stripped = raw.strip()
        length = len(raw)
        if stripped:
            inner = len(stripped)
            start = position if inner == length else position + length - len(raw.lstrip())
            if not same:
                start = pdfium_c.FPDFText_GetCharIndexFromTextIndex(layer.raw, start)
            pieces = _count_rects(handle, start, inner) if start >= 0 else 0
            if simple and pieces == 1:
                # One piece, on a page that is not turned: most lines are, so this is written out.
                _get_rect(handle, 0, first, second, third, fourth)
                left, _, right, _ = values
                _get_origin(handle, start, first, second)
                bottom = values[1]
                size, upright = 0.0, True
                if _get_matrix(handle, start, into):
                    b, c = matrix.b, matrix.c
                    size = _get_size(handle, start) * (abs(matrix.d) if c == 0 else (c * c + matrix.d**2) ** 0.5)
                    upright = b == 0 or abs(matrix.a) >= abs(b)
                bold = _get_weight(handle, start) >= _BOLD
                measured = (stripped, number, left, right, bottom, bottom, size, bold)
                # A named tuple's own constructor takes three times as long.
                lines.append(tuple.__new__(Line, (*measured, 1, upright, start, 0, False, False, ())))
            else:
                if pieces > 1:
                    ruler.parted.add(start)
                lines.append(ruler.measure(stripped, start, number, pieces))
        position += (length if narrow else len(raw.encode("utf-16-le", "surrogatepass")) // 2) + 2
    return lines


class Ruler:
    """Measures characters of one page. A call into pdfium costs a third of a microsecond: few are made a line.

    Attributes:
        parted: starts of the lines that were drawn in more than one piece.
    """

    def __init__(self, layer: TextLayer, rotation: int) -> None:
        self.rotation = rotation
        self.parted: set[int] = set()
        # The handle is only an address below: whoever holds the ruler must hold the page's text open.
        self.handle = ctypes.cast(layer.raw, ADDRESS).value
        # pdfium writes its answers here; the addresses are those of the four numbers and of the matrix.
        self.values = (ctypes.c_double * 4)()
        self.matrix = pdfium_c.FS_MATRIX()
        start = ctypes.addressof(self.values)
        self.addresses = (start, start + 8, start + 16, start + 24, ctypes.addressof(self.matrix))

    def measure(self, text: str, start: int, number: int, count: int) -> Line:
        """The line that `text` is, whose first character has the index `start`.

        Args:
            count: of its pieces, that pdfium was asked for last.
        """
        if start < 0:
            return Line(text, number)
        handle, length = self.handle, len(text)
        size, upright = self._size(start)
        bold = _get_weight(handle, start) >= _BOLD
        boxes = self._boxes(count)
        if not boxes:
            return Line(text, number, size=size, upright=upright, start=start)
        left, _, right_end, _ = boxes[0]
        bottom = last = self.origin(start)[1]
        columns, crowded = 1, False
        if count > 1:
            middle, _ = self._size(start + length // 2)
            end, _ = self._size(start + length - 2)
            size = sorted((size, middle, end))[1]
            bold = bold and _get_weight(handle, start + length - 2) >= _BOLD
            left, right_end = min(box[0] for box in boxes), max(box[2] for box in boxes)
            if "\ufffe" in text or "\x02" in text:
                last = self.origin(start + length - 1)[1]
                right_end = max(box[2] for box in boxes if box[1] <= boxes[-1][3])
            columns += _wide_gaps(boxes, size)
            crowded = any(
                after[0] < before[2] - size and abs(after[1] - before[1]) < size for before, after in pairwise(boxes)
            )
        return Line(text, number, left, right_end, bottom, last, size, bold, columns, upright, start, 0, False, crowded)

    def origin(self, index: int) -> tuple[float, float]:
        """Where a character stands on its base line."""
        _get_origin(self.handle, index, *self.addresses[:2])
        return self._turned_point(self.values[0], self.values[1])

    def box(self, index: int) -> Box:
        """Left, bottom, right, top of a character's ink."""
        return turned(self.raw_box(index), self.rotation)

    def raw_box(self, index: int) -> Box:
        """The same as the page has it before it is turned."""
        _get_box(self.handle, index, *self.addresses[:4])
        left, right, bottom, top = self.values
        return left, bottom, right, top

    def _size(self, index: int) -> tuple[float, bool]:
        matrix = self.matrix
        if not _get_matrix(self.handle, index, self.addresses[4]):
            return 0.0, True
        scale = (matrix.c**2 + matrix.d**2) ** 0.5
        return _get_size(self.handle, index) * scale, (abs(matrix.a) >= abs(matrix.b)) == (self.rotation in {0, 180})

    def _boxes(self, count: int) -> list[Box]:
        """Boxes of the pieces of the line that was counted last."""
        boxes = []
        for index in range(count):
            if _get_rect(self.handle, index, *self.addresses[:4]):
                left, top, right, bottom = self.values
                box = (left, bottom, right, top)
                boxes.append(turned(box, self.rotation) if self.rotation else box)
        return boxes

    def _turned_point(self, x: float, y: float) -> tuple[float, float]:
        if not self.rotation:
            return x, y
        return {90: (y, -x), 180: (-x, -y), 270: (-y, x)}.get(self.rotation, (x, y))


def _wide_gaps(boxes: list[Box], size: float) -> int:
    if not size:
        return 0
    wide = _WIDE_GAP * size
    return sum(
        after[0] - before[2] > wide and abs(after[1] - before[1]) < size for before, after in pairwise(sorted(boxes))
    )


def turned(box: Box, rotation: int) -> Box:
    """A box of a page as the reader sees it, where the page is turned by so many degrees."""
    left, bottom, right, top = box
    if rotation == 90:
        return bottom, -right, top, -left
    if rotation == 180:
        return -right, -top, -left, -bottom
    if rotation == 270:
        return -top, left, -bottom, right
    return box
