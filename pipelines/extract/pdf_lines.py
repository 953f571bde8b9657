"""From the lines of PDF pages to headings, paragraphs, list items and tables, by size, weight and place."""

from __future__ import annotations

import ctypes
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pypdfium2.raw as pdfium_c

from pipelines.extract.ocr import join_lines
from pipelines.types import Block, BlockKind

_LIST_ITEM = re.compile(r"^(?:[•◦▪‣●○■□–—*·\uf0b7\uf0a7]|-|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,5})[.)])\s+\S")
_SENTENCE_END = re.compile(r"[.!?:;…][\"'»”’)\]]*$")
_HEADING_SIZE = 1.15
_LONGEST_HEADING = 200
_MAX_HEADING_SHARE = 0.3
_BOLD = 600


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a page's text layer, in points as the reader sees the page (origin bottom left).

    Attributes:
        size: font size; 0 where unknown.
        bold: whether all of it is.
        columns: how many pieces wide gaps part it into.
        upright: whether it runs as the reader reads, not up or down the margin.
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


def page_lines(page: Any, textpage: Any, text: str, number: int) -> list[Line]:
    """The lines of a page with their geometry.

    Args:
        page, textpage: as pypdfium2 opened them.
        text: `textpage.get_text_range()`; its line breaks are `\\r\\n`.
        number: 1-based page number.
    """
    rotation = page.get_rotation()
    lines = []
    position = 0
    for raw in text.split("\r\n"):
        stripped = raw.strip()
        if stripped:
            start = pdfium_c.FPDFText_GetCharIndexFromTextIndex(textpage.raw, position + len(raw) - len(raw.lstrip()))
            lines.append(_measure(textpage.raw, stripped, start, number, rotation))
        position += len(raw) + 2
    return lines


def _measure(handle: Any, text: str, start: int, number: int, rotation: int) -> Line:
    boxes = _boxes(handle, start, len(text), rotation)
    sizes, weights, upright = [], [], True
    for index in sorted({start, start + len(text) // 2, start + max(0, len(text) - 2)}):
        matrix = pdfium_c.FS_MATRIX()
        if start >= 0 and pdfium_c.FPDFText_GetMatrix(handle, index, matrix):
            size = pdfium_c.FPDFText_GetFontSize(handle, index) * (matrix.c**2 + matrix.d**2) ** 0.5
            sizes.append(size)
            upright = (abs(matrix.a) >= abs(matrix.b)) == (rotation in {0, 180})
            weights.append(pdfium_c.FPDFText_GetFontWeight(handle, index))
    size = statistics.median(sizes) if sizes else 0.0
    if not boxes:
        return Line(text, number, size=size, upright=upright)
    gaps = [
        after[0] - before[2] for before, after in pairwise(sorted(boxes)) if abs(after[1] - before[1]) < max(size, 1.0)
    ]
    return Line(
        text,
        number,
        left=boxes[0][0],
        right=boxes[-1][2],
        bottom=boxes[0][1],
        last_bottom=boxes[-1][1],
        size=size,
        bold=bool(weights) and min(weights) >= _BOLD,
        columns=1 + sum(gap > 1.5 * size for gap in gaps if size),
        upright=upright,
    )


def _boxes(handle: Any, start: int, length: int, rotation: int) -> list[tuple[float, float, float, float]]:
    """Left, bottom, right, top of the pieces of a line, turned as the page is shown."""
    if start < 0:
        return []
    boxes = []
    left, top, right, bottom = (ctypes.c_double() for _ in range(4))
    for index in range(pdfium_c.FPDFText_CountRects(handle, start, length)):
        if pdfium_c.FPDFText_GetRect(handle, index, left, top, right, bottom):
            box = (left.value, bottom.value, right.value, top.value)
            boxes.append(_turned(box, rotation))
    return boxes


def _turned(box: tuple[float, float, float, float], rotation: int) -> tuple[float, float, float, float]:
    left, bottom, right, top = box
    if rotation == 90:
        return bottom, -right, top, -left
    if rotation == 180:
        return -right, -top, -left, -bottom
    if rotation == 270:
        return -top, left, -bottom, right
    return box


def lines_to_blocks(lines: Sequence[Line]) -> list[Block]:
    """Gather the lines of a whole document into blocks; each block stays on one page."""
    body = _body_size(lines)
    body_bold = sum(len(line.text) for line in lines if line.bold) > 0.5 * sum(len(line.text) for line in lines)
    groups = [_Group(tuple(group), body, body_bold) for group in _grouped(lines)]
    heading_chars = sum(len(group.text) for group in groups if group.is_heading)
    use_headings = heading_chars <= _MAX_HEADING_SHARE * sum(len(group.text) for group in groups) or len(groups) <= 4
    sizes = sorted({round(group.size) for group in groups if group.is_heading and group.size > body}, reverse=True)
    levels = {size: min(level, 4) for level, size in enumerate(sizes, 1)}
    blocks = []
    for group in groups:
        if use_headings and group.is_heading:
            level = (
                levels.get(round(group.size), min(len(levels) + 1, 5)) if group.size > body else min(len(levels) + 1, 5)
            )
            blocks.append(Block("heading", group.text, level=level, page=group.page))
        else:
            blocks.append(Block(group.kind, group.text, page=group.page))
    return blocks


@dataclass(frozen=True, slots=True)
class _Group:
    lines: tuple[Line, ...]
    body: float
    body_bold: bool

    @property
    def page(self) -> int:
        return self.lines[0].page

    @property
    def size(self) -> float:
        return statistics.median(line.size for line in self.lines)

    @property
    def is_table(self) -> bool:
        return len(self.lines) >= 2 and sum(line.columns > 1 for line in self.lines) > 0.5 * len(self.lines)

    @property
    def kind(self) -> BlockKind:
        if self.is_table:
            return "table"
        return "list" if _LIST_ITEM.match(self.lines[0].text) else "paragraph"

    @property
    def text(self) -> str:
        if self.is_table:
            return "\n".join(line.text for line in self.lines)
        return join_lines([line.text for line in self.lines])

    @property
    def is_heading(self) -> bool:
        text = self.text
        if (
            not self.body
            or len(self.lines) > 3
            or len(text) > _LONGEST_HEADING
            or self.is_table
            or not self.lines[0].upright
        ):
            return False
        if sum(char.isalpha() for char in text) < 2 or any(line.columns > 2 for line in self.lines):
            return False
        if self.size >= _HEADING_SIZE * self.body:
            return True
        bold = all(line.bold for line in self.lines) and not self.body_bold
        return bold and len(text) <= 120 and self.size >= 0.95 * self.body and text[-1] not in ".,;:"


def _body_size(lines: Sequence[Line]) -> float:
    """The font size that most characters have."""
    weight: dict[float, int] = {}
    for line in lines:
        if line.size:
            key = round(line.size * 2) / 2
            weight[key] = weight.get(key, 0) + len(line.text)
    return max(weight, key=weight.__getitem__) if weight else 0.0


def _grouped(lines: Sequence[Line]) -> Iterator[list[Line]]:
    group: list[Line] = []
    for line in lines:
        if group and not _continues(group, line):
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _continues(group: list[Line], line: Line) -> bool:
    """Whether `line` goes on with the paragraph (or table) of `group`."""
    last = group[-1]
    if line.page != last.page:
        return False
    if not (line.size and last.size):
        return not _LIST_ITEM.match(line.text) and len(last.text) > 40
    table = last.columns > 1 and line.columns > 1
    size = max(line.size, last.size)
    drop = last.last_bottom - line.bottom
    if drop < -0.5 * size or drop > 8 * size:
        # Another column, or elsewhere on the page: a sentence may still run on.
        return not table and not _SENTENCE_END.search(last.text) and line.text[:1].islower() and _alike(last, line)
    if abs(drop) <= 0.5 * size:
        # The same line of the page: a superscript, a page number, the next cell.
        return True
    if table:
        return drop < 3 * size
    if last.columns > 1 or line.columns > 1:
        return False
    if not _alike(last, line) or _LIST_ITEM.match(line.text):
        return False
    pitch = group[-2].last_bottom - last.bottom if len(group) > 1 else 1.65 * size
    if drop > max(1.2 * pitch, 1.25 * size) or drop > 2.2 * size:
        return False
    if _SENTENCE_END.search(last.text) and line.left > last.left + 0.8 * size and len(group) > 1:
        return False
    widest = max(member.right for member in group)
    short = last.right < line.left + 0.75 * (max(widest, line.right) - line.left)
    return not (short and (_SENTENCE_END.search(last.text) or not line.text[:1].islower()))


def _alike(one: Line, other: Line) -> bool:
    return abs(one.size - other.size) <= 0.12 * max(one.size, other.size) and one.bold == other.bold
